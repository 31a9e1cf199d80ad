/*
 * pal hook: one request, one reply, and it never blocks the harness.
 *
 * A harness waits for this process. It reads the input from the harness, asks a running daemon, and writes its reply,
 * completely or not at all. It starts nothing, prints nothing else, and ends with 0: without a daemon, and with one
 * that hangs, has another version or sends an invalid reply. The first hook that waits for a hung daemon until its
 * limit leaves a mark. While the mark is fresh, other hooks wait only for TRY_MS. They look at the mark only after that
 * time, and the daemon removes it with the next hook that it serves. Before the hook writes, it tells the daemon that it
 * has the reply and that no deadline applies any more: without that, nothing was written.
 *
 * If the daemon dies first, the same request is repeated to the next daemon until the limit; no daemon is started for
 * it. A file in hooks/ named after the request key tells a later daemon the outcome: `.lost` if the reply was not and
 * will not be written, `.said` if it was written and has messages in it (then the daemon sends it as M, otherwise as
 * H).
 */
#ifndef PAL_HOOK_H
#define PAL_HOOK_H

#include "bytes.h"

/* Start the time limit of the hook. */
void begin_hook_limit(void);

/* Read the input from the harness to its end. A terminal has no input, and is not read. */
void read_hook_input(struct bytes *input);

_Noreturn void run_hook(void);

#endif
