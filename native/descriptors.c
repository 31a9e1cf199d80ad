#include "descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

int above_stdio(int fd)
{
    int higher, error;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    /* close may change errno, which the caller reads if there is no copy. */
    error = errno;
    close(fd);
    errno = error;
    return higher;
}

int write_all(int fd, const void *data, size_t n)
{
    const unsigned char *at = data;

    while (n) {
        ssize_t written = write(fd, at, n);
        if (written >= 0) {
            at += written;
            n -= (size_t)written;
        /* Standard output may be shared with a process that made it non-blocking. */
        } else if (errno == EAGAIN) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1000LL * now.tv_sec + now.tv_nsec / 1000000;
}
