"""Daemons for tests that need one that runs. A test about the start itself uses `pal up`."""

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.daemon_server import READY_FD, REQUEST_BYTES
from tests.limits import LIMIT_S

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = str(Path(sys.executable).with_name("python3"))

_BEGIN: Final = "exec(input())"
"""The program of a server. It is short, because the arguments of a daemon replace it later."""

_servers: dict[tuple[int, int], "_Server"] = {}


class _Server:
    """One process that forks daemons, each with arguments and an environment as long as the server's own."""

    def __init__(self, argv_bytes: int, environment: Mapping[str, str]) -> None:
        command = [PYTHON, "-I", "-c", _BEGIN, ""]
        command[-1] = "-" * (argv_bytes - _count_bytes(command))
        self._wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wire.settimeout(LIMIT_S)
        with theirs:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], cwd=ROOT
            )
            code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.daemon_server as server; "
            code += f"del sys.path[0]; server.serve({theirs.fileno()})\n"
            assert self._process.stdin is not None
            with self._process.stdin as stdin:
                stdin.write(code.encode())

    def fork(self, home: Path, argv: list[str], environment: Mapping[str, str]) -> None:
        """Fork a daemon, and return when it listens."""
        request = json.dumps({"home": str(home), "argv": argv, "environment": dict(environment)})
        self._wire.send(request.encode())
        assert self._wire.recv(REQUEST_BYTES) == b"ok\n", "the daemon did not start"

    def close(self) -> None:
        self._wire.close()
        self._process.wait(LIMIT_S)


def fork_daemon(home: Path, environment: Mapping[str, str]) -> None:
    """Start the daemon of a home, which may be missing, like a client with this environment."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "start.lock").touch(mode=0o600)
    argv = [PYTHON, "-I", "-m", "palaver.daemon", "--home", str(home), "--ready-fd", str(READY_FD)]
    shape = _count_bytes(argv), _count_bytes([f"{name}={value}" for name, value in environment.items()])
    if shape not in _servers:
        # A server belongs to no home, so it does not show the path of the first one.
        hidden = {
            name: value.replace(str(home.parent), "-" * len(str(home.parent)))
            for name, value in environment.items()
        }
        _servers[shape] = _Server(shape[0], hidden)
    _servers[shape].fork(home, argv, environment)


@atexit.register
def end_servers() -> None:
    """End every server. The daemons continue to run."""
    while _servers:
        _servers.popitem()[1].close()


def _count_bytes(texts: list[str]) -> int:
    """Return the bytes of texts with one byte between them."""
    return sum(len(os.fsencode(text)) + 1 for text in texts)
