/* Which variables of the environment are passed on, and to whom. */
#ifndef PAL_VARIABLES_H
#define PAL_VARIABLES_H

#include <stdbool.h>

/* Each function takes an entry of the environment, NAME=value. */

/* Return whether a harness sets this variable for its children. */
bool is_mark(const char *entry);

/* Return whether the request carries this variable. */
bool is_for_request(const char *entry);

/* Return whether a daemon that the client starts gets this variable. */
bool is_for_daemon(const char *entry);

#endif
