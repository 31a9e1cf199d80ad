/* Read standard input or a file for the daemon, when it asks. */
#ifndef PAL_INPUT_H
#define PAL_INPUT_H

#include <stddef.h>
#include <stdint.h>

/* Return the descriptor that is being read; -1 for none. */
int input_fd(void);

/* Begin to read. A limit of 0 means no limit. One byte more is sent, so that the daemon sees a too long input. */
void begin_stdin(uint32_t limit);
void begin_file(uint32_t limit, const unsigned char *name, size_t n);

/* Read one piece and send it. */
void send_input(void);

void end_input(void);

#endif
