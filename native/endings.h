/*
 * How pal ends by itself: with a sentence, or by a signal. Part of pal.c.
 *
 * A hook and a rewake say nothing and end well: a harness must not be disturbed. A signal is told to the daemon first,
 * where that cannot block.
 */

/* Write a text as JSON; bytes that are not printable ASCII may be part of UTF-8 and pass as they are. */
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

/* Say why in one line and exit. A hook must never disturb its harness: it is silent, and all is well. */
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

/* Say what stands in the way of the home, and what to do about it. */
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

/* Runs at any point, also inside a blocked write; so it makes nothing but one send that cannot block. */
static void on_signal(int number)
{
    bool is_end = gentle && !ending && (number == SIGTERM || number == SIGHUP);

    if (is_end) {
        ending = number;
        alarm(END_LIMIT_S); /* neither a reader that never reads nor a daemon that is stuck holds us up */
    }
    /* In the middle of another frame S would be taken for its contents; then the closed socket must be enough. */
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
