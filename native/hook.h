/*
 * pal hook: one request, one reply, and it never blocks the harness. Part of pal.c.
 *
 * A harness waits for this process. It reads the input from the harness, asks a running daemon, and writes its reply,
 * completely or not at all. It starts nothing, prints nothing else, and ends with 0: without a daemon, and with one
 * that hangs, has another version or sends an invalid reply. The first hook that waits for a hung daemon until its
 * limit leaves a mark. While the mark is fresh, other hooks wait only for HOOK_TRY_MS. They look at the mark only after
 * that time, and the daemon removes it with the next hook that it serves. Before the hook writes, it tells the daemon
 * that it has the reply and that no deadline applies any more: without that, nothing was written.
 *
 * If the daemon dies first, the same request is repeated to the next daemon until the limit; no daemon is started for
 * it. A file in hooks/ named after the request key tells a later daemon the outcome: `.lost` if the reply was not and
 * will not be written, `.said` if it was written and has messages in it (then the daemon sends it as M, otherwise as
 * H).
 */

enum {
    HOOK_INPUT_LIMIT = 8 * 1024 * 1024, /* the input contains the results of tools */
    HOOK_LIMIT_MS = 1000,
    HOOK_PERSON_LIMIT_S = 3700, /* while a person is asked, and only if the daemon says so */
    HOOK_LONG_LIMIT_MS = 2000, /* at the start of a session, when it may need a name */
    HOOK_TRY_MS = 50,   /* while the daemon is known to be slow */
    HOOK_SLOW_S = 30,   /* age up to which the mark counts */
    HOOK_AGAIN_MS = 20, /* between two attempts to reach the next daemon */
};

static volatile sig_atomic_t asking;       /* waiting for the daemon */
static volatile sig_atomic_t left_ms;      /* rest of the limit after HOOK_TRY_MS */
static volatile sig_atomic_t has_tried;    /* HOOK_TRY_MS is over */
static volatile sig_atomic_t has_asked;    /* a daemon may have made a reply for us */
static volatile sig_atomic_t has_told;     /* the reply is here or arriving: write it without a deadline */
static volatile sig_atomic_t is_late;      /* the limit was reached in the meantime */
static bool asks_person;                   /* the daemon said that its reply contains no message */

/* Return the path of the mark; only once the home is known. */
static const char *slow_mark(void)
{
    static const char NAME[] = "/slow";
    static char path[sizeof home + sizeof NAME];
    size_t n = length_of(home);

    copy(path, home, n);
    copy(path + n, NAME, sizeof NAME);
    return path;
}

static bool is_known_slow(void)
{
    long age_s = sys_age(slow_mark());

    return age_s >= 0 && age_s < HOOK_SLOW_S;
}

/* Leave a file with the outcome of the reply. Only the daemon creates the folder: without it no file is left. */
static void leave_outcome(const char *ending)
{
    enum { KEY_AT = 4 + HEAD + HEAD, KEY_LENGTH = 16 }; /* the key is the first field of the request */
    static const char FOLDER[] = "/hooks/", DIGITS[] = "0123456789abcdef";
    static char path[sizeof home + sizeof FOLDER + 2 * KEY_LENGTH + 8];
    size_t at = length_of(home);

    copy(path, home, at);
    copy(path + at, FOLDER, sizeof FOLDER - 1);
    at += sizeof FOLDER - 1;
    for (size_t i = 0; i < KEY_LENGTH; i++) {
        path[at++] = DIGITS[request.data[KEY_AT + i] >> 4];
        path[at++] = DIGITS[request.data[KEY_AT + i] & 15];
    }
    copy(path + at, ending, length_of(ending) + 1);
    sys_touch(path);
}

/* End without a reply. */
static _Noreturn void give_up(void)
{
    if (has_asked && !asks_person)
        leave_outcome(".lost");
    sys_exit(0);
}

static void on_hook_limit(int number)
{
    (void)number;
    if (has_told) {
        is_late = 1;
        return;
    }
    if (!left_ms || (asking && !has_tried && is_known_slow()))
        give_up();
    if (!has_tried) {
        has_tried = 1;
        sys_timer((unsigned)left_ms);
        return;
    }
    if (asking)
        sys_touch(slow_mark());
    give_up();
}

/* Begin to wait for the daemon. If the input took long to read, HOOK_TRY_MS may already be over. */
static void begin_asking(void)
{
    asking = 1;
    if (has_tried && is_known_slow()) {
        left_ms = 0;
        sys_timer(HOOK_TRY_MS);
    }
}

/* Start the time limit of the hook. */
static void begin_hook_limit(void)
{
    static bool has_begun; /* in an early start */
    int event_at = call.verb_at + 2;
    bool is_start = event_at < call.count && same(call.all[event_at], "SessionStart");

    if (has_begun)
        return;
    has_begun = true;
    sys_take(SIGALRM, on_hook_limit);
    sys_take(SIGPIPE, SIG_IGN);
    left_ms = (is_start ? HOOK_LONG_LIMIT_MS : HOOK_LIMIT_MS) - HOOK_TRY_MS;
    sys_timer(HOOK_TRY_MS);
}

/* Read the input from the harness to its end. A terminal has no input, and must not be waited for. */
static void read_hook_input(struct bytes *input)
{
    bool too_long = false;

    if (sys_is_terminal(STDIN_FILENO))
        return;
    for (;;) {
        long n;
        reserve(input, PIECE);
        n = sys_read(STDIN_FILENO, input->data + input->length, PIECE);
        if (n == -EINTR)
            continue;
        if (n == -EAGAIN) { /* it is shared and non-blocking: neither data nor its end has come yet */
            struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
            sys_poll(&more, 1, -1);
            continue;
        }
        if (n <= 0)
            break;
        input->length += (size_t)n;
        if (input->length > HOOK_INPUT_LIMIT) { /* keep reading: the writer must not get a closed pipe */
            too_long = true;
            input->length = 0;
        }
    }
    if (too_long)
        sys_exit(0);
}

/* Receive one whole frame; false when the daemon is lost first. An unknown frame ends the hook. */
static bool receive_answer(void)
{
    for (;;) {
        long n;
        if (received.length >= HEAD) {
            size_t length = get_u32(received.data + 1);
            if (received.data[0] == 'W' && length == 4) { /* a person is asked: wait for this time */
                if (received.length >= HEAD + 4) {
                    unsigned limit_s = get_u32(received.data + HEAD);
                    if (!limit_s) /* there is always a limit */
                        limit_s = 1;
                    asking = 0; /* reaching this limit means waiting for a person, not a slow daemon */
                    asks_person = true;
                    sys_timer(1000 * (limit_s < HOOK_PERSON_LIMIT_S ? limit_s : HOOK_PERSON_LIMIT_S));
                    has_tried = 1;
                    received.length -= HEAD + 4;
                    copy(received.data, received.data + HEAD + 4, received.length);
                    continue;
                }
            } else if ((received.data[0] != 'H' && received.data[0] != 'M') || length > FRAME_LIMIT)
                give_up();
            if (received.length >= HEAD + length)
                return true;
            reserve(&received, HEAD + length - received.length);
        }
        n = sys_recv(wire, received.data + received.length, received.size - received.length);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return false;
        received.length += (size_t)n;
    }
}

/* Repeat the request to the next daemon, once one listens; the limit ends the wait. */
static void ask_again(void)
{
    if (asks_person)
        give_up();
    asking = 0; /* a missing daemon is not slow */
    sys_close(wire);
    wire = -1;
    while (wire < 0) {
        sys_poll(NULL, 0, HOOK_AGAIN_MS);
        wire = connect_home();
    }
    asking = 1;
    token.length = 0;
    add(&token, "again", 5); /* the daemon looks for a reply of an earlier daemon */
    send_request();
}

/* Take the reply, and confirm it to the daemon; false when the daemon is lost before that. */
static bool has_answer(void)
{
    if (!receive_answer())
        return false;
    if (!get_u32(received.data + 1))
        sys_exit(0);
    has_told = 1;
    if (send_frame('A', NULL, 0))
        return true;
    has_told = 0;
    if (is_late)
        give_up();
    return false;
}

static _Noreturn void run_hook(void)
{
    static unsigned char room[2 * PIECE];
    static struct bytes input = {room, 0, sizeof room, true};

    if (wire < 0) { /* otherwise an early start has sent the request, and its reply is long */
        read_hook_input(&input);
        begin_asking();
        copy(request.data, "PALH", 4);
        add_field('b', input.data, input.length);
        reserve(&request, 2 * HEAD); /* a repeat adds a short field, and must not allocate memory */
        wire = connect_home();
        if (wire < 0)
            sys_exit(0);
        has_asked = 1;
        send_request();
    }
    while (!has_answer())
        ask_again();
    if (!write_all(STDOUT_FILENO, received.data + HEAD, get_u32(received.data + 1)) && received.data[0] == 'M')
        leave_outcome(".said");
    sys_exit(0);
}
