#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "call.h"
#include "connect.h"
#include "descriptors.h"
#include "home.h"
#include "request.h"
#include "signals.h"
#include "wire.h"

enum {
    INPUT_LIMIT = 8 * 1024 * 1024, /* bytes; the input contains the results of tools */
    LIMIT_MS = 1000,
    LONG_LIMIT_MS = 2000,  /* at the start of a session, when it may need a name */
    PERSON_LIMIT_S = 3700, /* while a person is asked, and only if the daemon says so */
    TRY_MS = 50,           /* while the daemon is known to be slow */
    SLOW_S = 30,           /* age up to which the mark counts */
    AGAIN_MS = 20,         /* between two attempts to reach the next daemon */
};

static volatile sig_atomic_t is_asking;    /* waiting for the daemon */
static volatile sig_atomic_t left_ms;      /* rest of the limit after TRY_MS */
static volatile sig_atomic_t has_tried;    /* TRY_MS is over */
static volatile sig_atomic_t has_asked;    /* a daemon may have made a reply for us */
static volatile sig_atomic_t has_reply;    /* the daemon is notified that it is here: write it without a deadline */
static volatile sig_atomic_t is_late;      /* the limit was reached in the meantime */
static bool is_person_asked;               /* the daemon said that its reply contains no message */

static char slow_mark[HOME_SIZE + sizeof "/slow"];
static char outcome_path[HOME_SIZE + sizeof "/hooks/.lost" + 2 * KEY_LENGTH];
static size_t outcome_at; /* where the ending of that path begins */

static void set_timer(unsigned limit_ms)
{
    struct itimerval limit = {.it_value = {.tv_sec = limit_ms / 1000, .tv_usec = (int)(limit_ms % 1000) * 1000}};

    setitimer(ITIMER_REAL, &limit, NULL);
}

/* Prepare the paths: a signal handler may not format them. */
static void prepare_paths(void)
{
    int n = snprintf(outcome_path, sizeof outcome_path, "%s/hooks/", home);

    snprintf(slow_mark, sizeof slow_mark, "%s/slow", home);
    for (size_t i = 0; i < KEY_LENGTH; i++)
        n += snprintf(outcome_path + n, sizeof outcome_path - (size_t)n, "%02x", request.data[KEY_AT + i]);
    outcome_at = (size_t)n;
}

/* Create an empty file, or set its time to now if it exists. Async-signal-safe. */
static void touch(const char *path)
{
    /* O_TRUNC sets the time of an existing file; O_NOFOLLOW keeps it from emptying the file that a link names. */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
}

static bool is_known_slow(void)
{
    struct stat found;
    time_t age_s;

    if (stat(slow_mark, &found))
        return false;
    age_s = time(NULL) - found.st_mtime;
    return age_s >= 0 && age_s < SLOW_S;
}

/* Leave a file with the outcome of the reply. Only the daemon creates the folder: without it no file is left. */
static void leave_outcome(const char *outcome)
{
    strcpy(outcome_path + outcome_at, outcome);
    touch(outcome_path);
}

/* End without a reply. */
static _Noreturn void give_up(void)
{
    if (has_asked && !is_person_asked)
        leave_outcome(".lost");
    _exit(0);
}

/* Runs at any point, so it calls only async-signal-safe functions. */
static void on_limit(int number)
{
    int error = errno;

    (void)number;
    /* The daemon counts the messages as delivered, so the reply must be written, however late it is. */
    if (has_reply) {
        is_late = 1;
    } else if (!left_ms || (is_asking && !has_tried && is_known_slow())) {
        give_up();
    } else if (!has_tried) {
        has_tried = 1;
        set_timer((unsigned)left_ms);
    } else {
        if (is_asking)
            touch(slow_mark);
        give_up();
    }
    errno = error;
}

/* Begin to wait for the daemon. If the input took long to read, TRY_MS may already be over. */
static void begin_asking(void)
{
    is_asking = 1;
    if (has_tried && is_known_slow()) {
        left_ms = 0;
        set_timer(TRY_MS);
    }
}

void begin_hook_limit(void)
{
    int event_at = call.verb_at + 2;
    bool is_start = event_at < call.count && !strcmp(call.all[event_at], "SessionStart");

    handle_signal(SIGALRM, on_limit);
    handle_signal(SIGPIPE, SIG_IGN); /* a harness that has stopped reading must not see a hook that failed */
    left_ms = (is_start ? LONG_LIMIT_MS : LIMIT_MS) - TRY_MS;
    set_timer(TRY_MS);
}

void read_hook_input(struct bytes *input)
{
    bool is_too_long = false;

    if (isatty(STDIN_FILENO))
        return;
    for (;;) {
        ssize_t n;
        reserve(input, PIECE);
        n = read(STDIN_FILENO, input->data + input->length, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* it is shared and non-blocking: neither data nor its end has come yet */
            struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
            poll(&more, 1, -1);
            continue;
        }
        if (n <= 0)
            break;
        input->length += (size_t)n;
        if (input->length > INPUT_LIMIT) { /* keep reading: the writer must not get a closed pipe */
            is_too_long = true;
            input->length = 0;
        }
    }
    if (is_too_long)
        _exit(0);
}

/* Wait for a person, for the time that the daemon gave. */
static void wait_for_person(uint32_t limit_s)
{
    if (!limit_s) /* there is always a limit */
        limit_s = 1;
    if (limit_s > PERSON_LIMIT_S)
        limit_s = PERSON_LIMIT_S;
    is_asking = 0; /* reaching this limit means waiting for a person, not a slow daemon */
    is_person_asked = true;
    has_tried = 1;
    set_timer(1000 * limit_s);
}

/* Receive the whole reply; false when the daemon is lost first. Any other frame ends the hook. */
static bool receive_reply(void)
{
    for (;;) {
        if (received.length >= HEAD) {
            char type = (char)received.data[0];
            size_t n = get_u32(received.data + 1), size = HEAD + n;
            bool is_wait = type == 'W' && n == 4;
            if (!is_wait && ((type != 'H' && type != 'M') || n > FRAME_LIMIT))
                give_up();
            if (received.length >= size) {
                if (!is_wait)
                    return true;
                wait_for_person(get_u32(received.data + HEAD));
                received.length -= size;
                memmove(received.data, received.data + size, received.length);
                continue;
            }
            reserve(&received, size - received.length);
        }
        long n = receive_more();
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
    }
}

/* Repeat the request to the next daemon, once one listens; the limit ends the wait. */
static void ask_again(void)
{
    if (is_person_asked)
        give_up();
    is_asking = 0; /* a missing daemon is not slow */
    close_wire();
    while (wire < 0) {
        pause_ms(AGAIN_MS);
        wire = connect_home();
    }
    is_asking = 1;
    token.length = 0;
    add_bytes(&token, "again", 5); /* the daemon looks for a reply of an earlier daemon */
    send_request();
}

/* Take the reply, and confirm it to the daemon; false when the daemon is lost before that. */
static bool take_reply(void)
{
    if (!receive_reply())
        return false;
    if (!get_u32(received.data + 1))
        _exit(0);
    /*
     * Before the confirmation: if the limit came between the two, the daemon would count a reply that is never written.
     */
    has_reply = 1;
    if (send_frame('A', NULL, 0))
        return true;
    has_reply = 0;
    if (is_late)
        give_up();
    return false;
}

_Noreturn void run_hook(void)
{
    static unsigned char room[2 * PIECE];
    static struct bytes input = {room, 0, sizeof room, true};

    prepare_paths();
    read_hook_input(&input);
    begin_asking();
    set_protocol("PALH");
    add_field('b', input.data, input.length);
    wire = connect_home();
    if (wire < 0)
        _exit(0);
    /* Before the request: from now on a daemon may have made a reply, so a hook that ends must leave its outcome. */
    has_asked = 1;
    send_request();
    while (!take_reply())
        ask_again();
    if (!write_all(STDOUT_FILENO, received.data + HEAD, get_u32(received.data + 1)) && received.data[0] == 'M')
        leave_outcome(".said");
    _exit(0);
}
