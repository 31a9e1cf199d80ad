"""Notices through a real tmux: what the terminal around it gets."""

import re
import subprocess
from collections.abc import Iterator

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import Home, run_as_person, wait_until
from tests.daemon.test_notices import joined
from tests.daemon.tmux import HAS_TMUX
from tests.limits import LIMIT_S

pytestmark = pytest.mark.skipif(not HAS_TMUX, reason="tmux is not installed")

HINT = b"sending notices"
_OSC = re.compile(rb"\x1b\][^\x07\x1b]*(\x07|\x1b\\)")


@pytest.fixture
def bus(home: Home) -> Home:
    home.start_daemon()
    return home


class TmuxPerson(Person):
    """A person in a tmux of their own. What the terminal around it gets is `shown`."""

    def __init__(self, home: Home) -> None:
        super().__init__(home, cols=100, rows=30, term="xterm-256color")
        self._socket = home.spare_path()

    def start(self, *settings: str, command: str) -> None:
        """Start tmux with a command in its first window."""
        line = " \\; ".join([f"new-session -d '{command}'", *settings, "attach"])
        self.press(f"tmux -S {self._socket} -f /dev/null {line}\r".encode())

    def open_other_window(self) -> None:
        """Show another window of tmux, so that the first one is hidden."""
        self.press(b"\x02c")
        self.until(b"1:")

    def end(self) -> None:
        """End the server of this socket, which has only this session."""
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], check=True, timeout=LIMIT_S)

    def count_bells(self) -> int:
        """Return the number of bells that the terminal has got, without the ends of other sequences."""
        self.drain()
        return _OSC.sub(b"", self.shown).count(b"\a")


@pytest.fixture
def person(bus: Home) -> Iterator[TmuxPerson]:
    with persons(bus) as here:
        one = TmuxPerson(bus)
        here.append(one)
        yield one
        one.end()


@pytest.mark.parametrize(
    ("notify", "signal"),
    [
        ("osc9", b"\x1b]9;Palaver: nova has finished\a"),
        ("osc777", b"\x1b]777;notify;Palaver;nova has finished\a"),
    ],
    ids=["osc9", "osc777"],
)
@pytest.mark.parametrize(
    ("command", "hint"), [("pal notify", HINT), ("pal ui", b"Nothing waits for you")], ids=["notify", "ui"]
)
def test_terminal_around_tmux_gets_the_notification(
    bus: Home, person: TmuxPerson, command: str, hint: bytes, notify: str, signal: bytes
) -> None:
    assert run_as_person(bus, "config", "set", "notify", notify).status == 0
    nova = joined(bus, "nova")
    person.start("set -g allow-passthrough on", command=command)
    person.until(hint)

    nova.ok("status", "set", "idle")

    person.until(signal)


@pytest.mark.parametrize("is_hidden", [False, True])
def test_terminal_around_tmux_gets_the_bell(bus: Home, person: TmuxPerson, *, is_hidden: bool) -> None:
    nova = joined(bus, "nova")
    person.start(command="pal notify")
    person.until(HINT)
    if is_hidden:
        person.open_other_window()
    before = person.count_bells()

    nova.ok("status", "set", "idle")

    wait_until(lambda: person.count_bells() == before + 1)
