"""Both thin clients, and a fake daemon on a real socket that the test controls."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest
from tests.limits import LIMIT_S
from tests.processes import end_process

from palaver.version import __version__

NOBODY = 65534
ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("stand_in.py")
SANITIZED = os.environ.get("SANITIZED_CLIENT", "")
"""A C client with sanitizers that is tested instead of both clients, see `make native-check`."""

Frame = tuple[bytes, bytes]


class Peer:
    """The daemon's end of one connection."""

    def __init__(self, wire: socket.socket, magic: bytes = b"PAL1") -> None:
        wire.settimeout(LIMIT_S)
        self.wire = wire
        self._reader = wire.makefile("rb")
        greeting = self._reader.read(4)
        assert greeting == magic, greeting
        kind, payload = self.next_frame()
        assert kind == b"R", kind
        self.fields = split_fields(payload)

    def all(self, tag: bytes) -> list[bytes]:
        """Return every field with this tag, in order."""
        return [value for name, value in self.fields if name == tag]

    def one(self, tag: bytes) -> bytes:
        (value,) = self.all(tag)
        return value

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.wire.sendall(frame(kind, payload))

    def write(self, number: int, data: bytes, token: bytes = b"") -> None:
        """Send an output frame."""
        self.send(b"O", number.to_bytes(4, "big") + len(token).to_bytes(2, "big") + token + data)

    def quit(self, status: int = 0) -> None:
        self.send(b"Q", bytes([status]))

    def ask_stdin(self, limit_bytes: int = 0) -> None:
        self.send(b"I", limit_bytes.to_bytes(4, "big"))

    def ask_file(self, path: bytes, limit_bytes: int = 0) -> None:
        self.send(b"F", limit_bytes.to_bytes(4, "big") + path)

    def next_frame(self) -> Frame:
        """Return the next frame of the client; (b"", b"") when it closed."""
        head = self._reader.read(5)
        if not head:
            return b"", b""
        return head[:1], self._reader.read(int.from_bytes(head[1:], "big"))

    def next_content(self) -> tuple[bytes, Frame]:
        """Return the content that the client read for the daemon, and the frame that ended it."""
        content = b""
        while True:
            kind, payload = self.next_frame()
            if kind != b"D":
                return content, (kind, payload)
            assert 0 < len(payload) <= 65536
            content += payload

    def rest(self) -> list[Frame]:
        """Return all frames until the client has closed."""
        frames = []
        while (taken := self.next_frame()) != (b"", b""):
            frames.append(taken)
        return frames

    def close(self) -> None:
        self._reader.close()
        self.wire.close()


class Daemon:
    """Listens in a home. It sends only frames that the test chooses."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(LIMIT_S)
        self._peers: list[Peer] = []
        directory = os.open(home, os.O_RDONLY)
        with contextlib.suppress(FileNotFoundError):
            (home / "daemon.sock").unlink()
        self._listener.bind(f"/proc/self/fd/{directory}/daemon.sock")
        os.close(directory)
        self._listener.listen(16)

    def accept(self, magic: bytes = b"PAL1") -> Peer:
        """Accept the next client and read its request."""
        peer = Peer(self._listener.accept()[0], magic)
        self._peers.append(peer)
        return peer

    def accept_raw(self) -> socket.socket:
        """Accept the next client without reading."""
        wire, _ = self._listener.accept()
        wire.settimeout(LIMIT_S)
        return wire

    def deafen(self) -> None:
        """Stop listening, like a daemon that died; its socket file stays."""
        self._listener.close()

    def close(self) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.close()


@dataclass(frozen=True, slots=True)
class Result:
    status: int
    out: bytes
    err: bytes


@dataclass
class Pal:
    """One of the clients, run as a process in a minimal environment."""

    name: str
    command: list[str]
    home: Path
    notes_path: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home.parent),
            "PALAVER_HOME": str(self.home),
            "PALAVER_PYTHON": str(self.home.parent / "python"),
            "PALAVER_TEST_NOTES": str(self.notes_path),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def start(
        self,
        *arguments: str | bytes,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        env: dict[str, str] | None = None,
        without: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start the client; `before` is a command that runs the client in turn."""
        environment = {**self.environment, **(env or {})}
        for name in without:
            environment.pop(name)
        process = subprocess.Popen(
            [*before, *self.command, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment,
            **options,
        )
        self.running.append(process)
        return process

    def start_as_nobody(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the client as another user. Python imports first: that user may not read its library."""
        if self.name != "python":
            return self.start(*arguments, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", **options)
        become = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
        program = f"import json, os; from palaver.app.thin.client import main; {become}; main()"
        nobody = replace(self, command=[sys.executable, "-c", program])
        return nobody.start(*arguments, cwd="/", **options)

    def run(self, *arguments: str | bytes, **options: Any) -> Result:
        """Run the client to its end, without a scripted daemon."""
        return finish(self.start(*arguments, **options))

    def notes(self) -> list[dict[str, Any]]:
        """Return the notes of the stand-in for Python, one for each run."""
        if not self.notes_path.exists():
            return []
        return [json.loads(line) for line in self.notes_path.read_text().splitlines()]

    def end_all(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for note in self.notes():
            end_process(note["pid"], signal.SIGKILL)


def finish(process: subprocess.Popen[bytes], limit_s: float = LIMIT_S) -> Result:
    """Wait for the end of a client."""
    out, err = process.communicate(timeout=limit_s)
    return Result(process.returncode, out or b"", err or b"")


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


def split_fields(payload: bytes) -> list[Frame]:
    fields = []
    while payload:
        end = 5 + int.from_bytes(payload[1:5], "big")
        assert len(payload) >= end
        fields.append((payload[:1], payload[5:end]))
        payload = payload[end:]
    return fields


@pytest.fixture(scope="session")
def compiled(build_hook: ModuleType) -> Iterator[Path]:
    """Yield the C client, compiled as for an install; a warning fails. Every user may run it."""
    directory = Path(tempfile.mkdtemp(prefix="palaver-client-"))
    directory.chmod(0o755)
    client = directory / "pal"
    if SANITIZED:
        shutil.copy(SANITIZED, client)
    else:
        assert build_hook.compile_client(ROOT / "native", client, __version__, build_hook.STRICT)
    yield client
    shutil.rmtree(directory)


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield an empty home, under a short path that another user may traverse."""
    directory = Path(tempfile.mkdtemp(prefix="pal-"))
    directory.chmod(0o755)
    interpreter = directory / "python"
    words = shlex.join([sys.executable, "-I", str(STAND_IN)])
    interpreter.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    interpreter.chmod(interpreter.stat().st_mode | stat.S_IXUSR)
    (directory / "home").mkdir(mode=0o700)
    yield directory / "home"
    shutil.rmtree(directory, ignore_errors=True)  # an ending process may still write there


@pytest.fixture(scope="session")
def build_hook() -> ModuleType:
    """Return the build hook that puts the client into a wheel; it is not part of the package."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["native"] if SANITIZED else ["native", "python"])
def pal(
    request: pytest.FixtureRequest,
    home: Path,
    compiled: Path,
    build_hook: ModuleType,
    tmp_path: Path,
) -> Iterator[Pal]:
    script = tmp_path / "pal.py"
    script.write_text(build_hook.PYTHON_CLIENT)
    command = [str(compiled)] if request.param == "native" else [sys.executable, str(script)]
    client = Pal(name=request.param, command=command, home=home, notes_path=home.parent / "notes")
    yield client
    client.end_all()


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    listening = Daemon(home)
    yield listening
    listening.close()
