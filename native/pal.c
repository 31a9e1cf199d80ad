/*
 * pal: the thin client of Palaver.
 *
 * It hands its arguments, working directory and a few chosen variables to the daemon and then does what the daemon
 * asks: read standard input, read a file, write this out, run this verb in Python, exit. It understands no verb but
 * up, down, hook, monitor, rewake, mcp and help, parses no answer, and reads nothing that it was not asked to read. It is written in C
 * because it runs once for every command and every hook: the common path is one connect, one send, one read, one
 * write and one acknowledgement, and where it can be built so it is over before the C library would have started
 * (early.h). src/palaver/cli/thin.py is the same client in Python; one suite tests all.
 */
#define _GNU_SOURCE
#define _DARWIN_C_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#ifndef PAL_VERSION
#define PAL_VERSION "0+unknown"
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: the socket carries SO_NOSIGPIPE instead */
#endif

enum {
    FRAME_LIMIT = 10 * 1024 * 1024,
    HEAD = 5,          /* of a frame and of a field: one byte of type, four of length */
    PIECE = 65536,     /* of what the daemon asked to read */
    UNDIVIDED = 4096,  /* a socket takes so little whole or not at all */
    REPEATS = 5,       /* without a frame in between */
    END_LIMIT_S = 2,   /* to write out what the daemon sent before a signal, when nobody reads */
    GONE_LIMIT_MS = 10000,
    READY_FD = 3,
};

/* Exact names, never prefixes: variables beside these carry keys. The same list is in palaver/harness/marks.py. */
static const char *const MARKS[] = {
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "OPENCODE", "OPENCODE_PID",
    "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "CODEX_SESSION_ID", "GEMINI_SESSION_ID", "OPENCODE_SESSION_ID",
    NULL,
};
static const char *const LOCAL[] = {
    "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", "TERM", "NO_COLOR", NULL,
};
static const char *const FOR_DAEMON[] = {
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", NULL,
};
static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const char SOCKET[] = "/daemon.sock"; /* in the home */

extern char **environ;

#include "system.h"

/* Bytes that grow. The first storage may be static, so that the common path asks the system for no memory. */
struct bytes {
    unsigned char *data;
    size_t length, size;
    bool fixed;
};

/* What the arguments say, as far as the client itself must know. */
static struct {
    int count, verb_at; /* verb_at is 0 when there is no verb */
    char **all;
    const char *home;
    bool home_given, help, foreground, json, hook, up, down, mcp, monitor, rewake;
} call;

static char cwd[PATH_MAX];
static char home[2 * PATH_MAX];
static bool is_early; /* the C library has not started */

static int wire = -1;                    /* the connection */
static volatile sig_atomic_t speakable;  /* a frame of ours may be put on the wire now */
static bool heard;                       /* a frame came on this connection */
static bool said;                        /* something was written to standard output */
static bool spawned;                     /* the daemon was started by this process, and is of its package */
static volatile sig_atomic_t gentle;     /* the daemon wants to be told of SIGTERM and SIGHUP, and then says the end */
static volatile sig_atomic_t ending;     /* the signal of which it was told, or is to be */
static volatile sig_atomic_t told;
static int harness = -1;                 /* tells when the process ends that keeps a monitor running, where that can be told */

static unsigned char request_room[2 * PIECE], received_room[PIECE + 8192];
static struct bytes request = {request_room, 0, sizeof request_room, true};
static struct bytes received = {received_room, 0, sizeof received_room, true};
static size_t obeyed;                    /* of what was received */
static unsigned char token_room[1024];
static struct bytes token = {token_room, 0, sizeof token_room, true}; /* of the last output frame that was written out */
static int output_error;                 /* that an early start met */
static struct bytes kept;                /* standard input as far as it was read: a repeated request asks again */
static bool kept_all;                    /* its end was seen; a terminal must not be asked twice */

/* What is being read for the daemon. */
static struct {
    int fd; /* -1: nothing */
    uint64_t left;
} source = {-1, 0};

#ifdef PAL_EARLY
static _Noreturn void start_library(void);
#else
static void start_library(void)
{
}
#endif

/* From here on the C library is needed. An early start ends here, and main begins; what was asked stays asked. */
static void need_library(void)
{
    if (is_early)
        start_library();
}

/* ---- Endings ---- */

/* Write a text as JSON; bytes that are not printable ASCII may be part of UTF-8 and pass as they are. */
static void write_json_text(const char *text)
{
    for (; *text; text++) {
        unsigned char sign = (unsigned char)*text;
        if (sign == '"' || sign == '\\')
            dprintf(STDERR_FILENO, "\\%c", sign);
        else if (sign < ' ')
            dprintf(STDERR_FILENO, "\\u%04x", sign);
        else
            (void)!write(STDERR_FILENO, text, 1);
    }
}

/* Say why in one line and exit with 1. A hook must never disturb its harness: it is silent, and all is well. */
static _Noreturn void fail(const char *format, ...)
{
    char line[2 * PATH_MAX + 1024];
    va_list values;

    need_library();
    if (call.hook || call.rewake)
        _exit(0);
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (call.json) {
        dprintf(STDERR_FILENO, "{\"error\":\"unavailable\",\"message\":\"");
        write_json_text(line);
        dprintf(STDERR_FILENO, "\"}\n");
    } else {
        dprintf(STDERR_FILENO, "pal: %s\n", line);
    }
    _exit(1);
}

static _Noreturn void fail_malformed(void)
{
    fail("the daemon sent something that this client (" PAL_VERSION ") does not understand");
}

static void tell_signal(int number)
{
    const unsigned char frame[HEAD + 1] = {'S', 0, 0, 0, 1, (unsigned char)number};

    sys_send(wire, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
    told = 1;
}

/* Runs at any point, also inside a blocked write; so it makes nothing but one send that cannot block. */
static void on_signal(int number)
{
    bool is_end = gentle && !ending && (number == SIGTERM || number == SIGHUP);

    if (is_end) {
        ending = number;
        alarm(END_LIMIT_S); /* neither a reader that never reads nor a daemon that is stuck holds us up */
    }
    /* In the middle of another frame S would be taken for its contents; then the closed socket must be enough. */
    if (speakable && !told)
        tell_signal(number);
    if (!is_end)
        die_of(number);
}

static void on_end_limit(int number)
{
    (void)number;
    die_of(ending);
}

static void catch_signals(void)
{
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        sys_catch(SIGNALS[i], on_signal);
}

/* ---- Small things ---- */

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

static void reserve(struct bytes *b, size_t more)
{
    size_t size = b->size ? b->size : 4096;
    unsigned char *data;

    if (b->size - b->length >= more)
        return;
    need_library();
    while (size - b->length < more)
        size *= 2;
    data = realloc(b->fixed ? NULL : b->data, size);
    if (!data)
        fail("out of memory");
    if (b->fixed)
        copy(data, b->data, b->length);
    b->data = data;
    b->size = size;
    b->fixed = false;
}

static void add(struct bytes *b, const void *data, size_t n)
{
    reserve(b, n);
    copy(b->data + b->length, data, n);
    b->length += n;
}

static void put_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static uint32_t get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* A path in the home; each call gives new memory, which the short life of the process frees. */
static char *in_home(const char *name)
{
    size_t n = strlen(home), m = strlen(name) + 1;
    char *path = malloc(n + 1 + m);

    if (!path)
        fail("out of memory");
    memcpy(path, home, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m);
    return path;
}

/* When the caller closed 0, 1 or 2, a descriptor of ours must not take its place: output would go there. */
static int above_stdio(int fd)
{
    int higher;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    higher = sys_move_up(fd, STDERR_FILENO + 1);
    sys_close(fd);
    return higher;
}

static bool is_named(const char *entry, const char *const *names)
{
    for (; *names; names++)
        if (starts(entry, *names) && entry[length_of(*names)] == '=')
            return true;
    return false;
}

/* ---- Arguments ---- */

static void read_arguments(int count, char **all)
{
    call.count = count;
    call.all = all;
    for (int i = 1; i < count; i++) {
        const char *arg = all[i];
        if (same(arg, "--")) {
            if (!call.verb_at && i + 1 < count)
                call.verb_at = i + 1;
            break;
        }
        if (same(arg, "--home")) {
            call.home_given = true;
            call.home = all[++i]; /* NULL at the end */
        } else if (starts(arg, "--home=")) {
            call.home_given = true;
            call.home = arg + length_of("--home=");
        } else if (same(arg, "--as")) {
            i++;
        } else if (same(arg, "--help") || same(arg, "-h")) {
            call.help = true;
        } else if (same(arg, "--foreground")) {
            call.foreground = true;
        } else if (same(arg, "--json")) {
            call.json = true;
        } else if (!call.verb_at && arg[0] != '-') {
            call.verb_at = i;
        }
    }
    /* Completion runs while a person types, and its script at every start of a shell: like help, it starts nothing. */
    const char *verb = call.verb_at ? all[call.verb_at] : "help";
    if (same(verb, "help") || same(verb, "completion") || same(verb, "__complete"))
        call.help = true;
    if (!call.help) { /* which never has an effect, whatever stands beside it */
        call.hook = same(verb, "hook");
        call.up = same(verb, "up");
        call.down = same(verb, "down");
        call.mcp = same(verb, "mcp");
        call.rewake = same(verb, "rewake");
        call.monitor = call.rewake || same(verb, "monitor");
    }
}

/* The person's directory when HOME says nothing. On Linux the file itself: a static program has no name service. */
static const char *account_directory(void)
{
    struct passwd *entry = NULL;
#ifdef __linux__
    FILE *file = fopen("/etc/passwd", "re");
    while (file && (entry = fgetpwent(file)) && entry->pw_uid != getuid())
        ;
#else
    entry = getpwuid(getuid());
#endif
    return entry ? entry->pw_dir : NULL;
}

/* Put a text behind what stands in the home's name; nothing that long can be a directory. */
static size_t add_to_home(size_t at, const char *text)
{
    size_t n = length_of(text);

    if (at + n >= sizeof home)
        fail("the name of the home is too long");
    copy(home + at, text, n + 1);
    return at + n;
}

static void find_home(void)
{
    const char *given = call.home, *after = "";
    size_t at = 0;

    if (call.home_given && (!given || !*given))
        fail("--home needs a directory");
    if (!given)
        given = variable("PALAVER_HOME");
    if (!given || !*given) {
        given = variable("HOME");
        if (!given || !*given) {
            need_library();
            given = account_directory();
        }
        if (!given)
            fail("no home directory: set HOME or PALAVER_HOME");
        after = "/.palaver";
    }
    if (given[0] != '/') {
        if (!cwd[0])
            fail("%s: the working directory is gone", given);
        at = add_to_home(add_to_home(0, cwd), "/");
    }
    add_to_home(add_to_home(at, given), after);
}

/* ---- The request ---- */

static void add_field(char tag, const void *data, size_t n)
{
    unsigned char head[HEAD];

    head[0] = (unsigned char)tag;
    put_u32(head + 1, (uint32_t)n);
    add(&request, head, HEAD);
    add(&request, data, n);
}

static void build_request(void)
{
    static const int widths[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
    unsigned char key[16];
    char terminals[3], width[16];
    int columns = 0;

    if (sys_random(key, sizeof key) != sizeof key) {
        need_library();
        fail("no random bytes: %s", strerror(errno));
    }
    add(&request, "PAL1R\0\0\0\0", 4 + HEAD);
    add_field('k', key, sizeof key);
    add_field('v', PAL_VERSION, length_of(PAL_VERSION));
    for (int i = 1; i < call.count; i++)
        add_field('a', call.all[i], length_of(call.all[i]));
    add_field('d', cwd, length_of(cwd));
    for (char **entry = environ; *entry; entry++)
        if (starts(*entry, "PALAVER_") || is_named(*entry, LOCAL) || is_named(*entry, MARKS))
            add_field('e', *entry, length_of(*entry));
    for (int fd = 0; fd < 3; fd++)
        terminals[fd] = sys_is_terminal(fd) ? '1' : '0';
    for (int i = 0; i < 3 && !columns; i++)
        if (terminals[widths[i]] == '1')
            columns = sys_columns(widths[i]);
    add_field('t', terminals, sizeof terminals);
    add_field('w', width, write_number(width, (unsigned)columns));
    add_field('c', "G", 1); /* the frames beyond the first that this client understands */
}

/* ---- Running Python ---- */

/* The interpreter of our own installation, found by where this program really lies. */
static char *find_python(void)
{
    static char path[PATH_MAX + sizeof "python3"];
    char *named = getenv("PALAVER_PYTHON"), *slash;

    if (named && *named)
        return named;
#ifdef __APPLE__
    char raw[PATH_MAX];
    uint32_t size = sizeof raw;
    if (_NSGetExecutablePath(raw, &size) || !realpath(raw, path))
        path[0] = 0;
#else
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    path[n > 0 ? n : 0] = 0;
#endif
    slash = strrchr(path, '/');
    if (slash) {
        strcpy(slash + 1, "python3");
        if (!access(path, X_OK))
            return path;
    }
    return "python3";
}

/* Become Python: `-I` keeps the caller's directory and PYTHON variables out. */
static _Noreturn void run_python(char *module, char **args, int count)
{
    char **argv = calloc((size_t)count + 5, sizeof *argv);

    if (!argv || setenv("PALAVER_HOME", home, 1))
        fail("out of memory");
    argv[0] = find_python();
    argv[1] = "-I";
    argv[2] = "-m";
    argv[3] = module;
    memcpy(argv + 4, args, (size_t)count * sizeof *argv);
    alarm(0); /* a pending alarm would survive the exec and kill it */
    execvp(argv[0], argv);
    fail("cannot run %s: %s", argv[0], strerror(errno));
}

static _Noreturn void run_in_foreground(void)
{
    char **args = calloc((size_t)call.count + 3, sizeof *args);
    int n = 0;

    if (!args)
        fail("out of memory");
    args[n++] = "--home";
    args[n++] = home;
    args[n++] = "--foreground";
    for (int i = call.verb_at + 1; i < call.count; i++) {
        if (!strcmp(call.all[i], "--home"))
            i++;
        else if (strcmp(call.all[i], "--foreground") && !starts(call.all[i], "--home="))
            args[n++] = call.all[i];
    }
    run_python("palaver.daemon", args, n);
}

/* Whether there is a word of which the client itself knows nothing, in a call of up or down. */
static bool has_more_words(void)
{
    for (int i = 1; i < call.count; i++) {
        const char *arg = call.all[i];
        if (!strcmp(arg, "--home") || !strcmp(arg, "--as"))
            i++;
        else if (i != call.verb_at && strcmp(arg, "--json") && !starts(arg, "--home=") &&
                 !(call.up && !strcmp(arg, "--foreground")))
            return true;
    }
    return false;
}

/* Refuse what cannot be meant before anything is done about it. The table of commands is in Python, and asked there. */
static void check_arguments(void)
{
    char **args;
    int status;
    pid_t child;

    if (!has_more_words())
        return;
    args = calloc((size_t)call.count, sizeof *args);
    if (!args)
        fail("out of memory");
    args[0] = "__check";
    memcpy(args + 1, call.all + 1, (size_t)(call.count - 1) * sizeof *args);
    child = fork();
    if (child < 0)
        fail("cannot run %s: %s", find_python(), strerror(errno));
    if (!child)
        run_python("palaver.cli", args, call.count);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* ---- Connecting ---- */

/* Connect to a path that fits a socket address; 0, or the negated error. */
static int connect_at(int fd, const char *path, size_t n)
{
    static struct sockaddr_un address;
    long result;

    address.sun_family = AF_UNIX;
    copy(address.sun_path, path, n + 1);
    do
        result = sys_connect(fd, &address);
    while (result == -EINTR);
    return (int)result;
}

/* The same by way of the opened directory, when the path is too long for an address. */
static int connect_far(int fd)
{
    int directory, result;
#ifdef __linux__
    char path[64];

    directory = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d%s", directory, SOCKET);
    result = connect_at(fd, path, strlen(path));
#else
    directory = open(".", O_RDONLY | O_CLOEXEC);
    result = directory < 0 || chdir(home) ? -errno : connect_at(fd, SOCKET + 1, strlen(SOCKET + 1));
    if (directory >= 0 && fchdir(directory))
        fail("the working directory is gone: %s", strerror(errno));
#endif
    close(directory);
    return result;
}

/* Connect to the daemon; a descriptor, or the negated error. */
static int connect_home(void)
{
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    size_t n = length_of(home), m = sizeof SOCKET;
    int fd, result;

    if (n + m > sizeof path)
        need_library();
    fd = above_stdio(sys_socket());
    if (fd < 0) {
        result = fd;
    } else if (n + m > sizeof path) {
        result = connect_far(fd);
    } else {
        copy(path, home, n);
        copy(path + n, SOCKET, m);
        result = connect_at(fd, path, n + m - 1);
    }
    if (!result)
        return fd;
    if (fd >= 0)
        sys_close(fd);
    return result;
}

/* Connect; -1 when nobody listens. Whoever is denied may be in a sandbox: nothing may be started for it. */
static int reach(void)
{
    int fd = connect_home();

    if (fd >= 0)
        return fd;
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        return -1;
    if (fd == -EACCES || fd == -EPERM)
        fail("this process may not connect to %s/daemon.sock (a sandbox?): "
             "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)", home);
    fail("%s/daemon.sock: %s", home, strerror(-fd));
}

/* Whether a daemon holds its lock: it may do so before it listens and after it stopped listening. */
static bool is_daemon_alive(void)
{
    char *path = in_home("daemon.lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool alive = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

    free(path);
    if (fd >= 0)
        close(fd);
    return alive;
}

/* ---- Starting the daemon ---- */

static bool is_person(void)
{
    int fd;
    bool foreground;

    for (char **entry = environ; *entry; entry++)
        if (is_named(*entry, MARKS) || starts(*entry, "PALAVER_SEAT="))
            return false;
    fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    foreground = tcgetpgrp(fd) == getpgrp();
    close(fd);
    return foreground;
}

static void make_home(void)
{
    if (!mkdir(home, 0700) || errno == EEXIST)
        return;
    if (errno == ENOENT) {
        for (char *slash = strchr(home + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
            *slash = 0;
            mkdir(home, 0700);
            *slash = '/';
        }
        if (!mkdir(home, 0700) || errno == EEXIST)
            return;
    }
    fail("%s: %s", home, strerror(errno));
}

/* The daemon serves many callers: what belongs to this one alone stays behind. */
static void clean_environment(void)
{
    size_t count = 0, n = 0;
    char **clean;

    while (environ[count])
        count++;
    clean = calloc(count + 2, sizeof *clean);
    for (size_t i = 0; clean && i < count; i++)
        if (is_named(environ[i], FOR_DAEMON) || (starts(environ[i], "PALAVER_") && !starts(environ[i], "PALAVER_SEAT=")))
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

/* In the second child: nothing of the caller is left but the pipe on which the daemon says that it listens. */
static _Noreturn void become_daemon(int ready)
{
    char *argv[] = {find_python(), "-I", "-m", "palaver.daemon", "--home", home, "--ready-fd", "3", NULL};
    sigset_t none;
    int null, notes;

    ready = fcntl(ready, F_DUPFD, READY_FD + 1); /* out of the way of 0 to 3 */
    null = fcntl(open("/dev/null", O_RDWR), F_DUPFD, READY_FD + 1);
    notes = fcntl(open(in_home("daemon.log"), O_WRONLY | O_APPEND | O_CREAT, 0600), F_DUPFD, READY_FD + 1);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (notes >= 0) /* where Python says why it cannot run what it was told to */
        dup2(notes, STDERR_FILENO);
    dup2(ready, READY_FD);
    close_from(READY_FD + 1); /* somebody may wait for the end of a pipe that was handed to us */
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        signal(SIGNALS[i], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(077);
    clean_environment();
    if (!chdir("/"))
        execvp(argv[0], argv);
    dprintf(READY_FD, "cannot run %s: %s", argv[0], strerror(errno));
    _exit(1);
}

/* The last line that a file has beyond a size; what else it has gained is for those who look into it. */
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

/* Start a daemon and wait until it listens or says why not. */
static void spawn_daemon(void)
{
    char text[4096];
    const char *notes = in_home("daemon.log");
    struct stat before = {0};
    size_t n = 0;
    int ends[2];
    pid_t child;

    stat(notes, &before);
    spawned = true;
    if (pipe(ends) || (child = fork()) < 0)
        fail("the daemon did not start: %s", strerror(errno));
    if (!child) {
        setsid();
        child = fork(); /* its parent ends at once, so nobody must wait for it and no terminal can become its own */
        if (!child)
            become_daemon(ends[1]);
        if (child < 0)
            dprintf(ends[1], "%s", strerror(errno));
        _exit(0);
    }
    close(ends[1]);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    while (n < sizeof text - 1 && !(n == 3 && !memcmp(text, "ok\n", 3))) {
        ssize_t got = read(ends[0], text + n, sizeof text - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(ends[0]);
    if (n == 3 && !memcmp(text, "ok\n", 3))
        return;
    while (n && text[n - 1] == '\n')
        n--;
    text[n] = 0;
    if (n)
        fail("the daemon did not start: %s", text);
    if (read_last_line(notes, before.st_size, text, sizeof text))
        fail("the daemon did not start: %s (see %s)", text, notes);
    fail("the daemon did not start, and said nothing: was it killed? See %s", notes);
}

/* Start the daemon, or wait for the one that another client is starting. Gives the connection, or -1. */
static int start_daemon(void)
{
    int lock, fd;
    char *path;

    make_home();
    path = in_home("start.lock");
    lock = above_stdio(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock < 0)
        fail("%s: %s", path, strerror(errno));
    free(path);
    while (flock(lock, LOCK_EX) && errno == EINTR)
        ;
    fd = reach();
    /* An old daemon may still be stepping down, or one started by other means not listen yet. */
    for (int ms = 0; fd < 0 && ms < GONE_LIMIT_MS && is_daemon_alive(); ms += 20) {
        pause_ms(20);
        fd = reach();
    }
    if (fd < 0) {
        spawn_daemon();
        fd = reach();
    }
    close(lock);
    return fd;
}

static _Noreturn void end_not_running(const char *marker)
{
    int fd = open(marker, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* without a home there is nothing to keep down */

    if (fd < 0 && errno != ENOENT)
        fail("%s: %s", marker, strerror(errno));
    dprintf(STDERR_FILENO, "pal: the bus is not running\n");
    _exit(0);
}

/* Get a connection by the rules of the verb; -1 when the daemon was lost again. */
static int open_wire(int repeats)
{
    int fd = reach();
    char *marker;

    if (fd >= 0)
        return fd;
    if (call.help)
        run_python("palaver.cli", call.all + 1, call.count - 1);
    marker = in_home("down");
    if (call.down)
        end_not_running(marker);
    if (repeats) { /* somebody may be bringing it back already */
        pause_ms(20 << (repeats - 1));
        fd = reach();
        if (fd >= 0)
            return fd;
    }
    if (!call.up && !access(marker, F_OK)) {
        /* A follower that was running when the bus was stopped must not bring it back, whoever started it. */
        if (repeats || !is_person())
            fail("the bus was stopped with 'pal down'; 'pal up' starts it again");
        unlink(marker);
    }
    free(marker);
    return start_daemon();
}

/* ---- The wire, outward ---- */

/* Send all of it. A lost connection is not told here: reading will find its end, after what the daemon still said. */
static bool send_all(struct iovec *parts, int count, size_t length)
{
    bool sent = true;

    if (length > UNDIVIDED)
        speakable = 0;
    while (count) {
        static struct msghdr message;
        long n;
        message.msg_iov = parts;
        message.msg_iovlen = (size_t)count;
        n = sys_sendmsg(wire, &message);
        if (n == -EINTR)
            continue;
        if (n < 0) {
            sent = false;
            break;
        }
        for (; count && (size_t)n >= parts->iov_len; parts++, count--)
            n -= (long)parts->iov_len;
        if (count) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    speakable = sent;
    if (sent && ending && !told) /* the signal came in the middle of what was sent now */
        tell_signal(ending);
    return sent;
}

static bool send_frame(char type, const void *payload, size_t n)
{
    unsigned char head[HEAD];
    struct iovec parts[2];

    head[0] = (unsigned char)type;
    put_u32(head + 1, (uint32_t)n);
    parts[0].iov_base = head;
    parts[0].iov_len = HEAD;
    parts[1].iov_base = (void *)(uintptr_t)payload;
    parts[1].iov_len = n;
    return send_all(parts, n ? 2 : 1, HEAD + n);
}

static void send_request(void)
{
    size_t length = request.length;
    struct iovec part;

    if (token.length)
        add_field('r', token.data, token.length);
    if (request.length - 4 - HEAD > FRAME_LIMIT)
        fail("the arguments are too long");
    put_u32(request.data + 5, (uint32_t)(request.length - 4 - HEAD));
    part.iov_base = request.data;
    part.iov_len = request.length;
    received.length = obeyed = 0;
    heard = false;
    send_all(&part, 1, request.length);
    request.length = length; /* the next repeat may carry another token */
}

/* ---- Reading for the daemon ---- */

static void end_source(void)
{
    if (source.fd > STDIN_FILENO)
        close(source.fd);
    source.fd = -1;
}

static void send_unreadable(int error)
{
    char text[512];

    send_frame('X', text, (size_t)snprintf(text, sizeof text, "%d %s", error, strerror(error)));
}

/* Begin to read. One byte beyond the limit is sent, so that the daemon sees that it was too much. */
static void begin_source(int fd, uint32_t limit)
{
    source.fd = fd;
    source.left = limit ? (uint64_t)limit + 1 : UINT64_MAX;
}

static void begin_stdin(uint32_t limit)
{
    begin_source(STDIN_FILENO, limit);
    for (size_t at = 0; at < kept.length && source.left;) {
        size_t n = kept.length - at < PIECE ? kept.length - at : PIECE;
        if (n > source.left)
            n = (size_t)source.left;
        send_frame('D', kept.data + at, n);
        at += n;
        source.left -= n;
    }
    if (kept_all || !source.left) {
        source.fd = -1;
        send_frame('Z', NULL, 0);
    }
}

static void begin_file(uint32_t limit, const unsigned char *name, size_t n)
{
    char *path = malloc(n + 1);
    int fd;

    if (!path)
        fail("out of memory");
    memcpy(path, name, n);
    path[n] = 0;
    errno = EINVAL; /* a name that holds NUL can name no file */
    fd = strlen(path) == n ? above_stdio(open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC)) : -1;
    free(path);
    if (fd < 0)
        send_unreadable(errno);
    else
        begin_source(fd, limit);
}

/* Read one piece and send it on. */
static void pump_source(void)
{
    static unsigned char piece[PIECE];
    size_t want = source.left < PIECE ? (size_t)source.left : PIECE;
    ssize_t n = read(source.fd, piece, want);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0) {
        int error = errno;
        end_source();
        send_unreadable(error);
        return;
    }
    if (source.fd == STDIN_FILENO) {
        add(&kept, piece, (size_t)n);
        kept_all = !n;
    }
    source.left -= (uint64_t)n;
    if (n && !send_frame('D', piece, (size_t)n)) {
        end_source(); /* nobody is there to read for */
        return;
    }
    if (!n || !source.left) {
        end_source();
        send_frame('Z', NULL, 0);
    }
}

/* ---- The wire, inward ---- */

/* Write all of it; 0, or the error. */
static int write_all(int fd, const unsigned char *data, size_t n)
{
    while (n) {
        long written = sys_write(fd, data, n);
        if (written >= 0) {
            data += written;
            n -= (size_t)written;
        } else if (written == -EAGAIN) {
            struct pollfd room;
            room.fd = fd;
            room.events = POLLOUT;
            sys_poll(&room, 1, -1);
        } else if (written != -EINTR) {
            return (int)-written;
        }
    }
    return 0;
}

static void write_output(const unsigned char *payload, size_t n)
{
    size_t token_length, head = 4 + 2;
    int error;

    if (n < head || n - head < (token_length = (size_t)payload[4] << 8 | payload[5]))
        fail_malformed();
    if (token_length > sizeof token_room)
        need_library();
    error = write_all(STDOUT_FILENO, payload + head + token_length, n - head - token_length);
    if (error == EPIPE) {
        sys_close(wire);
        die_of(SIGPIPE);
    }
    if (error) {
        output_error = error; /* for main to say: nothing may be written twice */
        need_library();
        fail("standard output: %s", strerror(error));
    }
    said = said || n > head + token_length;
    if (token_length) { /* before the A: once the daemon counts the frame as flushed, a repeat must start behind it */
        token.length = 0;
        add(&token, payload + head, token_length);
    }
    send_frame('A', payload, 4);
}

static _Noreturn void run_verb(const unsigned char *payload, size_t n)
{
    char *text = malloc(n + 1);
    char **args = calloc(n + 2, sizeof *args);
    int count = 0;

    if (!text || !args)
        fail("out of memory");
    memcpy(text, payload, n);
    text[n] = 0;
    for (char *at = text; n && at <= text + n; at += strlen(at) + 1)
        args[count++] = at;
    close(wire);
    run_python("palaver.cli", args, count);
}

static _Noreturn void end_with(int status)
{
    if (call.down && status == 0) {
        speakable = 0;
        close(wire); /* the daemon may be waiting for its last client */
        for (int ms = 0; is_daemon_alive(); ms += 10) {
            if (ms >= GONE_LIMIT_MS)
                fail("the daemon has not ended yet; see %s/daemon.log", home);
            pause_ms(10);
        }
    }
    sys_exit(call.rewake && !said ? 0 : status); /* a complaint must wake nobody */
}

/* Whether an early start is enough for a frame. */
static bool is_common(char type)
{
    return type == 'O' || type == 'E' || type == 'Q';
}

/* Do what one frame asks. False: the daemon is stepping down. */
static bool obey(char type, const unsigned char *payload, size_t n)
{
    if (type != 'N') /* a client and a daemon that each find the other too old must not go on for ever */
        heard = true;
    switch (type) {
    case 'O':
        write_output(payload, n);
        return true;
    case 'E':
        if (!call.rewake)
            write_all(STDERR_FILENO, payload, n);
        return true;
    case 'I':
        if (n != 4 || source.fd >= 0)
            fail_malformed();
        begin_stdin(get_u32(payload));
        return true;
    case 'F':
        if (n < 4 || source.fd >= 0)
            fail_malformed();
        begin_file(get_u32(payload), payload + 4, n - 4);
        return true;
    case 'V':
        run_verb(payload, n);
    case 'Q':
        if (n != 1)
            fail_malformed();
        end_with(payload[0]);
    case 'G':
        signal(SIGALRM, on_end_limit);
        gentle = 1;
        return true;
    case 'N':
        if (spawned)
            fail("this pal is " PAL_VERSION ", and the package that %s starts is older: install Palaver there again, "
                 "so that both are of one version", find_python());
        return false;
    default:
        fail_malformed();
    }
}

/* Obey every whole frame that was received. What is left of a half one moves to the front. */
static bool obey_received(void)
{
    while (received.length - obeyed >= HEAD) {
        const unsigned char *frame = received.data + obeyed;
        size_t n = get_u32(frame + 1);
        if (!is_common((char)frame[0]))
            need_library();
        if (n > FRAME_LIMIT)
            fail_malformed();
        if (received.length - obeyed < HEAD + n)
            break;
        if (!obey((char)frame[0], frame + HEAD, n)) {
            end_source();
            received.length = obeyed = 0;
            return false;
        }
        obeyed += HEAD + n;
    }
    received.length -= obeyed;
    copy(received.data, received.data + obeyed, received.length);
    obeyed = 0;
    if (received.length >= HEAD)
        reserve(&received, HEAD + get_u32(received.data + 1) - received.length);
    return true;
}

/* Wait until the daemon says something; true when the harness has gone, or nobody can read our output any more. */
static bool is_output_lost(int limit_ms)
{
    struct pollfd ready[] = {
        {.fd = wire, .events = POLLIN}, {.fd = STDOUT_FILENO}, {.fd = harness, .events = POLLIN},
    };

    while (poll(ready, 3, limit_ms) < 0 && errno == EINTR && !ending)
        ;
    return ready[1].revents & (POLLERR | POLLHUP | POLLNVAL) || ready[2].revents;
}

/* Serve the daemon until the connection ends. A Q or V ends the process. */
static void serve(void)
{
    bool stepping_down = !obey_received(); /* what an early start left */

    for (;;) {
        long n;
        if (call.monitor && is_output_lost(source.fd >= 0 ? 0 : -1))
            _exit(0);
        if (source.fd >= 0) {
            struct pollfd ready[] = {{.fd = wire, .events = POLLIN}, {.fd = source.fd, .events = POLLIN}};
            if (poll(ready, 2, -1) < 0)
                continue;
            if (!ready[0].revents) {
                pump_source();
                continue;
            }
        }
        n = sys_recv(wire, received.data + received.length, received.size - received.length);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            break;
        received.length += (size_t)n;
        if (stepping_down) /* all that matters is the end */
            received.length = 0;
        else
            stepping_down = !obey_received();
    }
    end_source();
}

#include "hook.h"
#include "monitor.h"
#include "pump.h"

static _Noreturn void say_version(void)
{
    static const unsigned char text[] = "pal " PAL_VERSION "\n";
    int error = write_all(STDOUT_FILENO, text, sizeof text - 1);

    if (error) {
        need_library();
        fail("standard output: %s", strerror(error));
    }
    sys_exit(0);
}

#ifdef PAL_EARLY
#include "early.h"
#endif

int main(int argc, char **argv)
{
    is_early = false;
    if (argc > 1 && same(argv[1], "--version"))
        say_version();
    read_arguments(argc, argv);
    if (output_error)
        fail("standard output: %s", strerror(output_error));
    if (call.hook)
        begin_hook_limit();
    if (!sys_cwd(cwd, sizeof cwd))
        cwd[0] = 0; /* it was removed; the daemon is told so by an empty name */
    find_home();
    if (call.up || call.down)
        check_arguments();
    if (call.up) {
        unlink(in_home("down"));
        if (call.foreground)
            run_in_foreground();
    }
    if (wire < 0) { /* else an early start has asked already */
        request.length = 0;
        build_request();
    }
    if (call.hook)
        run_hook();
    if (call.rewake)
        begin_rewake();
    catch_signals();
    if (call.monitor)
        run_monitor();
    if (call.mcp)
        run_pump();
    for (int repeats = 0; repeats <= REPEATS; repeats++) {
        if (wire < 0) {
            wire = open_wire(repeats);
            if (wire < 0)
                continue;
            send_request();
        }
        serve();
        gentle = 0;
        speakable = 0;
        close(wire);
        wire = -1;
        if (ending) /* the daemon was lost before it could say the end */
            die_of(ending);
        if (heard)
            repeats = 0;
    }
    fail("lost the daemon");
}
