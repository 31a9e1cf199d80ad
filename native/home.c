#include "home.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "errors.h"

char working_directory[PATH_MAX];
char home[HOME_SIZE];

void find_working_directory(void)
{
    /* A directory outside of the visible file system has a name that does not begin with a slash. */
    if (!getcwd(working_directory, sizeof working_directory) || working_directory[0] != '/')
        working_directory[0] = 0;
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
    size_t n = strlen(text);

    if (at + n >= sizeof home)
        fail("the name of the home is too long");
    memcpy(home + at, text, n + 1);
    return at + n;
}

void find_home(void)
{
    const char *given = call.home, *after = "";
    size_t at = 0;

    if (call.has_home && (!given || !*given))
        refuse(2, "usage", "--home requires a directory");
    if (!given)
        given = getenv("PALAVER_HOME");
    if (!given || !*given) {
        given = getenv("HOME");
        if (!given || !*given)
            given = account_directory();
        if (!given)
            fail("no home directory: set HOME or PALAVER_HOME");
        after = "/.palaver";
    }
    if (given[0] != '/') {
        if (!working_directory[0])
            fail("%s: the working directory was removed", given);
        at = add_to_home(add_to_home(0, working_directory), "/");
    }
    add_to_home(add_to_home(at, given), after);
}

char *path_in_home(const char *name)
{
    size_t size = strlen(home) + 1 + strlen(name) + 1;
    char *path = malloc(size);

    if (!path)
        fail("out of memory");
    snprintf(path, size, "%s/%s", home, name);
    return path;
}
