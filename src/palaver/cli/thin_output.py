"""Output of the thin client, and how it ends if writing fails. Knows no connection.

Like all of the thin client it imports little: a command waits for it.
"""

from __future__ import annotations

import os
import select
import signal

from palaver.client.start import StartError

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from typing import NoReturn


def write_out(data: memoryview) -> None:
    """Write to standard output; if the reader has closed it, end by SIGPIPE as usual."""
    if error := write_all(1, data):
        if isinstance(error, BrokenPipeError):
            die_of(signal.SIGPIPE)
        raise StartError(f"standard output: {error.strerror}")


def write_all(fd: int, data: memoryview) -> OSError | None:
    """Write all of it, or return the error."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            room = select.poll()
            room.register(fd, select.POLLOUT)
            room.poll()
        except OSError as error:
            return error
    return None


def complain(error: Exception, *, is_json: bool, code: str = "unavailable") -> None:
    """Write an error to standard error, in one line."""
    if is_json:
        import json  # only here: it takes longer to import than all the rest

        line = json.dumps({"error": code, "message": str(error)}, separators=(",", ":"))
        said = f"{line}\n".encode(errors="replace")
    else:
        said = f"pal: {error}\n".encode(errors="surrogateescape")
    write_all(2, memoryview(said))


def die_of(number: int) -> NoReturn:
    """End by the signal itself, so that the shell sees the real cause."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
    os._exit(128 + number)
