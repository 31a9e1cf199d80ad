#include "errors.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "home.h"
#include "version.h"

/* musl has shorter texts for some errors; the Python client and most programs print these. */
const char *error_text(int error)
{
#ifdef __linux__
    switch (error) {
    case EIO:
        return "Input/output error";
    case ENOMEM:
        return "Cannot allocate memory";
    case EBUSY:
        return "Device or resource busy";
    case EMFILE:
        return "Too many open files";
    case ENAMETOOLONG:
        return "File name too long";
    case ELOOP:
        return "Too many levels of symbolic links";
    case EOVERFLOW:
        return "Value too large for defined data type";
    case EOPNOTSUPP:
        return "Operation not supported";
    case EDQUOT:
        return "Disk quota exceeded";
    default:
        break;
    }
#endif
    return strerror(error);
}

/* Write a text as JSON; bytes that are not printable ASCII may be part of UTF-8 and are written unchanged. */
static void write_json_text(const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            dprintf(STDERR_FILENO, "\\%c", byte);
        else if (byte < ' ')
            dprintf(STDERR_FILENO, "\\u%04x", byte);
        else
            (void)!write(STDERR_FILENO, text, 1);
    }
}

_Noreturn void refuse(int status, const char *code, const char *line)
{
    if (call.is_hook || call.is_rewake) /* a harness must not be disturbed */
        _exit(0);
    if (call.is_json) {
        dprintf(STDERR_FILENO, "{\"error\":\"%s\",\"message\":\"", code);
        write_json_text(line);
        dprintf(STDERR_FILENO, "\"}\n");
    } else {
        dprintf(STDERR_FILENO, "pal: %s\n", line);
    }
    _exit(status);
}

_Noreturn void fail(const char *format, ...)
{
    char line[2 * PATH_MAX + 1024];
    va_list values;

    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    refuse(1, "unavailable", line);
}

/* Report why the home cannot be used, and what to do about it. */
_Noreturn void fail_home(int error)
{
    bool is_denied = error == EACCES || error == EPERM || error == EROFS;

    fail("%s cannot be the home of the bus (%s): name a directory that can be written, with --home or PALAVER_HOME%s", home,
         error_text(error), is_denied ? "; or, if this is a sandbox, run 'pal up' outside of it" : "");
}

_Noreturn void fail_malformed(void)
{
    fail("the daemon sent something that this client (" PAL_VERSION ") does not understand");
}
