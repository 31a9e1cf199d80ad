"""Parse a user's line in a chat: a message with its recipients, or a command. Pure; matches the help.

A separate module from `chat.py`, because it needs no terminal.
"""

import asyncio
import difflib
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from palaver.errors import PalaverError, UnknownMember

COMMANDS: Final = {
    "/who": "who is in the room, and who has the stick",
    "/events": "what happened in the room lately",
    "/help": "what can be typed here",
    "/quit": "leave the chat; Ctrl-D does the same",
}

HELP: Final = (
    "text goes to everyone in the room; @name says it to one, @a @b to several",
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
LIMIT_EVENTS: Final = 200
LIMIT_EARLY: Final = 1000
ANSWERED: Final = "answered"
"""The final state of a mark."""

Answer = Mapping[str, object]


class ChatBus(Protocol):
    """The bus as a conversation uses it."""

    async def tool(self, name: str, **arguments: object) -> Answer:
        """Call a room tool. Raises its refusal."""
        ...

    async def newest(self, room: str, count: int) -> Sequence[Answer]:
        """Return the newest events of a room, oldest first."""
        ...

    def deliveries(self) -> AsyncIterator[Answer]:
        """Yield delivery reports as they happen: `messages`, `agent` and `state`."""
        ...


@dataclass(slots=True)
class SentMessage:
    """A sent message, and the state of each recipient's copy."""

    place: int
    marks: dict[str, str] = field(default_factory=dict)

    def take(self, report: Answer) -> bool:
        """Update the marks from a delivery report; return whether they changed."""
        seqs, agent, state = report.get("messages"), report.get("agent"), report.get("state")
        if not isinstance(seqs, (list, tuple)) or self.place not in seqs:
            return False
        if not isinstance(state, str) or self.marks.get(str(agent), ANSWERED) == ANSWERED:
            return False
        self.marks[str(agent)] = state
        return True


class ChatRoom:
    """One room, as one user follows it."""

    def __init__(self, bus: ChatBus, room: str, *, changed: Callable[[], None]) -> None:
        """`changed` is called when marks or the state of the room have changed."""
        self._bus = bus
        self.room = room
        self.cursor = 0
        self.state: Answer = {}
        self.last: SentMessage | None = None
        self.recent: deque[Answer] = deque(maxlen=LIMIT_EVENTS)
        """The newest events of the room, of every kind."""
        self._early: deque[Answer] = deque(maxlen=LIMIT_EARLY)
        """Reports that came while a message was being sent: they may be about it."""
        self._changed = changed

    async def open(self) -> list[Answer]:
        """Read the room, and return its last messages, oldest first."""
        await self.look()
        self.room = str(self.state.get("room_id", self.room))
        self.recent.extend(await self._bus.newest(self.room, LIMIT_EVENTS))
        if self.recent:
            self.cursor = _number(self.recent[-1].get("event_seq"))
        return [event for event in self.recent if is_message(event)][-HISTORY:]

    async def look(self) -> None:
        """Read the current state of the room."""
        self.state = await self._bus.tool("get_room_state", room_id=self.room)
        self._changed()

    async def follow(self) -> AsyncIterator[Answer]:
        """Yield the events of the room as they happen, each once."""
        while True:
            answer = await self._bus.tool(
                "wait_for_events", room_id=self.room, after_event_seq=self.cursor, target_agent_id="any"
            )
            events = _events(answer)
            self.cursor = max(self.cursor, _number(answer.get("cursor_event_seq")))
            for event in events:
                self.recent.append(event)
                yield event
            if not all(map(is_message, events)):
                await self.look()

    async def say(self, said: ChatText) -> None:
        """Send a message. Raises if a name is unknown or the text does not fit; then nothing was sent."""
        self._early.clear()
        answer = await self._bus.tool(
            "send_message",
            room_id=self.room,
            body=said.text,
            **({"to_agent_id": list(said.to)} if said.to else {}),
            delivery_hint="interrupt" if said.is_interrupt else "normal",
        )
        names = answer.get("delivered_to")
        marks = {str(name): "queued" for name in names} if isinstance(names, list) else {}
        self.last = SentMessage(_number(answer.get("event_seq")), marks)
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


def is_message(event: Answer) -> bool:
    """Whether an event is a message."""
    return event.get("event_type") in ("message", "message_sent")


def _events(answer: Answer) -> list[Answer]:
    found = answer.get("events")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


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


def refusal_line(error: PalaverError, state: Answer) -> str:
    """Return a refusal as the chat shows it: for an unknown name, with similar ones."""
    if not isinstance(error, UnknownMember):
        return f"not sent: {error}"
    names = [str(member.get("agent_id", "")) for member in _members(state)]
    near = difflib.get_close_matches(error.agent_id, names, n=3, cutoff=0.5)
    if near:
        return f"not sent: no such member: {error.agent_id} (did you mean {' or '.join(near)}?)"
    here = f"the members are {', '.join(names)}" if names else "nobody is in the room"
    return f"not sent: no such member: {error.agent_id}; {here}"


def who_lines(state: Answer) -> Sequence[str]:
    """Return the members of a room, one per line."""
    lines = []
    for member in _members(state):
        name = str(member.get("agent_id", ""))
        marks = [str(member.get("harness") or ""), "here" if member.get("present") else "away"]
        if member.get("is_owner"):
            marks.append("has the stick")
        lines.append(f"{name}  {', '.join(filter(None, marks))}")
    return lines or ["nobody is in the room"]


def _members(state: Answer) -> list[Answer]:
    found = state.get("members")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
