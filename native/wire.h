/* The connection to the daemon, and frames to it. Written output is acknowledged, and never written twice. */
#ifndef PAL_WIRE_H
#define PAL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "bytes.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: the socket carries SO_NOSIGPIPE instead */
#endif

enum {
    FRAME_LIMIT = 10 * 1024 * 1024,
    HEAD = 5,      /* of a frame and of a field: one byte of type, four of length */
    PIECE = 65536, /* of the data that the daemon asked to read */
};

extern int wire;                /* the connection; -1 without one */
extern bool has_received_frame; /* on this connection */
extern struct bytes received;   /* bytes of the daemon */
extern struct bytes token;      /* of the last output frame that was written */

/* Called when the connection takes no more bytes now. Returns false to give up. Only `pal mcp` sets it. */
extern bool (*on_full_wire)(void);

/* Send a frame; false when the connection is lost. Reading finds the end too, after the last bytes of the daemon. */
bool send_frame(char type, const void *payload, size_t n);

/* Send the request, with the token of the last written output. Nothing was received on this connection yet. */
void send_request(void);

/* Read once into `received`: the number of bytes, 0 at the end, -1 with errno. */
long receive_more(void);

/*
 * Take the next whole frame out of `received`; false when no frame is complete. The payload is valid until the next call.
 * A frame that is too long ends the process.
 */
bool take_frame(char *type, const unsigned char **payload, size_t *n);

/* Forget all received bytes: the daemon is stepping down. */
void forget_received(void);

/* Close the connection. */
void close_wire(void);

#endif
