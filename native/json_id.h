/* Find the id of a JSON-RPC request, without parsing the rest. */
#ifndef PAL_JSON_ID_H
#define PAL_JSON_ID_H

#include <stddef.h>

const unsigned char *skip_blanks(const unsigned char *at, const unsigned char *end);

/* Find the value of "id" in the outermost object: set its start and return its length; 0 without an id. */
size_t find_id(const unsigned char *at, const unsigned char *end, const unsigned char **found);

#endif
