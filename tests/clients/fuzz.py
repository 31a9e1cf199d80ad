"""Fuzz the C client: a hostile daemon sends random frames to it, and a hostile harness random input.

Run `python -m tests.clients.fuzz CLIENT`, with a client that was built with sanitizers (`make native-check`).
A case depends only on the seed and its number, so each finding can be repeated. Add a test for each finding.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.clients.conftest import frame

DEFAULT_SEED = 1
_SECONDS = 60.0
_CASE_LIMIT_S = 20.0
_READ_LIMIT_S = 2.0
_ONE_READ_LIMIT_S = 0.02
_SANITIZER_STATUS = 99
_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGTRAP}
_SIGNS = (b"Sanitizer", b"runtime error:", b"Bad address")
_COMMANDS = (
    *(("list",), ("recv", "--follow"), ("events", "--wait"), ("down",), ("up",), ("doctor", "--json")),
    *(("monitor",), ("rewake",)),
)
_ENDLESS = ("monitor", "rewake", "up")
"""Commands that wait for the next daemon, or try to start one, however often that fails."""
_PATHS = (b"", b"/", b"/dev/null", b"/dev/zero", b"/etc/passwd", b"no/such/file", b"a\0b", b"x" * 5000)
_LENGTHS = (0, 1, 3, 4, 5, 0xFFFF, 10 * 1024 * 1024, 10 * 1024 * 1024 + 1, 0x7FFFFFFF, 0xFFFFFFFF)
_INPUTS = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n',
    b'{"params":{"id":7,"a":["id",{"id":8}]},"id":"a\\"b"}\n',
    b'{"id" : -12.5e3}\n{"id":null}\n{"id"\n{"id":\n["id"]\n\n \t\r\n',
    b'{"hook_event_name":"PostToolUse","session_id":"s","tool_input":{"command":"ls"}}',
    b'"\\', b"{" * 3000, b"\xff\xfe\0", b"",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of the client: its arguments and input, and the bytes of the first daemon, in pieces."""

    arguments: tuple[str, ...]
    stdin: bytes
    pieces: tuple[bytes, ...]
    reads_after: frozenset[int] = frozenset()
    """The pieces after which the daemon first reads from the client."""
    is_last_daemon: bool = False
    """No other daemon listens after the first one."""
    is_terminated: bool = False
    """The client gets SIGTERM after the last piece."""

    @property
    def is_hook(self) -> bool:
        return self.arguments[0] == "hook"


def make_case(seed: int, number: int) -> Case:
    """Return a case; the same numbers return the same case."""
    rng = random.Random(f"{seed}:{number}")
    kind = rng.choice(("command", "command", "hook", "mcp"))
    if kind == "hook":
        arguments: tuple[str, ...] = ("hook", "claude", rng.choice(("Stop", "SessionStart", "PostToolUse")))
        frames = [_hook_frame(rng) for _ in range(rng.randint(0, 4))]
    elif kind == "mcp":
        arguments = ("mcp",)
        frames = [_mcp_frame(rng) for _ in range(rng.randint(0, 30))]
    else:
        arguments = rng.choice(_COMMANDS)
        frames = [_command_frame(rng) for _ in range(rng.randint(0, 30))]
    stream = b"".join(_mutate(rng, one) if rng.random() < 0.1 else one for one in frames)
    pieces = tuple(_split(rng, stream))
    return Case(
        arguments=arguments,
        stdin=_input(rng),
        pieces=pieces,
        reads_after=frozenset(at for at in range(len(pieces)) if rng.random() < 0.2),
        is_last_daemon=kind != "hook" and arguments[0] not in _ENDLESS and rng.random() < 0.2,
        is_terminated=kind == "command" and rng.random() < 0.2,
    )


def _command_frame(rng: random.Random) -> bytes:
    kind = rng.choice(b"OOOOOOOOEEIFGWNVQ" + rng.randbytes(1))
    limit = rng.choice((0, 1, 65536, 0xFFFFFFFF)).to_bytes(4, "big")
    payloads = {
        b"O": _output(rng),
        b"E": _text(rng),
        b"I": limit,
        b"F": limit + rng.choice(_PATHS),
        b"V": b"\0".join(rng.choice((b"run", b"--ticket", b"--", b"t" * 300, b"")) for _ in range(4)),
        b"Q": rng.randbytes(1),
        b"G": rng.choice((b"", b"7", b"9" * 40)),
    }
    return frame(bytes([kind]), payloads.get(bytes([kind]), b""))


def _output(rng: random.Random) -> bytes:
    token = rng.choice((b"", b"12", b"[3,9]", b"9" * 1500, b"9" * 70000))[:65535]
    length = len(token) if rng.random() < 0.8 else rng.choice(_LENGTHS) % 65536
    return rng.randbytes(4) + length.to_bytes(2, "big") + token + _text(rng)


def _hook_frame(rng: random.Random) -> bytes:
    kind = rng.choice((b"H", b"M", b"W", b"W", rng.randbytes(1)))
    return frame(
        kind, rng.choice((b"\0\0\0\1", b"\0\0\0\0", b"\xff\xff\xff\xff")) if kind == b"W" else _text(rng)
    )


def _mcp_frame(rng: random.Random) -> bytes:
    kind = rng.choice((b"L", b"L", b"T", b"E", b"N", b"I", b"G", rng.randbytes(1)))
    return frame(kind, rng.randint(0, 5).to_bytes(4, "big") + _text(rng) if kind == b"L" else _text(rng))


def _text(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 5, 40, 4096, 70000 if rng.random() < 0.2 else 9)))


def _input(rng: random.Random) -> bytes:
    content = b"".join(rng.choice(_INPUTS) for _ in range(rng.randint(0, 6)))
    if rng.random() < 0.05:
        content += rng.choice((b"x", b"\n", b'{"id":')) * rng.choice((5000, 1_100_000, 9_000_000)) + b"\n"
    return _mutate(rng, content) if content and rng.random() < 0.5 else content


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Change one detail of a frame, or of other bytes."""
    changed = bytearray(data)
    at = rng.randrange(len(changed))
    match rng.randrange(5):
        case 0:
            changed[at] = rng.randrange(256)
        case 1:
            del changed[at:]
        case 2:
            changed[at:at] = rng.randbytes(rng.randint(1, 8))
        case 3:
            changed[1:5] = rng.choice(_LENGTHS).to_bytes(4, "big")
        case _:
            changed += changed[at:]
    return bytes(changed)


def _split(rng: random.Random, stream: bytes) -> Iterator[bytes]:
    while stream:
        size = rng.choice((1, 4, 5, 6, 100, len(stream)))
        yield stream[:size]
        stream = stream[size:]


def run_case(client: Path, case: Case, limit_s: float = _CASE_LIMIT_S) -> str:
    """Run the client once; return the finding, or an empty text."""
    home = Path(tempfile.mkdtemp(prefix="pal-fuzz-"))
    try:
        return _run(client, case, home, limit_s)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run(client: Path, case: Case, home: Path, limit_s: float) -> str:
    (home / "down").touch()  # no client starts a daemon
    (home / "input").write_bytes(case.stdin)
    environment = {
        "PATH": os.environ["PATH"],
        "PALAVER_HOME": str(home),
        "PALAVER_PYTHON": "true",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "ASAN_OPTIONS": f"exitcode={_SANITIZER_STATUS}:detect_leaks=0",
        "UBSAN_OPTIONS": f"exitcode={_SANITIZER_STATUS}:print_stacktrace=1",
    }
    with (
        socket.socket(socket.AF_UNIX) as listener,
        (home / "input").open("rb") as stdin,
        (home / "out").open("w+b") as out,
        (home / "err").open("w+b") as err,
    ):
        listener.bind(str(home / "daemon.sock"))
        listener.listen(8)
        with subprocess.Popen(
            [client, *case.arguments], stdin=stdin, stdout=out, stderr=err, env=environment, cwd=home
        ) as process:
            try:
                has_ended = _serve(process, listener, case, limit_s)
            finally:
                process.kill()
        errors = (home / "err").read_bytes()
        written = (home / "out").read_bytes()
    return (
        _judge(case, process.returncode, written, errors) if has_ended else f"it did not end in {limit_s} s"
    )


def _serve(process: subprocess.Popen[bytes], listener: socket.socket, case: Case, limit_s: float) -> bool:
    """Play the first daemon, and later daemons that end each command, until the client has ended."""
    deadline_s = time.monotonic() + limit_s
    ended = os.pidfd_open(process.pid)
    is_first = True
    try:
        while (left_s := deadline_s - time.monotonic()) > 0:
            sources = [ended] if listener.fileno() < 0 else [ended, listener.fileno()]
            ready, _, _ = select.select(sources, [], [], left_s)
            if ended in ready:
                process.wait()
                return True
            if not ready:
                return False
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(_READ_LIMIT_S)
                if is_first:
                    is_first = False
                    if case.is_last_daemon:
                        listener.close()
                    _send(connection, case)
                    if case.is_terminated:
                        process.terminate()
                else:
                    greeting = connection.recv(4)
                    connection.sendall(frame(b"H") if greeting == b"PALH" else frame(b"Q", b"\0"))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        return False
    finally:
        os.close(ended)


def _send(connection: socket.socket, case: Case) -> None:
    for at, piece in enumerate(case.pieces):
        connection.sendall(piece)
        if at in case.reads_after:
            connection.settimeout(_ONE_READ_LIMIT_S)
            with suppress(TimeoutError):
                connection.recv(65536)
            connection.settimeout(_READ_LIMIT_S)


def _judge(case: Case, status: int, written: bytes, errors: bytes) -> str:
    # A random daemon may order this status. A sanitizer also writes a report.
    is_ordered = frame(b"Q", bytes([_SANITIZER_STATUS])) in b"".join(case.pieces)
    is_stopped = status == _SANITIZER_STATUS and not is_ordered
    if status in _CRASHES or is_stopped or any(sign in errors for sign in _SIGNS):
        return f"it ended with status {status}:\n{errors.decode(errors='replace')}"
    if case.is_hook and (status or errors):
        return f"a hook ended with status {status} and the error text {errors!r}"
    if case.is_hook and written and written not in b"".join(case.pieces):
        return f"a hook wrote {written[:200]!r}, which is not a whole reply"
    return ""


def fuzz(client: Path, seed: int, seconds: float) -> tuple[int, list[tuple[int, str]]]:
    """Run cases for some time; return how many, and the number and text of each finding."""
    deadline_s = time.monotonic() + seconds
    count = 0
    findings: list[tuple[int, str]] = []
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        while time.monotonic() < deadline_s and not findings:
            numbers = range(count, count + 8 * workers)
            found = pool.map(lambda number: run_case(client, make_case(seed, number)), numbers)
            findings = [(number, text) for number, text in zip(numbers, found, strict=True) if text]
            count += len(numbers)
    return count, findings


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Fuzz for some time, or repeat one case; the status is 1 after a finding."""
    parser = argparse.ArgumentParser(description="Fuzz the C client.")
    parser.add_argument("client", type=Path)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    parser.add_argument("--case", type=int, help="run only this case")
    given = parser.parse_args()
    client = given.client.absolute()
    if given.case is not None:
        case = make_case(given.seed, given.case)
        finding = run_case(client, case)
        _say(f"{case}\n{finding or 'no finding'}")
        return 1 if finding else 0
    _say(f"fuzzing the client for {given.seconds:g} s with seed {given.seed}")
    count, findings = fuzz(client, given.seed, given.seconds)
    for number, finding in findings:
        _say(f"case {number}: {finding}\nrepeat it with --seed {given.seed} --case {number}")
    _say(f"{count} cases with seed {given.seed}, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
