#include "connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "call.h"
#include "descriptors.h"
#include "errors.h"
#include "home.h"

enum {
    END_LIMIT_MS = 10000,   /* for a daemon that is stepping down to end */
    LISTEN_LIMIT_MS = 5000, /* for a running daemon to listen: it is starting, or its socket was removed */
    UPGRADE_LIMIT_MIN = 10, /* for a daemon that upgrades the log of an older version */
};

static const char SOCKET[] = "/daemon.sock"; /* in the home */

static int open_socket(void)
{
#ifdef __linux__
    return above_stdio(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
#else
    int fd = above_stdio(socket(AF_UNIX, SOCK_STREAM, 0));

    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
    }
    return fd;
#endif
}

/* Connect to a path that fits a socket address; 0, or the negated error. */
static int connect_at(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int result;

    memcpy(address.sun_path, path, strlen(path) + 1);
    do
        result = connect(fd, (const struct sockaddr *)&address, sizeof address);
    while (result && errno == EINTR);
    return result ? -errno : 0;
}

/* Connect through the opened directory, when the path is too long for an address. */
static int connect_far(int fd)
{
    int directory, result;
#ifdef __linux__
    char path[64];

    directory = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d%s", directory, SOCKET);
    result = connect_at(fd, path);
#else
    directory = open(".", O_RDONLY | O_CLOEXEC);
    result = directory < 0 || chdir(home) ? -errno : connect_at(fd, SOCKET + 1);
    if (directory >= 0 && fchdir(directory))
        fail("the working directory was removed: %s", error_text(errno));
#endif
    close(directory);
    return result;
}

int connect_home(void)
{
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    int fd = open_socket(), result;

    if (fd < 0)
        return -errno;
    if (strlen(home) + sizeof SOCKET > sizeof path) {
        result = connect_far(fd);
    } else {
        strcpy(path, home);
        strcat(path, SOCKET);
        result = connect_at(fd, path);
    }
    if (!result)
        return fd;
    close(fd);
    return result;
}

int reach(void)
{
    int fd = connect_home();

    if (fd >= 0)
        return fd;
    if (fd == -ENOENT || fd == -ECONNREFUSED || call.is_help) /* help needs no daemon */
        return -1;
    if (fd == -EACCES || fd == -EPERM) /* a denied caller may be in a sandbox: nothing may be started for it */
        fail("this process may not connect to %s/daemon.sock (a sandbox?): "
             "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)", home);
    if (fd == -ENOTDIR || fd == -ELOOP || fd == -ENAMETOOLONG)
        fail_home(-fd);
    fail("%s/daemon.sock: %s", home, error_text(-fd));
}

static int open_lock(void)
{
    char *path = path_in_home("daemon.lock");
    /* Never created here: flock needs no right to write, and a missing file means that there was no daemon. */
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    free(path);
    return fd;
}

pid_t daemon_pid(void)
{
    char text[32] = "";
    int fd = open_lock();

    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return (pid_t)strtol(text, NULL, 10);
}

bool is_daemon_alive(void)
{
    int fd = open_lock();
    /* A shared lock for a moment: two clients that look at the same time do not take each other for a daemon. */
    bool is_alive = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

    if (fd >= 0)
        close(fd);
    return is_alive;
}

/* Return how much of its log the running daemon has upgraded; -1 if it does not upgrade it now. */
static int read_percent(void)
{
    char text[100] = "", *path = path_in_home("upgrading");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    long long pid = 0, done = 0, total = 0;

    free(path);
    if (fd < 0)
        return -1;
    (void)!read(fd, text, sizeof text - 1);
    close(fd);
    /* A killed daemon leaves the file: it counts only while the process that it names has the lock. */
    if (sscanf(text, "%lld %lld %lld", &pid, &done, &total) != 3 || pid != daemon_pid() || !is_daemon_alive())
        return -1;
    if (total <= 0 || done <= 0)
        return 0;
    /* In floating point: 100 * done could overflow for an invalid file. */
    return done >= total ? 100 : (int)(100.0 * (double)done / (double)total);
}

bool is_upgrading(void)
{
    static long long begin_ms;
    static int shown = -1; /* tens of percent */
    int percent = read_percent();

    if (percent < 0)
        return false;
    begin_ms = begin_ms ? begin_ms : now_ms();
    if (now_ms() - begin_ms > 60000LL * UPGRADE_LIMIT_MIN)
        fail("the bus is still upgrading its log after %d minutes (%d %% is done); nothing is lost: try again later, "
             "or see %s/daemon.log", UPGRADE_LIMIT_MIN, percent, home);
    if (percent / 10 > shown && !call.is_monitor) {
        dprintf(STDERR_FILENO, "pal: the bus is upgrading its log (%d %%)", percent);
        if (shown < 0)
            dprintf(STDERR_FILENO, "; waiting up to %d minutes", UPGRADE_LIMIT_MIN);
        dprintf(STDERR_FILENO, "\n");
        shown = percent / 10;
    }
    return true;
}

int await_listening(bool has_time)
{
    int fd = reach();

    for (int ms = 0; fd < 0 && ms < LISTEN_LIMIT_MS && is_daemon_alive(); ms += 20) {
        if (!has_time && read_percent() >= 0)
            break;
        if (has_time && is_upgrading())
            ms = 0; /* the limit begins again after the upgrade, which has its own */
        pause_ms(20);
        fd = reach();
    }
    return fd;
}

void await_end(void)
{
    for (int ms = 0; is_daemon_alive(); ms += 10) {
        if (ms >= END_LIMIT_MS)
            fail("the daemon has not ended yet; see %s/daemon.log", home);
        pause_ms(10);
    }
}
