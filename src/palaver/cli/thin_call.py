"""Parse the thin client's command line: verb, home, and the fields of the request.

It knows only the verbs with special rules (up, down, hook, monitor, rewake, help) and checks no argument: the
daemon does. It passes on only listed variables, because others carry keys. A plain class, because importing
dataclasses takes longer than the whole client.
"""

import os

from palaver import __version__
from palaver.client.start import StartError
from palaver.harness.marks import MARKS

_LOCAL_NAMES = ("LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", "TERM", "NO_COLOR")
_SENT_NAMES = frozenset(name.encode() for name in (*_LOCAL_NAMES, *MARKS))

_WAITING_OPTIONS = (b"--follow", b"--wait", b"--timeout")


class UsageError(Exception):
    """The arguments cannot be used; the text is a sentence for people."""


class Call:
    """One command line, read as far as the client needs. Options end at a lone `--`."""

    __slots__ = (
        "arguments",
        "home",
        "is_foreground",
        "is_help",
        "is_json",
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
        words = arguments[self.verb_at or 0 :][:2]
        self.is_waiting = words == [b"stick", b"wait"] or (
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
                next(row, None)
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


def working_directory() -> bytes:
    """Return the working directory; empty if it was removed."""
    try:
        return os.getcwdb()  # noqa: PTH109 - its bytes as they are; pathlib is slow to import
    except OSError:
        return b""


def find_home(call: Call, directory: bytes) -> str:
    """Return the absolute home of the bus: from the call, else the environment, else the account."""
    if call.home == b"":
        raise UsageError("--home needs a directory")
    home = call.home or os.environb.get(b"PALAVER_HOME")
    if not home:
        home = (os.environb.get(b"HOME") or _account_directory()) + b"/.palaver"
    if not home.startswith(b"/"):
        if not directory:
            raise StartError(f"{os.fsdecode(home)}: the working directory is gone")
        home = directory + b"/" + home
    return os.fsdecode(home)


def _account_directory() -> bytes:
    import pwd

    try:
        return os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise StartError("no home directory: set HOME or PALAVER_HOME") from None


def request_fields(call: Call, directory: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of the request, with a new request key: a repeat must send the same fields."""
    terminals = [os.isatty(fd) for fd in range(3)]
    return [
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
            if columns:
                return columns
    return 0
