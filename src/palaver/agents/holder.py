"""The process that has an agent's terminal: it lives as long as the agent, with or without a daemon.

    python -I -m palaver.agents.holder --start-fd N --ready-fd M

It lets its program start before it loads everything that serves it, because a person waits for the program.
It is the parent of all that the agent leaves behind, comes back to a restarted daemon, and ends when the
agent has ended and the daemon knows it. SIGUSR2 makes it its own newer version; SIGTERM ends the agent.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from palaver import __version__
from palaver.agents.bus import Bus, Held
from palaver.agents.changeover import Changeover
from palaver.agents.child import Waiting, let_go, prepare, read_failure
from palaver.agents.daemon_start import start_daemon
from palaver.agents.errands import Errands
from palaver.agents.launch import Ready, Starter, read_start, ready_error
from palaver.agents.reaping import adopt_orphans, collect_orphans, exit_of
from palaver.agents.sockets import listen, socket_path
from palaver.agents.terminal.pty import Exit, Pty, Running
from palaver.client.wire import Line
from palaver.clock import Clock, SystemClock
from palaver.errors import BadRequest, Disconnected, PalaverError, Unavailable
from palaver.model.lines.holder_ops import HoldOp
from palaver.model.lines.program_ops import LeaveOp

if TYPE_CHECKING:  # see load_everything
    from palaver.agents.agent import Agent
    from palaver.agents.renewal import Kept

_PAUSE_S: Final = 1.0
_LIFE_LOOK_S: Final = 0.05
_LIMIT_EARLY: Final = 100

_logger: Final = logging.getLogger("palaver.holder")


class Holder:
    """One agent's terminal and its process, from the first to the last."""

    def __init__(self, running: Running, hold: HoldOp, clock: Clock) -> None:
        self._running = running
        self._clock = clock
        self._bus = Bus(
            running.home,
            hold,
            self._on_held,
            self._on_push,
            lambda: start_daemon(running.home, self._errands.run),
        )
        self._agent: Agent | None = None
        self._early: list[Line] = []
        """What was asked before the program ran."""
        self._exit: Exit | None = None
        self._waiting: Waiting | None = None
        self._starter = Starter(None, is_awaited=False)
        self._kept: Kept | None = None
        self._finished = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._errands = Errands()
        self._changeover = Changeover(self._errands.run, self._become_new)
        self._is_watched = False
        self._is_harness = False
        self._life_limit_s = 0.0

    @classmethod
    def new(cls, start_fd: int, ready_fd: int, clock: Clock) -> "Holder | None":
        """Make the terminal and the child of a new agent. Call it before any thread runs.

        Return None if there are no orders: the caller needs no holder after all.
        """
        start = read_start(start_fd)
        if start is None:
            return None
        os.set_inheritable(ready_fd, False)  # its end would come with the agent's
        pty, slave = Pty.open(start.cols, start.rows)
        waiting = prepare(start.program, slave)
        os.close(slave)
        hold = HoldOp(
            pid=waiting.pid,
            ticket=start.ticket,
            secret=os.urandom(16).hex(),
            cols=start.cols,
            rows=start.rows,
            version=__version__,
            session=start.session,
            among=start.among,
        )
        command = tuple(os.fsdecode(word) for word in start.program.argv)
        running = Running(
            home=start.home,
            pty=pty,
            child=waiting.pid,
            command=command,
            native=start.native,
            prompt=start.prompt,
        )
        holder = cls(running, hold, clock)
        holder._waiting, holder._starter = waiting, Starter(ready_fd, is_awaited=start.is_awaited)
        holder._is_watched, holder._is_harness = start.is_watched, start.is_harness
        holder._life_limit_s = start.life_limit_s
        return holder

    @classmethod
    def renewed(cls, resume_fd: int, clock: Clock) -> "Holder":
        """Go on with what an older version of this process had."""
        from palaver.agents.renewal import take_up

        kept = take_up(resume_fd)
        pty = Pty(kept.master, kept.cols, kept.rows)
        hold = HoldOp(pid=kept.child, cols=kept.cols, rows=kept.rows, version=__version__)
        running = Running(
            home=kept.home,
            pty=pty,
            child=kept.child,
            command=kept.command,
            native=kept.native,
            prompt=kept.prompt,
        )
        holder = cls(running, hold, clock)
        holder._bus.take_up(kept.held)
        holder._kept = kept
        holder._starter = Starter(kept.awaiting, is_awaited=True)
        return holder

    async def run(self) -> None:
        """Live until the agent has ended and that is reported, or it could not be started."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_signal_handler(signal.SIGUSR2, self._renew)
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        if self._kept is not None:
            from palaver.agents.renewal import hear_signals

            hear_signals()
        async with asyncio.TaskGroup() as self._tasks:
            if self._kept is not None:
                self._take_up(self._kept)
            self._spawn(self._stay_held())
            await self._finished.wait()
            for task in list(self._work):
                task.cancel()
        if self._agent is not None:
            self._agent.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._finished.is_set():
            work.close()
            return
        task = self._tasks.create_task(_guard(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    # The daemon

    async def _stay_held(self) -> None:
        while not self._finished.is_set():
            try:
                await self._bus.run()
            except PalaverError as refusal:
                if self._agent is None:
                    self._fail(refusal)
                else:  # an agent runs on without the bus, and its terminal can be used
                    self._agent.disown(refusal)
                return
            except Exception:  # without a daemon an agent runs on, but not for ever
                _logger.exception("the connection to the daemon went wrong")
                await asyncio.sleep(_PAUSE_S)

    async def _on_held(self, held: Held) -> None:
        if self._agent is None:
            await self._begin(held)
        if self._agent is not None:
            await self._agent.connected()

    def _on_push(self, line: Line) -> None:
        if self._agent is not None:
            self._agent.hear(line)
        elif len(self._early) < _LIMIT_EARLY:
            self._early.append(line)

    # The beginning

    async def _begin(self, held: Held) -> None:
        """Open the agent's socket and let the child go: the daemon knows it from its first instruction.

        Only then is the rest loaded. Until that is done the terminal keeps what the program writes.
        """
        assert self._waiting is not None
        try:
            listener = listen(socket_path(self._running.home, held.name))
        except PalaverError as error:
            await self._give_up(error)
            return
        except OSError as error:
            await self._give_up(Unavailable(f"the agent's socket cannot be made: {error}"))
            return
        let_go(self._waiting, held.seat)
        load_everything()
        agent = self._make_agent(held, listener)
        failure = await read_failure(self._waiting)
        if failure is not None:
            agent.close()
            await self._give_up(BadRequest(f"{self._running.command[0]} cannot be run: {failure.strerror}"))
            return
        agent.awaits_viewer = self._is_watched
        self._agent = agent
        for line in self._early:
            agent.hear(line)
        if self._life_limit_s:
            self._spawn(self._wait_for_life(agent, held.name))
        else:
            self._starter.ready(Ready(name=held.name))
        self._spawn(self._wait_for_report(agent))
        self._reap()

    def _make_agent(self, held: Held, listener: socket.socket) -> "Agent":
        from palaver.agents.agent import Agent, Surroundings

        around = Surroundings(
            bus=self._bus,
            clock=self._clock,
            spawn=self._spawn,
            on_hangup=self._reap,
            on_outcome=self._changeover.look,
            renew=self._renew,
        )
        return Agent(self._running, around, held, listener)

    async def _wait_for_life(self, agent: "Agent", name: str) -> None:
        """Say that the program runs once it shows that, or after a time. Its end is said elsewhere."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._life_limit_s):
                while not agent.has_life(is_harness=self._is_harness):  # noqa: ASYNC110 - nothing tells when a program begins to read
                    await asyncio.sleep(_LIFE_LOOK_S)
        if self._exit is None:
            self._starter.ready(Ready(name=name))

    async def _give_up(self, error: PalaverError) -> None:
        """It could not be started: let the name go, and say why."""
        with suppress(PalaverError):
            await self._bus.ask(LeaveOp(reason="could not be started"))
        self._fail(error)

    def _fail(self, error: PalaverError) -> None:
        self._starter.ready(ready_error(error))
        self._finished.set()

    # The end

    def _reap(self) -> None:
        """Collect what has ended. The agent itself stays uncollected until its end is reported."""
        child = self._running.child
        self._errands.collected(collect_orphans(child))
        if self._exit is None and self._agent is not None and (ended := exit_of(child)) is not None:
            self._exit = ended
            self._agent.ended(ended)
            if self._starter.awaits_ready and self._bus.held is not None:
                name, output = self._bus.held.name, self._agent.last_output()
                self._starter.ready(Ready(name=name, ended=ended.code, reason=str(ended), output=output))
            self._starter.end(ended.code)

    async def _wait_for_report(self, agent: "Agent") -> None:
        await agent.is_reported.wait()
        await agent.house.settle()
        self._finished.set()

    def _on_terminate(self) -> None:
        if self._agent is None:
            self._fail(Disconnected("the holder was told to end"))
        else:
            self._agent.stop()

    # A newer version of this process

    def _renew(self) -> None:
        """Become the newer version as soon as nothing is in hand."""
        if self._agent is not None and self._exit is None:
            self._spawn(self._changeover.ask())

    def _become_new(self) -> None:
        """Change, in one step: nothing is read or written between what is kept and the exec."""
        from palaver.agents.renewal import become_new

        assert self._agent is not None
        assert self._bus.held is not None
        if self._exit is not None or not self._agent.is_at_rest:
            return
        if self._starter.awaits_ready:
            self._starter.ready(Ready(name=self._bus.held.name))
        try:
            become_new(self._agent.keep(self._bus.held, self._starter.descriptor))
        except OSError as error:  # too late to go on as before: the terminal's traffic was let go of
            _logger.critical("the newer version cannot be run: %s", error)
            os._exit(1)

    def _take_up(self, kept: "Kept") -> None:
        self._agent = self._make_agent(kept.held, socket.socket(fileno=kept.listener))
        self._agent.take_up(kept)
        self._spawn(self._wait_for_report(self._agent))
        self._reap()


def load_everything() -> None:
    """Import all that a holder needs: a later version may replace the files below it at any time."""
    import palaver.agents.agent
    import palaver.agents.renewal  # noqa: F401 - loading both is all

    gc.freeze()


async def _guard(work: Coroutine[Any, Any, None]) -> None:
    """Do some work; what goes wrong in it must not end the agent."""
    try:
        await work
    except Exception:
        _logger.exception("something went wrong in the holder")


def main(arguments: list[str] | None = None) -> int:
    """Run a holder. With `--check` only see that it loads."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("--start-fd", type=int)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--resume-fd", type=int)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    if options.check:
        load_everything()
        return 0
    os.umask(0o077)
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.WARNING)
    adopt_orphans()
    asyncio.run(_run(options))
    return 0


async def _run(options: argparse.Namespace) -> None:
    clock = SystemClock()
    if options.resume_fd is not None:
        load_everything()
        holder: Holder | None = Holder.renewed(options.resume_fd, clock)
    else:
        holder = Holder.new(options.start_fd, options.ready_fd, clock)
    if holder is not None:
        await holder.run()


if __name__ == "__main__":
    sys.exit(main())
