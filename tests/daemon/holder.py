"""A scripted holder: it owns a terminal and a child, and the test sends each of its lines to the daemon."""

import array
import contextlib
import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import termios
from collections import deque
from pathlib import Path
from typing import Any, Self

from tests.daemon.stage import Home, Job, Result, check_output, run_script_as_person, start_at_terminal
from tests.daemon.wires import LinesWire, ThinWire
from tests.limits import LIMIT_S

SECRET = "s" * 32

_ASK_AS_PERSON = """\
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.daemon.wires import ThinWire
with ThinWire(Path({home!r})) as wire:
    wire.ask(*sys.argv[1:])
    kind, payload = wire.next_frame()
    sys.stdout.buffer.write(kind + payload)
"""


def words_of(home: Home, *words: str) -> list[str]:
    """Return the command that the client must run when a script makes this request."""
    with ThinWire(home.path) as wire:
        wire.ask(*words)
        kind, payload = wire.next_frame()
    assert kind == b"V", (kind, payload)
    return payload.decode().split("\0")


def words_of_person(home: Home, *words: str) -> list[str]:
    """Return the command that the client must run when a person makes this request."""
    script = home.spare_path()
    script.write_text(_ASK_AS_PERSON.format(root=str(Path(__file__).parents[2]), home=str(home.path)))
    command = shlex.join([sys.executable, str(script), *words])
    out = check_output(run_script_as_person(home, command)).out
    assert out[0] == "V", out
    return out[1:].split("\0")


def ticket_of(words: list[str]) -> str:
    """Return the ticket in the command that a client must run."""
    return words[words.index("--ticket") + 1]


class FakeHolder:
    """A child in its own terminal, and the connection that holds it."""

    def __init__(self, home: Home, program: tuple[str, ...] = ("bash", "--norc", "--noprofile")) -> None:
        self.home = home
        self.master, slave = os.openpty()
        self.child = subprocess.Popen(
            program,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**home.environment, "PS1": ""},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.pid = self.child.pid
        self.wire = LinesWire(home.path)
        self.pushes: deque[dict[str, Any]] = deque()
        self.held: dict[str, Any] = {}
        self.lane = 0
        self.is_hidden = False
        """The program's own claim that it asks for a secret."""

    # The connection

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request, keep the pushes that arrive meanwhile, and return the whole response."""
        number = self.wire.tell(op, **fields)
        while True:
            line = self.wire.next_line()
            assert line, "the daemon closed the connection"
            if "push" in line:
                self.pushes.append(line)
            elif line["req"] == number:
                return line

    def ok(self, op: str, **fields: Any) -> dict[str, Any]:
        answer = self.ask(op, **fields)
        assert "ok" in answer, answer
        found: dict[str, Any] = answer["ok"]
        return found

    def next_push(self) -> dict[str, Any]:
        if self.pushes:
            return self.pushes.popleft()
        line = self.wire.next_line()
        assert "push" in line, line
        return line

    def hold(self, ticket: str, **fields: Any) -> Self:
        """Register the child with a ticket."""
        options = {"secret": SECRET, "cols": 80, "rows": 24, **fields}
        self.held = self.ok("hold", ticket=ticket, pid=self.pid, **options)
        return self

    def again(self) -> None:
        """Reconnect to a daemon with the secret."""
        self.wire.close()
        self.wire = LinesWire(self.home.path)
        self.pushes.clear()
        secret, name = self.held["secret"], self.held["name"]
        self.held = self.ok("hold", secret=secret, name=name, pid=self.pid, cols=80, rows=24)

    def open_lane(self, *, is_open: bool = True, **fields: Any) -> Self:
        self.lane = self.ok("lane", kind="terminal", **fields)["lane"]
        if is_open:
            self.gate(open=True)
        return self

    def gate(self, **fields: Any) -> None:
        self.ok("gate", lane=self.lane, **fields)

    def offered(self) -> dict[str, Any]:
        """Return the next offer, with its only message."""
        while (offer := self.next_push())["push"] != "offer":
            self.tell_status(offer)
        (offer["message"],) = offer["messages"]
        return offer

    def tell_status(self, asked: dict[str, Any]) -> None:
        """Respond to a status request, which comes before keys are sent or from a viewer."""
        assert asked["verb"] == "status", asked
        self.ok("tell", ask=asked["ask"], ok={"secret": self.is_hidden})

    def answer(self, offer: dict[str, Any], word: str = "seen", **fields: Any) -> None:
        self.ok("answer", lane=offer["lane"], offer=offer["offer"], answer=word, **fields)

    def take(self) -> str:
        """Accept one message and return its text."""
        offer = self.offered()
        self.answer(offer)
        text: str = offer["message"]["text"]
        return text

    # The terminal

    def run(self, script: str) -> Result:
        """Run lines of shell in the terminal, as if a user typed them there."""
        job = Job(self.home.spare_path())
        paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
        line = f"{{ {script}; }} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}\n"
        os.write(self.master, line.encode())
        return job.end()

    # Forwarded callers

    def pass_on(self, line: bytes, *descriptors: int) -> dict[str, Any]:
        """Forward a line and descriptors, and return the only response; empty if the daemon just closed."""
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(LIMIT_S)
            wire.connect(str(self.home.path / "adopt.sock"))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            wire.sendmsg([line], rights if descriptors else [])
            answer = wire.makefile("rb").readline()
        found: dict[str, Any] = json.loads(answer) if answer else {}
        return found

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.wire.close()
        os.close(self.master)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_HOLD_AS_PERSON = """\
import os, pty, socket, sys, threading
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.daemon.wires import ThinWire, connect

def pump(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

with ThinWire(Path({home!r})) as wire:
    wire.ask(*sys.argv[2:])
    kind, payload = wire.next_frame()
    assert kind == b"V", payload
child, master = pty.fork()
if child == 0:
    os.execvp("bash", ["bash", "--norc", "--noprofile"])
test = socket.socket(socket.AF_UNIX)
test.connect(sys.argv[1])
words = payload.decode().split("\\0")
socket.send_fds(test, [f"{{child}} {{words[words.index('--ticket') + 1]}}".encode()], [master])
daemon = connect(Path({home!r}))
daemon.settimeout(None)
threading.Thread(target=pump, args=(daemon, test)).start()
pump(test, daemon)
"""


class PersonsHolder(FakeHolder):
    """A holder that a person requested: only the requesting process can use its ticket.

    That process runs at a terminal and relays every line between the daemon and the test.
    """

    def __init__(self, home: Home, *words: str) -> None:
        self.home = home
        path, script = home.spare_path(), home.spare_path()
        script.write_text(_HOLD_AS_PERSON.format(root=str(Path(__file__).parents[2]), home=str(home.path)))
        self._terminal, slave = os.openpty()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(LIMIT_S)
            command = [sys.executable, str(script), str(path), *words]
            start_at_terminal(slave, command, env={**home.environment, "PS1": ""}, limit_s=LIMIT_S)
            connection, _ = listener.accept()
        os.close(slave)
        connection.settimeout(LIMIT_S)
        first, (self.master,), _, _ = socket.recv_fds(connection, 4096, 1)
        pid, self.ticket = first.decode().split()
        self.pid = int(pid)
        self.wire = LinesWire(connection)
        self.pushes = deque()
        self.held = {}
        self.lane = 0
        self.is_hidden = False

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wire.close()
        os.close(self.master)
        os.close(self._terminal)
