/*
 * pal mcp: forward lines between a harness and the daemon.
 *
 * Each line of standard input gets a number and is kept until the daemon says that it is settled; each line of the
 * daemon is written. It does not interpret messages. When the daemon is lost, it connects again, starts a daemon if
 * that is allowed, and sends the lines that are not settled again, marked as repeats. Only when no daemon can be
 * reached, or the daemon is silent, does it read a line itself: for the id, so that a request gets an error and not
 * silence. A daemon sends something at once; a request that it has begun may then take any time.
 */
#ifndef PAL_PUMP_H
#define PAL_PUMP_H

_Noreturn void run_pump(void);

#endif
