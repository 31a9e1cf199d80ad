#include "json_id.h"

#include <stdbool.h>
#include <string.h>

const unsigned char *skip_blanks(const unsigned char *at, const unsigned char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* Return the position after the string that begins at `at`. */
static const unsigned char *skip_string(const unsigned char *at, const unsigned char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at < end ? at + 1 : end;
}

size_t find_id(const unsigned char *at, const unsigned char *end, const unsigned char **found)
{
    int depth = 0;
    bool is_key = false; /* a string here is the name of a member */

    while ((at = skip_blanks(at, end)) < end) {
        if (*at == '"') {
            const unsigned char *after = skip_string(at, end), *value;
            bool is_id = is_key && depth == 1 && after - at == 4 && !memcmp(at, "\"id\"", 4);
            at = after;
            if (!is_id)
                continue;
            at = skip_blanks(at, end);
            if (at >= end || *at != ':')
                return 0;
            value = at = skip_blanks(at + 1, end);
            if (at < end && *at == '"')
                at = skip_string(at, end);
            else
                while (at < end && (*at == '-' || (*at >= '0' && *at <= '9')))
                    at++;
            *found = value;
            return (size_t)(at - value);
        }
        if (*at == '{' || *at == '[')
            depth++;
        if (*at == '}' || *at == ']')
            depth--;
        if (*at == '{' || *at == ',')
            is_key = true;
        if (*at == ':' || *at == '[')
            is_key = false;
        at++;
    }
    return 0;
}
