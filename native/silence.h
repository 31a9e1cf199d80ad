/* Report once that the daemon does not answer. */
#ifndef PAL_SILENCE_H
#define PAL_SILENCE_H

/*
 * Wait for the first frame of a daemon. Report once that it does not answer: after two seconds if its process is
 * stopped, and after ten if it is only silent. The wait continues.
 */
void await_first_frame(void);

#endif
