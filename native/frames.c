#include "frames.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "call.h"
#include "connect.h"
#include "descriptors.h"
#include "errors.h"
#include "input.h"
#include "python.h"
#include "signals.h"
#include "silence.h"
#include "start.h"
#include "version.h"
#include "wire.h"

enum { OUTPUT_HEAD = 4 + 2 }; /* the number of the frame, and the length of its token */

int harness = -1;

static bool has_output; /* something was written to standard output */

void write_output(const void *data, size_t n)
{
    int error = write_all(STDOUT_FILENO, data, n);

    /* This happens if the parent process ignores SIGPIPE, which a program inherits. End as if it had not. */
    if (error == EPIPE) {
        if (wire >= 0)
            close_wire();
        die_of(SIGPIPE);
    }
    if (error)
        fail("standard output: %s", error_text(error));
}

/* Write the bytes of an O frame, and acknowledge them. */
static void execute_output(const unsigned char *payload, size_t n)
{
    size_t token_length, at;

    if (n < OUTPUT_HEAD)
        fail_malformed();
    token_length = (size_t)payload[4] << 8 | payload[5];
    at = OUTPUT_HEAD + token_length;
    if (n < at)
        fail_malformed();
    write_output(payload + at, n - at);
    has_output = has_output || n > at;
    if (token_length) { /* before the A: once the daemon counts the frame as flushed, a repeat must start after it */
        token.length = 0;
        add_bytes(&token, payload + OUTPUT_HEAD, token_length);
    }
    send_frame('A', payload, 4);
}

static _Noreturn void end_with(int status)
{
    if (call.is_down && status == 0) {
        close_wire(); /* the daemon may be waiting for its last client */
        await_end();
    }
    _exit(call.is_rewake && !has_output ? 0 : status); /* an error message must not wake the session */
}

bool execute_frame(char type, const unsigned char *payload, size_t n)
{
    if (type != 'N') /* a client and a daemon that each find the other too old must not loop */
        has_received_frame = true;
    switch (type) {
    case 'O':
        execute_output(payload, n);
        return true;
    case 'E':
        if (!call.is_rewake)
            write_all(STDERR_FILENO, payload, n);
        return true;
    case 'I':
        if (n != 4 || input_fd() >= 0)
            fail_malformed();
        begin_stdin(get_u32(payload));
        return true;
    case 'F':
        if (n < 4 || input_fd() >= 0)
            fail_malformed();
        begin_file(get_u32(payload), payload + 4, n - 4);
        return true;
    case 'V':
        close_wire();
        run_verb(payload, n);
    case 'Q':
        if (n != 1)
            fail_malformed();
        end_with(payload[0]);
    case 'G':
        begin_following(payload, n);
        is_patient = true;
        return true;
    case 'W':
        is_patient = true;
        return true;
    case 'N':
        if (has_spawned)
            fail("this pal is " PAL_VERSION ", and the package that %s starts is older: reinstall Palaver there, "
                 "so that both have the same version", find_python());
        return false;
    default:
        fail_malformed();
    }
}

/* Execute every complete frame that was received. Return false if the daemon is stepping down. */
static bool execute_received(void)
{
    const unsigned char *payload;
    size_t n;
    char type;

    while (take_frame(&type, &payload, &n))
        if (!execute_frame(type, payload, n)) {
            end_input();
            return false;
        }
    return true;
}

bool is_output_lost(int limit_ms)
{
    struct pollfd ready[] = {
        {.fd = wire, .events = POLLIN}, {.fd = STDOUT_FILENO}, {.fd = harness, .events = POLLIN},
    };

    while (poll(ready, 3, limit_ms) < 0 && errno == EINTR && !ending)
        ;
    return ready[1].revents & (POLLERR | POLLHUP | POLLNVAL) || ready[2].revents;
}

void serve(void)
{
    bool is_stepping_down = false;

    for (;;) {
        long n;
        /*
         * Nothing is written while the daemon is quiet, so the end of the harness must be noticed by waiting for it.
         * While a file is being read, only look.
         */
        if (call.is_monitor && is_output_lost(input_fd() >= 0 ? 0 : -1))
            _exit(0);
        if (input_fd() >= 0) {
            struct pollfd ready[] = {{.fd = wire, .events = POLLIN}, {.fd = input_fd(), .events = POLLIN}};
            if (poll(ready, 2, -1) < 0)
                continue;
            /* The daemon goes first: it may end the command while the input is still open, or never ends. */
            if (!ready[0].revents) {
                send_input();
                continue;
            }
        }
        await_first_frame();
        n = receive_more();
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if (!is_stepping_down)
            is_stepping_down = !execute_received();
        if (is_stepping_down) /* only the end of the connection matters now */
            forget_received();
    }
    if (call.is_waiting && !is_stepping_down) /* the daemon may have died before it could send W or G */
        is_patient = true;
    end_input();
}
