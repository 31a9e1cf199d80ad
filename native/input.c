#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "descriptors.h"
#include "errors.h"
#include "wire.h"

static int source = -1;
static uint64_t left; /* bytes that may still be sent */

static struct bytes stdin_content; /* read so far: a repeated request asks for it again */
static bool has_stdin_ended;       /* a terminal must not be read twice */

int input_fd(void)
{
    return source;
}

void end_input(void)
{
    if (source > STDIN_FILENO)
        close(source);
    source = -1;
}

static void send_unreadable(int error)
{
    char text[512];

    send_frame('X', text, (size_t)snprintf(text, sizeof text, "%d %s", error, error_text(error)));
}

static void begin_input(int fd, uint32_t limit)
{
    source = fd;
    left = limit ? (uint64_t)limit + 1 : UINT64_MAX;
}

void begin_stdin(uint32_t limit)
{
    begin_input(STDIN_FILENO, limit);
    for (size_t at = 0; at < stdin_content.length && left;) {
        size_t n = stdin_content.length - at < PIECE ? stdin_content.length - at : PIECE;
        if (n > left)
            n = (size_t)left;
        send_frame('D', stdin_content.data + at, n);
        at += n;
        left -= n;
    }
    if (has_stdin_ended || !left) {
        source = -1;
        send_frame('Z', NULL, 0);
    }
}

void begin_file(uint32_t limit, const unsigned char *name, size_t n)
{
    char *path = malloc(n + 1);
    struct stat found;
    int fd;

    if (!path)
        fail("out of memory");
    memcpy(path, name, n);
    path[n] = 0;
    /* Opening a named pipe would wait for a writer. A pipe of the shell, /dev/fd/63, is a link. */
    if (strlen(path) == n && !lstat(path, &found) && S_ISFIFO(found.st_mode)) {
        static const char text[] = "22 it is a named pipe; pipe its content in with --stdin";
        free(path);
        send_frame('X', text, sizeof text - 1);
        return;
    }
    errno = EINVAL; /* a name with a NUL cannot name a file */
    /* O_NOCTTY: a process that leads a session without a terminal would get the opened one, and its signals. */
    fd = strlen(path) == n ? above_stdio(open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC)) : -1;
    free(path);
    if (fd < 0)
        send_unreadable(errno);
    else
        begin_input(fd, limit);
}

void send_input(void)
{
    static unsigned char piece[PIECE];
    size_t want = left < PIECE ? (size_t)left : PIECE;
    ssize_t n = read(source, piece, want);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0) {
        int error = errno;
        end_input();
        send_unreadable(error);
        return;
    }
    if (source == STDIN_FILENO) {
        /* Kept, because it cannot be read again for the next daemon. A file is simply opened again. */
        add_bytes(&stdin_content, piece, (size_t)n);
        has_stdin_ended = !n;
    }
    left -= (uint64_t)n;
    if (n && !send_frame('D', piece, (size_t)n)) {
        end_input(); /* the daemon is lost */
        return;
    }
    if (!n || !left) {
        end_input();
        send_frame('Z', NULL, 0);
    }
}
