#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "errors.h"
#include "request.h"
#include "signals.h"

enum { UNDIVIDED = 4096 }; /* bytes: a socket takes this much completely or not at all */

static unsigned char received_room[PIECE + 8192], token_room[1024];

int wire = -1;
bool has_received_frame;
struct bytes received = {received_room, 0, sizeof received_room, true};
struct bytes token = {token_room, 0, sizeof token_room, true};
bool (*on_full_wire)(void);

static size_t taken; /* bytes of `received` that take_frame has returned */

/* Send everything; false when the connection is lost. */
static bool send_all(struct iovec *parts, int count, size_t length)
{
    bool is_sent = true;

    if (length > UNDIVIDED) /* sent in several pieces: a signal between two of them must not send its own frame */
        can_send_signal = 0;
    while (count) {
        struct msghdr message = {0};
        ssize_t n;
        message.msg_iov = parts;
        message.msg_iovlen = (unsigned)count;
        n = sendmsg(wire, &message, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR || (errno == EAGAIN && on_full_wire && on_full_wire()))
                continue;
            is_sent = false;
            break;
        }
        for (; count && (size_t)n >= parts->iov_len; parts++, count--)
            n -= (ssize_t)parts->iov_len;
        if (count) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    can_send_signal = is_sent;
    if (is_sent)
        send_late_signal();
    return is_sent;
}

bool send_frame(char type, const void *payload, size_t n)
{
    unsigned char head[HEAD];
    struct iovec parts[2];

    head[0] = (unsigned char)type;
    put_u32(head + 1, (uint32_t)n);
    parts[0].iov_base = head;
    parts[0].iov_len = HEAD;
    parts[1].iov_base = (void *)(uintptr_t)payload;
    parts[1].iov_len = n;
    return send_all(parts, n ? 2 : 1, HEAD + n);
}

void send_request(void)
{
    size_t length = request.length;
    struct iovec part;

    if (token.length)
        add_field('r', token.data, token.length);
    if (request.length - REQUEST_HEAD > FRAME_LIMIT)
        fail("the arguments are too long");
    put_u32(request.data + REQUEST_HEAD - 4, (uint32_t)(request.length - REQUEST_HEAD));
    part.iov_base = request.data;
    part.iov_len = request.length;
    forget_received();
    has_received_frame = false;
    send_all(&part, 1, request.length);
    request.length = length; /* the next repeat may carry another token */
}

long receive_more(void)
{
    ssize_t n = recv(wire, received.data + received.length, received.size - received.length, 0);

    if (n > 0)
        received.length += (size_t)n;
    return (long)n;
}

bool take_frame(char *type, const unsigned char **payload, size_t *n)
{
    size_t size = 0; /* of the incomplete frame */

    if (received.length - taken >= HEAD) {
        const unsigned char *frame = received.data + taken;
        *n = get_u32(frame + 1);
        if (*n > FRAME_LIMIT)
            fail_malformed();
        size = HEAD + *n;
        if (received.length - taken >= size) {
            *type = (char)frame[0];
            *payload = frame + HEAD;
            taken += size;
            return true;
        }
    }
    received.length -= taken;
    memmove(received.data, received.data + taken, received.length);
    taken = 0;
    if (size)
        reserve(&received, size - received.length);
    return false;
}

void forget_received(void)
{
    received.length = taken = 0;
}

void close_wire(void)
{
    end_following();
    close(wire);
    wire = -1;
}
