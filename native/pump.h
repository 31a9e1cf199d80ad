/*
 * pal mcp: forward lines between a harness and the daemon. Part of pal.c.
 *
 * Each line of standard input gets a number and is kept until the daemon says that it is settled; each line of the
 * daemon is written. It does not interpret messages. When the daemon is lost, it connects again, starts a daemon if
 * that is allowed, and sends the lines that are not settled again, marked as repeats. Only when no daemon can be
 * reached, or the daemon is silent, does it read a line itself: for the id, so that a request gets an error and not
 * silence. A daemon sends something at once; a request that it has begun may then take any time.
 */

enum {
    LINE_LIMIT = 1024 * 1024,
    LINE_END = 4096, /* bytes of each end of a too long line that the daemon gets */
    STOPPED = -32000,
    FIRST_LIMIT_MS = 5000, /* for the first frame of a daemon: a new one on a busy machine is slow */
    LAST_LIMIT_MS = 10000, /* for the next frame after the end of input, while a line is not settled */
    BYE_LIMIT_MS = 2000,   /* and when all lines are settled */
};

#ifndef POLLRDHUP
#define POLLRDHUP 0 /* elsewhere the end of a pipe is always reported */
#endif

static const char NO_BUS[] = "the bus does not run now; try again later, or ask for 'pal up'. It may be that this was done";
static const char HUNG[] = "the bus does not answer: its daemon is stopped or very busy. Try again later, or end that process, "
                           "whose number is in daemon.lock, and 'pal up' starts another. It may be that this was done";

/* Lines that were read and are not settled, oldest first. There are few: a harness waits for its replies. */
struct pending {
    struct pending *next;
    uint32_t number;
    bool too_long;
    struct bytes line; /* as in the frame: the number first */
};

static struct pending *pending;
static uint32_t lines_read;
static struct bytes incoming;      /* of the line that is being read */
static unsigned char tail[LINE_END];
static size_t dropped;             /* bytes of a line beyond the limit, the newest of them in `tail` as a ring */
static bool input_ended;
static long long waited_since_ms;  /* the start of the current wait for the daemon */
static bool stuck;                 /* the daemon does not even read */

static long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- A line by itself ---- */

static const unsigned char *skip_blanks(const unsigned char *at, const unsigned char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* Return the position after the string that begins at `at`. */
static const unsigned char *skip_text(const unsigned char *at, const unsigned char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at < end ? at + 1 : end;
}

/* Find the value of "id" in the outermost object: its start and its length; 0 without an id. */
static size_t find_id(const unsigned char *at, const unsigned char *end, const unsigned char **found)
{
    int depth = 0;
    bool key = false; /* a text here is the name of a member */

    while ((at = skip_blanks(at, end)) < end) {
        if (*at == '"') {
            const unsigned char *behind = skip_text(at, end), *value;
            bool is_id = key && depth == 1 && behind - at == 4 && !memcmp(at, "\"id\"", 4);
            at = behind;
            if (!is_id)
                continue;
            at = skip_blanks(at, end);
            if (at >= end || *at != ':')
                return 0;
            value = at = skip_blanks(at + 1, end);
            if (at < end && *at == '"')
                at = skip_text(at, end);
            else
                while (at < end && (*at == '-' || (*at >= '0' && *at <= '9')))
                    at++;
            *found = value;
            return (size_t)(at - value);
        }
        if (*at == '{' || *at == '[')
            depth++;
        if (*at == '}' || *at == ']')
            depth--;
        if (*at == '{' || *at == ',')
            key = true;
        if (*at == ':' || *at == '[')
            key = false;
        at++;
    }
    return 0;
}

static void write_line(const void *data, size_t n)
{
    int error = write_all(STDOUT_FILENO, data, n);

    if (error == EPIPE)
        die_of(SIGPIPE);
    if (error)
        fail("standard output: %s", strerror(error));
}

/* Reply to a request instead of the missing daemon. A line without an id expects no reply. */
static void refuse_line(const struct bytes *line, const char *why)
{
    const unsigned char *id = NULL;
    struct bytes answer = {0};
    char text[512];
    size_t n = find_id(line->data + 4, line->data + line->length, &id);

    if (!n)
        return;
    add(&answer, "{\"jsonrpc\":\"2.0\",\"id\":", 22);
    add(&answer, id, n);
    add(&answer, text, (size_t)snprintf(text, sizeof text, ",\"error\":{\"code\":%d,\"message\":\"%s\"}}\n", STOPPED, why));
    write_line(answer.data, answer.length);
    free(answer.data);
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

static void hand_over(const struct pending *one, bool again)
{
    send_frame(one->too_long ? 'X' : again ? 'M' : 'L', one->line.data, one->line.length);
}

/* A whole line was read: number it, keep it, and send it to the daemon if there is one. */
static void take_line(void)
{
    struct pending *one, **last = &pending;
    unsigned char number[4];

    if (!dropped && skip_blanks(incoming.data, incoming.data + incoming.length) == incoming.data + incoming.length) {
        incoming.length = 0;
        return;
    }
    one = calloc(1, sizeof *one);
    if (!one)
        fail("out of memory");
    one->number = ++lines_read;
    one->too_long = dropped > 0;
    put_u32(number, one->number);
    add(&one->line, number, sizeof number);
    add(&one->line, incoming.data, dropped ? LINE_END : incoming.length);
    if (dropped) { /* the end of the line: the tail of `incoming`, then the last dropped bytes */
        size_t kept_end = dropped < LINE_END ? dropped : LINE_END, more = LINE_END - kept_end;
        add(&one->line, incoming.data + incoming.length - more, more);
        for (size_t i = dropped - kept_end; i < dropped; i++)
            add(&one->line, &tail[i % LINE_END], 1);
    }
    incoming.length = dropped = 0;
    if (!pending)
        waited_since_ms = now_ms();
    while (*last)
        last = &(*last)->next;
    *last = one;
    if (wire >= 0)
        hand_over(one, false);
}

static void read_lines(void)
{
    static unsigned char piece[PIECE];
    ssize_t n = read(STDIN_FILENO, piece, sizeof piece);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) { /* an incomplete last line does not count */
        input_ended = true;
        if (heard || !pending)
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
        add(&incoming, piece + i, fits);
        for (size_t j = fits; j < length; j++)
            tail[dropped++ % LINE_END] = piece[(size_t)i + j];
        i += (ssize_t)length;
        if (end)
            take_line();
    }
}

/* ---- With a daemon ---- */

/* Execute one frame; false when it is unknown. */
static bool obey_pump(char type, const unsigned char *payload, size_t n)
{
    if (type == 'L' && n >= 4) {
        write_line(payload + 4, n - 4);
        settle(get_u32(payload)); /* once it is written, and not before */
    } else if (type == 'T') {
        token.length = 0;
        add(&token, payload, n);
    } else {
        return false;
    }
    heard = true;
    return true;
}

static void obey_all_received(void)
{
    size_t at = 0;

    while (received.length - at >= HEAD) {
        size_t n = get_u32(received.data + at + 1);
        char type = (char)received.data[at];
        if (n > FRAME_LIMIT)
            fail_malformed();
        if (received.length - at < HEAD + n)
            break;
        if (!obey_pump(type, received.data + at + HEAD, n) && type != 'N')
            obey(type, received.data + at + HEAD, n); /* E and Q, as for every command */
        at += HEAD + n;
    }
    received.length -= at;
    memmove(received.data, received.data + at, received.length);
    if (received.length >= HEAD)
        reserve(&received, HEAD + get_u32(received.data + 1) - received.length);
}

/* Return how long the daemon may stay silent; below 0 without a limit. */
static int patience_ms(void)
{
    long long limit = !pending ? BYE_LIMIT_MS : heard ? LAST_LIMIT_MS : FIRST_LIMIT_MS, left;

    if (!input_ended && (heard || !pending))
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
        int n = poll(&room, 1, heard ? LAST_LIMIT_MS : FIRST_LIMIT_MS);
        if (n > 0)
            return true;
        if (!n && (!heard || input_ended || (poll(&input, 1, 0) > 0 && input.revents))) {
            stuck = true;
            return false;
        }
    }
}

/*
 * Forward lines until the daemon is lost; ends the process when the last line is settled. False: the daemon is silent.
 */
static bool pump(void)
{
    bool silent = false;

    received.length = 0;
    heard = stuck = false;
    waited_since_ms = now_ms();
    fcntl(wire, F_SETFL, O_NONBLOCK); /* a daemon that does not read must not hide the end of input */
    send_request();
    for (struct pending *one = pending; one; one = one->next)
        hand_over(one, true);
    if (input_ended)
        send_frame('Z', NULL, 0);
    for (;;) {
        struct pollfd ready[] = {{.fd = wire, .events = POLLIN}, {.fd = input_ended ? -1 : STDIN_FILENO, .events = POLLIN}};
        int limit_ms = patience_ms();
        ssize_t n = stuck ? 0 : poll(ready, 2, limit_ms);
        if (n < 0)
            continue;
        silent = !n;
        if (silent)
            break;
        if (ready[0].revents) {
            n = recv(wire, received.data + received.length, received.size - received.length, 0);
            if (n < 0 && (errno == EINTR || errno == EAGAIN))
                continue;
            if (n <= 0)
                break;
            received.length += (size_t)n;
            waited_since_ms = now_ms();
            obey_all_received();
        }
        if (ready[1].revents)
            read_lines();
    }
    speakable = 0;
    close(wire);
    wire = -1;
    return !silent;
}

/* ---- Without one ---- */

/* Connect to a daemon again; start one, unless the bus was stopped on purpose. Below 0: no daemon is available. */
static int regain(void)
{
    char *marker = in_home("down");
    int fd = connect_home();

    for (int tries = 0; fd < 0 && tries < REPEATS; tries++) {
        pid_t child;
        pause_ms(20 << tries);
        fd = connect_home();
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

static _Noreturn void run_pump(void)
{
    memcpy(request.data, "PALM", 4);
    wire = open_wire(0);
    for (;;) {
        bool is_silent = wire >= 0 && !pump(), is_done = !pending;
        if (!is_silent) {
            wire = regain();
            if (wire >= 0)
                continue;
        }
        refuse_pending(is_silent ? HUNG : NO_BUS);
        if (input_ended)
            _exit(is_silent && is_done && heard ? 0 : 1);
        while (!pending && !input_ended) /* try again at the next line */
            read_lines();
    }
}
