#include "variables.h"

#include <stddef.h>
#include <string.h>

#include "bytes.h"

extern char **environ;

/* Exact names, never prefixes: other variables carry keys. The same list is in MARKS of the Python package. */
static const char *const MARKS[] = {
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "GEMINI_CLI", "OPENCODE", "OPENCODE_PID",
    "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "CODEX_SESSION_ID", "GEMINI_SESSION_ID", "OPENCODE_SESSION_ID",
    NULL,
};
static const char *const LOCAL[] = {
    "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", "TERM", "NO_COLOR", NULL,
};
static const char *const FOR_DAEMON[] = {
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", NULL,
};

static bool is_named(const char *entry, const char *const *names)
{
    for (; *names; names++)
        if (starts_with(entry, *names) && entry[strlen(*names)] == '=')
            return true;
    return false;
}

/* Return whether a harness sets this variable for its children. */
static bool is_mark(const char *entry)
{
    return is_named(entry, MARKS);
}

bool is_inside_harness(void)
{
    for (char **entry = environ; *entry; entry++)
        if (is_mark(*entry) || starts_with(*entry, "PALAVER_SEAT="))
            return true;
    return false;
}

bool is_for_request(const char *entry)
{
    return starts_with(entry, "PALAVER_") || is_named(entry, LOCAL) || is_mark(entry);
}

/* The daemon serves many callers: it gets no variable that belongs to this one only. */
bool is_for_daemon(const char *entry)
{
    return is_named(entry, FOR_DAEMON) || (starts_with(entry, "PALAVER_") && !starts_with(entry, "PALAVER_SEAT="));
}
