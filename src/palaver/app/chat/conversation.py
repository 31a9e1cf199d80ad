"""A chat without its display: the meaning of a typed line, and the conversation in a room.

Knows no terminal and no socket: `chat.py` has both.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from palaver.errors import PalaverError, UnknownMember, nearest
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
