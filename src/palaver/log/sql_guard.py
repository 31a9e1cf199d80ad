"""WHERE clauses written by callers: checked, and run so that they can only read, for a limited time."""

import contextlib
import math
import os
import re
import resource
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

import msgspec

from palaver.errors import BadQuery, PalaverError, ShuttingDown, TooSlow, Unavailable

# --------------------
# WHERE clauses written by callers: checked, and run so that they can only read, for a limited time.
#
# The text is checked before SQLite sees it: it cannot leave its parentheses. The connection is opened for
# reading, and an authorizer allows only the events and harmless functions.

TIME_LIMIT_S: Final = 2.0

_LIMIT_CLAUSE_CHARACTERS: Final = 10_000
_SEQS_AT_ONCE: Final = 256
_STEPS_BETWEEN_LOOKS: Final = 20_000
"""Steps of SQLite's virtual machine between two looks at the clock."""

# A comment is refused because it would hide the closing parenthesis, and a semicolon because it would start
# another statement. Closed quotes come first: nothing in them counts.
_TOKEN: Final = re.compile(
    r"""
    '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\]   # closed quotes of every kind
    | (?P<comment> -- | /\* )
    | (?P<open> \( ) | (?P<close> \) )
    | (?P<quote> ['"`\[] )                                          # a quote that is never closed
    | (?P<end> ; )
    | (?P<parameter> [?:@$\#] )
    | (?P<nul> \0 )
    | [^'"`\[()?:@$\#;\0/-]+ | [/-]
    """,
    re.VERBOSE,
)
_REFUSALS: Final = {
    "comment": "comments are not allowed",
    "quote": "a quote is not closed",
    "end": "only one condition is allowed, without a semicolon",
    "parameter": "parameters are not allowed; write values in single quotes",
    "nul": "the character U+0000 is not allowed",
}

# `events` too, because SQLite also asks the authorizer about the table that a view reads.
_TABLES: Final = frozenset(("events", "events_v", "json_each", "json_tree"))
# A caller that knows a request key could repeat the request of another caller and receive its outcome.
_SECRET: Final = frozenset((("events", "request_key"),))
"""Columns that no condition may read."""
# A list of the allowed functions, so that a function of a newer SQLite is refused until it was checked.
_FUNCTIONS: Final = frozenset(
    (
        *("->", "->>", "json", "json_array_length", "json_each", "json_extract", "json_tree"),
        *("json_type", "json_valid", "glob", "like", "instr", "length", "lower", "upper", "ltrim"),
        *("rtrim", "trim", "replace", "substr", "substring", "unicode", "char", "date", "datetime"),
        *("julianday", "strftime", "time", "unixepoch", "abs", "round", "sign", "avg", "count"),
        *("group_concat", "max", "min", "sum", "total", "coalesce", "ifnull", "iif", "nullif"),
        *("likelihood", "likely", "unlikely", "typeof"),
    )
)
_LIMITS: Final = {
    # Limits the texts that a condition can build, for example with `replace` or `group_concat`.
    sqlite3.SQLITE_LIMIT_LENGTH: 4_000_000,
    # In bytes, with the text that we add around the clause.
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 8,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 16,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def check_clause(clause: str) -> None:
    """Refuse, with BadQuery, a text that could be more than one condition in parentheses."""
    if len(clause) > _LIMIT_CLAUSE_CHARACTERS:
        raise BadQuery(
            f"the SQL condition has {len(clause)} characters, the limit is {_LIMIT_CLAUSE_CHARACTERS}"
        )
    depth = 0
    for token in _TOKEN.finditer(clause):
        kind = token.lastgroup
        if kind in _REFUSALS:
            raise BadQuery(f"the SQL condition cannot be used: {_REFUSALS[kind]}")
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            break
    if depth != 0:
        raise BadQuery("the SQL condition cannot be used: its parentheses do not match")


class Guard:
    """A connection for the conditions of callers. Belongs to one thread."""

    def __init__(
        self, path: Path, limit_s: float, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s
        self._monotonic_s = monotonic_s
        self._left_s = 0.0
        self._deadline_s = 0.0
        self._connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA query_only = ON")
        # They are created at first use, which the authorizer would deny.
        for table in ("json_each", "json_tree"):
            self._connection.execute(f"SELECT 1 FROM {table}('[]')")  # noqa: S608 - a constant
        for limit, value in _LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(self._is_over, _STEPS_BETWEEN_LOOKS)

    def seqs(
        self, clause: str, *, after: int, before: int, is_newest_first: bool
    ) -> Generator[list[int], None, None]:
        """Yield the seqs of the events that match the condition, some at a time and in order.

        The limit applies to SQLite alone: the time that the caller spends on the yielded seqs is not counted.
        Raises BadQuery with SQLite's own sentence, or TooSlow. Close the iterator to release the file.
        """
        check_clause(clause)
        order = "DESC" if is_newest_first else "ASC"
        # The line ends keep our parenthesis out of a comment, should one pass the check.
        statement = (
            f"SELECT seq FROM events_v WHERE (\n{clause}\n)"  # noqa: S608 - that is what this module is for
            # `:d` accepts integers only, so no text of a caller can come into the statement here.
            f" AND seq > {after:d} AND seq < {before:d} ORDER BY seq {order}"
        )
        self._left_s = self._limit_s
        cursor = self._connection.cursor()
        try:
            with self._counted():
                cursor.execute(statement)
            while rows := self._next(cursor):
                yield [seq for (seq,) in rows]
        except sqlite3.OperationalError as error:
            # The progress handler has returned true.
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise _too_slow(self._limit_s) from error
            raise BadQuery(f"the SQL condition cannot be used: {error}") from error
        except (sqlite3.Error, UnicodeError) as error:
            raise BadQuery(f"the SQL condition cannot be used: {error}") from error
        finally:
            cursor.close()

    def close(self) -> None:
        self._connection.close()

    def _next(self, cursor: sqlite3.Cursor) -> list[tuple[int]]:
        with self._counted():
            return cursor.fetchmany(_SEQS_AT_ONCE)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the time of a block towards the limit."""
        start_s = self._monotonic_s()
        self._deadline_s = start_s + self._left_s
        try:
            yield
        finally:
            self._left_s = self._deadline_s - self._monotonic_s()

    def _is_over(self) -> bool:
        return self._monotonic_s() > self._deadline_s


def _too_slow(limit_s: float) -> TooSlow:
    return TooSlow(f"the SQL condition took more than {limit_s:g} s and was stopped")


def _authorize(
    action: int, first: str | None, second: str | None, _database: str | None, _via: str | None
) -> int:
    # Whatever is not allowed is denied: also ATTACH, PRAGMA, recursion, and tables with state or secrets.
    is_allowed = (
        action == sqlite3.SQLITE_SELECT
        or (action == sqlite3.SQLITE_READ and first in _TABLES and (first, second) not in _SECRET)
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
    )
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


# --------------------
# SQL of callers in a separate process, which is killed at its time limit.
#
# SQLite checks the clock only between two steps, and one step over one value can take hours. So a query that
# runs too long is not asked to stop: its process is killed. It runs at the lowest priority and slows nothing
# else down.

_LOWEST_PRIORITY: Final = 19
_LIMIT_MEMORY_BYTES: Final = 1024 * 1024 * 1024
_START_S: Final = 20.0
"""Seconds that it may wait for a processor beyond its limit: a process of the lowest priority may wait long.

Its processor time is limited too, so on other machines a step without an end is killed much earlier.
"""
_READ_BYTES: Final = 65536


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request to the process, on its standard input."""

    path: str
    limit_s: float
    clause: str
    after: int
    before: int
    is_newest_first: bool


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of its response: seqs, a refusal, or the end.

    The end is a separate line, because otherwise a process that was killed would look like one that is
    done.
    """

    # A daemon that still runs after an upgrade starts the new version of this module, so `places` must stay:
    # with another name, that daemon would find no events and report no error.
    seqs: list[int] = msgspec.field(default_factory=list, name="places")
    bad: str = ""
    slow: str = ""
    is_end: bool = False


_encode: Final = msgspec.json.Encoder().encode
_asked: Final = msgspec.json.Decoder(_Asked).decode
_answer: Final = msgspec.json.Decoder(_Answer).decode


class GuardProcess:
    """Finds seqs by a condition. Belongs to one thread, except `stop`."""

    def __init__(
        self, path: Path, limit_s: float, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._limit_s = limit_s
        self._monotonic_s = monotonic_s
        self._child: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def seqs(
        self, clause: str, *, after: int, before: int, is_newest_first: bool
    ) -> Generator[list[int], None, None]:
        """Yield the seqs of the events that match the condition, some at a time and in order.

        The time that the caller spends on the yielded seqs is not counted. Raises BadQuery with SQLite's own
        sentence, TooSlow, ShuttingDown after `stop`, or Unavailable if the process ends without a result.
        Close the iterator to end the process.
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
            for reply in self._lines(child):
                answer = _answer(reply)
                if answer.bad:
                    raise BadQuery(answer.bad)
                if answer.slow:
                    raise TooSlow(answer.slow)
                if answer.is_end:
                    return
                yield answer.seqs
            # Its output ended without the last line.
            raise self._failure(child.wait())

    def _lines(self, child: subprocess.Popen[bytes]) -> Generator[bytes, None, None]:
        """Yield the complete lines of its response; raise TooSlow if they take too long in all."""
        assert child.stdout is not None
        # Not `select.select`, which fails for a descriptor of 1,024 or more.
        ready, rest = select.poll(), b""
        ready.register(child.stdout, select.POLLIN)
        left_s = self._limit_s + _START_S
        while True:
            # Only the waiting is counted: the caller reads events between two lines, and that takes its own
            # time.
            start_s = self._monotonic_s()
            is_ready = ready.poll(max(left_s, 0.0) * 1000)
            left_s -= self._monotonic_s() - start_s
            if not is_ready:
                raise _too_slow(self._limit_s)
            # Not `readline`: it would wait for the end of a line without a time limit.
            if not (data := os.read(child.stdout.fileno(), _READ_BYTES)):
                return  # An incomplete last line is not a response.
            *lines, rest = (rest + data).split(b"\n")
            yield from lines

    def _failure(self, status: int) -> PalaverError:
        """Return the error for a process that ended without a result. `status` is that of `Popen`."""
        # First, because `stop` kills the process: that is not a lack of memory.
        if self._is_stopped:
            return ShuttingDown("the log is closed")
        if status == -signal.SIGPROF:
            return _too_slow(self._limit_s)
        if status == -signal.SIGKILL:
            return Unavailable(
                "the process of the SQL condition was killed, probably because this machine has too little "
                "memory; try again, or use a simpler condition"
            )
        return Unavailable(
            f"the process of the SQL condition ended without a result ({_ending(status)}); try again, or use "
            "a simpler condition"
        )

    def stop(self) -> None:
        """End the running query and refuse all later ones; from any thread."""
        # Before the kill: a process that starts at this moment looks at it in `_started`.
        self._is_stopped = True
        if (child := self._child) is not None:
            child.kill()

    @contextlib.contextmanager
    def _started(self, asked: bytes) -> Generator[subprocess.Popen[bytes], None, None]:
        with subprocess.Popen(
            # Isolated and without environment: nothing in the current directory or in variables is loaded.
            [sys.executable, "-I", "-m", "palaver.log.sql_guard", str(_work_s(self._limit_s))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        ) as child:
            self._child = child
            try:
                # After `_child` is set: a `stop` that came before it has found no process to kill.
                if self._is_stopped:
                    child.kill()
                assert child.stdin is not None
                with contextlib.suppress(OSError):  # It has ended already; reading finds its end.
                    child.stdin.write(asked)
                    child.stdin.close()
                yield child
            finally:
                # Also a process that has answered: the end of this block waits for it, and must not wait
                # long.
                child.kill()
                self._child = None


def _work_s(limit_s: float) -> int:
    """Return the limit of processor seconds: more than the time limit, including the start."""
    return math.ceil(limit_s) + 1


def _ending(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def answer(source: BinaryIO, target: BinaryIO) -> None:
    """Read a request from one stream and write the response to the other, line by line."""
    asked = _asked(source.read())

    def say(line: _Answer) -> None:
        target.write(_encode(line) + b"\n")
        target.flush()

    guard = Guard(Path(asked.path), asked.limit_s)
    try:
        for seqs in guard.seqs(
            asked.clause, after=asked.after, before=asked.before, is_newest_first=asked.is_newest_first
        ):
            say(_Answer(seqs=seqs))
        say(_Answer(is_end=True))
    except BadQuery as error:
        say(_Answer(bad=str(error)))
    except TooSlow as error:
        say(_Answer(slow=str(error)))
    except MemoryError:
        limit_gb = _LIMIT_MEMORY_BYTES / 1024**3
        say(
            _Answer(
                bad=f"the SQL condition needs more than {limit_gb:g} GB of memory; use shorter texts or "
                "fewer functions in it"
            )
        )
    finally:
        guard.close()


if __name__ == "__main__":  # pragma: no cover - runs in the other process
    os.nice(_LOWEST_PRIORITY)
    # One condition can build texts as large as the memory: this process fails then, not the machine.
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MEMORY_BYTES, _LIMIT_MEMORY_BYTES))
    # SIGPROF ends the process without a core dump. SIGXCPU would write one, and SIGKILL would look like a
    # lack of memory. The limit after it is for a process in which the timer does not run.
    cpu_s = int(sys.argv[1])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s + 1, cpu_s + 1))
    answer(sys.stdin.buffer, sys.stdout.buffer)
