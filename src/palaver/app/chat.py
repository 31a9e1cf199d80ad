"""`pal chat` without a screen: each input line is sent to a room, each event is printed as a line.

On a terminal `app/ui/talk.py` shows the room. Both parse a typed line in the same way.
"""

import asyncio
import io
import os
import re
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

import msgspec

from palaver.app.attach.editor import wrap
from palaver.app.notices import noticed_records
from palaver.client.connection import Follower, Plain
from palaver.client.values import events_from_json, last_from_json
from palaver.client.view_link import ViewLink
from palaver.errors import Disconnected, PalaverError, UnknownMember, nearest
from palaver.harness.marks import harness_of
from palaver.protocol.display import Paint, need_words, paint_for, safe_for_agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
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
    "names in a quoted line (> ...) address no one",
    "!@name interrupts them; routing is not privacy: everyone in the room can read everything",
    *(f"{word}  {meaning}" for word, meaning in COMMANDS.items()),
)

LATELY: Final = 20
"""How many events `/events` shows, and how many messages `/all`."""

# The `@` in an e-mail address follows a letter, and so names no member.
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

    Names may be anywhere in the text and are kept; at its beginning they are removed. Names in a quoted line
    (`> ...`) address no one: another member wrote them. Two slashes at the beginning mean one.
    """
    text = line.strip()
    if not text:
        return None
    if text.startswith("//"):
        text = text[1:]
    elif text.startswith("/"):
        word, _, rest = text.partition(" ")
        return ChatCommand(word.lower(), rest.strip())
    own = (line for line in text.splitlines() if not line.lstrip().startswith(">"))
    found = [one for line in own for one in _MENTION.finditer(line)]
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
# The conversation itself: sent messages and events.

HISTORY: Final = 20
"""Messages that are shown when a chat is opened."""
LIMIT_EVENTS: Final = 200


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


class ChatRoom:
    """One room, as one user follows it."""

    def __init__(self, bus: ChatBus, room: str) -> None:
        self._bus = bus
        self.room = room
        self.cursor = 0
        self.state = ChatState()
        self.recent: deque[RoomEvent] = deque(maxlen=LIMIT_EVENTS)
        """The newest events of the room, of every kind."""

    async def open(self) -> list[RoomEvent]:
        """Read the room, and return its last messages, oldest first."""
        await self.look()
        self.room = self.state.room_id or self.room
        # More than are shown: `/events` needs all kinds, and few of the newest may be messages.
        self.recent.extend(await self._bus.newest(self.room, LIMIT_EVENTS))
        if self.recent:
            self.cursor = self.recent[-1].event_seq
        return [event for event in self.recent if is_message(event)][-HISTORY:]

    async def look(self) -> None:
        """Read the current state of the room."""
        self.state = await self._bus.state(self.room)

    async def follow(self) -> AsyncIterator[RoomEvent]:
        """Yield the events of the room as they happen, each once."""
        while True:
            found = await self._bus.wait(self.room, self.cursor)
            self.cursor = max(self.cursor, found.cursor_event_seq)
            for event in found.events:
                self.recent.append(event)
                yield event
            # Any other event may change the members, the owner or the state of the room.
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
        await self._bus.send(self.room, text)


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
    shown = [(label, parts) for label, parts in handoff_parts(event.handoff) if label in _OF_HANDOFF]
    text = ", ".join(f"{label}: {'; '.join(parts)}" for label, parts in shown)
    return paint.safe(f" · handoff of turn {event.turn_id}: {text}")


# --------------------
# The conversation without a terminal: each input line is sent, each event is printed as a line.

# Columns. No usual text is longer, so a line of a message stays one line of the output.
_WIDTH: Final = 10_000


async def talk_in_lines(
    bus: ChatBus, room: str, page: ChatPage, read: TextIO, out: TextIO, err: TextIO
) -> int:
    """Chat until the input ends; return 1 if a line was refused. The other lines are sent anyway."""
    talk = ChatRoom(bus, room)
    printed = _Printer(talk, page, out, err)
    for event in await talk.open():
        printed.event(event)

    async def follow() -> None:
        async for event in talk.follow():
            printed.event(event)

    async def say() -> None:
        lines = _lines(read)
        # An empty line of the input is a line end: only the end of the input is an empty text.
        while line := await lines.get():
            if not await printed.do(line):
                return

    work = (say(), follow(), printed.follow_outside(), printed.follow_attention(bus))
    await until_first(*(asyncio.ensure_future(one) for one in work))
    return 1 if printed.has_refused else 0


def _lines(read: TextIO) -> "asyncio.Queue[str]":
    """Return the lines of a stream, and an empty one at its end. All input is read at once, without a limit.

    A separate daemon thread reads them: it may block indefinitely, and must not delay the end of the process.
    """
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()
    if isinstance(read, io.TextIOWrapper):
        # A byte that is not UTF-8 would otherwise end the input silently. So only its line is refused.
        read.reconfigure(errors="surrogateescape")

    def pump() -> None:
        line = "\n"
        while line:
            try:
                line = read.readline()
            except (OSError, ValueError):  # The stream was closed.
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
        # The bus is lost for all lines; a refusal is about this one only.
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
# The bus for a conversation, and the start of `pal chat`.


class _ChatCaller(msgspec.Struct, frozen=True):
    name: str


_caller_from_json: Final = msgspec.json.Decoder(_ChatCaller).decode
_state_from_json: Final = msgspec.json.Decoder(ChatState).decode
_events_from_json: Final = msgspec.json.Decoder(ChatEvents).decode
_sent_from_json: Final = msgspec.json.Decoder(ChatSent).decode


_WRITTEN: Final = (MESSAGE, *sorted(TASK_TYPES))


class RoomBus:
    """The bus for a conversation: one connection for calls, one that waits."""

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
        # Without names only the end of the log is needed. No senders would mean all of them.
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
        """Yield the number of entries that wait for the person, on a separate connection. Sends notices."""
        async with aclosing(noticed_records(ViewLink(self._home), os.environ)) as records:
            async for record in records:
                if isinstance(record, Snapshot | Changes) and record.counts is not None:
                    yield record.counts.attention


def _tool(name: str, **arguments: object) -> ToolOp:
    # With the key, a request that is repeated after a lost connection is carried out once.
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
        return await talk_in_lines(bus, room, page, sys.stdin, sys.stdout, sys.stderr)
