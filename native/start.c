#include "start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "bytes.h"
#include "call.h"
#include "connect.h"
#include "descriptors.h"
#include "errors.h"
#include "home.h"
#include "python.h"
#include "signals.h"
#include "variables.h"

enum {
    LONGEST_PAUSE_MS = 2000, /* between two repeats */
    READY_FD = 3,            /* on which the daemon reports that it listens */
    SLOW_S = 10,             /* after which a daemon that is still starting is reported */
    START_LIMIT_MIN = 2,     /* for a daemon to start without a report of progress */
    LOOK_MS = 100,           /* between two looks at a daemon that is starting */
    LOCK_MS = 20,            /* between two tries to take the start lock */
};

extern char **environ;

bool has_spawned;
bool is_patient;

static int failures; /* of starts, without a connection in between */
static long long quiet_since_ms; /* when this start began, or its last report of progress */
static bool is_slow_reported;

/* Return whether a person runs this command: at a terminal, in its foreground, and not inside a harness. */
static bool is_person(void)
{
    int fd;
    bool is_foreground;

    if (is_inside_harness())
        return false;
    fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    /* A background job has the terminal too, but no person waits for it. */
    is_foreground = tcgetpgrp(fd) == getpgrp();
    close(fd);
    return is_foreground;
}

static void make_home(void)
{
    if (!mkdir(home, 0700) || errno == EEXIST)
        return;
    if (errno == ENOENT) {
        for (char *slash = strchr(home + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
            *slash = 0;
            bool is_made = !mkdir(home, 0700) || errno == EEXIST;
            *slash = '/';
            if (!is_made) /* report the first folder that cannot be created */
                fail_home(errno);
        }
        if (!mkdir(home, 0700) || errno == EEXIST)
            return;
    }
    fail_home(errno);
}

/* Keep only the variables that the daemon may have. */
static void clean_environment(void)
{
    size_t count = 0, n = 0;
    char **clean;

    while (environ[count])
        count++;
    clean = calloc(count + 2, sizeof *clean);
    for (size_t i = 0; clean && i < count; i++)
        if (is_for_daemon(environ[i]))
            clean[n++] = environ[i];
    if (!clean)
        _exit(1);
    environ = clean;
    setenv("PALAVER_HOME", home, 1);
}

static void close_from(int first)
{
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, first, ~0U, 0))
        return;
#endif
    for (int fd = first, limit = (int)sysconf(_SC_OPEN_MAX); fd < limit; fd++)
        close(fd);
}

/* In the second child: only the pipe on which the daemon reports that it listens is left of the caller. */
static _Noreturn void become_daemon(int ready)
{
    char *argv[] = {find_python(), "-I", "-m", "palaver.daemon", "--home", home, "--ready-fd", "3", NULL};
    sigset_t none;
    int null, log;

    ready = fcntl(ready, F_DUPFD, READY_FD + 1); /* out of the way of 0 to 3 */
    null = fcntl(open("/dev/null", O_RDWR), F_DUPFD, READY_FD + 1);
    log = fcntl(open(path_in_home("daemon.log"), O_WRONLY | O_APPEND | O_CREAT, 0600), F_DUPFD, READY_FD + 1);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (log >= 0) /* where Python reports why it cannot run the daemon */
        dup2(log, STDERR_FILENO);
    dup2(ready, READY_FD);
    close_from(READY_FD + 1); /* a process may wait for the end of an inherited pipe */
    /* Ignored and blocked signals would survive the exec: the daemon could not be ended by them. */
    release_signals();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(077);
    clean_environment();
    if (!chdir("/")) /* a file system with the working directory of a running process cannot be unmounted */
        execvp(argv[0], argv);
    dprintf(READY_FD, "cannot run %s: %s", argv[0], error_text(errno));
    _exit(1);
}

/* Return the last line of a file after an offset; the other new lines stay in the file. */
static bool read_last_line(const char *path, off_t beyond, char *line, size_t size)
{
    struct stat now;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;

    if (fd >= 0 && !fstat(fd, &now) && now.st_size > beyond) {
        off_t from = now.st_size - (off_t)size + 1;
        n = pread(fd, line, size - 1, from > beyond ? from : beyond);
    }
    if (fd >= 0)
        close(fd);
    while (n > 0 && line[n - 1] == '\n')
        n--;
    line[n > 0 ? n : 0] = 0;
    for (char *end = strchr(line, '\n'); end; end = strchr(line, '\n'))
        memmove(line, end + 1, strlen(end));
    return *line;
}

/* Report why no daemon could be started, and end. A waiting command reports it once, after some failures in a row. */
static void __attribute__((format(printf, 1, 2))) fail_start(const char *format, ...)
{
    char line[2 * PATH_MAX + 8192];
    va_list values;

    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (!is_patient)
        refuse(1, "unavailable", line);
    if (failures++ == REPEATS)
        dprintf(STDERR_FILENO, "pal: %s; trying again\n", line);
}

/* Whether to wait on for a starting daemon. A blocked disk or a stopped process would make the wait endless. */
static bool may_wait(void)
{
    long long quiet_ms;

    if (is_upgrading())
        quiet_since_ms = now_ms(); /* the start goes on after an upgrade, with its own limit from then on */
    quiet_ms = now_ms() - quiet_since_ms;
    if (quiet_ms > 1000LL * SLOW_S && !is_slow_reported && !call.is_monitor) {
        dprintf(STDERR_FILENO, "pal: the bus takes more than %d s to start; waiting up to %d minutes\n", SLOW_S,
                START_LIMIT_MIN);
        is_slow_reported = true;
    }
    if (quiet_ms <= 60000LL * START_LIMIT_MIN)
        return true;
    fail_start("the bus has not started after %d minutes: try again later, or see %s/daemon.log", START_LIMIT_MIN,
               home);
    return false;
}

/* Start a daemon and wait until it listens or reports an error; false when a waiting command should try again. */
static bool spawn_daemon(void)
{
    char text[4096];
    const char *log = path_in_home("daemon.log");
    struct stat before = {0};
    size_t n = 0;
    int ends[2];
    pid_t child;

    stat(log, &before); /* so that only lines of this start count as its reason */
    has_spawned = true;
    if (pipe(ends))
        fail("the daemon did not start: %s", error_text(errno));
    child = fork();
    if (child < 0)
        fail("the daemon did not start: %s", error_text(errno));
    if (!child) {
        setsid();
        child = fork(); /* its parent ends at once: no process must wait for it, and it cannot get a terminal */
        if (!child)
            become_daemon(ends[1]);
        if (child < 0)
            dprintf(ends[1], "%s", error_text(errno));
        _exit(0);
    }
    close(ends[1]); /* else the read below would not end when the daemon dies without a report */
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    while (n < sizeof text - 1 && !(n == 3 && !memcmp(text, "ok\n", 3))) {
        struct pollfd report = {.fd = ends[0], .events = POLLIN};
        ssize_t got;
        if (poll(&report, 1, LOOK_MS) <= 0) {
            if (may_wait())
                continue;
            close(ends[0]);
            return false;
        }
        got = read(ends[0], text + n, sizeof text - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(ends[0]);
    if (n == 3 && !memcmp(text, "ok\n", 3))
        return true;
    while (n && text[n - 1] == '\n')
        n--;
    text[n] = 0;
    if (n)
        fail_start("the daemon did not start: %s", text);
    else if (read_last_line(log, before.st_size, text, sizeof text))
        fail_start("the daemon did not start: %s (see %s)", text, log);
    else
        fail_start("the daemon did not start and printed no reason (was it killed?); see %s", log);
    return false;
}

/* Take the start lock, or connect to the daemon that another client has started meanwhile; false to try again. */
static bool lock_start(int lock, int *fd)
{
    /* Not one blocking flock: the progress of an upgrade is reported, and a daemon that listens ends the wait. */
    while (*fd < 0 && flock(lock, LOCK_EX | LOCK_NB) && (errno == EWOULDBLOCK || errno == EINTR)) {
        if (!may_wait())
            return false;
        pause_ms(LOCK_MS);
        *fd = reach();
    }
    return true;
}

int start_daemon(void)
{
    int lock, fd = -1;
    char *path;

    make_home();
    quiet_since_ms = now_ms();
    path = path_in_home("start.lock");
    lock = above_stdio(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock < 0)
        fail_home(errno);
    free(path);
    if (!lock_start(lock, &fd)) {
        close(lock);
        return -1;
    }
    if (fd < 0)
        fd = await_listening(true); /* again: another client may have started it just before this one took the lock */
    if (fd < 0 && is_daemon_alive())
        fail_start("the daemon (process %d) runs, but does not listen on %s/daemon.sock: 'pal down' ends it, "
                   "and 'pal up' starts another", (int)daemon_pid(), home);
    else if (fd < 0 && spawn_daemon())
        fd = reach();
    if (fd >= 0)
        failures = 0;
    close(lock); /* only now, when a daemon listens or the start has failed: until then no other client may start one */
    return fd;
}

/* Return the command that starts this bus. It names the home if the caller did. */
static const char *up_command(void)
{
    static char command[sizeof "pal up --home " + HOME_SIZE];

    snprintf(command, sizeof command, "pal up%s%s", call.has_home ? " --home " : "", call.has_home ? home : "");
    return command;
}

/* Create the file which says that the bus should stay down. */
static void keep_down(const char *marker)
{
    int fd = open(marker, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* without a home there is nothing to keep down */

    if (fd < 0 && errno != ENOENT)
        fail_home(errno);
    if (fd >= 0)
        close(fd);
}

static _Noreturn void end_not_running(const char *marker)
{
    keep_down(marker);
    if (call.is_json)
        dprintf(STDOUT_FILENO, "{\"pid\":null,\"stopped\":false}\n");
    else
        dprintf(STDERR_FILENO, "pal: the bus is not running\n");
    _exit(0);
}

/* Connect to a daemon that runs without listening, or end it by its lock; or report that none runs. */
static int reach_for_down(const char *marker)
{
    int fd = await_listening(false); /* an upgrade is not waited for: it begins again at the next start */
    pid_t pid = daemon_pid();

    if (fd >= 0)
        return fd;
    if (!is_daemon_alive())
        end_not_running(marker);
    keep_down(marker); /* before the end: a client that notices the end must not start the bus again */
    if (pid <= 0)
        fail("a daemon or 'pal doctor --repair' runs, but %s/daemon.lock does not say which process it is: "
             "wait until the repair has ended", home);
    if (kill(pid, SIGTERM) && errno != ESRCH)
        fail("the daemon (process %d) cannot be ended: %s", (int)pid, error_text(errno));
    await_end();
    if (call.is_json)
        dprintf(STDOUT_FILENO, "{\"pid\":%d,\"stopped\":true}\n", (int)pid);
    else
        dprintf(STDOUT_FILENO, "the bus is stopped; nothing is lost, '%s' starts it again\n", up_command());
    _exit(0);
}

static _Noreturn void fail_stopped(void)
{
    fail("the bus was stopped with 'pal down'; '%s' starts it again", up_command());
}

/*
 * End a command that only shows the bus, if the bus was stopped or never existed. After a crash or a restart of the
 * machine it is started as by any other command.
 */
static void end_look(const char *marker)
{
    bool is_stopped = !access(marker, F_OK);

    if (!is_stopped && !access(home, F_OK))
        return;
    if (call.is_doctor)
        run_python("palaver.app", call.all + 1, call.count - 1);
    if (is_stopped)
        fail_stopped();
    if (!call.has_home) /* the refusal of a folder named with --home follows */
        fail("the bus is not running, and %s does not exist; 'pal up' creates it", home);
}

/* Whether the home is a directory with other files, in which no bus was ever started. */
static bool is_other_folder(void)
{
    char *lock = path_in_home("start.lock"), *log = path_in_home("log.sqlite");
    bool has_bus = !access(lock, F_OK) || !access(log, F_OK), has_files = false;
    DIR *folder = has_bus ? NULL : opendir(home);
    struct dirent *entry;

    free(lock);
    free(log);
    if (!folder)
        return false;
    while (!has_files && (entry = readdir(folder)))
        has_files = strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(folder);
    return has_files;
}

static void pause_before_repeat(int repeats)
{
    pause_ms(repeats > 7 ? LONGEST_PAUSE_MS : 20 << (repeats - 1));
}

int open_wire(int repeats)
{
    int fd;
    char *marker;

    if (repeats > REPEATS) /* also when a daemon listens: it may close every connection at once */
        pause_before_repeat(repeats);
    fd = reach();
    if (fd >= 0)
        return fd;
    if (call.is_help)
        run_python("palaver.app", call.all + 1, call.count - 1);
    marker = path_in_home("down");
    if (call.is_down)
        return reach_for_down(marker);
    if (repeats && repeats <= REPEATS) { /* another client may already be starting it again */
        pause_before_repeat(repeats);
        fd = reach();
        if (fd >= 0)
            return fd;
    }
    if (call.is_look && !repeats)
        end_look(marker);
    if (call.has_home && !call.is_up && access(home, F_OK))
        fail("%s does not exist; to create a bus there, run '%s'", home, up_command());
    if (call.has_home && !call.is_up && is_other_folder())
        fail("%s is not the home of a bus; to create a bus there, run '%s'", home, up_command());
    if (!call.is_up && !access(marker, F_OK)) {
        /* A follower that was running when the bus was stopped must not start it again, whatever its caller is. */
        if (repeats || !is_person())
            fail_stopped();
    }
    free(marker);
    return start_daemon();
}
