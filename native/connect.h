/*
 * Connect to the daemon of the home. Part of pal.c.
 *
 * Nothing is started here. The length of the home's path does not matter.
 */

/* Connect to a path that fits a socket address; 0, or the negated error. */
static int connect_at(int fd, const char *path, size_t n)
{
    static struct sockaddr_un address;
    long result;

    address.sun_family = AF_UNIX;
    copy(address.sun_path, path, n + 1);
    do
        result = sys_connect(fd, &address);
    while (result == -EINTR);
    return (int)result;
}

/* Connect through the opened directory, when the path is too long for an address. */
static int connect_far(int fd)
{
    int directory, result;
#ifdef __linux__
    char path[64];

    directory = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d%s", directory, SOCKET);
    result = connect_at(fd, path, strlen(path));
#else
    directory = open(".", O_RDONLY | O_CLOEXEC);
    result = directory < 0 || chdir(home) ? -errno : connect_at(fd, SOCKET + 1, strlen(SOCKET + 1));
    if (directory >= 0 && fchdir(directory))
        fail("the working directory is gone: %s", strerror(errno));
#endif
    close(directory);
    return result;
}

/* Connect to the daemon; a descriptor, or the negated error. */
static int connect_home(void)
{
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    size_t n = length_of(home), m = sizeof SOCKET;
    int fd, result;

    if (n + m > sizeof path)
        need_library();
    fd = above_stdio(sys_socket());
    if (fd < 0) {
        result = fd;
    } else if (n + m > sizeof path) {
        result = connect_far(fd);
    } else {
        copy(path, home, n);
        copy(path + n, SOCKET, m);
        result = connect_at(fd, path, n + m - 1);
    }
    if (!result)
        return fd;
    if (fd >= 0)
        sys_close(fd);
    return result;
}

/* Connect; -1 when no daemon listens. A denied caller may be in a sandbox: nothing may be started for it. */
static int reach(void)
{
    int fd = connect_home();

    if (fd >= 0)
        return fd;
    if (fd == -ENOENT || fd == -ECONNREFUSED || call.help) /* help needs no daemon */
        return -1;
    if (fd == -EACCES || fd == -EPERM)
        fail("this process may not connect to %s/daemon.sock (a sandbox?): "
             "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)", home);
    if (fd == -ENOTDIR || fd == -ELOOP || fd == -ENAMETOOLONG)
        fail_home(-fd);
    fail("%s/daemon.sock: %s", home, strerror(-fd));
}

/* Return the process of the daemon that has the lock; 0 when the lock file does not name one. */
static pid_t daemon_pid(void)
{
    char *path = in_home("daemon.lock"), text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    free(path);
    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return (pid_t)strtol(text, NULL, 10);
}

/* Return whether a daemon has its lock: it may have it before it listens and after it stopped listening. */
static bool is_daemon_alive(void)
{
    char *path = in_home("daemon.lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool alive = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

    free(path);
    if (fd >= 0)
        close(fd);
    return alive;
}

/*
 * Connect, and wait for a daemon that runs but does not listen: it may be ending, may have just started, or may create
 * a removed socket again. Return -1 if none listens in time.
 */
static int await_listening(void)
{
    int fd = reach();

    for (int ms = 0; fd < 0 && ms < DEAF_LIMIT_MS && is_daemon_alive(); ms += 20) {
        pause_ms(20);
        fd = reach();
    }
    return fd;
}

/* Wait until a daemon that is stopping has ended. */
static void await_end(void)
{
    for (int ms = 0; is_daemon_alive(); ms += 10) {
        if (ms >= GONE_LIMIT_MS)
            fail("the daemon has not ended yet; see %s/daemon.log", home);
        pause_ms(10);
    }
}
