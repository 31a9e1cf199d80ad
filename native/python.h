/*
 * Replacing this process by Python: for the daemon in the foreground, and for verbs that run in the client's own
 * process. Part of pal.c.
 */

/* Return the interpreter of our own installation, found by the real path of this program. */
static char *find_python(void)
{
    static char path[PATH_MAX + sizeof "python3"];
    char *named = getenv("PALAVER_PYTHON"), *slash;

    if (named && *named)
        return named;
#ifdef __APPLE__
    char raw[PATH_MAX];
    uint32_t size = sizeof raw;
    if (_NSGetExecutablePath(raw, &size) || !realpath(raw, path))
        path[0] = 0;
#else
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    path[n > 0 ? n : 0] = 0;
#endif
    slash = strrchr(path, '/');
    if (slash) {
        strcpy(slash + 1, "python3");
        if (!access(path, X_OK))
            return path;
    }
    return "python3";
}

/* Replace this process by Python: `-I` keeps the caller's directory and PYTHON variables out. */
static _Noreturn void run_python(char *module, char **args, int count)
{
    char **argv = calloc((size_t)count + 5, sizeof *argv);

    if (!argv || setenv("PALAVER_HOME", home, 1))
        fail("out of memory");
    argv[0] = find_python();
    argv[1] = "-I";
    argv[2] = "-m";
    argv[3] = module;
    memcpy(argv + 4, args, (size_t)count * sizeof *argv);
    alarm(0); /* a pending alarm would survive the exec and kill it */
    execvp(argv[0], argv);
    fail("cannot run %s: %s", argv[0], strerror(errno));
}

static _Noreturn void run_in_foreground(void)
{
    char **args = calloc((size_t)call.count + 3, sizeof *args);
    int n = 0;

    if (!args)
        fail("out of memory");
    args[n++] = "--home";
    args[n++] = home;
    args[n++] = "--foreground";
    for (int i = call.verb_at + 1; i < call.count; i++) {
        if (!strcmp(call.all[i], "--home"))
            i++;
        else if (strcmp(call.all[i], "--foreground") && !starts(call.all[i], "--home="))
            args[n++] = call.all[i];
    }
    run_python("palaver.daemon", args, n);
}

/* Return whether a call of up or down has an argument that the client does not know. */
static bool has_more_words(void)
{
    for (int i = 1; i < call.count; i++) {
        const char *arg = call.all[i];
        if (!strcmp(arg, "--home") || !strcmp(arg, "--as"))
            i++;
        else if (i != call.verb_at && strcmp(arg, "--json") && !starts(arg, "--home=") &&
                 !(call.up && !strcmp(arg, "--foreground")))
            return true;
    }
    return false;
}

/* Refuse invalid arguments before anything is done. The table of commands is in Python, and checked there. */
static void check_arguments(void)
{
    char **args;
    int status;
    pid_t child;

    if (!has_more_words())
        return;
    args = calloc((size_t)call.count, sizeof *args);
    if (!args)
        fail("out of memory");
    args[0] = "__check";
    memcpy(args + 1, call.all + 1, (size_t)(call.count - 1) * sizeof *args);
    child = fork();
    if (child < 0)
        fail("cannot run %s: %s", find_python(), strerror(errno));
    if (!child)
        run_python("palaver.cli", args, call.count);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
