/*
 * Reaching the daemon that listens in the home. Part of pal.c.
 *
 * Nothing is started here. How long the home's name may be does not matter.
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

/* The same by way of the opened directory, when the path is too long for an address. */
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

/* Connect; -1 when nobody listens. Whoever is denied may be in a sandbox: nothing may be started for it. */
static int reach(void)
{
    int fd = connect_home();

    if (fd >= 0)
        return fd;
    if (fd == -ENOENT || fd == -ECONNREFUSED || call.help) /* for help nobody is needed */
        return -1;
    if (fd == -EACCES || fd == -EPERM)
        fail("this process may not connect to %s/daemon.sock (a sandbox?): "
             "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)", home);
    if (fd == -ENOTDIR || fd == -ELOOP || fd == -ENAMETOOLONG)
        fail_home(-fd);
    fail("%s/daemon.sock: %s", home, strerror(-fd));
}

/* Whether a daemon holds its lock: it may do so before it listens and after it stopped listening. */
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
