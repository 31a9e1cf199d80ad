/*
 * The arguments of pal, and the request to the daemon. Part of pal.c.
 *
 * Arguments are read as far as the client itself must know them, and passed on unchanged. Of the environment, only the
 * variables that pal.c lists are sent.
 */

/* ---- Arguments ---- */

/* Return whether an option makes `recv` or `events` wait. */
static bool is_waiting_option(const char *arg)
{
    return same(arg, "--follow") || same(arg, "--wait") || starts(arg, "--wait=") || same(arg, "--timeout") ||
           starts(arg, "--timeout=");
}

static void read_arguments(int count, char **all)
{
    call.count = count;
    call.all = all;
    for (int i = 1; i < count; i++) {
        const char *arg = all[i];
        if (same(arg, "--")) {
            if (!call.verb_at && i + 1 < count)
                call.verb_at = i + 1;
            break;
        }
        if (same(arg, "--home")) {
            call.home_given = true;
            call.home = all[++i]; /* NULL at the end */
        } else if (starts(arg, "--home=")) {
            call.home_given = true;
            call.home = arg + length_of("--home=");
        } else if (same(arg, "--as")) {
            i++;
        } else if (same(arg, "--help") || same(arg, "-h")) {
            call.help = true;
        } else if (same(arg, "--foreground")) {
            call.foreground = true;
        } else if (same(arg, "--repair")) {
            call.repair = true;
        } else if (same(arg, "--json")) {
            call.json = true;
        } else if (is_waiting_option(arg)) {
            call.waits = true;
        } else if (!call.verb_at && same(arg, "--version")) {
            call.version = true;
        } else if (!call.verb_at && arg[0] != '-') {
            call.verb_at = i;
        }
    }
    /* Completion runs while a person types, and its script at every start of a shell: like help, it starts nothing. */
    const char *verb = call.verb_at ? all[call.verb_at] : "help";
    if (same(verb, "help") || same(verb, "completion") || same(verb, "__complete"))
        call.help = true;
    call.repair = call.repair && same(verb, "doctor") && !call.help;
    call.waits = (call.waits && (same(verb, "recv") || same(verb, "events"))) ||
                 (same(verb, "stick") && call.verb_at + 1 < count && same(all[call.verb_at + 1], "wait"));
    if (!call.help) { /* help never has an effect, whatever the other arguments are */
        call.hook = same(verb, "hook");
        call.up = same(verb, "up");
        call.down = same(verb, "down");
        call.mcp = same(verb, "mcp");
        call.rewake = same(verb, "rewake");
        call.monitor = call.rewake || same(verb, "monitor");
    }
}

/*
 * Return the user's directory when HOME is not set. On Linux read the file itself: a static program has no name
 * service.
 */
static const char *account_directory(void)
{
    struct passwd *entry = NULL;
#ifdef __linux__
    FILE *file = fopen("/etc/passwd", "re");
    while (file && (entry = fgetpwent(file)) && entry->pw_uid != getuid())
        ;
#else
    entry = getpwuid(getuid());
#endif
    return entry ? entry->pw_dir : NULL;
}

/* Append a text to the home's path; a path that is too long cannot be a directory. */
static size_t add_to_home(size_t at, const char *text)
{
    size_t n = length_of(text);

    if (at + n >= sizeof home)
        fail("the name of the home is too long");
    copy(home + at, text, n + 1);
    return at + n;
}

static void find_home(void)
{
    const char *given = call.home, *after = "";
    size_t at = 0;

    if (call.home_given && (!given || !*given))
        refuse(2, "usage", "--home needs a directory");
    if (!given)
        given = variable("PALAVER_HOME");
    if (!given || !*given) {
        given = variable("HOME");
        if (!given || !*given) {
            need_library();
            given = account_directory();
        }
        if (!given)
            fail("no home directory: set HOME or PALAVER_HOME");
        after = "/.palaver";
    }
    if (given[0] != '/') {
        if (!cwd[0])
            fail("%s: the working directory is gone", given);
        at = add_to_home(add_to_home(0, cwd), "/");
    }
    add_to_home(add_to_home(at, given), after);
}

/* ---- The request ---- */

static void add_field(char tag, const void *data, size_t n)
{
    unsigned char head[HEAD];

    head[0] = (unsigned char)tag;
    put_u32(head + 1, (uint32_t)n);
    add(&request, head, HEAD);
    add(&request, data, n);
}

static void build_request(void)
{
    static const int widths[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
    unsigned char key[16];
    char terminals[3], width[16];
    int columns = 0;
    long drawn = sys_random(key, sizeof key);

    if (drawn != sizeof key) {
        need_library();
        fail("no random bytes: %s", drawn < 0 ? strerror((int)-drawn) : "the system gave too few");
    }
    add(&request, "PAL1R\0\0\0\0", 4 + HEAD);
    add_field('k', key, sizeof key);
    add_field('v', PAL_VERSION, length_of(PAL_VERSION));
    for (int i = 1; i < call.count; i++)
        add_field('a', call.all[i], length_of(call.all[i]));
    add_field('d', cwd, length_of(cwd));
    for (char **entry = environ; *entry; entry++)
        if (starts(*entry, "PALAVER_") || is_named(*entry, LOCAL) || is_named(*entry, MARKS))
            add_field('e', *entry, length_of(*entry));
    for (int fd = 0; fd < 3; fd++)
        terminals[fd] = sys_is_terminal(fd) ? '1' : '0';
    for (int i = 0; i < 3 && !columns; i++)
        if (terminals[widths[i]] == '1')
            columns = sys_columns(widths[i]);
    add_field('t', terminals, sizeof terminals);
    add_field('w', width, write_number(width, (unsigned)columns));
    add_field('c', "GWM", 3); /* the additional frames that this client understands */
}
