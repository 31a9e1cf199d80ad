/*
 * How pal ends by itself: with an error message, or by a signal. Part of pal.c.
 *
 * A hook and a rewake print nothing and end with status 0: a harness must not be disturbed. A signal is reported to the
 * daemon first, if that cannot block.
 */

/* Write a text as JSON; bytes that are not printable ASCII may be part of UTF-8 and are written unchanged. */
static void write_json_text(const char *text)
{
    for (; *text; text++) {
        unsigned char sign = (unsigned char)*text;
        if (sign == '"' || sign == '\\')
            dprintf(STDERR_FILENO, "\\%c", sign);
        else if (sign < ' ')
            dprintf(STDERR_FILENO, "\\u%04x", sign);
        else
            (void)!write(STDERR_FILENO, text, 1);
    }
}

/* Print the reason in one line and exit. A hook must never disturb its harness: it is silent and ends with 0. */
static _Noreturn void refuse(int status, const char *code, const char *line)
{
    need_library();
    if (call.hook || call.rewake)
        _exit(0);
    if (call.json) {
        dprintf(STDERR_FILENO, "{\"error\":\"%s\",\"message\":\"", code);
        write_json_text(line);
        dprintf(STDERR_FILENO, "\"}\n");
    } else {
        dprintf(STDERR_FILENO, "pal: %s\n", line);
    }
    _exit(status);
}

static _Noreturn void fail(const char *format, ...)
{
    char line[2 * PATH_MAX + 1024];
    va_list values;

    need_library();
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    refuse(1, "unavailable", line);
}

/* Report why the home cannot be used, and what to do about it. */
static _Noreturn void fail_home(int error)
{
    bool is_denied = error == EACCES || error == EPERM || error == EROFS;

    need_library();
    fail("%s cannot be the home of the bus (%s): name a directory that can be written, with --home or PALAVER_HOME%s", home,
         strerror(error), is_denied ? "; or, if this is a sandbox, run 'pal up' outside of it" : "");
}

static _Noreturn void fail_malformed(void)
{
    fail("the daemon sent something that this client (" PAL_VERSION ") does not understand");
}

static void tell_signal(int number)
{
    const unsigned char frame[HEAD + 1] = {'S', 0, 0, 0, 1, (unsigned char)number};

    sys_send(wire, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
    told = 1;
}

/* Return the largest number in a text, or -1: the tokens of a follower contain only seqs. */
static int64_t largest_number(const unsigned char *text, size_t n)
{
    int64_t largest = -1, number = -1;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            number = -1;
        else if (number < INT64_MAX / 10 - 1)
            number = (number < 0 ? 0 : number) * 10 + (text[i] - '0');
        if (number > largest)
            largest = number;
    }
    return largest;
}

/* End a follower while no daemon can report the cursor: no output is left to write. Also runs in a signal. */
static _Noreturn void end_follower(int number)
{
    int64_t place = largest_number(token.data, token.length);
    char line[64] = "cursor_event_seq=", digits[24];
    size_t n = strlen(line), count = 0;

    if (place < begun_at)
        place = begun_at;
    if (place < 0)
        die_of(number);
    do
        digits[count++] = (char)('0' + place % 10);
    while (place /= 10);
    while (count)
        line[n++] = digits[--count];
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
    _exit(0);
}

/* Runs at any point, also inside a blocked write; so it does only one send that cannot block. */
static void on_signal(int number)
{
    bool is_end = gentle && !ending && (number == SIGTERM || number == SIGHUP);

    if (follower && !gentle && (number == SIGTERM || number == SIGHUP))
        end_follower(number);
    if (is_end) {
        ending = number;
        alarm(END_LIMIT_S); /* do not wait for a reader that never reads or a daemon that is stuck */
    }
    /* In the middle of another frame, S would be read as its content; then closing the socket must be enough. */
    if (speakable && !told)
        tell_signal(number);
    if (!is_end)
        die_of(number);
}

static void on_end_limit(int number)
{
    (void)number;
    die_of(ending);
}

static void catch_signals(void)
{
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        sys_catch(SIGNALS[i], on_signal);
}
