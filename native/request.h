/* The request to the daemon: arguments, directory, permitted variables, and the terminal. */
#ifndef PAL_REQUEST_H
#define PAL_REQUEST_H

#include <stddef.h>

#include "bytes.h"

enum {
    REQUEST_HEAD = 4 + 5, /* the name of the protocol, then the head of the frame */
    KEY_AT = REQUEST_HEAD + 5, /* the request key is the first field */
    KEY_LENGTH = 16,
};

extern struct bytes request; /* the whole frame, after the name of the protocol */

void build_request(void);
void add_field(char tag, const void *data, size_t n);

/* Select another framing than PAL1: PALH for a hook, PALM for the MCP connection. */
void set_protocol(const char *name);

#endif
