/*
 * The system calls of pal's common path, and a few functions for bytes. Part of pal.c.
 *
 * Nothing here needs the C library to have started. Built for an early start (PAL_EARLY: Linux on x86-64, linked
 * statically) it calls the kernel directly, because starting that library costs more than everything else in a command:
 * it queries the processor about sixty times, and in a virtual machine each query stops the machine. On other platforms
 * these are the library's own functions. On failure, all of them return the negated error.
 */

static size_t length_of(const char *text)
{
    size_t n = 0;

    while (text[n])
        n++;
    return n;
}

static void copy(void *to, const void *from, size_t n)
{
    unsigned char *target = to;
    const unsigned char *origin = from;

    while (n--)
        *target++ = *origin++;
}

static bool same(const char *one, const char *other)
{
    while (*one && *one == *other)
        one++, other++;
    return *one == *other;
}

static bool starts(const char *text, const char *with)
{
    while (*with && *text == *with)
        text++, with++;
    return !*with;
}

/* Write a number in digits and return their count; the text ends with NUL. */
static size_t write_number(char *text, unsigned value)
{
    char digits[16];
    size_t n = 0, count;

    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    for (count = n; n; n--)
        *text++ = digits[n - 1];
    *text = 0;
    return count;
}

static const char *variable(const char *name)
{
    size_t n = length_of(name);

    for (char **entry = environ; *entry; entry++)
        if (starts(*entry, name) && (*entry)[n] == '=')
            return *entry + n + 1;
    return NULL;
}

#ifdef PAL_EARLY

#if !defined(__linux__) || !defined(__x86_64__) || defined(__PIE__) || defined(__PIC__)
#error "an early start needs Linux on x86-64 and a program at a fixed address"
#endif

#include <sys/syscall.h>

static long call_kernel(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = 0;
    register long sixth __asm__("r9") = 0;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

#define KERNEL(name, a, b, c, d) call_kernel(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d))

static long sys_write(int fd, const void *data, size_t n)
{
    return KERNEL(write, fd, data, n, 0);
}

static long sys_read(int fd, void *data, size_t n)
{
    return KERNEL(read, fd, data, n, 0);
}

static long sys_recv(int fd, void *data, size_t n)
{
    return KERNEL(recvfrom, fd, data, n, 0);
}

static long sys_send(int fd, const void *data, size_t n, int flags)
{
    return KERNEL(sendto, fd, data, n, flags);
}

static long sys_sendmsg(int fd, const struct msghdr *message)
{
    return KERNEL(sendmsg, fd, message, MSG_NOSIGNAL, 0);
}

static long sys_poll(struct pollfd *ready, unsigned count, int limit_ms)
{
    return KERNEL(poll, ready, count, limit_ms, 0);
}

static int sys_socket(void)
{
    return (int)KERNEL(socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0);
}

static long sys_connect(int fd, const struct sockaddr_un *address)
{
    return KERNEL(connect, fd, address, sizeof *address, 0);
}

static void sys_close(int fd)
{
    KERNEL(close, fd, 0, 0, 0);
}

static int sys_move_up(int fd, int lowest)
{
    return (int)KERNEL(fcntl, fd, F_DUPFD_CLOEXEC, lowest, 0);
}

static long sys_random(void *data, size_t n)
{
    return KERNEL(getrandom, data, n, 0, 0);
}

/* Also false when it is outside of the file system that this process can see, like the library's function. */
static bool sys_cwd(char *path, size_t size)
{
    return KERNEL(getcwd, path, size, 0, 0) > 0 && path[0] == '/';
}

static bool sys_is_terminal(int fd)
{
    unsigned char state[64]; /* larger than the kernel's termios */

    return !KERNEL(ioctl, fd, TCGETS, state, 0);
}

static int sys_columns(int fd)
{
    struct winsize window;

    return KERNEL(ioctl, fd, TIOCGWINSZ, &window, 0) ? 0 : window.ws_col;
}

static _Noreturn void sys_exit(int status)
{
    for (;;)
        KERNEL(exit_group, status, 0, 0, 0);
}

/* The layout of the kernel. */
struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

void early_restore(void);
__asm__(".text\n"
        ".globl early_restore\n"
        "early_restore:\n"
        "    mov $15, %eax\n" /* rt_sigreturn */
        "    syscall\n");

static void sys_handle(int number, void (*handler)(int), struct kernel_action *before)
{
    const unsigned long has_restorer = 0x04000000;
    struct kernel_action ours;

    ours.handler = handler;
    ours.flags = has_restorer;
    ours.restorer = early_restore;
    ours.mask = 0;
    KERNEL(rt_sigaction, number, &ours, before, 8);
}

/* Handle a signal, whatever its disposition was, and even if the parent process blocked it. */
static void sys_take(int number, void (*handler)(int))
{
    unsigned long set = 1UL << (number - 1);

    sys_handle(number, handler, NULL);
    KERNEL(rt_sigprocmask, SIG_UNBLOCK, &set, 0, 8);
}

/* Handle a signal, unless it is ignored: nohup, or a background job of a script. */
static void sys_catch(int number, void (*handler)(int))
{
    struct kernel_action before;

    sys_handle(number, handler, &before);
    if (before.handler == SIG_IGN)
        KERNEL(rt_sigaction, number, &before, 0, 8);
}

static void sys_timer(unsigned limit_ms)
{
    struct itimerval limit = {{0, 0}, {limit_ms / 1000, limit_ms % 1000 * 1000}};

    KERNEL(setitimer, ITIMER_REAL, &limit, 0, 0);
}

/* Create an empty file, or set its time to now if it exists. */
static void sys_touch(const char *path)
{
    long fd = KERNEL(open, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600, 0);

    if (fd >= 0)
        sys_close((int)fd);
}

/* Return the age of a file in seconds; below 0 when it does not exist, or its time is in the future. */
static long sys_age(const char *path)
{
    struct stat found;

    return KERNEL(stat, path, &found, 0, 0) ? -1 : KERNEL(time, 0, 0, 0, 0) - (long)found.st_mtime;
}

/* End by the signal itself, so that the shell sees the true cause. */
static _Noreturn void die_of(int number)
{
    struct kernel_action fatal;
    unsigned long set = 1UL << (number - 1);

    fatal.handler = SIG_DFL;
    fatal.flags = 0;
    fatal.restorer = NULL;
    fatal.mask = 0;
    KERNEL(rt_sigaction, number, &fatal, 0, 8);
    KERNEL(rt_sigprocmask, SIG_UNBLOCK, &set, 0, 8);
    KERNEL(kill, KERNEL(getpid, 0, 0, 0, 0), number, 0, 0);
    sys_exit(128 + number);
}

#else

static long negated(long result)
{
    return result < 0 ? -errno : result;
}

static long sys_write(int fd, const void *data, size_t n)
{
    return negated(write(fd, data, n));
}

static long sys_read(int fd, void *data, size_t n)
{
    return negated(read(fd, data, n));
}

static long sys_recv(int fd, void *data, size_t n)
{
    return negated(recv(fd, data, n, 0));
}

static long sys_send(int fd, const void *data, size_t n, int flags)
{
    return negated(send(fd, data, n, flags));
}

static long sys_sendmsg(int fd, const struct msghdr *message)
{
    return negated(sendmsg(fd, message, MSG_NOSIGNAL));
}

static long sys_poll(struct pollfd *ready, unsigned count, int limit_ms)
{
    return negated(poll(ready, count, limit_ms));
}

static int sys_socket(void)
{
#ifdef __linux__
    return (int)negated(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
#else
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
    }
    return (int)negated(fd);
#endif
}

static long sys_connect(int fd, const struct sockaddr_un *address)
{
    return negated(connect(fd, (const struct sockaddr *)address, sizeof *address));
}

static void sys_close(int fd)
{
    close(fd);
}

static int sys_move_up(int fd, int lowest)
{
    return (int)negated(fcntl(fd, F_DUPFD_CLOEXEC, lowest));
}

static long sys_random(void *data, size_t n)
{
    return getentropy(data, n) ? -errno : (long)n;
}

static bool sys_cwd(char *path, size_t size)
{
    return getcwd(path, size) != NULL;
}

static bool sys_is_terminal(int fd)
{
    return isatty(fd);
}

static int sys_columns(int fd)
{
    struct winsize window = {0};

    return ioctl(fd, TIOCGWINSZ, &window) ? 0 : window.ws_col;
}

static _Noreturn void sys_exit(int status)
{
    _exit(status);
}

/* Handle a signal, whatever its disposition was, and even if the parent process blocked it. */
static void sys_take(int number, void (*handler)(int))
{
    sigset_t set;

    signal(number, handler);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Handle a signal, unless it is ignored: nohup, or a background job of a script. */
static void sys_catch(int number, void (*handler)(int))
{
    struct sigaction ours = {.sa_handler = handler}, before;

    sigaction(number, &ours, &before);
    if (before.sa_handler == SIG_IGN)
        sigaction(number, &before, NULL);
}

static void sys_timer(unsigned limit_ms)
{
    struct itimerval limit = {.it_value = {.tv_sec = limit_ms / 1000, .tv_usec = (int)(limit_ms % 1000) * 1000}};

    setitimer(ITIMER_REAL, &limit, NULL);
}

/* Create an empty file, or set its time to now if it exists. */
static void sys_touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
}

/* Return the age of a file in seconds; below 0 when it does not exist, or its time is in the future. */
static long sys_age(const char *path)
{
    struct stat found;

    return stat(path, &found) ? -1 : (long)(time(NULL) - found.st_mtime);
}

/* End by the signal itself, so that the shell sees the true cause. */
static _Noreturn void die_of(int number)
{
    sigset_t set;

    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    _exit(128 + number);
}

#endif
