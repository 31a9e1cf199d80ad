"""`pal chat`: the conversation on a terminal, or in plain lines without one."""

import asyncio
import os
import secrets
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, TextIO

import msgspec

from palaver.app.chat.conversation import (
    ANSWERED,
    HELP,
    LATELY,
    Bottom,
    ChatBus,
    ChatCommand,
    ChatEvents,
    ChatPage,
    ChatRoom,
    ChatSent,
    ChatState,
    ChatText,
    input_line,
    marks_line,
    no_command,
    parse_line,
    refusal_line,
    stick_line,
    until_first,
    who_lines,
    wrap,
)
from palaver.app.chat.editor import Editor, Key, Pressed
from palaver.client.connection import Follower, Plain
from palaver.client.values import events_from_json, last_from_json
from palaver.errors import Disconnected, PalaverError
from palaver.harness.marks import harness_of
from palaver.protocol.display import Paint, paint_for, safe, safe_for_agent
from palaver.protocol.events import DeliveryReport, MessageSent
from palaver.protocol.lines import EventsOp, ToolOp, WhoamiOp
from palaver.protocol.query import ANY, RoomEvent, room_event

# --------------------
# The conversation without a terminal: each input line is sent, each event is printed as a line.

_WIDTH: Final = 10_000


async def talk_in_lines(
    bus: ChatBus, room: str, page: ChatPage, read: TextIO, out: TextIO, err: TextIO
) -> int:
    """Chat until the input ends; return 1 if a line was refused. The other lines are sent anyway."""
    talk = ChatRoom(bus, room, changed=lambda: None)
    printed = _Printer(talk, page, out, err)
    for event in await talk.open():
        printed.event(event)

    async def follow() -> None:
        async for event in talk.follow():
            printed.event(event)

    async def say() -> None:
        lines = _lines(read)
        while line := await lines.get():
            if not await printed.do(line):
                return

    await until_first(asyncio.ensure_future(say()), asyncio.ensure_future(follow()))
    return 1 if printed.has_refused else 0


def _lines(read: TextIO) -> "asyncio.Queue[str]":
    """Return the lines of a stream, and an empty one at its end.

    A separate daemon thread reads them: it may block indefinitely, and must not delay the end of the process.
    """
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()

    def pump() -> None:
        line = "\n"
        while line:
            try:
                line = read.readline()
            except (OSError, ValueError):  # The stream was closed, or is not text.
                line = ""
            try:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            except RuntimeError:  # The loop has ended.
                return

    threading.Thread(target=pump, daemon=True).start()
    return lines


class _Printer:
    """Carries out lines, and prints the results."""

    def __init__(self, talk: ChatRoom, page: ChatPage, out: TextIO, err: TextIO) -> None:
        self._talk = talk
        self._page = page
        self._out = out
        self._err = err
        self.has_refused = False

    def event(self, event: RoomEvent) -> None:
        """Print an event of the room."""
        self._print(self._page.lines(event, _WIDTH))

    async def do(self, line: str) -> bool:
        """Carry out a line; False if it ends the chat."""
        match parse_line(line):
            case ChatText() as text:
                await self._say(text)
            case ChatCommand(word="/quit"):
                return False
            case ChatCommand(word="/who"):
                await self._talk.look()
                self._print(map(safe_for_agent, who_lines(self._talk.state)))
            case ChatCommand(word="/events"):
                for event in list(self._talk.recent)[-LATELY:]:
                    self.event(event)
            case ChatCommand(word="/help"):
                self._print(HELP)
            case ChatCommand(word=word):
                self._refuse(no_command(word))
        return True

    async def _say(self, text: ChatText) -> None:
        try:
            await self._talk.say(text)
        except Disconnected:
            raise
        except PalaverError as error:
            self._refuse(refusal_line(error, self._talk.state))

    def _refuse(self, sentence: str) -> None:
        self.has_refused = True
        self._err.write(f"pal: {safe_for_agent(sentence)}\n")
        self._err.flush()

    def _print(self, lines: Iterable[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


# --------------------
# A user's terminal during a chat: keys in, lines out above the typed one. Restored at the end.

_BEGIN: Final = "\x1b[?2004h"
_END: Final = "\x1b[?2004l"
_READ: Final = 65536
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class ChatTerminal:
    """Draws the conversation and the line being typed. All text must be safe already."""

    def __init__(self, prompt: str, dim: Callable[[str], str]) -> None:
        """`dim` paints the lines between the conversation and the input."""
        self._prompt = prompt
        self._dim = dim
        self._editor = Editor()
        self._bottom = Bottom()
        self._pressed: asyncio.Queue[Pressed] = asyncio.Queue()
        self.above: Callable[[], Sequence[str]] = tuple
        """Returns the lines between the conversation and the input, each time they are drawn."""

    @property
    def width(self) -> int:
        """The current number of columns."""
        try:
            return max(os.get_terminal_size(sys.stdout.fileno()).columns, 4)
        except OSError:
            return 80

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """Read single keys, and always restore the terminal at the end."""
        loop = asyncio.get_running_loop()
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps keys that were typed during the start
        self._write(_BEGIN)
        loop.add_reader(descriptor, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self.redraw)
        for number in _ENDING:
            loop.add_signal_handler(number, self._pressed.put_nowait, Pressed(Key.QUIT))
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            for number in (signal.SIGWINCH, *_ENDING):
                loop.remove_signal_handler(number)
            self._write(self._bottom.erase(self.width) + _END)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    async def pressed(self) -> Pressed:
        """Wait for a key that means more than text."""
        return await self._pressed.get()

    def show(self, lines: Sequence[str]) -> None:
        """Add lines to the conversation, above the input."""
        shown = "".join(f"{line}\r\n" for line in lines)
        self._write(self._bottom.erase(self.width) + shown + self._drawn())

    def redraw(self) -> None:
        """Redraw the lines at the bottom."""
        self._write(self._bottom.erase(self.width) + self._drawn())

    def give_back(self, text: str) -> None:
        """Put a line that was not sent back into the input, if that is empty."""
        if not self._editor.text:
            self._editor.put(text)
        self.redraw()

    def _drawn(self) -> str:
        width = self.width
        line, column = input_line(self._prompt, self._editor.text, self._editor.cursor, width)
        return self._bottom.draw(self.above(), line, column, width, self._dim)

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), _READ)
        except OSError:
            data = b""
        if not data:
            self._pressed.put_nowait(Pressed(Key.QUIT))
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            return
        for pressed in self._editor.feed(data):
            self._pressed.put_nowait(pressed)
        self.redraw()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
        except OSError:
            self._pressed.put_nowait(Pressed(Key.QUIT))


# --------------------
# The conversation on a terminal: events are shown above the line that is being typed.


class ChatScreen:
    """One user's view of a room, until they leave it."""

    def __init__(self, bus: ChatBus, room: str, page: ChatPage, paint: Paint) -> None:
        self._terminal = ChatTerminal(f"{room}> ", paint.dim)
        self._talk = ChatRoom(bus, room, changed=self._terminal.redraw)
        self._page = page
        self._paint = paint
        self._terminal.above = self._above
        # While a message is sent nothing else is shown: the marks of the previous one are printed first.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Show the room and read lines. Return when the user ends it; raise if the bus has ended."""
        with self._terminal.in_hand():
            history = await self._talk.open()
            for event in history:
                self._show(event)
            if not history:
                self._say(["no messages yet; /help shows the commands"])
            work = (self._read_keys(), self._follow(), self._talk.mark())
            await until_first(*(asyncio.ensure_future(one) for one in work))

    def _above(self) -> list[str]:
        last = self._talk.last
        marks = marks_line(last.seq, last.marks) if last is not None else ""
        return [marks, stick_line(self._talk.state)]

    async def _follow(self) -> None:
        async for event in self._talk.follow():
            async with self._turn:
                self._show(event)

    async def _read_keys(self) -> None:
        while True:
            pressed = await self._terminal.pressed()
            if pressed.key is Key.QUIT or (pressed.key is Key.CANCEL and not pressed.text):
                return
            if pressed.key is Key.REDRAW:
                self._terminal.redraw()
            elif pressed.key is Key.SUBMIT and not await self._submitted(pressed.text):
                return

    async def _submitted(self, line: str) -> bool:
        """Carry out a line; False if it ends the chat."""
        match parse_line(line):
            case ChatText() as text:
                await self._send(line, text)
            case ChatCommand(word="/quit"):
                return False
            case ChatCommand(word="/who"):
                await self._talk.look()
                self._say(who_lines(self._talk.state))
            case ChatCommand(word="/events"):
                for event in list(self._talk.recent)[-LATELY:]:
                    self._show(event)
            case ChatCommand(word="/help"):
                self._say(HELP)
            case ChatCommand(word=word):
                self._say([no_command(word)])
        return True

    async def _send(self, line: str, text: ChatText) -> None:
        async with self._turn:
            last = self._talk.last
            try:
                await self._talk.say(text)
            except Disconnected:
                raise
            except PalaverError as error:
                self._say([refusal_line(error, self._talk.state)])
                self._terminal.give_back(line)
                return
            if last is not None and (marks := marks_line(last.seq, last.marks)):
                self._terminal.show(
                    [self._paint.dim(one) for one in wrap(f"  {marks}", self._terminal.width, 4)]
                )

    def _show(self, event: RoomEvent) -> None:
        self._terminal.show(self._page.lines(event, self._terminal.width))

    def _say(self, texts: Iterable[str]) -> None:
        lines = [line for text in texts for line in wrap(f"· {safe(text)}", self._terminal.width, 2)]
        self._terminal.show([self._paint.dim(line) for line in lines])


# --------------------
# The bus for a conversation, and the start of `pal chat`.


class _ChatCaller(msgspec.Struct, frozen=True):
    name: str


_caller_from_json: Final = msgspec.json.Decoder(_ChatCaller).decode
_state_from_json: Final = msgspec.json.Decoder(ChatState).decode
_events_from_json: Final = msgspec.json.Decoder(ChatEvents).decode
_sent_from_json: Final = msgspec.json.Decoder(ChatSent).decode


class RoomBus:
    """The bus for a conversation: one connection for calls, one that waits, one for deliveries."""

    def __init__(self, home: str, calls: Plain, waits: Plain) -> None:
        self._home = home
        self._calls = calls
        self._waits = waits

    async def state(self, room: str) -> ChatState:
        """Return the current state of a room."""
        return _state_from_json(await self._calls.ask(_tool("get_room_state", room_id=room)))

    async def wait(self, room: str, after: int) -> ChatEvents:
        """Wait for events of a room, on a separate connection."""
        request = _tool("wait_for_events", room_id=room, after_event_seq=after, target_agent_id=ANY)
        return _events_from_json(await self._waits.ask(request))

    async def send(self, room: str, text: ChatText) -> ChatSent:
        """Send a message as the user at the terminal."""
        hint = "interrupt" if text.is_interrupt else "normal"
        to = {"to_agent_id": list(text.to)} if text.to else {}
        request = _tool("send_message", room_id=room, body=text.text, delivery_hint=hint, **to)
        return _sent_from_json(await self._calls.ask(request))

    async def newest(self, room: str, count: int) -> list[RoomEvent]:
        """Return the newest events of a room, as the room tools show them."""
        found, _ = events_from_json(await self._calls.ask(EventsOp(rooms=(room,), last=count)))
        return [room_event(event) for event in found]

    async def deliveries(self) -> AsyncGenerator[DeliveryReport, None]:
        """Yield the delivery of messages from now on: delivery reports, and a reply as one more."""
        after = last_from_json(await self._calls.ask(EventsOp(last=1)))
        request = EventsOp(types=("delivery", "message"), after=after, follow=True)
        async with aclosing(Follower(self._home, request).events()) as events:
            async for event in events:
                body = event.body
                if isinstance(body, DeliveryReport):
                    yield body
                elif isinstance(body, MessageSent) and (answered := body.reply_to or "").isdecimal():
                    yield DeliveryReport(agent=event.sender, messages=(int(answered),), state=ANSWERED)


def _tool(name: str, **arguments: object) -> ToolOp:
    return ToolOp(tool=name, arguments=arguments, key=secrets.token_hex(16))


def chat(home: str, room: str, environment: Mapping[str, str]) -> int:
    """Chat in a room until the user leaves. Return the exit status."""
    paint = paint_for(environment, is_terminal=sys.stdout.isatty(), harness=harness_of(environment))
    try:
        return asyncio.run(_chat(home, room, paint))
    except PalaverError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 0


async def _chat(home: str, room: str, paint: Paint) -> int:
    async with Plain(home) as calls, Plain(home) as waits:
        me = _caller_from_json(await calls.ask(WhoamiOp())).name
        page = ChatPage(me, paint, lambda ms: time.strftime("%H:%M", time.localtime(ms / 1000)))
        bus = RoomBus(home, calls, waits)
        if sys.stdin.isatty() and sys.stdout.isatty():
            await ChatScreen(bus, room, page, paint).run()
            return 0
        return await talk_in_lines(bus, room, page, sys.stdin, sys.stdout, sys.stderr)
