"""The holder: the process that owns an agent's terminal for as long as the agent runs.

    python -I -m palaver.holder.main --start-fd N --ready-fd M

It does not depend on a running daemon and reconnects to a restarted one. It starts the program before it
loads its other modules, because the user is waiting for the program. It is the parent of all descendants that
the agent leaves running. It ends when the agent has ended and the exit is reported. SIGUSR2 upgrades it to
its newer version; SIGTERM ends the agent.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from palaver.client.wire import ReplyLine
from palaver.clock import Clock, SystemClock
from palaver.errors import BadRequest, Disconnected, PalaverError, Unavailable
from palaver.holder.agent_socket import listen, socket_path
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.launch import (
    HolderReady,
    Starter,
    Waiting,
    check_command,
    let_go,
    prepare,
    read_failure,
    read_start,
    ready_error,
    start_daemon,
)
from palaver.holder.tasks import Subprocesses, adopt_orphans, collect_orphans, exit_of
from palaver.protocol.lines import HoldOp, LeaveOp
from palaver.terminal.pty import Exit, Pty, Running
from palaver.version import __version__

if TYPE_CHECKING:
    from palaver.holder.agent import HeldAgent, Kept

# --------------------
# Decide when a holder becomes its newer version: once that version loads and no offer is in progress.
#
# The upgrade itself, and the state that survives it, is in `agent.py`.

_logger: Final = logging.getLogger("palaver.holder")

Run = Callable[[list[str]], Awaitable[int]]
"""Runs a command and returns its exit status."""


class Changeover:
    """The upgrade of one holder. Requesting it twice performs it once."""

    def __init__(self, run: Run, change: Callable[[], None]) -> None:
        """`change` upgrades, or does nothing during an offer; it is called after each outcome."""
        self._run = run
        self._change = change
        self._is_wanted = False
        self._is_trying = False

    async def ask(self) -> None:
        """Check that the newer version loads, then upgrade as soon as no offer is in progress."""
        if self._is_wanted:
            return
        # Checked in another process, because an exec cannot be undone: a version that does not load would
        # take the terminal with it.
        self._is_wanted = self._is_trying = True
        status = await self._run(check_command())
        self._is_trying = False
        if status:
            self._is_wanted = False
            _logger.warning("the newer version cannot be loaded (status %d): nothing was changed", status)
        else:
            self._change()

    def look(self) -> None:
        """Upgrade soon if requested. Call this after each outcome, and whenever the agent may be at rest."""
        if self._is_wanted and not self._is_trying:
            # Not at once: lanes call this just before they record the outcome, and the newer version would
            # lose it.
            asyncio.get_running_loop().call_soon(self._change)


_PAUSE_S: Final = 1.0
"""Seconds before the next attempt after an unexpected error; a permanent one would fill the log otherwise."""
_LIFE_LOOK_S: Final = 0.05
"""Seconds between two checks whether the program has started."""
_LIMIT_EARLY: Final = 100
"""Lines that the daemon can push before the program runs; they are few, because no lane is open yet."""


class Holder:
    """One agent's terminal and process, from the start to the reported exit."""

    def __init__(self, running: Running, hold: HoldOp, clock: Clock) -> None:
        self._running = running
        self._clock = clock
        self._bus = HolderConnection(
            running.home,
            hold,
            self._on_held,
            self._on_push,
            lambda: start_daemon(running.home, self._subprocesses.run),
        )
        self._agent: HeldAgent | None = None
        self._early: list[ReplyLine] = []
        """Pushed lines that arrived before the program ran; when full, later ones are dropped."""
        self._exit: Exit | None = None
        self._waiting: Waiting | None = None
        self._starter = Starter(None, is_awaited=False)
        self._kept: Kept | None = None
        self._finished = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._subprocesses = Subprocesses()
        self._changeover = Changeover(self._subprocesses.run, self._become_new)
        self._is_watched = False
        self._is_harness = False
        self._life_limit_s = 0.0

    @classmethod
    def new(cls, start_fd: int, ready_fd: int, clock: Clock) -> "Holder | None":
        """Make the terminal and the child of a new agent.

        Call this before any thread starts: the child is a fork, and a lock that another thread held would
        stay locked in it.

        Return None if there are no orders: the caller needs no holder after all.
        """
        start = read_start(start_fd)
        if start is None:
            return None
        os.set_inheritable(ready_fd, False)  # Otherwise the agent would keep the pipe open.
        pty, slave = Pty.open(start.cols, start.rows)
        waiting = prepare(start.program, slave)
        # An open copy of the program's end would hide the hangup of the terminal.
        os.close(slave)
        hold = HoldOp(
            pid=waiting.pid,
            ticket=start.ticket,
            # Chosen here and not by the daemon: if the first reply is lost, the ticket is used up, and the
            # daemon identifies this holder by its secret.
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
        """Continue with the state of an older version of this process."""
        from palaver.holder.agent import take_up

        kept = take_up(resume_fd)
        pty = Pty(kept.master, kept.cols, kept.rows)
        # No ticket: it was valid once. The name and the secret come from `take_up` below.
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
        # The older version has sent the first report, and the caller reads what follows as the exit status.
        holder._starter = Starter(kept.awaiting, is_awaited=True, is_ready=True)
        return holder

    async def run(self) -> None:
        """Run until the agent has ended and its exit is reported, or until it could not be started."""
        loop = asyncio.get_running_loop()
        # Several ends can cause one signal, so `_reap` looks at every child.
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_signal_handler(signal.SIGUSR2, self._renew)
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        # Handled so that it does not end the holder, and with it the agent.
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        if self._kept is not None:
            from palaver.holder.agent import hear_signals

            # Only now: the older version blocked them for the exec, and an earlier one would end this
            # process.
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
            # The task group is ending and takes no more tasks; an unclosed coroutine would cause a warning.
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
                else:  # The agent keeps running without the bus, and its terminal stays usable.
                    self._agent.disown(refusal)
                return
            except Exception:  # An agent can run without a daemon, but keep trying to reconnect.
                _logger.exception("the connection to the daemon failed")
                await asyncio.sleep(_PAUSE_S)

    async def _on_held(self, held: Held) -> None:
        if self._agent is None:
            await self._begin(held)
        if self._agent is not None:
            await self._agent.connected()

    def _on_push(self, line: ReplyLine) -> None:
        if self._agent is not None:
            self._agent.hear(line)
        # The daemon may send a control request as soon as the hold is accepted; its caller waits for the
        # reply.
        elif len(self._early) < _LIMIT_EARLY:
            self._early.append(line)

    # Start

    async def _begin(self, held: Held) -> None:
        """Open the agent's socket and start the program: the daemon knows it from its first instruction.

        The rest of the holder is loaded after that. Until then the terminal buffers the program's output.
        """
        assert self._waiting is not None
        try:
            # Before the program runs: its first hook may already connect to the socket.
            listener = listen(socket_path(self._running.home, held.name))
        except PalaverError as error:
            await self._give_up(error)
            return
        except OSError as error:
            await self._give_up(Unavailable(f"the agent's socket cannot be created: {error}"))
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
            self._starter.ready(HolderReady(name=held.name))
        self._spawn(self._wait_for_report(agent))
        # The program may have ended already. `_reap` ignored the signal of its end while there was no agent.
        self._reap()

    def _make_agent(self, held: Held, listener: socket.socket) -> "HeldAgent":
        # Not at the top: this module is large, and the program starts before it is loaded.
        from palaver.holder.agent import AgentContext, HeldAgent

        around = AgentContext(
            bus=self._bus,
            clock=self._clock,
            spawn=self._spawn,
            on_hangup=self._reap,
            on_rest=self._changeover.look,
            renew=self._renew,
        )
        return HeldAgent(self._running, around, held, listener)

    async def _wait_for_life(self, agent: "HeldAgent", name: str) -> None:
        """Report that the program runs once it shows that, or after a time limit. `_reap` reports its end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._life_limit_s):
                while not agent.has_life(is_harness=self._is_harness):  # noqa: ASYNC110 - there is no event for the first read of a program
                    await asyncio.sleep(_LIFE_LOOK_S)
        if self._exit is None:
            self._starter.ready(HolderReady(name=name))

    async def _give_up(self, error: PalaverError) -> None:
        """Report why the agent could not be started, and release its name."""
        with suppress(PalaverError):
            await self._bus.ask(LeaveOp(reason="could not be started"))
        self._fail(error)

    def _fail(self, error: PalaverError) -> None:
        self._starter.ready(ready_error(error))
        self._finished.set()

    # Exit

    def _reap(self) -> None:
        """Collect ended processes. The agent itself stays uncollected until its exit is reported."""
        child = self._running.child
        self._subprocesses.collected(collect_orphans(child))
        if self._exit is None and self._agent is not None and (ended := exit_of(child)) is not None:
            # Set before `ended` is called: from here on no upgrade may start.
            self._exit = ended
            self._agent.ended(ended)
            if self._starter.awaits_ready and self._bus.held is not None:
                name, output = self._bus.held.name, self._agent.last_output()
                self._starter.ready(
                    HolderReady(name=name, ended=ended.code, reason=str(ended), output=output)
                )
            # Last, because it closes the pipe.
            self._starter.end(ended.code)

    async def _wait_for_report(self, agent: "HeldAgent") -> None:
        await agent.is_reported.wait()
        # A stop also ends the descendants that survive the agent. The end of this process would cancel that.
        await agent.holder_control.settle()
        self._finished.set()

    def _on_terminate(self) -> None:
        if self._agent is None:
            self._fail(Disconnected("the holder was ended by a signal before its agent started"))
        else:
            self._agent.stop()

    # Upgrade

    def _renew(self) -> None:
        """Request the upgrade; it happens as soon as no offer is in progress."""
        if self._agent is not None and self._exit is None:
            self._spawn(self._changeover.ask())

    def _become_new(self) -> None:
        """Upgrade in one step: no reads or writes between saving the state and the exec."""
        from palaver.holder.agent import become_new

        assert self._agent is not None
        assert self._bus.held is not None
        # Checked again: this runs later than the request. A half-typed message cannot be handed over, and an
        # ended agent only needs its exit to be reported.
        if self._exit is not None or not self._agent.is_at_rest:
            return
        if self._starter.awaits_ready:
            self._starter.ready(HolderReady(name=self._bus.held.name))
        try:
            become_new(self._agent.keep(self._bus.held, self._starter.descriptor))
        except OSError as error:
            # This version cannot continue either: `keep` has released the terminal and the viewers.
            _logger.critical("the newer version cannot be run: %s", error)
            os._exit(1)

    def _take_up(self, kept: "Kept") -> None:
        self._agent = self._make_agent(kept.held, socket.socket(fileno=kept.listener))
        self._agent.take_up(kept)
        self._spawn(self._wait_for_report(self._agent))
        self._reap()


def load_everything() -> None:
    """Import everything a holder needs, because an upgrade can replace the files on disk at any time."""
    import palaver.holder.agent  # noqa: F401 - imported only to load it

    # The imported modules live as long as the holder: without this, every full collection would visit them.
    gc.freeze()


async def _guard(work: Coroutine[Any, Any, None]) -> None:
    """Run a task and log its errors; they must not end the agent."""
    try:
        await work
    except Exception:
        _logger.exception("an internal error in the holder")


def main(arguments: list[str] | None = None) -> int:
    """Run a holder. With `--check`, only test that it loads."""
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
    # Before the agent runs: a process that lost its parent earlier would not come back to this holder.
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
