"""Run a harness for one turn, with the caller's input, output and terminal.

This process is its holder, without a terminal: it registers the harness with the daemon before its first
instruction, and reports how it ended. If the daemon is lost, the harness runs on. Its exit status is the one
of this process.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Final, NoReturn

from palaver.client.wire import ReplyLine
from palaver.errors import PalaverError
from palaver.harness.marks import SEAT_MARK
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.launch import CANNOT_RUN, NOT_FOUND, Program, environment_of
from palaver.protocol.lines import HoldOp, LeaveOp
from palaver.version import __version__

_HOLD_LIMIT_S: Final = 5.0
"""Seconds to wait for a seat: a caller waits for the harness, so a missing daemon must soon be an error."""
_REPORT_LIMIT_S: Final = 2.0
"""Seconds to report the exit. The caller waits for this process, and the daemon notices the end anyway."""
_LEFT_TO_IT: Final = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to both processes, and the harness decides."""
STOP: Final = "stop"
KILL: Final = "kill"
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)


def run_headless(program: Program, session: str, ticket: str, home: str) -> int:
    """Run an agent and return its exit status."""
    ready, go = os.pipe()
    # Before the event loop, whose descriptors and threads a child must not share.
    child = os.fork()
    if child == 0:
        os.close(go)  # With its own copy it would never see that the holder ended.
        seat = os.read(ready, 4096)
        os.close(ready)
        if not seat:  # The holder has ended, or the daemon refused: without a seat it would be no agent.
            os._exit(CANNOT_RUN)
        become(program, seat.strip())
    os.close(ready)
    secret = os.urandom(16).hex()
    hold = HoldOp(pid=child, ticket=ticket, secret=secret, version=__version__, session=session)
    return asyncio.run(_stand_by(hold, home, go))


def become(program: Program, seat: bytes = b"") -> NoReturn:
    """Replace this process by a program; without a seat it is not an agent."""
    environment = environment_of(program)
    if seat:
        environment[SEAT_MARK.encode()] = seat
    try:
        os.chdir(program.cwd)
        os.execvpe(program.argv[0], program.argv, environment)  # noqa: S606 - no shell is involved
    except OSError as error:
        sys.stderr.write(f"pal: {os.fsdecode(program.argv[0])} cannot be run: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)


async def _stand_by(hold: HoldOp, home: str, go: int) -> int:
    loop = asyncio.get_running_loop()
    held = asyncio.Event()

    async def on_held(answer: Held) -> None:
        held.set()

    bus = HolderConnection(home, hold, on_held, lambda line: _obey(line, hold.pid))
    holding = loop.create_task(bus.run())
    try:
        seat = await _seat(bus, holding, held)
    except (PalaverError, TimeoutError) as error:
        os.close(go)  # Without a seat the child ends and never becomes the harness.
        await _end_of(hold.pid)
        holding.cancel()
        reason = "the bus does not answer" if isinstance(error, TimeoutError) else error
        sys.stderr.write(f"pal: {reason}\n")
        return 1
    # Before the harness may start: the default would end this process, and no exit would be reported.
    for number in _LEFT_TO_IT:
        loop.add_signal_handler(number, lambda: None)
    for number in _PASSED_ON:
        loop.add_signal_handler(number, _signal, hold.pid, number)
    os.write(go, f"{seat}\n".encode())
    os.close(go)
    status = await _end_of(hold.pid)
    await _report_exit(bus, status)
    holding.cancel()
    return status if status >= 0 else 128 - status  # as a shell shows a signal


async def _seat(bus: HolderConnection, holding: asyncio.Task[None], held: asyncio.Event) -> str:
    """Wait until the daemon has assigned a seat. Raises its refusal, or TimeoutError."""
    waiting = asyncio.ensure_future(held.wait())
    async with asyncio.timeout(_HOLD_LIMIT_S):
        await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if holding.done():
        # `run` ends only with a refusal, which is raised here.
        waiting.cancel()
        holding.result()
    assert bus.held is not None
    return bus.held.seat


def _obey(line: ReplyLine, child: int) -> None:
    """Carry out an order of the daemon. There is no terminal here, so only ending is possible."""
    number = {STOP: signal.SIGTERM, KILL: signal.SIGKILL}.get(str(line.verb)) if line.push else None
    if number is not None:
        _signal(child, number)


def _signal(child: int, number: int) -> None:
    with suppress(ProcessLookupError):  # It has just ended, and its exit is being reported.
        os.kill(child, number)


async def _end_of(child: int) -> int:
    """Wait for the child without blocking the loop; a negative number is a signal."""
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    return os.waitstatus_to_exitcode(status)


async def _report_exit(bus: HolderConnection, status: int) -> None:
    reason = f"exited with {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
    try:
        async with asyncio.timeout(_REPORT_LIMIT_S):
            await bus.ask(LeaveOp(reason=reason))
    except (PalaverError, TimeoutError):
        pass  # the daemon notices by itself that the process has ended
