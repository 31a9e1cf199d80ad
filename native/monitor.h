/*
 * pal monitor: a process that a harness keeps running during a session, so that the bus can write a line at any time.
 * Part of pal.c. pal rewake: the same, but it writes once. The harness sends its output to the model when it ends with
 * status 2.
 *
 * Unlike every other command they keep running when the daemon ends: they wait for the next one, also after `pal down`,
 * and never start one. They end with the harness that started them.
 */

enum {
    WAIT_FIRST_MS = 50,
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

/* Add the input of the hook to the request. A session that prints one reply and ends must not wait for us. */
static void begin_rewake(void)
{
    const char *entry = getenv("CLAUDE_CODE_ENTRYPOINT");
    struct bytes input = {0};

    read_hook_input(&input);
    if (!entry || starts(entry, "sdk"))
        _exit(0);
    add_field('b', input.data, input.length);
}

static _Noreturn void run_monitor(void)
{
    pid_t parent = getppid();
    int wait_ms = WAIT_FIRST_MS;

    harness = watch_process(parent);
    while (getppid() == parent) {
        wire = connect_home();
        if (wire >= 0) {
            send_request();
            serve();
            gentle = 0;
            speakable = 0;
            close(wire);
            wire = -1;
            if (ending) /* the daemon was lost before it could end the command */
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
