/*
 * pal monitor: what a harness keeps running beside a session, so that the bus can say a line at any time. Part of pal.c.
 *
 * Unlike every other command it outlives the daemon: it waits for the next one, also after `pal down`, and never starts
 * one. It ends with the harness that started it.
 */

enum {
    WAIT_FIRST_MS = 50,
    WAIT_MOST_MS = 500,
};

static _Noreturn void run_monitor(void)
{
    pid_t parent = getppid();
    int wait_ms = WAIT_FIRST_MS;

    while (getppid() == parent) {
        wire = connect_home();
        if (wire >= 0) {
            send_request();
            serve();
            gentle = 0;
            speakable = 0;
            close(wire);
            wire = -1;
            if (ending) /* the daemon was lost before it could say the end */
                die_of(ending);
            if (heard)
                wait_ms = WAIT_FIRST_MS;
        }
        if (is_output_lost(wait_ms))
            break;
        wait_ms = wait_ms < WAIT_MOST_MS ? 2 * wait_ms : WAIT_MOST_MS;
    }
    _exit(0);
}
