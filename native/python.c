#include "python.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "bytes.h"
#include "call.h"
#include "descriptors.h"
#include "errors.h"
#include "home.h"

enum { TICKET_LIMIT = 4096 }; /* bytes; an empty pipe takes them at once */

char *find_python(void)
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
    /* Not argv[0]: the caller chooses it, and next to a link to this program there is no interpreter. */
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    path[n > 0 ? n : 0] = 0;
#endif
    /* The client is installed next to the interpreter of its package. Another python3 may not have the package. */
    slash = strrchr(path, '/');
    if (slash) {
        strcpy(slash + 1, "python3");
        if (!access(path, X_OK))
            return path;
    }
    return "python3";
}

/* `-I` ignores the caller's directory and PYTHON variables. */
_Noreturn void run_python(char *module, char **arguments, int count)
{
    char **argv = calloc((size_t)count + 5, sizeof *argv);

    if (!argv || setenv("PALAVER_HOME", home, 1))
        fail("out of memory");
    argv[0] = find_python();
    argv[1] = "-I";
    argv[2] = "-m";
    argv[3] = module;
    memcpy(argv + 4, arguments, (size_t)count * sizeof *argv);
    alarm(0); /* a pending alarm would survive the exec and kill it */
    execvp(argv[0], argv);
    fail("cannot run %s: %s", argv[0], error_text(errno));
}

/* Pass a ticket on in a pipe: every process of this user can read the arguments of every other one. */
static void hide_ticket(char **arguments, int count)
{
    static char number[16];
    int ends[2];

    for (int i = 0; i + 1 < count && strcmp(arguments[i], "--"); i++) {
        if (strcmp(arguments[i], "--ticket"))
            continue;
        size_t n = strlen(arguments[i + 1]);
        if (n > TICKET_LIMIT || pipe(ends) || (ends[0] = above_stdio(ends[0])) < 0)
            fail("cannot hand the ticket on: %s", error_text(errno));
        write_all(ends[1], arguments[i + 1], n);
        close(ends[1]);
        fcntl(ends[0], F_SETFD, 0); /* the program that this process becomes reads it */
        snprintf(number, sizeof number, "%d", ends[0]);
        arguments[i] = "--ticket-fd";
        arguments[i + 1] = number;
        return;
    }
}

_Noreturn void run_verb(const unsigned char *payload, size_t n)
{
    char *text = malloc(n + 1);
    char **arguments = calloc(n + 2, sizeof *arguments);
    int count = 0;

    if (!text || !arguments)
        fail("out of memory");
    memcpy(text, payload, n);
    text[n] = 0;
    for (char *at = text; n && at <= text + n; at += strlen(at) + 1)
        arguments[count++] = at;
    hide_ticket(arguments, count);
    run_python("palaver.app", arguments, count);
}

_Noreturn void run_in_foreground(void)
{
    char **arguments = calloc((size_t)call.count + 3, sizeof *arguments);
    int n = 0;

    if (!arguments)
        fail("out of memory");
    arguments[n++] = "--home";
    arguments[n++] = home;
    arguments[n++] = "--foreground";
    for (int i = call.verb_at + 1; i < call.count; i++) {
        if (!strcmp(call.all[i], "--home"))
            i++;
        else if (strcmp(call.all[i], "--foreground") && !starts_with(call.all[i], "--home="))
            arguments[n++] = call.all[i];
    }
    run_python("palaver.daemon", arguments, n);
}

void check_arguments(void)
{
    char **arguments;
    int status;
    pid_t child;

    if (!has_unknown_arguments())
        return;
    arguments = calloc((size_t)call.count, sizeof *arguments);
    if (!arguments)
        fail("out of memory");
    arguments[0] = "__check";
    memcpy(arguments + 1, call.all + 1, (size_t)(call.count - 1) * sizeof *arguments);
    child = fork();
    if (child < 0)
        fail("cannot run %s: %s", find_python(), error_text(errno));
    if (!child)
        run_python("palaver.app", arguments, call.count);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
