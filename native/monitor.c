#include "monitor.h"

#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "bytes.h"
#include "connect.h"
#include "descriptors.h"
#include "frames.h"
#include "hook.h"
#include "request.h"
#include "signals.h"
#include "wire.h"

enum {
    WAIT_FIRST_MS = 50, /* between two attempts to connect */
    WAIT_MOST_MS = 500,
};

/*
 * Return a descriptor that signals the end of a process, if the system supports it. Otherwise the closed output must be
 * enough.
 */
static int watch_process(pid_t pid)
{
#ifdef SYS_pidfd_open
    return above_stdio((int)syscall(SYS_pidfd_open, pid, 0));
#else
    (void)pid;
    return -1;
#endif
}

void begin_rewake(void)
{
    const char *entry = getenv("CLAUDE_CODE_ENTRYPOINT");
    struct bytes input = {0};

    read_hook_input(&input);
    if (!entry || starts_with(entry, "sdk"))
        _exit(0);
    add_field('b', input.data, input.length);
    free(input.data);
}

_Noreturn void run_monitor(void)
{
    pid_t parent = getppid();
    int wait_ms = WAIT_FIRST_MS;

    harness = watch_process(parent);
    /* Checked in addition: the parent may have ended before it was watched, and its number may be in use again. */
    while (getppid() == parent) {
        wire = connect_home();
        if (wire >= 0) {
            send_request();
            serve();
            close_wire();
            if (ending) /* the daemon was lost before it could end the command */
                die_of(ending);
            if (has_received_frame)
                wait_ms = WAIT_FIRST_MS;
        }
        if (is_output_lost(wait_ms))
            break;
        wait_ms = wait_ms < WAIT_MOST_MS ? 2 * wait_ms : WAIT_MOST_MS;
    }
    _exit(0);
}
