/* Connect to the daemon of the home. Nothing is started here. The length of the home's path does not matter. */
#ifndef PAL_CONNECT_H
#define PAL_CONNECT_H

#include <stdbool.h>
#include <sys/types.h>

/* Connect: a descriptor, or the negated error. */
int connect_home(void);

/* Connect: a descriptor, or -1 when no daemon listens. Ends the process with a message after another error. */
int reach(void);

/*
 * Connect, and wait for a daemon that runs but does not listen: it may be ending, may have just started, or may create
 * a removed socket again. Return -1 if none listens in time. One that upgrades its log has much time, or none.
 */
int await_listening(bool has_time);

/*
 * Return whether the daemon upgrades the log of an older version, and report its progress on standard error. Ends the
 * process with a message if that takes too long.
 */
bool is_upgrading(void);

/* Return whether a daemon has its lock: it may have it before it listens and after it stopped listening. */
bool is_daemon_alive(void);

/* Return the process of the daemon that has the lock; 0 when the lock file does not name one. */
pid_t daemon_pid(void);

/* Wait until a daemon that is stopping has ended. */
void await_end(void);

#endif
