"""One agent that runs in a terminal here: its station, its lane, its socket, and the report of its end.

It begins once its name is known and its process may run. The connection to the daemon comes and goes.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from palaver.agents.adopt import ask_daemon
from palaver.agents.bus import Bus, Held
from palaver.agents.farewell import Farewell
from palaver.agents.house import House
from palaver.agents.lane import Lane
from palaver.agents.native import Native
from palaver.agents.native_word import Word, status_of
from palaver.agents.renewal import Kept
from palaver.agents.server import AgentServer
from palaver.agents.sockets import socket_path
from palaver.agents.station import Station
from palaver.agents.terminal.gates import Gate
from palaver.agents.terminal.look import Look
from palaver.agents.terminal.pty import Exit, Pty
from palaver.agents.watching.frames_wire import control_to_bytes
from palaver.agents.watching.viewer import Viewer, error_frame
from palaver.agents.work import Spawn
from palaver.client.request import Typed
from palaver.client.wire import Line
from palaver.clock import Clock
from palaver.errors import BadRequest, PalaverError
from palaver.harness.profiles import profile_of
from palaver.model.delivery import AgentState

VIEWER_LIMIT_S: Final = 3.0
"""So long an ended agent's holder waits for the terminal that it was started from."""
_OFF_THE_BUS: Final = "not on the bus"
_LIMIT_TYPED: Final = 100
"""Lines from input bars that are remembered while the daemon is away; then the oldest is forgotten."""

_logger: Final = logging.getLogger("palaver.holder")


class Agent:
    """From the moment it may run until the daemon knows of its end."""

    def __init__(
        self,
        *,
        home: str,
        held: Held,
        pty: Pty,
        child: int,
        command: tuple[str, ...],
        bus: Bus,
        listener: socket.socket,
        clock: Clock,
        spawn: Spawn,
        on_hangup: Callable[[], None],
        on_outcome: Callable[[], None],
        renew: Callable[[], None],
        native: str = "",
    ) -> None:
        """`spawn` owns what is started here; `on_hangup`: look whether the process has ended.

        `native` is the address of the harness's own way in, where it has one.
        """
        profile = profile_of(held.harness)
        self._home = home
        self._name = held.name
        self._child = child
        self._command = command
        self._pty = pty
        self._bus = bus
        self._listener = listener
        self._spawn = spawn
        self._on_outcome = on_outcome
        self._has_ended = asyncio.Event()
        self._exit: Exit | None = None
        self._typed: list[str] = []
        self._is_disowned = False
        self.awaits_viewer = False
        """Whoever started it is about to attach."""
        self._level: tuple[Look, Gate] | None = None
        self.station = Station(
            pty,
            child,
            profile,
            clock=clock,
            on_level=self._set_level,
            on_hangup=on_hangup,
            on_input=self._on_input,
            on_size=bus.resized,
            on_stop=self.stop,
        )
        self._lane = Lane(home, bus, self.station.typist, self._end_offer)
        self._native = Native(
            held.harness,
            native,
            bus,
            clock=clock,
            spawn=spawn,
            on_word=self.station.check_level,
            on_change=on_outcome,
        )
        self._farewell = Farewell(home, bus, self._lane, self._native, clock)
        self.is_reported = self._farewell.is_said
        """Set when nothing more is to be said about the end."""
        self._word = Word(state=AgentState.STARTING)
        self._house = House(
            name=held.name,
            child=child,
            command=command,
            profile=profile,
            station=self.station,
            lane=self._lane,
            bus=bus,
            clock=clock,
            has_ended=self._has_ended,
            spawn=spawn,
            renew=renew,
        )
        spawn(AgentServer(home, held.name, listener, self._house).run())

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in hand."""
        return self._lane.is_at_rest and self._native.is_at_rest

    def stop(self) -> None:
        """End it politely."""
        self._house.stop()

    # The daemon

    async def connected(self) -> None:
        """Say all that a new connection must know, the outcomes of before first."""
        self._say_status()
        self._native.connected()
        await self._lane.open()
        while self._typed:
            await self._bus.ask(Typed(text=self._typed[0]))
            del self._typed[0]
        await self._farewell.connected()

    def hear(self, line: Line) -> None:
        """Take what the daemon pushes."""
        if line.push == "offer":
            self._native.take(line, self._lane.take)
        elif line.push == "control":
            self._house.control(line)
        elif line.push == "decision":
            self._native.decide(line)

    def disown(self, refusal: PalaverError) -> None:
        """Run on without the bus, which says that the name is another's. Whoever is attached is told."""
        _logger.error("%s runs on without the bus: %s: %s", self._name, refusal.code, refusal)
        self._is_disowned = True
        self._farewell.forget()
        sentence = f"{self._name} is somebody else's on the bus now: no message comes here any more"
        self.station.viewers.tell(
            {"type": "error", "error": refusal.code, "message": sentence, "about": "bus"}
        )
        self._show_state()

    def _show_state(self) -> None:
        detail = _OFF_THE_BUS if self._is_disowned else self._word.detail
        self._house.set_state(self._word.state, detail)
        self.station.viewers.set_state({"name": self._name, "state": self._word.state, "detail": detail})

    def _set_level(self, look: Look, gate: Gate) -> None:
        word, gate = self._native.see(look, gate)
        if word != self._word:
            self._word = word
            self._say_status()
        self._show_state()
        is_paused = self.station.viewers.owner is not None or self.station.hears_only_urgent
        self._lane.set_level(gate, is_paused=is_paused)

    def _say_status(self) -> None:
        if self._bus.is_connected and self._exit is None:
            self._bus.mention(status_of(self._word))  # the next connection begins with it

    def _end_offer(self) -> None:
        self.station.check_level()
        self._on_outcome()

    def _on_input(self, viewer: Viewer, text: str, priority: str) -> None:
        """Tell the bus what a person sent from the input bar: typed already, or to be queued as mail."""
        if priority != "normal":
            self._spawn(self._pass_on(viewer, text, priority))
        elif self._bus.is_connected:
            self._bus.mention(Typed(text=text))
        else:
            self._typed = [*self._typed, text][-_LIMIT_TYPED:]

    async def _pass_on(self, viewer: Viewer, text: str, priority: str) -> None:
        request: dict[str, object] = {"type": "send", "body": text, "priority": priority, "bare": True}
        asked: dict[str, object] = {"do": "send", "name": self._name, "request": request, "silent": True}
        try:
            verdict = await ask_daemon(self._home, viewer.connection.fileno(), asked)
            if not verdict.is_ok:
                raise BadRequest(verdict.error)
        except PalaverError as error:
            viewer.send(error_frame(error, "input"))
        else:
            viewer.send(control_to_bytes({"type": "queued", "priority": priority, "seq": verdict.seq}))

    # The end

    def ended(self, ended: Exit) -> None:
        """Its process has ended: show the last of it, let everybody go, and report.

        Who started it to see it may still be on the way here, and is waited for a little.
        """
        self._exit = self._house.exit = ended
        station = self.station
        station.pump.drain_output()
        station.screen.exit(str(ended))
        station.typist.end(str(ended))
        station.check_level()
        if self.awaits_viewer and not station.has_been_watched.is_set():
            self._spawn(self._wait_for_viewer(ended))
        else:
            self._let_go(ended)

    async def _wait_for_viewer(self, ended: Exit) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(VIEWER_LIMIT_S):
                await self.station.has_been_watched.wait()
        self._let_go(ended)

    def _let_go(self, ended: Exit) -> None:
        viewers = self.station.viewers
        viewers.tell({"type": "exited", "status": ended.code, "signal": ended.signal})
        viewers.end()
        self._native.ended()
        self._has_ended.set()
        self._bus.hurry()
        self._spawn(self._farewell.say(str(ended)))

    def close(self) -> None:
        """Take the socket away and let go of the terminal."""
        with suppress(OSError):
            socket_path(self._home, self._name).unlink()
        self._listener.close()
        self._native.clear()
        self.station.close()

    # A newer version of this process

    def keep(self, held: Held, awaiting: int | None) -> Kept:
        """Give all that the newer version needs. Nothing may happen here afterwards but the change."""
        painted = self.station.redraw()
        unsent = self.station.pump.release()
        return Kept(
            home=self._home,
            held=held,
            child=self._child,
            command=self._command,
            master=self._pty.master,
            listener=self._listener.fileno(),
            cols=self._pty.cols,
            rows=self._pty.rows,
            painted=painted,
            remembered=self.station.screen.keep(),
            unsent=unsent,
            outcomes=self._lane.outcomes,
            awaiting=awaiting,
            native=self._native.address,
            native_outcomes=self._native.outcomes,
            typed=tuple(self._typed),
            viewers=tuple(self.station.viewers.release()),
        )

    def take_up(self, kept: Kept) -> None:
        """Go on with what the older version had."""
        self._lane.remember(kept.outcomes)
        self._native.remember(kept.native_outcomes)
        self._typed = list(kept.typed)
        self.station.take_up(kept.painted, kept.remembered)
        self.station.pump.write(kept.unsent)
        self.station.viewers.take_up(kept.viewers)
