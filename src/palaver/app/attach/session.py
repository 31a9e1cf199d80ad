"""One user's view of one agent, from the first frame to the end. Connects the parts of the screen.

A separate module from `attach.py`, because the unchanged terminal there needs none of it.
"""

import asyncio
import base64
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from palaver.app.attach import agent_size, has_bar
from palaver.app.attach.console import (
    Act,
    AgentChoice,
    Console,
    CopyText,
    Meant,
    Mode,
    RawKeys,
    Say,
    ShowAgent,
)
from palaver.app.attach.link import (
    AttachedPage,
    AttachedWire,
    BusWatch,
    HolderLink,
    call,
    has_terminal,
    list_others,
    send_line,
)
from palaver.app.attach.screen import (
    BLANK,
    IN,
    AgentStatus,
    OwnTerminal,
    Painter,
    Picture,
    Row,
    compose,
    help_rows,
    past_lines,
    past_rows,
    plain,
    print_rows,
    role_and_folder,
    screen_rows,
)
from palaver.app.notices import Notices
from palaver.errors import PalaverError
from palaver.protocol.agent_socket import CONTROL, DATA, Frame, control_from_bytes, is_size
from palaver.protocol.views import Changes, Snapshot
from palaver.terminal.emulator import KEPT_MODES, Emulator, Keys
from palaver.terminal.pty import Exit

# --------------------
# Read the user's keys from the terminal. The console interprets them.

_READ_BYTES: Final = 65536
_HALF_KEY_S: Final = 0.05
"""Seconds that the rest of a key may take: a lone Escape and a longer key begin alike."""


class KeyReader:
    """Reads only while enabled; unread keys stay in the terminal."""

    def __init__(
        self, console: Console, do: Callable[[Iterable[Meant]], None], on_closed: Callable[[], None]
    ) -> None:
        """`do` carries out the meaning of keys; `on_closed` is called when the terminal was closed."""
        self._console = console
        self._do = do
        self._on_closed = on_closed
        self._half_key: asyncio.TimerHandle | None = None
        self._is_reading = False

    def read(self, *, is_wanted: bool) -> None:
        """Start or stop reading."""
        if is_wanted == self._is_reading:
            return
        self._is_reading = is_wanted
        loop = asyncio.get_running_loop()
        if is_wanted:
            loop.add_reader(IN, self._on_keys)
        else:
            loop.remove_reader(IN)

    def _on_keys(self) -> None:
        try:
            data = os.read(IN, _READ_BYTES)
        except BlockingIOError:
            return
        # A closed terminal is an error or the end of the input, depending on the system.
        except OSError:
            data = b""
        if not data:
            self._on_closed()
            return
        if self._half_key is not None:
            self._half_key.cancel()
            self._half_key = None
        self._do(self._console.feed(data))
        if self._console.has_half:
            self._half_key = asyncio.get_running_loop().call_later(_HALF_KEY_S, self._settle)

    def _settle(self) -> None:
        self._half_key = None
        self._do(self._console.settle())


# --------------------
# The session: from the first frame to the end. It connects the keys, the screen and the holder.

_NOTICE_S: Final = 8.0
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_BAR_MODES: Final = frozenset({2004})
"""Bracketed paste, so that the line ends of a paste into the bar submit nothing."""
_LIMIT_COPY_BYTES: Final = 48 * 1024
"""Bytes that are copied at once: terminals ignore a longer sequence for the clipboard."""


@dataclass(frozen=True, slots=True)
class AttachEnd:
    """How it ended: by the agent, a signal, or the loss of the holder; else the user detached."""

    exit: Exit | None = None
    is_stopped: bool = False
    """The user asked the agent to end."""
    signal: int = 0
    is_lost: bool = False
    next: AttachedWire | None = None
    """The agent that the user wants to see instead."""


class AttachSession:
    """The attach screen. Call `run` once; it takes the terminal and restores it."""

    def __init__(self, home: str, name: str, *, is_ascii: bool, keys_first: bool = False) -> None:
        """`keys_first`: the agent has the keyboard until the user opens the bar."""
        self._home = home
        self._is_ascii = is_ascii
        self._own = OwnTerminal(lambda: self._end(AttachEnd()))
        self._painter = Painter(self._own, self._picture, lambda: self._terminal.is_mid_frame)
        self._cols, self._rows = self._own.size
        self._terminal = Emulator(*agent_size(self._cols, self._rows))
        self._console = Console(name, keys_first=keys_first)
        self._console.past.page = max(self.agent_size[1] - 1, 1)
        self._standing = AgentStatus(name)
        self._past: list[Row] = []
        self._keys = KeyReader(self._console, self._do, lambda: self._end(AttachEnd()))
        self._notice_timer: asyncio.TimerHandle | None = None
        self._sent = ("", "normal")
        """The last line of the bar, and its priority."""
        self._unsent: tuple[str, str] | None = None
        """A line of the bar that waits for the holder's permission to be sent as a message."""
        self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def agent_size(self) -> tuple[int, int]:
        """The columns and rows that the agent should have here."""
        return agent_size(self._cols, self._rows)

    async def run(self, attached: AttachedWire) -> AttachEnd:
        """Show the agent until one side ends."""
        loop = self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[AttachEnd] = loop.create_future()
        # An error in a callback would only be logged, onto a screen that is never restored.
        loop.set_exception_handler(self._on_trouble)
        if attached.size is not None:
            self._terminal.resize(*attached.size)
        self._link = HolderLink(
            attached.wire, self._on_frame, lambda: self._end(AttachEnd(is_lost=True)), self._on_sent
        )
        self._own.take()
        self._watch_signals()
        output = b""
        try:
            async with asyncio.TaskGroup() as tasks:
                bus = BusWatch(self._home, self._console.name, self._on_page, self._on_record)
                self._notices = Notices(bus, lambda text: self._own.write(text.encode()), self._notify)
                news = tasks.create_task(bus.run())
                self._link.start(attached.rest)
                self._do(self._console.set_bare(is_bare=not has_bar(self._cols, self._rows)))
                self._do(self._console.begin())
                self._keys.read(is_wanted=True)
                self._painter.soon()
                try:
                    ending = await self._over
                finally:
                    news.cancel()
                    await self._notices.close()
                    for task in self._tasks:
                        task.cancel()
            output = self._final_output() if ending.exit is not None else b""
            return ending
        finally:
            # First, so that keys that are typed from here on stay in the terminal for the shell.
            self._keys.read(is_wanted=False)
            self._painter.give_back(output)
            self._link.close()

    def _end(self, ending: AttachEnd) -> None:
        if not self._over.done():
            self._over.set_result(ending)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        # The loop keeps only weak references to tasks: a task without another one could be collected.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Handle an error in a callback: end with it, so that the terminal is restored."""
        error = context.get("exception")
        if not self._over.done():
            self._over.set_exception(
                error if isinstance(error, Exception) else RuntimeError(str(context.get("message")))
            )

    # Keys

    def _do(self, meant: Iterable[Meant]) -> None:
        notice = self._console.notice
        for one in meant:
            match one:
                case RawKeys(keys):
                    self._link.press(keys)
                case CopyText(text):
                    self._copy(text)
                case ShowAgent(name):
                    self._spawn(self._show_other(name))
                case Say(text, priority):
                    self._sent = (text, priority)
                    self._unsent = (text, priority) if priority != "normal" else None
                    self._link.control("input", text=text, priority=priority)
                case _:
                    self._act(one)
        if self._console.notice not in ("", notice):
            self._keep_notice()
        if self._console.mode is Mode.HELP:
            height = self.agent_size[1]
            self._console.limit = max(len(help_rows(self._cols)) - height, 0)
        self._painter.soon()

    def _act(self, act: Act) -> None:
        match act:
            case Act.LEAVE:
                self._end(AttachEnd())
            case Act.STOP:
                self._is_stopped = True
                self._link.control("stop")
            case Act.REDRAW:
                self._painter.forget()
                self._send_size()
                self._link.control("redraw")
            case Act.SCROLL:
                self._look_back(tuple(self._terminal.grid.scrollback), is_complete=False)
                self._link.control("history")  # the holder has more: from before this viewer attached
            case Act.LIST_AGENTS:
                self._spawn(self._list_others())
            case Act.TAKE_KEYBOARD | Act.FORCE_KEYBOARD:
                # Another viewer may have set the size; the agent must draw for the one that types.
                self._send_size()
                is_forced = act is Act.FORCE_KEYBOARD
                self._link.control("passthrough", on=True, take=is_forced, mail=self._console.keys_first)
            case Act.GIVE_KEYBOARD:
                self._link.control("passthrough", on=False)
            case Act.SUSPEND:
                self._suspend()

    def _look_back(self, lines: Sequence[str], *, is_complete: bool) -> None:
        grid = self._terminal.grid
        self._past = past_rows(lines, grid, self._cols)
        self._console.past.show(past_lines(lines, grid), is_complete=is_complete)

    def _copy(self, text: str) -> None:
        """Put text on the user's clipboard, through their terminal (OSC 52)."""
        data = text.encode("utf-8", "replace")
        if len(data) > _LIMIT_COPY_BYTES:
            self._console.notice = f"over {_LIMIT_COPY_BYTES // 1024} KiB cannot be copied: mark fewer lines"
            return
        self._own.write(b"\x1b]52;c;" + base64.b64encode(data) + b"\x1b\\")
        count = text.count("\n") + 1
        lines = "1 line" if count == 1 else f"{count} lines"
        self._console.notice = f"{lines} sent to your terminal's clipboard (OSC 52)"

    # The other agents

    async def _list_others(self) -> None:
        console = self._console
        agents = await list_others(self._home, console.name)
        if agents is None:
            self._notify("the bus does not reply, so the other agents are not known")
            console.offer(None)
            self._painter.soon()
            return
        choices = [
            AgentChoice(
                name=one.name,
                state=one.state,
                detail=one.detail or "",
                unread=one.unread,
                has_terminal=has_terminal(self._home, one.name),
            )
            for one in agents
        ]
        console.offer(sorted(choices, key=lambda one: not one.has_terminal))
        self._painter.soon()

    async def _show_other(self, name: str) -> None:
        """Attach to another agent, and end here if that was possible."""
        try:
            attached = await asyncio.to_thread(call, self._home, name, *self.agent_size, is_drawn=True)
        except PalaverError as error:
            self._notify(str(error))
            self._painter.soon()
            return
        # The user may have detached during the call.
        if self._over.done():
            attached.wire.close()
        else:
            self._end(AttachEnd(next=attached))

    # The agent's side

    def _on_frame(self, frame: Frame) -> None:
        kind, payload = frame
        if kind == DATA:
            self._terminal.feed(payload)
        elif kind == CONTROL:
            self._on_control(control_from_bytes(payload))
        self._painter.soon()

    def _on_sent(self) -> None:
        # A holder that does not read would make the unsent keys grow without a limit. Not only with a frame
        # of the agent: one that prints nothing would leave the keyboard dead.
        if not self._over.done():
            self._keys.read(is_wanted=not self._link.is_full)

    def _on_control(self, fields: dict[str, object]) -> None:
        console = self._console
        match fields:
            case {"type": "state", "passthrough": str(keyboard)}:
                state, detail = str(fields.get("state", "")), str(fields.get("detail", ""))
                gate = str(fields.get("gate", ""))
                self._standing = replace(self._standing, keyboard=keyboard, gate=gate)
                if state:
                    self._standing = replace(self._standing, state=state, detail=detail)
                console.hear_keyboard(keyboard)
                console.hear_secret(is_secret=fields.get("secret") is True)
            case {"type": "size"}:
                self._resize_agent(fields.get("cols"), fields.get("rows"))
            # The user may have left the scroll-back before the reply came.
            case {"type": "history", "lines": list(lines)} if console.mode in (Mode.SCROLL, Mode.SEARCH):
                self._look_back([str(line) for line in lines], is_complete=True)
            # The holder permits it: no secret is asked for. It never sends the message itself, because the
            # daemon must see this process as the sender.
            case {"type": "send"} if self._unsent is not None:
                self._spawn(self._queue(*self._unsent))
                self._unsent = None
            case {"type": "error", "about": "history"}:  # an older holder: use only the local scroll-back
                self._look_back(list(self._terminal.grid.scrollback), is_complete=True)
            case {"type": "error"}:
                about = str(fields.get("about", ""))
                console.refuse(str(fields.get("message", "")), about)
                self._keep_notice()
                if about == "input" and fields.get("kept") is not True:
                    sent = (str(fields.get("text", "")), str(fields.get("priority", "normal")))
                    console.put_back(*(sent if "text" in fields else self._sent))
            case {"type": "exited"}:
                self._on_exit(fields)
            case _:
                pass

    async def _queue(self, text: str, priority: str) -> None:
        """Send a line as the user's own message, from this process, so that it has the user's identity."""
        try:
            seq = await asyncio.to_thread(send_line, self._home, self._console.name, text, priority)
        except PalaverError as error:
            refused = {"type": "error", "about": "input", "message": str(error), "text": text}
            self._on_control({**refused, "priority": priority})
        else:
            self._notify(f"queued as #{seq}: {priority}")
        self._painter.soon()

    def _on_exit(self, fields: dict[str, object]) -> None:
        status, number = fields.get("status"), fields.get("signal")
        if isinstance(number, int) and number:
            ended = Exit(None, number)
        else:
            ended = Exit(status if isinstance(status, int) else 1)
        self._end(AttachEnd(exit=ended, is_stopped=self._is_stopped))

    def _resize_agent(self, cols: object, rows: object) -> None:
        if is_size(cols, rows) and isinstance(cols, int) and isinstance(rows, int):
            self._terminal.resize(cols, rows)

    def _on_page(self, page: AttachedPage | None) -> None:
        if page is None:
            self._standing = replace(self._standing, is_away=True)
        else:
            self._standing = replace(
                self._standing,
                is_away=False,
                queue=page.queue,
                is_paused=page.paused,
                lanes={
                    one.lane: "" if one.open else one.reason or "closed"
                    for one in page.gates
                    if one.lane != "terminal"
                },
                role_and_folder=role_and_folder(page.role, page.cwd or "", os.path.expanduser("~")),  # noqa: PTH111 - a text
            )
        self._painter.soon()

    def _on_record(self, record: Snapshot | Changes) -> None:
        if record.counts is not None:
            self._standing = replace(self._standing, attention=record.counts.attention)
            self._painter.soon()
        self._notices.record(record, in_view=(f"agent/{self._console.name}",))

    def _final_output(self) -> bytes:
        """Return the final output of an agent that has ended; a full-screen program leaves nothing."""
        grid = self._terminal.grid
        if grid.is_alternate:
            return b""
        rows = list(screen_rows(grid, grid.lines, self._cols))
        while rows and all(cell == BLANK for cell in rows[-1]):
            rows.pop()
        picture = Picture(tuple(rows))
        return print_rows((plain(picture) if self._is_ascii else picture).rows)

    # Notices

    def _notify(self, sentence: str) -> None:
        self._console.notice = sentence
        self._keep_notice()

    def _keep_notice(self) -> None:
        if self._notice_timer is not None:
            self._notice_timer.cancel()
        self._notice_timer = self._loop.call_later(_NOTICE_S, self._drop_notice)

    def _drop_notice(self) -> None:
        self._console.notice = ""
        self._painter.soon()

    # Drawing

    def _picture(self) -> tuple[Picture, frozenset[int], Keys]:
        """Return the picture to show now, and the modes and keys of the terminal."""
        picture = compose(
            self._console, self._standing, self._terminal.grid, self._past, self._cols, self._rows
        )
        is_passthrough = self._console.mode is Mode.KEYS
        modes = frozenset(self._terminal.modes & set(KEPT_MODES)) if is_passthrough else _BAR_MODES
        keys = self._terminal.keys if is_passthrough else Keys()
        return plain(picture) if self._is_ascii else picture, modes, keys

    # Signals and size

    def _watch_signals(self) -> None:
        for number in _ENDING:
            self._loop.add_signal_handler(number, self._end, AttachEnd(signal=number))
        self._loop.add_signal_handler(signal.SIGWINCH, self._on_size)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)

    def _on_size(self) -> None:
        with suppress(OSError):  # it was closed: the next read reports that
            self._cols, self._rows = self._own.size
        self._painter.forget()
        self._console.past.page = max(self.agent_size[1] - 1, 1)
        self._send_size()
        if self._console.mode in (Mode.SCROLL, Mode.SEARCH):
            self._act(Act.SCROLL)  # its rows have the old width
        self._do(self._console.set_bare(is_bare=not has_bar(self._cols, self._rows)))

    def _send_size(self) -> None:
        cols, rows = self.agent_size
        self._link.control("resize", cols=cols, rows=rows)

    def _suspend(self) -> None:
        """Stop like any program, with the terminal restored, and continue afterwards.

        Without a shell that could continue it, the system ignores the signal, and the screen is drawn again.
        """
        self._painter.give_back()
        # With a handler the signal would not stop this process.
        self._loop.remove_signal_handler(signal.SIGTSTP)
        # To the whole process group, as a terminal does: a shell sees a job as stopped only when all its
        # processes are.
        os.kill(0, signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._own.take()
        self._on_size()
