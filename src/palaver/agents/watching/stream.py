"""A stream of frames on a socket that never waits: what has come is read, what there is room for is sent."""

import socket


def read_ready(wire: socket.socket, limit_bytes: int) -> bytes | None:
    """Give what has come: None when that is nothing yet, empty when the other end has gone."""
    try:
        return wire.recv(limit_bytes)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def send_ready(wire: socket.socket, unsent: bytearray) -> bool:
    """Send what there is room for and take it off the front; False while the rest must wait.

    What nobody takes any more is dropped: reading says that it is over.
    """
    try:
        while unsent:
            del unsent[: wire.send(unsent)]
    except BlockingIOError:
        return False
    except OSError:
        unsent.clear()
    return True
