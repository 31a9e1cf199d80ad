"""`pal chat`: the conversation of one room, on a terminal, or in plain lines without one."""

import asyncio
import os
import re
import secrets
import signal
import sys
import termios
import threading
import time
import tty
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TextIO

import msgspec

from palaver.app.attach.editor import Editor, Key, Pressed, input_line, wrap
from palaver.client.connection import Follower, Plain
from palaver.client.values import events_from_json, last_from_json
from palaver.client.view_link import ViewLink
from palaver.errors import Disconnected, PalaverError, UnknownMember, nearest
from palaver.harness.marks import harness_of
from palaver.protocol.display import (
    Paint,
    display_width,
    need_words,
    paint_for,
    safe,
    safe_for_agent,
    truncate,
)
from palaver.protocol.envelope import Event
from palaver.protocol.events import DeliveryReport, MessageSent
from palaver.protocol.lines import EventsOp, ToolOp, WhoamiOp
from palaver.protocol.message import MESSAGE, handoff_parts, readable_text, short_id
from palaver.protocol.query import ANY, MESSAGE_SENT, RoomEvent, room_event
from palaver.protocol.tasks import TASK_TYPES
from palaver.protocol.views import Changes, Snapshot

# --------------------
# Parse a typed line: a message with its recipients, or a command. The help describes the same rules.

COMMANDS: Final = {
    "/who": "show the members and the owner of the stick",
    "/events": "show the latest events of the room",
    "/all": "also show what members write outside the room; again: stop that",
    "/help": "show the commands and how to address a line",
    "/quit": "leave the chat; Ctrl-D does the same",
}

HELP: Final = (
    "a line goes to everyone in the room; @name sends it to one member, @a @b to several",
    "!@name interrupts them; routing is not privacy: everyone in the room can read everything",
    *(f"{word}  {meaning}" for word, meaning in COMMANDS.items()),
)

LATELY: Final = 20
"""How many events `/events` shows, and how many messages `/all`."""

_MENTION: Final = re.compile(r"(?<![\w@!])(!?)@([a-z0-9][\w-]*(?::[a-z]+)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ChatText:
    """A text for the room, or for the members named in it."""

    text: str
    to: tuple[str, ...] = ()
    is_interrupt: bool = False


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A line that begins with a slash."""

    word: str
    rest: str = ""


def parse_line(line: str) -> ChatText | ChatCommand | None:
    """Parse a line; None if it is empty.

    Names may be anywhere in the text and are kept; at its beginning they are removed. Two slashes at the
    beginning mean one.
    """
    text = line.strip()
    if not text:
        return None
    if text.startswith("//"):
        text = text[1:]
    elif text.startswith("/"):
        word, _, rest = text.partition(" ")
        return ChatCommand(word.lower(), rest.strip())
    found = list(_MENTION.finditer(text))
    to = tuple(dict.fromkeys(one[2].lower() for one in found))
    return ChatText(_without_heads(text), to, any(one[1] for one in found))


def no_command(word: str) -> str:
    """Return the error for an unknown command."""
    return f"{word} is not a command; /help shows the commands, and // begins a text with a slash"


def _without_heads(text: str) -> str:
    """Remove names that only address the message; a line of only names keeps them."""
    rest = text
    while (found := _MENTION.match(rest)) is not None:
        rest = rest[found.end() :].lstrip(" ,:")
    return rest or text


# --------------------
# The conversation itself: sent messages, events, and delivery. It knows no terminal.

HISTORY: Final = 20
"""Messages that are shown when a chat is opened."""
LIMIT_EVENTS: Final = 200
LIMIT_EARLY: Final = 1000
ANSWERED: Final = "answered"
"""The final state of a mark."""


class ChatMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the room: the fields that a chat shows."""

    agent_id: str
    harness: str | None = None
    present: bool = False
    is_owner: bool = False


class ChatState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the room: the fields that a chat shows."""

    room_id: str = ""
    room_state: str = ""
    owner_agent_id: str | None = None
    reserved_for: str | None = None
    members: tuple[ChatMember, ...] = ()


class ChatEvents(msgspec.Struct, frozen=True, kw_only=True):
    """New events of the room, and the seq to continue after."""

    events: tuple[RoomEvent, ...]
    cursor_event_seq: int


class ChatSent(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message, and its recipients."""

    event_seq: int
    delivered_to: tuple[str, ...]


class ChatBus(Protocol):
    """The bus as a conversation uses it. Each method raises the refusal of the daemon."""

    async def state(self, room: str) -> ChatState:
        """Return the current state of a room."""
        ...

    async def wait(self, room: str, after: int) -> ChatEvents:
        """Wait for events after a seq. Without a result, the events are empty."""
        ...

    async def send(self, room: str, text: ChatText) -> ChatSent:
        """Send a message to a room, or to the members that it names."""
        ...

    async def newest(self, room: str, count: int) -> Sequence[RoomEvent]:
        """Return the newest events of a room, oldest first."""
        ...

    async def written_by(self, names: Sequence[str], count: int) -> tuple[Sequence[Event], int]:
        """Return the newest messages of some agents, oldest first, and the seq at which the log ends."""
        ...

    def messages(self, after: int) -> AsyncIterator[Event]:
        """Yield all messages after a seq as they are stored."""
        ...

    def attention(self) -> AsyncIterator[int]:
        """Yield the number of entries that wait for the person, now and after each change."""
        ...

    def deliveries(self) -> AsyncIterator[DeliveryReport]:
        """Yield delivery reports as they happen; a reply is reported as `ANSWERED`."""
        ...


@dataclass(slots=True)
class SentMessage:
    """A sent message, and the state of each recipient's copy."""

    seq: int
    marks: dict[str, str] = field(default_factory=dict)

    def take(self, report: DeliveryReport) -> bool:
        """Update the marks from a delivery report; return whether they changed."""
        if self.seq not in report.messages or self.marks.get(report.agent, ANSWERED) == ANSWERED:
            return False
        self.marks[report.agent] = report.state
        return True


class ChatRoom:
    """One room, as one user follows it."""

    def __init__(self, bus: ChatBus, room: str, *, changed: Callable[[], None]) -> None:
        """`changed` is called when marks or the state of the room have changed."""
        self._bus = bus
        self.room = room
        self.cursor = 0
        self.state = ChatState()
        self.last: SentMessage | None = None
        self.recent: deque[RoomEvent] = deque(maxlen=LIMIT_EVENTS)
        """The newest events of the room, of every kind."""
        self._early: deque[DeliveryReport] = deque(maxlen=LIMIT_EARLY)
        """Reports that came while a message was being sent: they may be about it."""
        self._changed = changed

    async def open(self) -> list[RoomEvent]:
        """Read the room, and return its last messages, oldest first."""
        await self.look()
        self.room = self.state.room_id or self.room
        self.recent.extend(await self._bus.newest(self.room, LIMIT_EVENTS))
        if self.recent:
            self.cursor = self.recent[-1].event_seq
        return [event for event in self.recent if is_message(event)][-HISTORY:]

    async def look(self) -> None:
        """Read the current state of the room."""
        self.state = await self._bus.state(self.room)
        self._changed()

    async def follow(self) -> AsyncIterator[RoomEvent]:
        """Yield the events of the room as they happen, each once."""
        while True:
            found = await self._bus.wait(self.room, self.cursor)
            self.cursor = max(self.cursor, found.cursor_event_seq)
            for event in found.events:
                self.recent.append(event)
                yield event
            if not all(map(is_message, found.events)):
                await self.look()

    async def outside(self) -> tuple[list[Event], int]:
        """Return the newest messages that members wrote outside the room, and the seq to continue after."""
        await self.look()
        found, last = await self._bus.written_by(self._names(), LIMIT_EVENTS)
        return [event for event in found if self._is_outside(event)][-LATELY:], last

    async def follow_outside(self, after: int) -> AsyncIterator[Event]:
        """Yield the messages that members write outside the room, each once."""
        async for event in self._bus.messages(after):
            if self._is_outside(event):
                yield event

    def _names(self) -> list[str]:
        return [member.agent_id for member in self.state.members]

    def _is_outside(self, event: Event) -> bool:
        room = event.body.room if isinstance(event.body, MessageSent) else None
        return room != self.room and event.sender in self._names()

    async def say(self, text: ChatText) -> None:
        """Send a message. Raises if a name is unknown or the text does not fit; then nothing was sent."""
        self._early.clear()
        sent = await self._bus.send(self.room, text)
        self.last = SentMessage(sent.event_seq, dict.fromkeys(sent.delivered_to, "queued"))
        # A listener may have seen it before the reply arrived here.
        for report in self._early:
            self.last.take(report)
        self._changed()

    async def mark(self) -> None:
        """Follow the delivery of sent messages, until cancelled."""
        async for report in self._bus.deliveries():
            self._early.append(report)
            if self.last is not None and self.last.take(report):
                self._changed()


def is_message(event: RoomEvent) -> bool:
    """Whether an event is a message."""
    return event.event_type == MESSAGE_SENT


async def until_first(*work: "asyncio.Task[None]") -> None:
    """Wait for the first of several tasks to end, cancel the others, and raise its exception."""
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.wait(work)
    for task in done:
        task.result()


def refusal_line(error: PalaverError, state: ChatState) -> str:
    """Return a refusal as the chat shows it: for an unknown name, with similar ones."""
    if not isinstance(error, UnknownMember):
        return f"not sent: {error}"
    names = [member.agent_id for member in state.members]
    near = nearest(error.agent_id, names, n=3)
    if near:
        return f"not sent: no such member: {error.agent_id} (did you mean {' or '.join(near)}?)"
    here = f"the members are {', '.join(names)}" if names else "the room has no members"
    return f"not sent: no such member: {error.agent_id}; {here}"


def who_lines(state: ChatState) -> Sequence[str]:
    """Return the members of a room, one per line."""
    lines = []
    for member in state.members:
        notes = [member.harness or "", "here" if member.present else "away"]
        if member.is_owner:
            notes.append("has the stick")
        lines.append(f"{member.agent_id}  {', '.join(filter(None, notes))}")
    return lines or ["the room has no members"]


# --------------------
# The display of a chat: events of a room as lines, delivery marks, the line at the bottom. Pure.
#
# All foreign text is made safe before it is shown. Nothing depends on colour.

_WORDS: Final = {
    "queued": "waiting",
    "submitted": "on its way",
    "seen": "seen",
    "answered": "answered",
    "held": "held",
    "refused": "refused",
    "expired": "expired",
    "dead": "no such recipient",
}
"""The ledger's states as marks."""

_OF_HANDOFF: Final = frozenset({"status", "next"})
"""The parts of a handoff that are shown in the conversation."""

Clock = Callable[[int], str]
"""Unix milliseconds to a short time of day."""


class _MessageContent(msgspec.Struct, frozen=True, kw_only=True):
    body: object = ""
    delivery_hint: object = None


class ChatPage:
    """Lines for one reader. `me` is their name in the room."""

    def __init__(self, me: str, paint: Paint, clock: Clock) -> None:
        self._me = me
        self._paint = paint
        self._clock = clock

    def lines(self, event: RoomEvent, width: int) -> list[str]:
        """Return an event of the room, wrapped; lines after the first are indented."""
        if is_message(event):
            return self._message(event, width)
        return [
            self._paint.dim(line)
            for line in wrap(f"{self._time(event)} · {happening(event, self._paint)}", width, 8)
        ]

    def outside(self, event: Event, width: int) -> list[str]:
        """Return a message that a member wrote outside the room, wrapped."""
        to = ", ".join(self._name(name.removeprefix("@")) for name in event.to) or "all"
        text = self._paint.safe(readable_text(event), keep_lines=True)
        head = f"{self._clock(event.ts)} (outside) {self._name(event.sender)} → {to}"
        return wrap(f"{head}: {text}", width, 2)

    def _message(self, event: RoomEvent, width: int) -> list[str]:
        content = msgspec.convert(event.payload or {}, _MessageContent)
        sender, to = self._name(event.from_agent_id), self._recipients(event)
        is_interrupt = content.delivery_hint == "interrupt"
        head = f"{sender} → {to}" if to else sender
        if is_interrupt:
            head = f"! {head}"
        time = self._time(event)
        body = self._paint.safe(str(content.body), keep_lines=True)
        first, *rest = wrap(f"{time} {head}: {body}", width, 2)
        plain = f"{time} {head}:"
        if first.startswith(plain):
            shown = self._paint.yellow(head) if is_interrupt else self._paint.bold(head)
            first = f"{self._paint.dim(time)} {shown}:{first[len(plain) :]}"
        return [first, *rest]

    def _recipients(self, event: RoomEvent) -> str:
        return ", ".join(self._name(name) for name in _recipients(event))

    def _name(self, name: str | None) -> str:
        return "you" if name == self._me else self._paint.name(str(name))

    def _time(self, event: RoomEvent) -> str:
        return self._clock(event.created_at)


def _recipients(event: RoomEvent) -> tuple[str, ...]:
    to = event.to_agent_id
    return (to,) if isinstance(to, str) else to or ()


def happening(event: RoomEvent, paint: Paint) -> str:
    """Return an event that is not a message as a sentence."""
    who, to = paint.name(event.from_agent_id or ""), ", ".join(map(paint.name, _recipients(event)))
    why = f" {paint.safe(f'({event.reason})')}" if event.reason else ""
    match event.event_type:
        case "member_joined":
            return f"{who} joined"
        case "member_left":
            return f"{who} left{why}"
        case "claim":
            return f"{to or who} has the stick, turn {event.turn_id}"
        case "release":
            return f"{who} released the stick{f', {to} is next' if to else ''}{why}{_handoff(event, paint)}"
        case "pass":
            return f"{who} passed the stick to {to}{_handoff(event, paint)}"
        case "takeover":
            return f"{who} took over the stick from {to}{why}"
        case "reservation_expired":
            return f"{to} did not take the stick; it goes to the next member"
        case "kick":
            return f"{who} removed {to}{why}"
        case "close":
            return f"{who} closed the room{why}"
        case "note_added":
            return f"{who} added note {_note(event, paint)}"
        case "note_resolved":
            return f"{who} resolved note {_note(event, paint)}"
        case kind:
            return f"{paint.safe(kind)} {who}{f' → {to}' if to else ''}{why}"


class _NoteContent(msgspec.Struct, frozen=True, kw_only=True):
    note: object = ""
    text: object = ""


def _note(event: RoomEvent, paint: Paint) -> str:
    """Return the id of a note and, if it is new, its text."""
    note = msgspec.convert(event.payload or {}, _NoteContent)
    text = f": {note.text}" if note.text else ""
    return paint.safe(f"{short_id(str(note.note))}{text}", keep_lines=True)


def _handoff(event: RoomEvent, paint: Paint) -> str:
    """Return the handoff of a turn: its status and the next step."""
    if not isinstance(event.handoff, Mapping):
        return ""
    said = [(label, parts) for label, parts in handoff_parts(event.handoff) if label in _OF_HANDOFF]
    text = ", ".join(f"{label}: {'; '.join(parts)}" for label, parts in said)
    return paint.safe(f" · handoff of turn {event.turn_id}: {text}")


def marks_line(seq: int, marks: Mapping[str, str]) -> str:
    """Return the delivery marks of a message for each recipient; empty without marks."""
    words = [f"{safe(name)} {_WORDS.get(state, safe(state))}" for name, state in marks.items()]
    return f"#{seq} {' · '.join(words)}" if words else ""


def stick_line(state: ChatState) -> str:
    """Return the room's stick and members in one line."""
    present = sum(member.present for member in state.members)
    if state.room_state == "closed":
        stick = "the room is closed"
    elif state.owner_agent_id:
        stick = f"{safe(state.owner_agent_id)} has the stick"
    elif state.reserved_for:
        stick = f"the stick is reserved for {safe(state.reserved_for)}"
    else:
        stick = "the stick is free"
    return f"{stick} · {present} of {len(state.members)} here"


class Bottom:
    """The lines below the conversation that are redrawn: a status, marks, and the input.

    It returns the characters that erase them and draw them again.
    """

    def __init__(self) -> None:
        self._widths: list[int] | None = None
        self._column = 0

    def erase(self, width: int) -> str:
        """Erase the lines, in a terminal that may have become narrower; the cursor is then at their start.

        Terminals rewrap a line that does not fit any more, so it may have more rows than were drawn.
        """
        if self._widths is None:
            return ""
        rows = sum(max(1, -(-drawn // width)) for drawn in self._widths) + self._column // width
        self._widths = None
        up = f"\x1b[{rows}A" if rows else ""
        return f"\r{up}\x1b[J"

    def draw(
        self, above: Sequence[str], prompt: str, column: int, width: int, dim: Callable[[str], str] = str
    ) -> str:
        """Draw the lines from the cursor on; `dim` paints the lines above the input after they are cut."""
        lines = [truncate(line, width) for line in above if line]
        self._widths, self._column = [display_width(line) for line in lines], column
        move = f"\r\x1b[{column}C" if column else "\r"
        return "\r\n".join([*map(dim, lines), prompt]) + move


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

    work = (say(), follow(), printed.follow_outside(), printed.follow_attention(bus))
    await until_first(*(asyncio.ensure_future(one) for one in work))
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
        self._outside_after: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Set by the first `/all`: the seq after which messages outside the room are printed."""
        self._shows_outside = False
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
            case ChatCommand(word="/all"):
                await self._toggle_outside()
            case ChatCommand(word="/help"):
                self._print(HELP)
            case ChatCommand(word=word):
                self._refuse(no_command(word))
        return True

    async def follow_outside(self) -> None:
        """Print what members write outside the room, from the first `/all` on and while it is wanted."""
        after = await self._outside_after
        async for event in self._talk.follow_outside(after):
            if self._shows_outside:
                self._print(self._page.outside(event, _WIDTH))

    async def follow_attention(self, bus: ChatBus) -> None:
        """Print how many entries wait for the person, if there are any, and each change of that."""
        before = 0
        async for count in bus.attention():
            if count != before:
                words = f"{need_words(count)}; 'pal pending' shows them" if count else "nothing needs you"
                self._print([f"· {words}"])
            before = count

    async def _toggle_outside(self) -> None:
        self._shows_outside = not self._shows_outside
        if not self._shows_outside:
            self._print(["· only the room"])
            return
        found, last = await self._talk.outside()
        for event in found:
            self._print(self._page.outside(event, _WIDTH))
        self._print(
            [f"· {'' if found else 'nothing yet; '}from now on also what members write outside the room"]
        )
        if not self._outside_after.done():
            self._outside_after.set_result(last)

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


_WRITTEN: Final = (MESSAGE, *sorted(TASK_TYPES))


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

    async def written_by(self, names: Sequence[str], count: int) -> tuple[list[Event], int]:
        """Return the newest messages and tasks of some agents, and the seq at which the log ends."""
        request = EventsOp(types=_WRITTEN, senders=tuple(names), last=count if names else 1)
        answer = await self._calls.ask(request)
        return events_from_json(answer)[0], last_from_json(answer)

    async def messages(self, after: int) -> AsyncGenerator[Event, None]:
        """Yield all messages and tasks after a seq, on a separate connection."""
        request = EventsOp(types=_WRITTEN, after=after, follow=True)
        async with aclosing(Follower(self._home, request).events()) as events:
            async for event in events:
                yield event

    async def attention(self) -> AsyncGenerator[int, None]:
        """Yield the number of entries that wait for the person, on a separate connection."""
        link = ViewLink(self._home)
        try:
            async with aclosing(link.records()) as records:
                async for record in records:
                    if isinstance(record, Snapshot | Changes) and record.counts is not None:
                        yield record.counts.attention
        finally:
            await link.close()

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
