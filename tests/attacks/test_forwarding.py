"""Attacks by the holder of an agent: it tries to speak for the process of a person."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, terminal
from tests.limits import LIMIT_S

_CONNECT = """\
import signal, socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
wire.sendall(sys.argv[2].encode())
print("connected", flush=True)
wire.recv(1)
"""


@pytest.fixture
def mole(bus: Home) -> Iterator[FakeHolder]:
    """A worker that holds its own agent."""
    with FakeHolder(bus) as holder:
        yield holder.hold(ticket_of(words_of(bus, "run", "--name", "mole", "--", "bash"))).open_lane()


@contextmanager
def connection_of_person(
    home: Home, path: Path, says: str = "", *, name: str = ""
) -> Iterator[socket.socket]:
    """Return the accepted end of a connection from a program of a person; `name` is another name to bind."""
    program = home.spare_path()
    program.write_text(_CONNECT)
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, terminal() as slave:
        listener.bind(name or str(path))
        listener.listen()
        listener.settimeout(LIMIT_S)
        words = ["setsid", "--fork", "--ctty", sys.executable, str(program), str(path), says]
        subprocess.run(words, stdin=slave, stdout=subprocess.DEVNULL, env=home.environment, check=True)
        accepted, _ = listener.accept()
        with accepted:
            yield accepted


def claims(holder: FakeHolder) -> list[bytes]:
    """Return every request with which a holder could try to speak for a caller."""
    send = {"type": "send", "body": "rm -rf", "raw": True}
    asked = [
        {"do": "send", "name": "mole", "request": send},
        {"do": "send", "name": "mole", "request": send, "silent": True},
        {"do": "read", "name": "mole", "request": send},
        {"do": "who", "name": "mole"},
    ]
    return [json.dumps(line).encode() + b"\n" for line in asked]


def test_holder_cannot_use_a_persons_connection_to_another_socket(bus: Home, mole: FakeHolder) -> None:
    """Promise: no use of `adopt.sock` makes an agent the human; only its own socket counts there."""
    with connection_of_person(bus, bus.spare_path(), '{"type": "send", "body": "x"}') as person:
        words = [mole.pass_on(line, person.fileno()) for line in claims(mole)]

    assert {word["ok"] for word in words} == {False}
    assert bus.texts() == []


def test_holder_cannot_pass_off_a_relative_address_as_its_socket(
    bus: Home, mole: FakeHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: a socket in another folder is not the agent's socket, whatever name it was bound with."""
    own = bus.path / "agents" / "mole.sock"
    own.parent.mkdir(exist_ok=True)
    name = os.path.relpath(own, os.readlink(f"/proc/{bus.pid}/cwd"))
    folder = bus.spare_path()
    (folder / name).parent.mkdir(parents=True)
    monkeypatch.chdir(folder)

    with connection_of_person(bus, folder / name, '{"type": "send", "body": "x"}', name=name) as person:
        refused = [mole.pass_on(line, person.fileno()) for line in claims(mole)]

    assert {word["code"] for word in refused} == {"bad_request"}
    assert bus.texts() == []


def test_holder_cannot_forge_a_request_of_a_person_at_its_socket(bus: Home, mole: FakeHolder) -> None:
    """Promise: a message from the human was written by the human's process, byte by byte."""
    path = bus.path / "agents" / "mole.sock"
    with connection_of_person(bus, path, '{"type": "status"}') as person:
        words = [mole.pass_on(line, person.fileno()) for line in claims(mole)]

    assert [word["ok"] for word in words].count(True) == 1  # it was read once, unchanged
    assert words[2]["request"] == {"type": "status"}
    assert bus.texts() == []


def test_holder_cannot_send_a_persons_request_twice(bus: Home, mole: FakeHolder) -> None:
    """Promise: one request of a person is one message."""
    read = b'{"do": "read", "name": "mole"}\n'
    path = bus.path / "agents" / "mole.sock"
    with connection_of_person(bus, path, '{"type": "send", "body": "once"}\n') as person:
        first = mole.pass_on(read, person.fileno())
        mole.pass_on(read, person.fileno())

    assert first == {"ok": True, "replied": True}
    assert bus.texts() == ["once"]


def test_socket_pair_is_not_accepted_as_a_connection(bus: Home, mole: FakeHolder) -> None:
    """Promise: only connections that the agent's own socket accepted are considered."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"type": "send", "body": "x"}\n')

        refused = [mole.pass_on(line, ours.fileno()) for line in claims(mole)]

    assert {word["code"] for word in refused} == {"bad_request"}
    assert bus.texts() == []


def test_passed_connection_of_an_agent_still_belongs_to_that_agent(bus: Home, mole: FakeHolder) -> None:
    """Promise: a connection passed to another process belongs to the process that opened it (SCM_RIGHTS)."""
    program = bus.spare_path()
    program.write_text(
        "import socket, sys, subprocess\n"
        "wire = socket.socket(socket.AF_UNIX)\n"
        "wire.connect(sys.argv[1])\n"
        'ask = \'import os, sys; os.write(3, b\\\'{\\"op\\": \\"whoami\\"}\\\\n\\\'); '
        "sys.stdout.write(os.read(3, 9999).decode())'\n"
        "subprocess.run(['setsid', '--wait', 'bash', '-c', f'exec 3<&{wire.fileno()}; "
        'exec "{sys.executable}" -c "$0"\', ask], pass_fds=[wire.fileno()], check=True)\n'
    )
    words = [sys.executable, str(program), str(bus.path / "daemon.sock")]

    result = mole.run(f"{shlex.join(words)} </dev/null")

    assert json.loads(result.out)["ok"]["name"] == "mole", result
