"""SQL of callers in a separate process, which is killed at its time limit.

SQLite checks the clock only between two steps, and one step over one value can take hours. So a query that
runs too long is not asked to stop: its process is killed. It runs at the lowest priority and slows nothing
else down.
"""

import contextlib
import math
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from palaver.errors import BadQuery, TooSlow
from palaver.log.guard import Guard, check_clause

_LOWEST_PRIORITY: Final = 19
_LIMIT_MEMORY_BYTES: Final = 1024 * 1024 * 1024
_START_S: Final = 20.0
"""Seconds that it may wait for a processor beyond its limit: a process of the lowest priority may wait long.

Its processor time is limited too, so on other machines a step without an end is killed much earlier.
"""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request to the process, on its standard input."""

    path: str
    limit_s: float
    clause: str
    after: int
    before: int
    is_newest_first: bool


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of its response: seqs, a refusal, or the end."""

    places: list[int] = []
    bad: str = ""
    slow: str = ""
    is_end: bool = False


_encode: Final = msgspec.json.Encoder().encode
_asked: Final = msgspec.json.Decoder(_Asked).decode
_answer: Final = msgspec.json.Decoder(_Answer).decode


class GuardProcess:
    """Finds seqs by a condition. Belongs to one thread, except `stop`."""

    def __init__(self, path: Path, limit_s: float) -> None:
        self._path = path
        self._limit_s = limit_s
        self._child: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def places(
        self, clause: str, *, after: int, before: int, is_newest_first: bool
    ) -> Generator[list[int], None, None]:
        """Yield the seqs of the events that match the condition, some at a time and in order.

        Raises BadQuery with SQLite's own sentence, or TooSlow. Close the iterator to end the process.
        """
        check_clause(clause)
        asked = _Asked(
            path=str(self._path),
            limit_s=self._limit_s,
            clause=clause,
            after=after,
            before=before,
            is_newest_first=is_newest_first,
        )
        try:
            line = _encode(asked)
        except UnicodeError as error:
            raise BadQuery("the SQL condition cannot be used: it is not UTF-8") from error
        with self._started(line) as child:
            assert child.stdout is not None
            for said in child.stdout:
                answer = _answer(said)
                if answer.bad:
                    raise BadQuery(answer.bad)
                if answer.slow:
                    raise TooSlow(answer.slow)
                if answer.is_end:
                    return
                yield answer.places
        raise TooSlow(f"the SQL condition took more than {self._limit_s:g} s and was stopped")

    def stop(self) -> None:
        """End the running query and refuse all later ones; from any thread."""
        self._is_stopped = True
        if (child := self._child) is not None:
            child.kill()

    @contextlib.contextmanager
    def _started(self, asked: bytes) -> Generator[subprocess.Popen[bytes], None, None]:
        with subprocess.Popen(
            [sys.executable, "-I", "-m", "palaver.log.guard_process", str(_work_s(self._limit_s))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        ) as child:
            self._child = child
            timer = threading.Timer(self._limit_s + _START_S, child.kill)
            timer.start()
            try:
                if self._is_stopped:
                    child.kill()
                assert child.stdin is not None
                with contextlib.suppress(OSError):  # It has ended already; reading finds its end.
                    child.stdin.write(asked)
                    child.stdin.close()
                yield child
            finally:
                timer.cancel()
                child.kill()
                self._child = None


def _work_s(limit_s: float) -> int:
    """Return the limit of processor seconds: more than the time limit, including the start."""
    return math.ceil(limit_s) + 1


def answer(source: BinaryIO, target: BinaryIO) -> None:
    """Read a request from one stream and write the response to the other, line by line."""
    asked = _asked(source.read())

    def say(line: _Answer) -> None:
        target.write(_encode(line) + b"\n")
        target.flush()

    guard = Guard(Path(asked.path), asked.limit_s)
    try:
        for places in guard.places(
            asked.clause, after=asked.after, before=asked.before, is_newest_first=asked.is_newest_first
        ):
            say(_Answer(places=places))
        say(_Answer(is_end=True))
    except BadQuery as error:
        say(_Answer(bad=str(error)))
    except TooSlow as error:
        say(_Answer(slow=str(error)))
    finally:
        guard.close()


if __name__ == "__main__":  # pragma: no cover - runs in the other process
    os.nice(_LOWEST_PRIORITY)
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MEMORY_BYTES, _LIMIT_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
    answer(sys.stdin.buffer, sys.stdout.buffer)
