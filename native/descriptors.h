/* Descriptors: writing to them, and keeping standard input, output and error free. Pauses and a clock. */
#ifndef PAL_DESCRIPTORS_H
#define PAL_DESCRIPTORS_H

#include <stddef.h>

/* Return the descriptor, or a copy above 2: if the caller closed 0, 1 or 2, output must not go to our descriptor. */
int above_stdio(int fd);

/* Write everything. Return 0, or the error. */
int write_all(int fd, const void *data, size_t n);

void pause_ms(int ms);

/* Return the milliseconds of a clock that never jumps, from any beginning. */
long long now_ms(void);

#endif
