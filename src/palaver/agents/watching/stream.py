"""Read from and write to a socket without blocking: only the bytes that it has, or has room for."""

import socket


def read_ready(wire: socket.socket, limit_bytes: int) -> bytes | None:
    """Return the bytes that have arrived: None if nothing has, empty if the connection has ended."""
    try:
        return wire.recv(limit_bytes)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def send_ready(wire: socket.socket, unsent: bytearray) -> bool:
    """Send as much as the socket takes and remove it from `unsent`. Return False while bytes are left.

    If the connection has ended, `unsent` is dropped; the next read reports the end.
    """
    try:
        while unsent:
            del unsent[: wire.send(unsent)]
    except BlockingIOError:
        return False
    except OSError:
        unsent.clear()
    return True
