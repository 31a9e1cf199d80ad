"""A chat without a terminal or a socket: typed lines, the conversation in a room, and its display.

`chat.py` has the terminal and the socket.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from palaver.errors import PalaverError, UnknownMember, nearest
from palaver.protocol.display import Paint, display_width, safe, truncate
from palaver.protocol.events import DeliveryReport
from palaver.protocol.query import MESSAGE_SENT, RoomEvent

# --------------------
# Parse a typed line: a message with its recipients, or a command. The help describes the same rules.

COMMANDS: Final = {
    "/who": "show the members and the owner of the stick",
    "/events": "show the latest events of the room",
    "/help": "show the commands and how to address a line",
    "/quit": "leave the chat; Ctrl-D does the same",
}

HELP: Final = (
    "a line goes to everyone in the room; @name sends it to one member, @a @b to several",
    "!@name interrupts them; routing is not privacy: everyone in the room can read everything",
    *(f"{word}  {meaning}" for word, meaning in COMMANDS.items()),
)

LATELY: Final = 20
"""How many events `/events` shows."""

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

_LEAST_TEXT: Final = 10
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
            return f"{who} released the stick{f', {to} is next' if to else ''}{why}"
        case "pass":
            return f"{who} passed the stick to {to}"
        case "takeover":
            return f"{who} took over the stick from {to}{why}"
        case "reservation_expired":
            return f"{to} did not take the stick; it goes to the next member"
        case "kick":
            return f"{who} removed {to}{why}"
        case "close":
            return f"{who} closed the room{why}"
        case "note_added":
            return f"{who} added a note"
        case "note_resolved":
            return f"{who} resolved a note"
        case kind:
            return f"{paint.safe(kind)} {who}{f' → {to}' if to else ''}{why}"


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


def wrap(text: str, width: int, indent: int) -> list[str]:
    """Break a text into lines of at most `width` columns, at spaces if possible.

    Its own line ends are kept. In a pane too narrow for words a word is broken.
    """
    indent = indent if width - indent >= _LEAST_TEXT else 0
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = paragraph if not lines else " " * indent + paragraph
        while display_width(rest) > width:
            head = _head(rest, width)
            cut = head.rfind(" ")
            if cut <= indent:
                cut = len(head)
            lines.append(rest[:cut].rstrip())
            rest = " " * indent + rest[cut:].lstrip(" ")
        lines.append(rest.rstrip())
    return lines


def _head(text: str, width: int) -> str:
    """Return as many characters as fit, and at least one."""
    columns = 0
    for index, char in enumerate(text):
        columns += display_width(char)
        if columns > width:
            return text[: max(index, 1)]
    return text


def input_line(prompt: str, text: str, cursor: int, width: int) -> tuple[str, int]:
    """Return the prompt with as much of the typed line as fits, and the cursor's column.

    The part around the cursor is shown; line ends within a pasted text are shown as signs.
    """
    prompt = prompt if width - display_width(prompt) >= _LEAST_TEXT else "> "
    room = max(width - display_width(prompt) - 1, 1)
    shown = safe(text.replace("\n", "⏎"))
    before = safe(text[:cursor].replace("\n", "⏎"))
    start = 0
    while display_width(before[start:]) > room:
        start += 1
    column = display_width(prompt) + display_width(before[start:])
    return prompt + _head(shown[start:], room) if shown[start:] else prompt, column


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
