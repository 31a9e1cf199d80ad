/* Execute the daemon's frames. */
#ifndef PAL_FRAMES_H
#define PAL_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

extern int harness; /* becomes readable at the end of the monitor's harness; -1 if that is not possible */

/* Execute one frame. Return false if the daemon is stepping down for a newer one. Q and V end the process. */
bool execute_frame(char type, const unsigned char *payload, size_t n);

/* Execute the daemon's frames until the connection ends. */
void serve(void);

/* Wait for bytes of the daemon; true when the harness has ended, or our output can no longer be read. */
bool is_output_lost(int limit_ms);

/* Write to standard output, or end: by SIGPIPE when its reader is closed, otherwise with an error message. */
void write_output(const void *data, size_t n);

#endif
