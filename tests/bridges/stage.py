"""Real IRC servers, a proxy whose connections can be cut, users of the network, and a running bridge."""

import base64
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
from tests.daemon.stage import Home, JsonLine
from tests.limits import LIMIT_S

NGIRCD = """\
[Global]
Name = irc.example.net
Info = test
Listen = 127.0.0.1
Ports = {port}
{user}
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 16
[Options]
Ident = no
PAM = no
DNS = no
[SSL]
{tls}
"""

INSPIRCD = """\
<server name="irc.example.net" description="test" network="Example">
<admin name="a" nick="a" email="a@example.net">
<bind address="127.0.0.1" port="{port}" type="clients">
<connect allow="*" commandrate="100000" fakelag="no" threshold="1000" localmax="100" globalmax="100">
<performance quietbursts="yes">
<security announceinvites="none">
<options prefixquit="" syntaxhints="no">
<pid file="{folder}/inspircd.pid">
<path configdir="{folder}" datadir="{folder}" logdir="{folder}">
<files motd="">
"""


_open: list["Proxy | User | BadServer"] = []


def close_all() -> None:
    """Close the connections of the test that ends."""
    while _open:
        _open.pop().close()


def free_port() -> int:
    """Return a port that no program listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Server:
    """One real server of a network, on a free port."""

    def __init__(self, kind: str, folder: Path, *, tls: str = "") -> None:
        self.port = free_port()
        self._program = shutil.which(kind, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if self._program is None:
            pytest.skip(f"THE BRIDGE WAS NOT TESTED WITH {kind}: install it with 'apt-get install {kind}'")
        config = folder / f"{kind}.conf"
        user = "ServerUID = root\nServerGID = root" if os.geteuid() == 0 else ""
        text = NGIRCD if kind == "ngircd" else INSPIRCD
        config.write_text(text.format(port=self.port, folder=folder, user=user, tls=tls))
        root = ["--runasroot"] if os.geteuid() == 0 else []
        self._command = (
            [self._program, "-n", "-f", str(config)]
            if kind == "ngircd"
            else [self._program, "--nofork", f"--config={config}", *root]
        )
        self._log = folder / f"{kind}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._log.parent
            )
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < end, self._log.read_text()
                threading.Event().wait(0.02)

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


class Proxy:
    """Passes connections on to a port, until it is cut."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._sockets: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.port = free_port()
        self.mend()
        _open.append(self)

    def mend(self) -> None:
        """Accept connections."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        if self._listener is not None:
            _close(self._listener)
            self._listener = None
        for one in self._sockets:
            _close(one)
        self._sockets.clear()

    def close(self) -> None:
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _close(source)
    _close(sink)


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class User:
    """A person on the other network, with a plain client."""

    def __init__(self, port: int, nick: str, channel: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._file: IO[bytes] = self._socket.makefile("rb")
        self.nick = nick
        _open.append(self)
        self.lines: list[str] = []
        self.write(f"NICK {nick}", f"USER {nick} 0 * :{nick}")
        self.until(lambda line: " 001 " in line)
        if channel:
            self.write(f"JOIN {channel}")
            self.until(lambda line: " 366 " in line)

    def write(self, *lines: str) -> None:
        self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def until(self, has: Callable[[str], bool]) -> str:
        """Read until a line fulfils a condition, and return it."""
        while True:
            data = self._file.readline()
            assert data, self.lines[-10:]
            line = data.decode().rstrip("\r\n")
            if line.startswith("PING"):
                self.write(f"PONG{line[4:]}")
                continue
            self.lines.append(line)
            if has(line):
                return line

    def reads(self, text: str) -> str:
        """Wait for a message that ends with a text, and return its line."""
        return self.until(lambda line: " PRIVMSG " in line and line.endswith(text))

    def texts_until(self, last: str) -> list[str]:
        """Return the texts of all messages up to the last one."""
        start = len(self.lines)
        self.reads(last)
        return [line.split(" :", 1)[1] for line in self.lines[start:] if line.split(" ")[1:2] == ["PRIVMSG"]]

    def close(self) -> None:
        self._file.close()
        _close(self._socket)


class Bridge:
    """A running `pal bridge irc --json`."""

    def __init__(self, home: Home, port: int, *options: str, env: dict[str, str] | None = None) -> None:
        self._home = home
        words = ("--server", f"127.0.0.1:{port}", *options, "--rate", "100", "--json")
        self.process = home.start("bridge", "irc", *words, env=env)
        assert self.process.stdout is not None
        self._said: queue.Queue[JsonLine | None] = queue.Queue()
        self.heard: list[JsonLine] = []
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, output: IO[bytes]) -> None:
        with suppress(ValueError, OSError):
            for line in output:
                self._said.put(json.loads(line))
        self._said.put(None)

    def until(self, event: str, **fields: object) -> JsonLine:
        """Wait for a status line, and return it."""
        while True:
            line = self._said.get(timeout=LIMIT_S)
            assert line is not None, (self.heard, self.errors())
            self.heard.append(line)
            if line["event"] == event and all(line[name] == value for name, value in fields.items()):
                return line

    def errors(self) -> str:
        """Wait for the end, and return what it wrote to standard error."""
        assert self.process.stderr is not None
        self.process.wait(LIMIT_S)
        return self.process.stderr.read().decode()

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal, and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@contextmanager
def server(kind: str, folder: Path, *, tls: str = "") -> Iterator[Server]:
    """Yield a running server, and end it with the block."""
    made = Server(kind, folder, tls=tls)
    made.start()
    try:
        yield made
    finally:
        made.kill()


class BadServer:
    """A program that only looks like a server: `behave` does what it likes with each connection."""

    def __init__(self, behave: Callable[[socket.socket, int], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted: queue.Queue[int] = queue.Queue()
        self._behave = behave
        _open.append(self)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        count = 0
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                count += 1
                self.accepted.put(count)
                threading.Thread(target=self._serve, args=(near, count), daemon=True).start()

    def _serve(self, near: socket.socket, count: int) -> None:
        with suppress(OSError, ValueError):
            self._behave(near, count)
        _close(near)

    def close(self) -> None:
        _close(self._listener)


def register(near: socket.socket, nick: str = "palaver") -> IO[bytes]:
    """Accept a client as a server does, with its channels, and return what it writes next."""
    lines = near.makefile("rb")
    channels = 0
    near.sendall(f":s 001 {nick} :welcome\r\n".encode())
    for data in lines:
        word, _, rest = data.decode().strip().partition(" ")
        if word == "JOIN":
            channels += 1
            near.sendall(f":{nick}!u@h JOIN {rest}\r\n:s 366 {nick} {rest.lstrip(':')} :end\r\n".encode())
            break
    return lines


def sasl_plain(account: str, password: str) -> str:
    """Return the response of SASL PLAIN."""
    return base64.b64encode(f"{account}\0{account}\0{password}".encode()).decode()


def texts(count: int, word: str = "message") -> Sequence[str]:
    """Return numbered texts."""
    return [f"{word} {number}" for number in range(1, count + 1)]
