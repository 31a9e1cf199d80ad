#include "pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bytes.h"
#include "connect.h"
#include "descriptors.h"
#include "errors.h"
#include "frames.h"
#include "home.h"
#include "json_id.h"
#include "request.h"
#include "start.h"
#include "wire.h"

enum {
    LINE_LIMIT = 1024 * 1024,
    LINE_END = 4096, /* bytes of each end of a too long line that the daemon gets */
    STOPPED = -32000, /* the code of the errors that the client itself sends */
    FIRST_LIMIT_MS = 5000, /* for the first frame of a daemon: a new one on a busy machine is slow */
    LAST_LIMIT_MS = 10000, /* for the next frame after the end of input, while a line is not settled */
    SETTLED_LIMIT_MS = 2000, /* and when all lines are settled */
};

#ifndef POLLRDHUP
#define POLLRDHUP 0 /* elsewhere the end of a pipe is always reported */
#endif

static const char NO_BUS[] = "the bus is not running; try again later, or ask for 'pal up'. The call may have been carried out";
static const char DENIED[] = "this process may not connect to the bus any more (a sandbox?); ask the user for access to "
                             "daemon.sock in the home of the bus. The call may have been carried out";
static const char HUNG[] = "the bus does not answer: its daemon is stopped or very busy. Try again later, or end the process "
                           "in daemon.lock and run 'pal up'. The call may have been carried out";

/* Lines that were read and are not settled, oldest first. There are few: a harness waits for its replies. */
struct pending {
    struct pending *next;
    uint32_t number;
    bool is_too_long;
    struct bytes line; /* as in the frame: the number first */
};

static struct pending *pending;
static uint32_t lines_read;
static struct bytes incoming;      /* of the line that is being read */
static unsigned char tail[LINE_END];
static size_t dropped;             /* bytes of a line beyond the limit, the newest of them in `tail` as a ring */
static bool has_input_ended;
static long long waited_since_ms;  /* the start of the current wait for the daemon */
static bool is_stuck;              /* the daemon does not even read */

/* Reply to a request instead of the missing daemon. A line without an id expects no reply. */
static void refuse_line(const struct bytes *line, const char *why)
{
    const unsigned char *id = NULL;
    struct bytes reply = {0};
    char text[512];
    size_t n = find_id(line->data + 4, line->data + line->length, &id);

    if (!n)
        return;
    add_bytes(&reply, "{\"jsonrpc\":\"2.0\",\"id\":", 22);
    add_bytes(&reply, id, n);
    snprintf(text, sizeof text, ",\"error\":{\"code\":%d,\"message\":\"%s\"}}\n", STOPPED, why);
    add_bytes(&reply, text, strlen(text));
    write_output(reply.data, reply.length);
    free(reply.data);
}

/* ---- Lines that are not settled ---- */

static void forget(struct pending *one)
{
    free(one->line.data);
    free(one);
}

static void settle(uint32_t number)
{
    for (struct pending **at = &pending; *at; at = &(*at)->next)
        if ((*at)->number == number) {
            struct pending *one = *at;
            *at = one->next;
            forget(one);
            return;
        }
}

static void refuse_pending(const char *why)
{
    while (pending) {
        struct pending *one = pending;
        pending = one->next;
        refuse_line(&one->line, why);
        forget(one);
    }
}

static void send_line(const struct pending *one, bool is_repeat)
{
    send_frame(one->is_too_long ? 'X' : is_repeat ? 'M' : 'L', one->line.data, one->line.length);
}

static bool is_blank(const struct bytes *line)
{
    return !line->length || skip_blanks(line->data, line->data + line->length) == line->data + line->length;
}

/* A whole line was read: number it, keep it, and send it to the daemon if there is one. */
static void take_line(void)
{
    struct pending *one, **last = &pending;
    unsigned char number[4];

    if (!dropped && is_blank(&incoming)) {
        incoming.length = 0;
        return;
    }
    one = calloc(1, sizeof *one);
    if (!one)
        fail("out of memory");
    one->number = ++lines_read;
    one->is_too_long = dropped > 0;
    put_u32(number, one->number);
    add_bytes(&one->line, number, sizeof number);
    /* Of a line that is too long both ends are kept: its id may be in either, and the error must name it. */
    add_bytes(&one->line, incoming.data, dropped ? LINE_END : incoming.length);
    if (dropped) { /* the end of the line: the tail of `incoming`, then the last dropped bytes */
        size_t kept_end = dropped < LINE_END ? dropped : LINE_END, more = LINE_END - kept_end;
        add_bytes(&one->line, incoming.data + incoming.length - more, more);
        for (size_t i = dropped - kept_end; i < dropped; i++)
            add_bytes(&one->line, &tail[i % LINE_END], 1);
    }
    incoming.length = dropped = 0;
    if (!pending)
        waited_since_ms = now_ms();
    while (*last)
        last = &(*last)->next;
    *last = one;
    if (wire >= 0) /* without a daemon it stays pending, and is sent after the next connect */
        send_line(one, false);
}

static void read_lines(void)
{
    static unsigned char piece[PIECE];
    ssize_t n = read(STDIN_FILENO, piece, sizeof piece);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) { /* an incomplete last line does not count */
        has_input_ended = true;
        /* Without a first frame the wait for that goes on: it began with the connection. */
        if (has_received_frame || !pending)
            waited_since_ms = now_ms();
        if (wire >= 0)
            send_frame('Z', NULL, 0);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        unsigned char *end = memchr(piece + i, '\n', (size_t)(n - i));
        size_t length = end ? (size_t)(end - piece - i) : (size_t)(n - i);
        size_t room = LINE_LIMIT - incoming.length;
        size_t fits = dropped ? 0 : length < room ? length : room;
        add_bytes(&incoming, piece + i, fits);
        for (size_t j = fits; j < length; j++)
            tail[dropped++ % LINE_END] = piece[(size_t)i + j];
        i += (ssize_t)length;
        if (end)
            take_line();
    }
}

/* ---- With a daemon ---- */

/* Execute one frame of this connection; false when it is another one. */
static bool execute_line(char type, const unsigned char *payload, size_t n)
{
    if (type == 'L' && n >= 4) {
        write_output(payload + 4, n - 4);
        settle(get_u32(payload)); /* once it is written, and not before */
    } else if (type == 'T') {
        token.length = 0;
        add_bytes(&token, payload, n);
    } else {
        return false;
    }
    has_received_frame = true;
    return true;
}

static void execute_received(void)
{
    const unsigned char *payload;
    size_t n;
    char type;

    while (take_frame(&type, &payload, &n))
        if (!execute_line(type, payload, n) && type != 'N')
            execute_frame(type, payload, n); /* E and Q, as for every command */
}

/* Return how long the daemon may stay silent; below 0 without a limit. */
static int silence_limit_ms(void)
{
    long long limit = !pending ? SETTLED_LIMIT_MS : has_received_frame ? LAST_LIMIT_MS : FIRST_LIMIT_MS, left;

    if (!has_input_ended && (has_received_frame || !pending))
        return -1;
    left = waited_since_ms + limit - now_ms();
    return left < 0 ? 0 : (int)left;
}

/* Wait until the daemon reads more; false when waiting is useless. After the end of input no reply is needed. */
static bool await_room(void)
{
    struct pollfd room = {.fd = wire, .events = POLLOUT};

    for (;;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLRDHUP};
        int n = poll(&room, 1, has_received_frame ? LAST_LIMIT_MS : FIRST_LIMIT_MS);
        if (n > 0)
            return true;
        if (!n && (!has_received_frame || has_input_ended || (poll(&input, 1, 0) > 0 && input.revents))) {
            is_stuck = true;
            /* Half of a frame may be sent: another one would become its end, and would wait here once more. */
            shutdown(wire, SHUT_WR);
            return false;
        }
    }
}

/*
 * Forward lines until the daemon is lost; ends the process when the last line is settled. False: the daemon is silent.
 */
static bool pump(void)
{
    bool is_silent = false;

    is_stuck = false;
    waited_since_ms = now_ms();
    fcntl(wire, F_SETFL, O_NONBLOCK); /* a daemon that does not read must not hide the end of input */
    send_request();
    /* The lost daemon may have handled these, so they are marked as repeats. */
    for (struct pending *one = pending; one; one = one->next)
        send_line(one, true);
    if (has_input_ended)
        send_frame('Z', NULL, 0);
    for (;;) {
        struct pollfd ready[] = {
            {.fd = wire, .events = POLLIN}, {.fd = has_input_ended ? -1 : STDIN_FILENO, .events = POLLIN},
        };
        int limit_ms = silence_limit_ms();
        ssize_t n = is_stuck ? 0 : poll(ready, 2, limit_ms);
        if (n < 0)
            continue;
        is_silent = !n;
        if (is_silent)
            break;
        if (ready[0].revents) {
            n = receive_more();
            if (n < 0 && (errno == EINTR || errno == EAGAIN))
                continue;
            if (n <= 0)
                break;
            waited_since_ms = now_ms();
            execute_received();
        }
        if (ready[1].revents)
            read_lines();
    }
    close_wire();
    return !is_silent;
}

/* ---- Without one ---- */

/* Connect to a daemon again; start one, unless the bus was stopped on purpose. Below 0: no daemon is available. */
static int regain(void)
{
    char *marker = path_in_home("down");
    int fd = connect_home();

    for (int tries = 0; fd < 0 && tries < REPEATS; tries++) {
        pid_t child;
        pause_ms(20 << tries);
        fd = connect_home();
        /* After another error a daemon may be running, so a second one must not be started. */
        if (fd >= 0 || !access(marker, F_OK) || (fd != -ENOENT && fd != -ECONNREFUSED))
            break;
        child = fork(); /* an error there ends only the child */
        if (!child) {
            fd = start_daemon();
            _exit(fd < 0);
        }
        while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
        fd = connect_home();
    }
    free(marker);
    return fd;
}

_Noreturn void run_pump(void)
{
    set_protocol("PALM");
    on_full_wire = await_room;
    wire = open_wire(0);
    for (;;) {
        bool is_silent = wire >= 0 && !pump(), is_done = !pending;
        /* Not after silence: the daemon still runs, so another connection would reach the same one. */
        if (!is_silent) {
            wire = regain();
            if (wire >= 0)
                continue;
        }
        refuse_pending(is_silent ? HUNG : wire == -EACCES || wire == -EPERM ? DENIED : NO_BUS);
        if (has_input_ended)
            _exit(is_silent && is_done && has_received_frame ? 0 : 1);
        while (!pending && !has_input_ended) { /* try again at the next line */
            /* A read does not wait if the harness has made its pipe non-blocking. */
            struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
            poll(&input, 1, -1);
            read_lines();
        }
    }
}
