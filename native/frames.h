/*
 * The wire, in both directions: sending, reading for the daemon, and executing the daemon's frames. Part of pal.c.
 *
 * An early start works until need_library(). Written output is acknowledged, and never written twice.
 */

/* ---- The wire, outward ---- */

static bool await_room(void);

/* Send everything. A lost connection is not reported here: reading finds its end, after the last data of the daemon. */
static bool send_all(struct iovec *parts, int count, size_t length)
{
    bool sent = true;

    if (length > UNDIVIDED)
        speakable = 0;
    while (count) {
        static struct msghdr message;
        long n;
        message.msg_iov = parts;
        message.msg_iovlen = (size_t)count;
        n = sys_sendmsg(wire, &message);
        if (n == -EINTR || (n == -EAGAIN && call.mcp && await_room())) /* only the wire of `pal mcp` does not block */
            continue;
        if (n < 0) {
            sent = false;
            break;
        }
        for (; count && (size_t)n >= parts->iov_len; parts++, count--)
            n -= (long)parts->iov_len;
        if (count) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    speakable = sent;
    if (sent && ending && !told) /* the signal came while this was being sent */
        tell_signal(ending);
    return sent;
}

static bool send_frame(char type, const void *payload, size_t n)
{
    unsigned char head[HEAD];
    struct iovec parts[2];

    head[0] = (unsigned char)type;
    put_u32(head + 1, (uint32_t)n);
    parts[0].iov_base = head;
    parts[0].iov_len = HEAD;
    parts[1].iov_base = (void *)(uintptr_t)payload;
    parts[1].iov_len = n;
    return send_all(parts, n ? 2 : 1, HEAD + n);
}

static void send_request(void)
{
    size_t length = request.length;
    struct iovec part;

    if (token.length)
        add_field('r', token.data, token.length);
    if (request.length - 4 - HEAD > FRAME_LIMIT)
        fail("the arguments are too long");
    put_u32(request.data + 5, (uint32_t)(request.length - 4 - HEAD));
    part.iov_base = request.data;
    part.iov_len = request.length;
    received.length = obeyed = 0;
    heard = false;
    send_all(&part, 1, request.length);
    request.length = length; /* the next repeat may carry another token */
}

/* ---- Reading for the daemon ---- */

static void end_source(void)
{
    if (source.fd > STDIN_FILENO)
        close(source.fd);
    source.fd = -1;
}

static void send_unreadable(int error)
{
    char text[512];

    send_frame('X', text, (size_t)snprintf(text, sizeof text, "%d %s", error, strerror(error)));
}

/* Begin to read. One byte beyond the limit is sent, so that the daemon sees that the input is too long. */
static void begin_source(int fd, uint32_t limit)
{
    source.fd = fd;
    source.left = limit ? (uint64_t)limit + 1 : UINT64_MAX;
}

static void begin_stdin(uint32_t limit)
{
    begin_source(STDIN_FILENO, limit);
    for (size_t at = 0; at < kept.length && source.left;) {
        size_t n = kept.length - at < PIECE ? kept.length - at : PIECE;
        if (n > source.left)
            n = (size_t)source.left;
        send_frame('D', kept.data + at, n);
        at += n;
        source.left -= n;
    }
    if (kept_all || !source.left) {
        source.fd = -1;
        send_frame('Z', NULL, 0);
    }
}

static void begin_file(uint32_t limit, const unsigned char *name, size_t n)
{
    char *path = malloc(n + 1);
    struct stat found;
    int fd;

    if (!path)
        fail("out of memory");
    memcpy(path, name, n);
    path[n] = 0;
    /* Opening a named pipe would wait for a writer. A pipe of the shell, /dev/fd/63, is a link. */
    if (strlen(path) == n && !lstat(path, &found) && S_ISFIFO(found.st_mode)) {
        static const char text[] = "22 it is a named pipe; pipe its content in with --stdin";
        free(path);
        send_frame('X', text, sizeof text - 1);
        return;
    }
    errno = EINVAL; /* a name with a NUL cannot name a file */
    fd = strlen(path) == n ? above_stdio(open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC)) : -1;
    free(path);
    if (fd < 0)
        send_unreadable(errno);
    else
        begin_source(fd, limit);
}

/* Read one piece and send it on. */
static void pump_source(void)
{
    static unsigned char piece[PIECE];
    size_t want = source.left < PIECE ? (size_t)source.left : PIECE;
    ssize_t n = read(source.fd, piece, want);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0) {
        int error = errno;
        end_source();
        send_unreadable(error);
        return;
    }
    if (source.fd == STDIN_FILENO) {
        add(&kept, piece, (size_t)n);
        kept_all = !n;
    }
    source.left -= (uint64_t)n;
    if (n && !send_frame('D', piece, (size_t)n)) {
        end_source(); /* the daemon is lost */
        return;
    }
    if (!n || !source.left) {
        end_source();
        send_frame('Z', NULL, 0);
    }
}

/* ---- The wire, inward ---- */

/* Write everything; 0, or the error. */
static int write_all(int fd, const unsigned char *data, size_t n)
{
    while (n) {
        long written = sys_write(fd, data, n);
        if (written >= 0) {
            data += written;
            n -= (size_t)written;
        } else if (written == -EAGAIN) {
            struct pollfd room;
            room.fd = fd;
            room.events = POLLOUT;
            sys_poll(&room, 1, -1);
        } else if (written != -EINTR) {
            return (int)-written;
        }
    }
    return 0;
}

static void write_output(const unsigned char *payload, size_t n)
{
    size_t token_length, head = 4 + 2;
    int error;

    if (n < head || n - head < (token_length = (size_t)payload[4] << 8 | payload[5]))
        fail_malformed();
    if (token_length > sizeof token_room)
        need_library();
    error = write_all(STDOUT_FILENO, payload + head + token_length, n - head - token_length);
    if (error == EPIPE) {
        sys_close(wire);
        die_of(SIGPIPE);
    }
    if (error) {
        output_error = error; /* main reports it: nothing may be written twice */
        need_library();
        fail("standard output: %s", strerror(error));
    }
    said = said || n > head + token_length;
    if (token_length) { /* before the A: once the daemon counts the frame as flushed, a repeat must start after it */
        token.length = 0;
        add(&token, payload + head, token_length);
    }
    send_frame('A', payload, 4);
}

/* Pass a ticket on in a pipe: every process of this user can read the arguments of every other one. */
static void hide_ticket(char **args, int count)
{
    static char number[16];
    int ends[2];

    for (int i = 0; i + 1 < count && strcmp(args[i], "--"); i++) {
        if (strcmp(args[i], "--ticket"))
            continue;
        size_t n = strlen(args[i + 1]);
        if (n > TICKET_LIMIT || pipe(ends) || (ends[0] = above_stdio(ends[0])) < 0)
            fail("cannot hand the ticket on: %s", strerror(errno));
        write_all(ends[1], (const unsigned char *)args[i + 1], n);
        close(ends[1]);
        fcntl(ends[0], F_SETFD, 0); /* the program that this process becomes reads it */
        snprintf(number, sizeof number, "%d", ends[0]);
        args[i] = "--ticket-fd";
        args[i + 1] = number;
        return;
    }
}

static _Noreturn void run_verb(const unsigned char *payload, size_t n)
{
    char *text = malloc(n + 1);
    char **args = calloc(n + 2, sizeof *args);
    int count = 0;

    if (!text || !args)
        fail("out of memory");
    memcpy(text, payload, n);
    text[n] = 0;
    for (char *at = text; n && at <= text + n; at += strlen(at) + 1)
        args[count++] = at;
    close(wire);
    hide_ticket(args, count);
    run_python("palaver.cli", args, count);
}

static _Noreturn void end_with(int status)
{
    if (call.down && status == 0) {
        speakable = 0;
        close(wire); /* the daemon may be waiting for its last client */
        await_end();
    }
    sys_exit(call.rewake && !said ? 0 : status); /* an error message must not wake the session */
}

/* Return whether an early start can execute a frame. */
static bool is_common(char type)
{
    return type == 'O' || type == 'E' || type == 'Q' || type == 'W';
}

/* Execute one frame. Return false if the daemon is stepping down for a newer one. */
static bool obey(char type, const unsigned char *payload, size_t n)
{
    if (type != 'N') /* a client and a daemon that each find the other too old must not loop */
        heard = true;
    switch (type) {
    case 'O':
        write_output(payload, n);
        return true;
    case 'E':
        if (!call.rewake)
            write_all(STDERR_FILENO, payload, n);
        return true;
    case 'I':
        if (n != 4 || source.fd >= 0)
            fail_malformed();
        begin_stdin(get_u32(payload));
        return true;
    case 'F':
        if (n < 4 || source.fd >= 0)
            fail_malformed();
        begin_file(get_u32(payload), payload + 4, n - 4);
        return true;
    case 'V':
        run_verb(payload, n);
    case 'Q':
        if (n != 1)
            fail_malformed();
        end_with(payload[0]);
    case 'G':
        signal(SIGALRM, on_end_limit);
        if (n)
            begun_at = largest_number(payload, n);
        gentle = follower = 1;
        patient = true;
        return true;
    case 'W':
        patient = true;
        return true;
    case 'N':
        if (spawned)
            fail("this pal is " PAL_VERSION ", and the package that %s starts is older: install Palaver there again, "
                 "so that both are of one version", find_python());
        return false;
    default:
        fail_malformed();
    }
}

/* Execute every complete frame that was received. An incomplete frame moves to the front. */
static bool obey_received(void)
{
    while (received.length - obeyed >= HEAD) {
        const unsigned char *frame = received.data + obeyed;
        size_t n = get_u32(frame + 1);
        if (!is_common((char)frame[0]))
            need_library();
        if (n > FRAME_LIMIT)
            fail_malformed();
        if (received.length - obeyed < HEAD + n)
            break;
        if (!obey((char)frame[0], frame + HEAD, n)) {
            end_source();
            received.length = obeyed = 0;
            return false;
        }
        obeyed += HEAD + n;
    }
    received.length -= obeyed;
    copy(received.data, received.data + obeyed, received.length);
    obeyed = 0;
    if (received.length >= HEAD)
        reserve(&received, HEAD + get_u32(received.data + 1) - received.length);
    return true;
}

/* Wait for data of the daemon; true when the harness has ended, or our output can no longer be read. */
static bool is_output_lost(int limit_ms)
{
    struct pollfd ready[] = {
        {.fd = wire, .events = POLLIN}, {.fd = STDOUT_FILENO}, {.fd = harness, .events = POLLIN},
    };

    while (poll(ready, 3, limit_ms) < 0 && errno == EINTR && !ending)
        ;
    return ready[1].revents & (POLLERR | POLLHUP | POLLNVAL) || ready[2].revents;
}

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
    state = strrchr(text, ')');
    return state && state[1] == ' ' && (state[2] == 'T' || state[2] == 't');
}

/*
 * Wait for the first frame of a daemon. Report once that it does not answer: after two seconds if its process is
 * stopped, and after ten if it is only silent. The wait continues.
 */
static void await_first_word(void)
{
    struct pollfd ready = {.fd = wire, .events = POLLIN};
    pid_t pid;

    if (heard || silence == SILENCE_SAID || call.rewake || call.monitor)
        return;
    if (silence == SILENCE_UNKNOWN) {
        if (sys_poll(&ready, 1, STOPPED_MS))
            return;
        silence = SILENCE_LONG;
    }
    need_library();
    pid = daemon_pid();
    if (!is_stopped(pid) && poll(&ready, 1, SILENT_MS - STOPPED_MS))
        return;
    silence = SILENCE_SAID;
    if (is_stopped(pid))
        dprintf(STDERR_FILENO, "pal: the daemon (process %d) is stopped and does not answer; still waiting. "
                "'kill -CONT %d' lets it go on\n", (int)pid, (int)pid);
    else
        dprintf(STDERR_FILENO, "pal: the daemon (process %d) has not answered for %d s; still waiting\n", (int)pid,
                SILENT_MS / 1000);
}

/* Serve the daemon until the connection ends. A Q or V ends the process. */
static void serve(void)
{
    bool stepping_down = !obey_received(); /* frames that an early start left */

    for (;;) {
        long n;
        if (call.monitor && is_output_lost(source.fd >= 0 ? 0 : -1))
            _exit(0);
        if (source.fd >= 0) {
            struct pollfd ready[] = {{.fd = wire, .events = POLLIN}, {.fd = source.fd, .events = POLLIN}};
            if (poll(ready, 2, -1) < 0)
                continue;
            if (!ready[0].revents) {
                pump_source();
                continue;
            }
        }
        await_first_word();
        n = sys_recv(wire, received.data + received.length, received.size - received.length);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            break;
        received.length += (size_t)n;
        if (stepping_down) /* only the end of the connection matters now */
            received.length = 0;
        else
            stepping_down = !obey_received();
    }
    if (call.waits && !stepping_down) /* the daemon may have died before it could send W or G */
        patient = true;
    end_source();
}
