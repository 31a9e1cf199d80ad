/*
 * pal monitor: a process that a harness keeps running during a session, so that the bus can write a line at any time.
 * pal rewake: the same, but it writes once. The harness sends its output to the model when it ends with status 2.
 *
 * Unlike every other command they keep running when the daemon ends: they wait for the next one, also after `pal down`,
 * and never start one. They end with the harness that started them.
 */
#ifndef PAL_MONITOR_H
#define PAL_MONITOR_H

/* Add the input of the hook to the request. A session that prints one reply and ends must not wait for us. */
void begin_rewake(void);

_Noreturn void run_monitor(void);

#endif
