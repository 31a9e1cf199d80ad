/* Start the daemon: once for all clients that need it at the same time, and not for a caller that may not. */
#ifndef PAL_START_H
#define PAL_START_H

#include <stdbool.h>

enum { REPEATS = 5 }; /* of a request, without a frame in between */

extern bool has_spawned; /* this process started the daemon, from its own package */
extern bool is_patient;  /* the command waits, and continues however often daemons die */

/* Get a connection by the rules of the verb; -1 when the daemon was lost again. */
int open_wire(int repeats);

/* Start the daemon, or wait for the one that another client is starting. Return the connection, or -1. */
int start_daemon(void);

#endif
