#include "silence.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "connect.h"
#include "wire.h"

enum {
    STOPPED_MS = 2000, /* of silence before a stopped daemon is reported */
    SILENT_MS = 10000, /* the same for a running daemon */
};

static enum { NOT_SILENT, LONG_SILENT, REPORTED } silence;

/* Return whether a process was stopped by a signal, if the system shows that. */
static bool is_stopped(pid_t pid)
{
    char path[64], text[512] = "", *state;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    (void)!read(fd, text, sizeof text - 1);
    close(fd);
    /* The state follows the name of the program, which may itself contain parentheses. */
    state = strrchr(text, ')');
    return state && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}

void await_first_frame(void)
{
    struct pollfd ready = {.fd = wire, .events = POLLIN};
    pid_t pid;

    if (has_received_frame || silence == REPORTED || call.is_monitor)
        return;
    if (silence == NOT_SILENT) {
        if (poll(&ready, 1, STOPPED_MS))
            return;
        silence = LONG_SILENT;
    }
    pid = daemon_pid();
    if (!is_stopped(pid) && poll(&ready, 1, SILENT_MS - STOPPED_MS))
        return;
    silence = REPORTED;
    if (is_stopped(pid))
        dprintf(STDERR_FILENO, "pal: the daemon (process %d) is stopped and does not answer; still waiting. "
                "'kill -CONT %d' continues it\n", (int)pid, (int)pid);
    else
        dprintf(STDERR_FILENO, "pal: the daemon (process %d) has not answered for %d s; still waiting\n", (int)pid,
                SILENT_MS / 1000);
}
