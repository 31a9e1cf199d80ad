"""The runner of automatic turns: an ordinary client that runs the jobs that the daemon selects.

A person starts it with `pal turn start`, because the daemon starts no programs and has no keys. Its programs
have the environment of that person. It decides nothing itself: the daemon says which batch is due, and stores
the outcomes. Everything that it has not reported when it dies counts as failed.
"""

import asyncio
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from palaver.app.install_plan import KNOWN, has_codex_hooks, may_use_bus
from palaver.app.launch import LAUNCHERS, LaunchChoices, with_pal
from palaver.client.connection import Plain
from palaver.client.start import find_python
from palaver.errors import Disconnected, PalaverError, RequestError, Unavailable, error_from_wire
from palaver.harness.base import TurnReply
from palaver.harness.registry import TURNS
from palaver.holder.launch import clean_environment
from palaver.holder.turn_process import GO, MODULE
from palaver.home import find_pal
from palaver.protocol.display import safe
from palaver.protocol.lines import NextJobOp, RunnerOp, TriagedOp, TurnEndOp, TurnProcessOp, error_object
from palaver.protocol.turns import LIMIT_OUTPUT, NoJob, RunnerJob, TriageJob, TurnJob

_logger: Final = logging.getLogger("palaver.runner")

# --------------------
# Run the program of one job: its input, its output, its time, and its end.

_HEAD_BYTES: Final = 128 * 1024
_TAIL_BYTES: Final = 4 * 1024 * 1024
"""How much of an output is kept. Harnesses print the session first and the reply last."""
_ERRORS_BYTES: Final = 8 * 1024
_STOP_S: Final = 2.0
"""Seconds for running programs and the last reports when the runner is stopped."""
_REST_S: Final = 2.0
"""Seconds to read the rest of an output after the program has ended."""
_LIMIT_ERROR: Final = 2_000
_ERROR_LINES: Final = 5


class JobFailed(Exception):
    """A job has no result; the text says why."""


@dataclass(slots=True)
class BoundedOutput:
    """The beginning and the end of an output, however long it is."""

    head_bytes: int
    tail_bytes: int
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)
    _has_gap: bool = False

    def add(self, data: bytes) -> None:
        """Add bytes; those between the beginning and the end are dropped."""
        room = self.head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut only at twice the size: a cut copies the rest, and output arrives in small pieces.
        if len(self._tail) > 2 * self.tail_bytes:
            self._cut()

    def text(self) -> str:
        """Return the output as text. A gap becomes a line end, so that no line with a gap looks complete."""
        self._cut()
        return (self._head + (b"\n" if self._has_gap else b"") + self._tail).decode("utf-8", "replace")

    def _cut(self) -> None:
        if len(self._tail) > self.tail_bytes:
            self._has_gap = True
            del self._tail[: -self.tail_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgram:
    """A program to run, with everything that it needs."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    prompt: str
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    status: int
    output: str
    errors: str

    def reason(self) -> str:
        """Return the exit status and the last lines of the errors, or else of the output."""
        lines = [line for line in (self.errors.strip() or self.output.strip()).splitlines() if line.strip()]
        last_lines = " / ".join(lines[-_ERROR_LINES:])
        number = self.status - 128
        how = f"exited with {self.status}"
        if number in {int(one) for one in signal.valid_signals()}:
            how = f"was killed by {signal.Signals(number).name}"
        return f"the program {how}{f': {last_lines}' if last_lines else ''}"


Register = Callable[[int], Awaitable[None]]
"""Names the process of a job to the daemon. Raises its refusal."""


async def run_program(program: JobProgram, register: Register, stop: asyncio.Event) -> Ended:
    """Run a program and return how it ended. Raises JobFailed after its time, or when the runner stops.

    It runs below its own process, which `register` names to the daemon first. It reads the prompt from its
    standard input, if it reads it at all.
    """
    waits, life = os.pipe()
    try:
        process = await _start(program, waits)
    except OSError as error:
        os.close(life)
        raise JobFailed(f"the program cannot be started: {error.strerror}") from error
    finally:
        os.close(waits)  # Only the process may have it: otherwise a write to a dead one would not fail.
    stopping = asyncio.ensure_future(stop.wait())
    try:
        # Before the first byte: the program must be known to the daemon from its first instruction.
        await register(process.pid)
        os.write(life, GO)
        either: set[asyncio.Future[int] | asyncio.Future[Literal[True]]] = {process.ended, stopping}
        done, _ = await asyncio.wait(either, timeout=program.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if process.ended not in done:
            process.terminate()
            # Without a limit after a timeout, because the process around the program kills it some seconds
            # later.
            await asyncio.wait({process.ended}, timeout=_STOP_S / 2 if stopping in done else None)
            why = "the runner was stopped" if stopping in done else f"timed out after {program.timeout_s:g} s"
            raise JobFailed(why)
        # A process that the program left running may keep its output open indefinitely.
        await asyncio.wait({process.drained}, timeout=_REST_S)
        return Ended(
            status=process.ended.result(), output=process.output.text(), errors=process.errors.text()
        )
    except PalaverError as error:
        raise JobFailed(str(error)) from error
    except BrokenPipeError:
        raise JobFailed("the process of the program was killed before it could start") from None
    finally:
        os.close(life)  # The end of the pipe kills whatever still runs.
        stopping.cancel()
        await process.ended
        process.close()


async def _start(program: JobProgram, waits: int) -> "_JobProcess":
    made: tuple[asyncio.SubprocessTransport, _JobProcess] = await asyncio.get_running_loop().subprocess_exec(
        _JobProcess,
        # `-I`, because Python would otherwise look for modules in the agent's folder first.
        *(find_python(), "-I", "-m", MODULE, str(waits), *program.argv),
        cwd=program.cwd,
        env=program.environment,
        pass_fds=(waits,),
        start_new_session=True,  # Ctrl-C reaches only the runner, which then reports its turns as failed.
    )
    made[1].write(program.prompt)
    return made[1]


class _JobProcess(asyncio.SubprocessProtocol):
    """The process around a program. Its end is reported even if another process keeps its output open."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = BoundedOutput(_HEAD_BYTES, _TAIL_BYTES)
        self.errors = BoundedOutput(0, _ERRORS_BYTES)
        self.ended: asyncio.Future[int] = loop.create_future()
        """The exit status."""
        self.drained: asyncio.Future[None] = loop.create_future()
        """Done when the output has ended."""
        self._open = {1, 2}

    @property
    def pid(self) -> int:
        """The process that is named to the daemon."""
        return self._transport.get_pid()

    def write(self, prompt: str) -> None:
        """Write the prompt, and the end of the input. A program that does not read it is not disturbed."""
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(prompt.encode("utf-8", "replace"))
        pipe.write_eof()

    def terminate(self) -> None:
        """Ask the program to end; it is killed some seconds later."""
        with suppress(ProcessLookupError):
            self._transport.terminate()

    def close(self) -> None:
        """Close the pipes to a process that has ended."""
        self._transport.close()

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.output if fd == 1 else self.errors).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        status = self._transport.get_returncode()
        assert status is not None
        # A negative status is the number of a signal. As in a shell, it becomes 128 and that number.
        self.ended.set_result(status if status >= 0 else 128 - status)


# --------------------
# The program of a job: a configured command, or the harness of the agent.

ReadReply = Callable[[str], TurnReply]


def plain_reply(output: str) -> TurnReply:
    """Return the output of a configured command as the reply."""
    return TurnReply(text=output.strip())


READ_PLAIN: Final[ReadReply] = plain_reply


def program_of(
    job: TriageJob | TurnJob, home: str, environment: Mapping[str, str]
) -> tuple[JobProgram, ReadReply]:
    """Return the program of a job, and how its output is read. Writes the files that a harness needs.

    Raises JobFailed.
    """
    clean = clean_environment(environment, home)
    cwd = job.cwd or clean.get("HOME") or "/"
    if not Path(cwd).is_dir():
        raise JobFailed(f"the folder {cwd} of {job.agent} does not exist")
    clean["PWD"] = cwd  # OpenCode works in this folder, and not in its working directory.
    argv, read = job.command, READ_PLAIN
    try:
        if isinstance(job, TurnJob) and not argv:
            argv, kept, read = _harness_program(job, home, clean, cwd)
        else:
            kept = with_pal(clean, home, find_pal())
    except (OSError, PalaverError) as error:
        raise JobFailed(f"{job.agent} cannot be set up: {error}") from error
    program = JobProgram(
        argv=argv, environment=kept, cwd=cwd, prompt=job.prompt, timeout_s=job.timeout_ms / 1000
    )
    return program, read


def _harness_program(
    job: TurnJob, home: str, environment: Mapping[str, str], cwd: str
) -> tuple[tuple[str, ...], dict[str, str], ReadReply]:
    form = TURNS.get(job.harness)
    if form is None:
        what = f"the harness {job.harness} of {job.agent} cannot run automatic turns"
        what = what if job.harness else f"{job.agent} has no harness"
        raise JobFailed(f"{what}; set auto_turn_command ('pal config set auto_turn_command COMMAND')")
    if shutil.which(job.harness, path=environment.get("PATH", os.defpath)) is None:
        raise JobFailed(
            f"{job.harness} is not in the PATH of the runner; run 'pal turn stop' and 'pal turn start' in a "
            "shell that finds it"
        )
    # An automatic turn asks no person, so only an earlier decision counts.
    choices = LaunchChoices(
        may_use_bus=lambda: may_use_bus(KNOWN, home),
        has_hooks=lambda pal: has_codex_hooks(KNOWN, pal, home),
    )
    arguments = form.arguments(job.arguments, job.harness_session)
    # Without a session, because the arguments name it already.
    made = LAUNCHERS[job.harness](arguments, "", home, environment, cwd, choices)
    return made.argv, made.environment, form.read


def lacks_session(job: TurnJob, ended: Ended) -> bool:
    """Whether a harness has refused a turn because it does not have the session: nothing was run."""
    form = TURNS.get(job.harness)
    is_resumed = form is not None and bool(job.harness_session) and not job.command
    return is_resumed and ended.status != 0 and form is not None and form.no_session in ended.errors


def reply_of(ended: Ended, read: ReadReply) -> TurnReply:
    """Return the reply of a program that has ended. Raises JobFailed if it has none."""
    reply = read(ended.output)
    if ended.status:
        is_known = reply.error and reply.error != read("").error
        raise JobFailed(reply.error if is_known else ended.reason())
    if reply.error:
        raise JobFailed(reply.error)
    return reply


# --------------------
# The runner: it takes jobs from the daemon, runs up to four at once, and reports each outcome.

LIMIT_JOBS: Final = 4
_START_S: Final = 15.0
"""Seconds that the daemon may take to accept the runner."""
_PAUSES_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts while no daemon replies; the last pause is repeated."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP comes when the terminal of a runner in the foreground is closed."""
_jobs: Final[msgspec.json.Decoder[RunnerJob]] = msgspec.json.Decoder(RunnerJob)


class Runner:
    """Registers with the daemon of a home, and again after each reconnect."""

    def __init__(self, home: str, ticket: str, environment: Mapping[str, str]) -> None:
        self._home = home
        self._ticket = ticket
        self._environment = environment
        self._secret = os.urandom(16).hex()
        self._bus = Plain(home, self._greeting)
        self._free = asyncio.Semaphore(LIMIT_JOBS)
        self._running: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._triages: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run until a signal ends it. `on_ready` is called once the daemon knows it.

        Raises the refusal of the daemon, also a later one: then another runner has replaced this one.
        """
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        async with AsyncExitStack() as open_now:
            try:
                async with asyncio.timeout(_START_S):
                    await open_now.enter_async_context(self._bus)
            except TimeoutError:
                raise Disconnected(
                    f"the bus has not replied within {_START_S:g} seconds; run 'pal status'"
                ) from None
            # It is valid once; after a reconnect the secret identifies this runner.
            self._ticket = ""
            on_ready()
            taking = asyncio.ensure_future(self._take_jobs())
            stopping = asyncio.ensure_future(self._stop.wait())
            try:
                await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                taking.cancel()
                stopping.cancel()
                # Running programs end with it: without a runner their outcome could not be reported.
                self._stop.set()
                await self._leave()
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_STOP_S)
            if taking.done() and not taking.cancelled():
                taking.result()

    async def _leave(self) -> None:
        """Take no more jobs: a turn that ends now would free its session for the next one."""
        leaving = RunnerOp(secret=self._secret, running=tuple(sorted(self._running)), leaves=True)
        with suppress(PalaverError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self._bus.ask(leaving)

    def _greeting(self) -> RunnerOp:
        # A daemon forgets its triages with the connection, and orders them again under other numbers.
        for task in self._triages:
            task.cancel()
        return RunnerOp(secret=self._secret, ticket=self._ticket, running=tuple(sorted(self._running)))

    async def _take_jobs(self) -> None:
        while True:
            # Before the request: a job that the daemon has handed out must be started at once.
            await self._free.acquire()
            job = await self._next_job()
            if isinstance(job, NoJob) or (isinstance(job, TurnJob) and job.turn in self._running):
                self._free.release()
                continue
            if isinstance(job, TurnJob):
                self._running.add(job.turn)
            task = asyncio.ensure_future(self._do(job))
            self._tasks.add(task)
            if isinstance(job, TriageJob):
                self._triages.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._triages.discard(task)
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("an internal error", exc_info=error)

    async def _next_job(self) -> RunnerJob:
        pauses_s = iter(_PAUSES_S)
        while True:
            try:
                return _jobs.decode(await self._bus.ask(NextJobOp()))
            except Unavailable:
                # A removed home never gets a daemon again, and the runner would wait indefinitely.
                if not _is_folder(self._home):
                    raise
            await asyncio.sleep(next(pauses_s, _PAUSES_S[-1]))

    async def _do(self, job: TriageJob | TurnJob) -> None:
        what = f"{job.agent}+{job.session}: {'turn' if isinstance(job, TurnJob) else 'triage'}"
        began = time.monotonic()
        _logger.info("%s starts", what)
        reply, error = TurnReply(), ""
        try:
            ended, read = await self._run(job)
            # Safe to run again: the harness refused before it did anything.
            if isinstance(job, TurnJob) and lacks_session(job, ended):
                _logger.info("%s begins a new session: the last one is not stored", what)
                ended, read = await self._run(msgspec.structs.replace(job, harness_session=""))
            reply = reply_of(ended, read)
        except JobFailed as failure:
            error = _sendable(str(failure), _LIMIT_ERROR) or "it failed"
        took_s = time.monotonic() - began
        if error:
            _logger.info("%s failed after %.1f s: %s", what, took_s, safe(error))
        else:
            _logger.info("%s replied %d characters after %.1f s", what, len(reply.text), took_s)
        text = "" if error else _sendable(reply.text, LIMIT_OUTPUT)
        if isinstance(job, TriageJob):
            with suppress(PalaverError):  # It is ordered again.
                await self._bus.ask_here(TriagedOp(job=job.job, output=text, error=error))
            return
        session = "" if error else _sendable(reply.session, LIMIT_OUTPUT)
        await self._report(TurnEndOp(turn=job.turn, output=text, harness_session=session, error=error))
        # Only after the report: until then a new daemon must not count this turn as failed.
        self._running.discard(job.turn)

    async def _run(self, job: TriageJob | TurnJob) -> tuple[Ended, ReadReply]:
        program, read = await asyncio.to_thread(program_of, job, self._home, self._environment)
        return await run_program(program, lambda pid: self._register(job, pid), self._stop), read

    async def _register(self, job: TriageJob | TurnJob, pid: int) -> None:
        if isinstance(job, TriageJob):
            await self._bus.ask_here(TurnProcessOp(pid=pid, job=job.job))
        else:
            await self._ask(TurnProcessOp(pid=pid, turn=job.turn))

    async def _report(self, outcome: TurnEndOp) -> None:
        """Report the end of a turn until a daemon has confirmed it. A reply that is refused is an error."""
        try:
            await self._ask(outcome)
        except RequestError as refusal:
            _logger.warning("the outcome of turn #%d was refused: %s", outcome.turn, safe(str(refusal)))
            if not outcome.error:
                await self._report(TurnEndOp(turn=outcome.turn, error=f"the reply was refused: {refusal}"))

    async def _ask(self, op: TurnProcessOp | TurnEndOp) -> None:
        """Ask until a daemon replies. Raises its refusal."""
        pauses_s = iter(_PAUSES_S)
        while True:
            try:
                await self._bus.ask(op)
            except Unavailable:
                await asyncio.sleep(next(pauses_s, _PAUSES_S[-1]))
            else:
                return


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


def _sendable(text: str, limit: int) -> str:
    """Return the beginning of a text, without characters that cannot be sent."""
    return text[:limit].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


# --------------------
# Start the runner: in the background, or in the terminal of the person; and end it.

ALREADY_RUNNING: Final = "already_running"
LOG_FILE: Final = "runner.log"

_LIMIT_LOG_BYTES: Final = 1024 * 1024
_END_S: Final = 15.0


class RunnerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first report of a runner to the process that started it: its pid, or the error."""

    pid: int = 0
    error: str = ""
    message: str = ""
    details: dict[str, object] = {}


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start or end the runner of the home, as the daemon has ordered. Return the exit status."""
    home, is_json = environment["PALAVER_HOME"], "--json" in words
    if "--stop" in words:
        return _stop_runner(int(words[list(words).index("--stop") + 1]), is_json=is_json)
    with open(int(words[list(words).index("--ticket-fd") + 1]), "rb") as pipe:  # noqa: PTH123 - a descriptor
        ticket = pipe.read().decode().strip()
    if "--foreground" in words:
        return _run_here(home, ticket, environment, is_json=is_json)
    ready, report = os.pipe()
    # Before the event loop and any thread exist: a forked child cannot use its copies of them.
    if os.fork() == 0:
        os.close(ready)
        _run_aside(home, ticket, environment, report)
    os.close(report)
    with open(ready, "rb") as file:  # noqa: PTH123 - a descriptor
        line = file.readline()
    try:
        first_report = msgspec.json.decode(line, type=RunnerReport)
    except msgspec.DecodeError:
        first_report = RunnerReport(
            error=Unavailable.code, message=f"the runner ended at its start; see {home}/{LOG_FILE}"
        )
    return _say_report(first_report, is_json=is_json)


def _say_report(report: RunnerReport, *, is_json: bool) -> int:
    if not report.error:
        _say(f"the runner is running (pid {report.pid})", {"pid": report.pid, "new": True}, is_json=is_json)
        return 0
    error = error_from_wire(report.error, report.message, report.details)
    if report.error == ALREADY_RUNNING:
        _say(str(error), {"pid": report.details.get("pid"), "new": False}, is_json=is_json)
        return 0
    sys.stderr.write(
        f"{msgspec.json.encode(error_object(error)).decode()}\n" if is_json else f"pal: {error}\n"
    )
    return 1


def _say(text: str, view: Mapping[str, object], *, is_json: bool) -> None:
    sys.stdout.write(f"{msgspec.json.encode(view).decode()}\n" if is_json else f"{text}\n")
    sys.stdout.flush()


def _run_here(home: str, ticket: str, environment: Mapping[str, str], *, is_json: bool) -> int:
    """Run the runner in this process until it is ended; its log is standard error."""
    _log_to(logging.StreamHandler())
    ready = RunnerReport(pid=os.getpid())
    try:
        asyncio.run(_run(home, ticket, environment, lambda: _say_ready(ready, is_json=is_json)))
    except PalaverError as error:
        return _say_report(_report_of(error), is_json=is_json)
    return 0


def _say_ready(ready: RunnerReport, *, is_json: bool) -> None:
    _say_report(ready, is_json=is_json)


def _run_aside(home: str, ticket: str, environment: Mapping[str, str], report: int) -> NoReturn:
    """In the child: become the runner. Its starter stays until the report: the ticket is bound to it."""
    status = 1
    try:
        report = _detach(home, report)
        _log_to(RotatingFileHandler(Path(home) / LOG_FILE, maxBytes=_LIMIT_LOG_BYTES, backupCount=1))
        ready = RunnerReport(pid=os.getpid())
        asyncio.run(_run(home, ticket, environment, lambda: _send_report(report, ready)))
        status = 0
    except PalaverError as error:
        _logger.info("the runner ends: %s", error)
        _send_report(report, _report_of(error))
    except BaseException:
        _logger.exception("the runner ends after an internal error")
    finally:
        logging.shutdown()
        os._exit(status)  # This is a fork: it must never return into its starter's own work.


def _detach(home: str, report: int) -> int:
    """Leave the terminal of the starter and everything that it has open; return the report's descriptor."""
    os.setsid()
    os.umask(0o077)
    os.chdir(home)
    log = os.open(LOG_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    # To a number above all others first, so that the copies below cannot close it.
    report = os.dup2(report, max(report, log, null, 3) + 1, inheritable=False)
    for descriptor, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, descriptor)
    os.closerange(3, report)
    os.closerange(report + 1, os.sysconf("SC_OPEN_MAX"))
    return report


def _send_report(descriptor: int, report: RunnerReport) -> None:
    with suppress(OSError):  # The starter was ended, or has its report.
        os.write(descriptor, msgspec.json.encode(report) + b"\n")
        os.close(descriptor)


def _report_of(error: PalaverError) -> RunnerReport:
    return RunnerReport(error=error.code, message=str(error), details=dict(error.details))


def _log_to(handler: logging.Handler) -> None:
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)


async def _run(home: str, ticket: str, environment: Mapping[str, str], on_ready: Callable[[], None]) -> None:
    _logger.info("the runner starts (pid %d)", os.getpid())
    await Runner(home, ticket, environment).run(on_ready)
    _logger.info("the runner has ended")


def _stop_runner(pid: int, *, is_json: bool) -> int:
    """End a runner and wait until it has ended. Its programs end with it."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # It has ended by itself.
    except PermissionError as error:
        sys.stderr.write(f"pal: the runner (pid {pid}) cannot be ended: {error.strerror}\n")
        return 1
    if not _has_ended(pid):
        sys.stderr.write(f"pal: the runner (pid {pid}) has not ended within {_END_S:g} seconds\n")
        return 1
    _say(f"the runner has ended (pid {pid})", {"pid": pid}, is_json=is_json)
    return 0


def _has_ended(pid: int) -> bool:
    """Wait for the end of a process that is not a child of this one."""
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        has_ended = bool(select.select([descriptor], [], [], _END_S)[0])
        os.close(descriptor)
    else:  # pragma: no cover - macOS
        limit, has_ended = time.monotonic() + _END_S, False
        while not has_ended and time.monotonic() < limit:
            time.sleep(0.05)
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                has_ended = True
    return has_ended
