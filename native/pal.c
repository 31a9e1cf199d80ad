/*
 * pal: the thin client of Palaver.
 *
 * It sends its arguments, working directory and a few chosen variables to the daemon and then does what the daemon
 * asks: read standard input, read a file, write this text, run this verb in Python, exit. It handles only the verbs up,
 * down, hook, monitor, rewake, mcp and help itself, parses no reply, and reads nothing that it was not asked to read.
 * It is written in C because it runs once for every command and every hook: the common path is one connect, one send,
 * one read, one write and one acknowledgement, and where the platform allows, it ends before the C library would have
 * started (early.h). src/palaver/cli/thin.py is the same client in Python; one suite tests both.
 *
 * It is one program in one translation unit: this file contains its lists, its state and its entry, and the headers are
 * its parts, each built on those before it.
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
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
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
    PIECE = 65536,     /* of the data that the daemon asked to read */
    UNDIVIDED = 4096,  /* a socket takes this much completely or not at all */
    REPEATS = 5,       /* without a frame in between */
    END_LIMIT_S = 2,   /* to write the daemon's output after a signal, when the reader does not read */
    LONGEST_PAUSE_MS = 2000, /* between two repeats */
    GONE_LIMIT_MS = 10000, /* for a daemon that is stepping down to end */
    DEAF_LIMIT_MS = 5000,  /* for a running daemon to listen: it is starting, or its socket was removed */
    STOPPED_MS = 2000, /* of silence before a stopped daemon is reported */
    SILENT_MS = 10000, /* the same for a running daemon */
    TICKET_LIMIT = 256, /* bytes; an empty pipe takes them at once */
    READY_FD = 3,
};

/* Exact names, never prefixes: other variables carry keys. The same list is in palaver/harness/marks.py. */
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

/* A growing buffer. The first storage may be static, so that the common path allocates no memory. */
struct bytes {
    unsigned char *data;
    size_t length, size;
    bool fixed;
};

/* The arguments, as far as the client itself must know them. */
static struct {
    int count, verb_at; /* verb_at is 0 when there is no verb */
    char **all;
    const char *home;
    bool home_given, version, help, foreground, json, repair, hook, up, down, mcp, monitor, rewake, waits;
} call;

static char cwd[PATH_MAX];
static char home[2 * PATH_MAX];
static bool is_early; /* the C library has not started */

static int wire = -1;                    /* the connection */
static volatile sig_atomic_t speakable;  /* a frame may be sent now */
static bool heard;                       /* a frame came on this connection */
static enum { SILENCE_UNKNOWN, SILENCE_LONG, SILENCE_SAID } silence; /* of the daemon before its first frame */
static bool said;                        /* something was written to standard output */
static bool spawned;                     /* this process started the daemon, from its own package */
static volatile sig_atomic_t gentle;     /* report SIGTERM and SIGHUP to the daemon, which then ends the command */
static volatile sig_atomic_t ending;     /* the signal that was or will be reported */
static volatile sig_atomic_t told;
static volatile sig_atomic_t follower;   /* a daemon has sent G */
static bool patient;                     /* the command waits, and continues however often daemons die */
static int64_t begun_at = -1;            /* where a follower began; -1 when unknown */
static int failures;                     /* of starts, without a frame in between */
static int harness = -1;                 /* signals the end of the monitor's harness, if possible */

static unsigned char request_room[2 * PIECE], received_room[PIECE + 8192];
static struct bytes request = {request_room, 0, sizeof request_room, true};
static struct bytes received = {received_room, 0, sizeof received_room, true};
static size_t obeyed;                    /* bytes of `received` that were executed */
static unsigned char token_room[1024];
static struct bytes token = {token_room, 0, sizeof token_room, true}; /* of the last output frame that was written */
static int output_error;                 /* found by an early start */
static struct bytes kept;                /* standard input read so far: a repeated request asks for it again */
static bool kept_all;                    /* its end was reached; a terminal must not be read twice */

/* The file that is being read for the daemon. */
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

/* From here on the C library is needed. An early start ends here, and main begins; a sent request stays sent. */
static void need_library(void)
{
    if (is_early)
        start_library();
}

#include "endings.h"
#include "bytes.h"
#include "request.h"
#include "python.h"
#include "connect.h"
#include "start.h"
#include "frames.h"
#include "hook.h"
#include "monitor.h"
#include "pump.h"

static _Noreturn void say_version(void)
{
    const char *text = call.json ? "{\"version\":\"" PAL_VERSION "\"}\n" : "pal " PAL_VERSION "\n";
    int error = write_all(STDOUT_FILENO, (const unsigned char *)text, length_of(text));

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
    read_arguments(argc, argv);
    if (call.version)
        say_version();
    if (output_error)
        fail("standard output: %s", strerror(output_error));
    if (call.hook)
        begin_hook_limit();
    if (!sys_cwd(cwd, sizeof cwd))
        cwd[0] = 0; /* it was removed; an empty name tells the daemon */
    find_home();
    if (call.repair) /* the daemon may not be able to start, and must not run */
        run_python("palaver.cli", call.all + 1, call.count - 1);
    if (call.up || call.down)
        check_arguments();
    if (call.up && call.foreground)
        run_in_foreground();
    if (wire < 0) { /* otherwise an early start has sent the request */
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
    for (int repeats = 0; repeats <= REPEATS || patient; repeats++) {
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
            end_follower(ending);
        if (heard)
            repeats = 0;
    }
    fail("lost the daemon");
}
