/* Which variables of the environment are passed on, and to whom, and what they say about the caller. */
#ifndef PAL_VARIABLES_H
#define PAL_VARIABLES_H

#include <stdbool.h>

/* Return whether an agent or a tool inside a harness has started this process. */
bool is_inside_harness(void);

/* Each function below takes an entry of the environment, NAME=value. */

/* Return whether the request carries this variable. */
bool is_for_request(const char *entry);

/* Return whether a daemon that the client starts gets this variable. */
bool is_for_daemon(const char *entry);

#endif
