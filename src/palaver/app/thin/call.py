"""Parse the thin client's command line: verb, home, and the fields of the request.

It knows only the verbs with special rules (up, down, hook, monitor, rewake, help) and checks no argument: the
daemon does. It passes on only listed variables, because others carry keys. A plain class, because importing
dataclasses takes longer than the whole client.
"""

from __future__ import annotations

import os
import select
import signal

from palaver.client.start import StartError
from palaver.harness.marks import MARKS
from palaver.version import __version__

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import NoReturn

_LOCAL_NAMES = ("LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", "TERM", "NO_COLOR")
_SENT_NAMES = frozenset(name.encode() for name in (*_LOCAL_NAMES, *MARKS))

_WAITING_OPTIONS = (b"--follow", b"--wait", b"--timeout")


class ThinUsageError(Exception):
    """The arguments cannot be used; the text is a sentence for people."""


class ThinCall:
    """One command line, read as far as the client needs. Options end at a lone `--`."""

    __slots__ = (
        "arguments",
        "home",
        "is_foreground",
        "is_help",
        "is_json",
        "is_look",
        "is_repair",
        "is_version",
        "is_waiting",
        "verb",
        "verb_at",
    )

    def __init__(self, arguments: list[bytes]) -> None:
        self.arguments = arguments
        self.home: bytes | None = None
        self.is_help = False
        self.is_json = False
        self.is_repair = False
        self.is_foreground = False
        self.is_version = False
        self.is_waiting = False
        self.verb_at = self._read()
        # Help never has an effect, whatever other arguments there are.
        self.verb = b"help" if self.is_help or self.verb_at is None else arguments[self.verb_at]
        self.is_repair = self.is_repair and self.verb == b"doctor"
        subverb = self._find_subverb()
        # Such a command only shows the bus: it starts none that was stopped or never existed. These
        # subcommands are exceptions, because they write.
        self.is_look = self.verb in (b"list", b"doctor", b"status", b"events") and (
            (self.verb, subverb) not in ((b"status", b"set"), (b"events", b"sub"), (b"events", b"unsub"))
        )
        self.is_waiting = (self.verb, subverb) == (b"stick", b"wait") or (
            self.is_waiting and self.verb in (b"recv", b"events")
        )
        # Completion runs while a person types, and its script at every start of a shell: it starts nothing.
        if self.verb in (b"completion", b"__complete"):
            self.verb = b"help"

    def _read(self) -> int | None:
        """Find the options that the client needs, and return the index of the verb."""
        verb_at = None
        row = enumerate(self.arguments)
        for at, argument in row:
            if argument == b"--":
                if verb_at is None and at + 1 < len(self.arguments):
                    verb_at = at + 1
                break
            if argument == b"--home":
                self.home = next(row, (at, b""))[1]
            elif argument.startswith(b"--home="):
                self.home = argument.removeprefix(b"--home=")
            elif argument == b"--as":
                next(row, None)  # The name after it is not the verb.
            elif argument in (b"--help", b"-h"):
                self.is_help = True
            elif argument == b"--json":
                self.is_json = True
            elif argument == b"--repair":
                self.is_repair = True
            elif argument == b"--foreground":
                self.is_foreground = True
            elif argument.partition(b"=")[0] in _WAITING_OPTIONS:
                self.is_waiting = True
            elif argument == b"--version" and verb_at is None:
                self.is_version = True
            elif verb_at is None and not argument.startswith(b"-"):
                verb_at = at
        return verb_at

    def _find_subverb(self) -> bytes:
        """Return the argument after the verb; empty if there is none.

        Only options of every command may be before it: the value of any other option must not be taken for a
        subcommand.
        """
        row = iter(self.arguments[(self.verb_at or 0) + 1 :])
        for argument in row:
            if argument == b"--":
                break
            if argument in (b"--home", b"--as"):
                next(row, None)
            elif not argument.startswith(b"-"):
                return argument
            elif argument not in (b"--json", b"--text") and not argument.startswith((b"--home=", b"--as=")):
                break
        return b""

    def has_more_words(self) -> bool:
        """Whether a call of up or down has an argument that the client itself does not know."""
        known = (b"--json", b"--foreground") if self.verb == b"up" else (b"--json",)
        row = enumerate(self.arguments)
        for at, argument in row:
            if argument in (b"--home", b"--as"):
                next(row, None)
            elif at != self.verb_at and argument not in known and not argument.startswith(b"--home="):
                return True
        return False

    def foreground_arguments(self) -> list[bytes]:
        """Return the arguments after `up` for the daemon itself, without those that the client has used."""
        kept = []
        row = iter(self.arguments[(self.verb_at or 0) + 1 :])
        for argument in row:
            if argument == b"--home":
                next(row, None)
            elif argument != b"--foreground" and not argument.startswith(b"--home="):
                kept.append(argument)
        return kept


def with_ui(arguments: list[bytes]) -> list[bytes]:
    """Return the arguments of `pal ui` if a person has typed `pal` alone, at a terminal that can show it."""
    row = iter(arguments)
    for argument in row:
        if argument == b"--home":
            next(row, None)
        elif not argument.startswith(b"--home="):
            return arguments
    is_agent = any(name in os.environ for name in (*MARKS, "PALAVER_SEAT"))
    can_draw = os.environ.get("TERM", "") not in ("", "dumb") and os.isatty(0) and os.isatty(1)
    return [*arguments, b"ui"] if can_draw and not is_agent else arguments


def working_directory() -> bytes:
    """Return the working directory; empty if it was removed."""
    try:
        return os.getcwdb()  # noqa: PTH109 - its bytes as they are; pathlib is slow to import
    except OSError:
        return b""


def find_home(call: ThinCall, directory: bytes) -> str:
    """Return the absolute home of the bus: from the call, else the environment, else the account."""
    if call.home == b"":
        raise ThinUsageError("--home requires a directory")
    home = call.home or os.environb.get(b"PALAVER_HOME")
    if not home:
        home = (os.environb.get(b"HOME") or _account_directory()) + b"/.palaver"
    if not home.startswith(b"/"):
        if not directory:
            raise StartError(f"{os.fsdecode(home)}: the working directory was removed")
        home = directory + b"/" + home
    return os.fsdecode(home)


def _account_directory() -> bytes:
    import pwd

    try:
        return os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise StartError("no home directory: set HOME or PALAVER_HOME") from None


def request_fields(call: ThinCall, directory: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of the request, with a new request key: a repeat must send the same fields."""
    terminals = [os.isatty(fd) for fd in range(3)]
    return [
        # First: hooks name their files after it, and find it here.
        (b"k", os.urandom(16)),
        (b"v", __version__.encode()),
        *((b"a", argument) for argument in call.arguments),
        (b"d", directory),
        *(
            (b"e", name + b"=" + value)
            for name, value in os.environb.items()
            if name.startswith(b"PALAVER_") or name in _SENT_NAMES
        ),
        (b"t", b"".join(b"1" if is_terminal else b"0" for is_terminal in terminals)),
        (b"w", str(_width(terminals)).encode()),
        (b"c", b"GWM"),  # the optional frames that this client understands
        *([(b"n", b"Python")] if call.verb == b"doctor" else []),
    ]


def _width(terminals: list[bool]) -> int:
    for fd in (1, 2, 0):
        if terminals[fd]:
            try:
                columns = os.get_terminal_size(fd).columns
            except OSError:
                continue
            # A terminal that does not know its size reports 0.
            if columns:
                return columns
    return 0


# --------------------
# The thin client's wire: frames, and the fields of a request. Pure: bytes in, bytes out.
#
# In both directions a frame is one byte of type, four of length (big-endian) and the payload. The meaning
# of a frame is decided elsewhere.

GREETING = b"PAL1"
# protocol/thin.py and native/wire.h have the same number: it is a part of the wire format.
FRAME_LIMIT_BYTES = 10 * 1024 * 1024
PIECE_BYTES = 65536
"""The largest piece of input in one frame."""

_HEAD_BYTES = 5


class MalformedFrameError(Exception):
    """The daemon uses another wire, or sends invalid data."""

    def __str__(self) -> str:
        return f"the daemon sent something that this client ({__version__}) does not understand"


def frame(kind: bytes, payload: bytes | bytearray | memoryview = b"") -> bytes:
    """Write one frame. A field of a request has the same form, with its tag as the type."""
    return b"".join((kind, len(payload).to_bytes(4, "big"), payload))


def request(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Write the first bytes of a client: the greeting and its request."""
    return GREETING + frame(b"R", b"".join(frame(tag, value) for tag, value in fields))


def parse_output(payload: bytes) -> tuple[bytes, bytes, memoryview]:
    """Read an output frame: its number in wire form, its token (may be empty), the data to write."""
    start = 6 + int.from_bytes(payload[4:6], "big")
    if len(payload) < max(6, start):
        raise MalformedFrameError
    return payload[:4], payload[6:start], memoryview(payload)[start:]


def parse_limit(payload: bytes) -> tuple[int | None, bytes]:
    """Read a payload that begins with a limit: the number of bytes to send (None: all), and the rest.

    One byte more than the limit is sent, so that the daemon sees that it was too much.
    """
    if len(payload) < 4:
        raise MalformedFrameError
    limit_bytes = int.from_bytes(payload[:4], "big")
    return (limit_bytes + 1 if limit_bytes else None), payload[4:]


class ThinFrameReader:
    """Splits a stream into frames. An incomplete frame stays inside and is never returned."""

    __slots__ = ("_received",)

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received data."""
        self._received += data

    def take(self) -> tuple[bytes, bytes] | None:
        """Return the type and payload of the next whole frame; None if there is no whole frame yet."""
        received = self._received
        if len(received) < _HEAD_BYTES:
            return None
        end = _HEAD_BYTES + int.from_bytes(received[1:_HEAD_BYTES], "big")
        if end > _HEAD_BYTES + FRAME_LIMIT_BYTES:
            raise MalformedFrameError
        if len(received) < end:
            return None
        kind, payload = bytes(received[:1]), bytes(received[_HEAD_BYTES:end])
        del received[:end]
        return kind, payload


# --------------------
# Output of the thin client, and how it ends if writing fails. Knows no connection.
#
# Like all of the thin client it imports little: a command waits for it.


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
            # Another process may have made it non-blocking: the flag is shared by all that have the terminal
            # open.
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
        text = f"{line}\n".encode(errors="replace")
    else:
        text = f"pal: {error}\n".encode(errors="surrogateescape")
    write_all(2, memoryview(text))


def die_of(number: int) -> NoReturn:
    """End by the signal itself, so that the shell sees the real cause."""
    signal.signal(number, signal.SIG_DFL)
    # A parent process may have blocked the signal, and then it would not end this process.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
    os._exit(128 + number)
