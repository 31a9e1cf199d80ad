/*
 * Signals: they are reported to the daemon, then they end the client.
 *
 * A follower (a command whose daemon has sent G) stays after SIGTERM and SIGHUP until the daemon ends it. Without a
 * daemon it prints its cursor and ends.
 */
#ifndef PAL_SIGNALS_H
#define PAL_SIGNALS_H

#include <signal.h>
#include <stddef.h>

extern volatile sig_atomic_t can_send_signal; /* no frame is half sent, so a frame may be sent now */
extern volatile sig_atomic_t ending;          /* the signal that the daemon is notified of; 0 for none */

/* Handle a signal, whatever its disposition was, and even if the parent process blocked it. */
void handle_signal(int number, void (*handler)(int));

/* Report the caught signals to the daemon; a signal that is ignored (nohup, a background job) stays ignored. */
void catch_signals(void);

/* Set the caught signals to their defaults, for a program that is started. */
void release_signals(void);

/* Become a follower, from the seq in this text if there is one. */
void begin_following(const unsigned char *seq, size_t n);

/* The connection is lost: a signal is no longer reported. */
void end_following(void);

/* Send the frame of a signal that came while another frame was sent. */
void send_late_signal(void);

/* End by the signal itself, so that the shell sees the true cause. */
_Noreturn void die_of(int number);

/* End a follower while no daemon can report its cursor. Async-signal-safe. */
_Noreturn void end_follower(int number);

#endif
