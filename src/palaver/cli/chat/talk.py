"""The conversation itself: what is said, what comes, and what became of it. It knows no terminal."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from palaver.cli.chat.page import ENDS
from palaver.cli.chat.words import Said
from palaver.errors import PalaverError

HISTORY: Final = 20
LIMIT_EVENTS: Final = 200

Answer = Mapping[str, object]


class Bus(Protocol):
    """What a conversation asks of the bus."""

    async def tool(self, name: str, **arguments: object) -> Answer:
        """Call a room tool; raises what it is refused with."""
        ...

    async def newest(self, room: str, count: int) -> Sequence[Answer]:
        """Give the newest events of a room, oldest first."""
        ...

    def deliveries(self) -> AsyncIterator[Answer]:
        """Give the payloads of delivery events as they come."""
        ...


@dataclass(slots=True)
class Sent:
    """One's own message, and the state of each recipient's copy."""

    place: int
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        return all(state in ENDS for state in self.marks.values())


class Talk:
    """One room, as one person follows it."""

    def __init__(self, bus: Bus, room: str, *, changed: Callable[[], None]) -> None:
        """`changed` is called when marks or the state of the room are other than they were."""
        self._bus = bus
        self.room = room
        self.cursor = 0
        self.state: Answer = {}
        self.last: Sent | None = None
        self.recent: deque[Answer] = deque(maxlen=LIMIT_EVENTS)
        """The newest events of the room, of every kind."""
        self._changed = changed

    async def open(self) -> list[Answer]:
        """Read the room, and give what was said last in it, oldest first."""
        self.state = await self._bus.tool("get_room_state", room_id=self.room)
        self.room = str(self.state.get("room_id", self.room))
        self.recent.extend(await self._bus.newest(self.room, LIMIT_EVENTS))
        if self.recent:
            self.cursor = _number(self.recent[-1].get("event_seq"))
        return [event for event in self.recent if is_message(event)][-HISTORY:]

    async def follow(self) -> AsyncIterator[Answer]:
        """Give what happens in the room as it happens, each event once."""
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
                self.state = await self._bus.tool("get_room_state", room_id=self.room)
                self._changed()

    async def say(self, said: Said) -> None:
        """Send; raises when a name is unknown or the text does not fit, and nothing was sent then."""
        answer = await self._bus.tool(
            "send_message",
            room_id=self.room,
            body=said.text,
            **({"to_agent_id": list(said.to)} if said.to else {}),
            delivery_hint="interrupt" if said.is_interrupt else "normal",
        )
        names = answer.get("delivered_to")
        marks = {str(name): "queued" for name in names} if isinstance(names, list) else {}
        self.last = Sent(_number(answer.get("event_seq")), marks)
        self._changed()

    async def mark(self) -> None:
        """Follow what becomes of one's own messages, until cancelled."""
        async for report in self._bus.deliveries():
            places, agent, state = report.get("messages"), report.get("agent"), report.get("state")
            last = self.last
            if last is None or not isinstance(places, (list, tuple)) or last.place not in places:
                continue
            if agent in last.marks and isinstance(state, str):
                last.marks[str(agent)] = state
                self._changed()


def is_message(event: Answer) -> bool:
    """Tell whether somebody said something."""
    return event.get("event_type") in ("message", "message_sent")


def _events(answer: Answer) -> list[Answer]:
    found = answer.get("events")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


async def until_first(*work: "asyncio.Task[None]") -> None:
    """Wait for the first of several tasks to end, end the others, and raise what it raised."""
    try:
        done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.wait(work)
    for task in done:
        task.result()


def refusal_line(error: PalaverError) -> str:
    """Give a refusal as the chat says it."""
    return f"not sent: {error}"


def who_lines(state: Answer) -> Sequence[str]:
    """Give the members of a room, one a line."""
    members = state.get("members")
    lines = []
    for member in members if isinstance(members, list) else []:
        if not isinstance(member, dict):
            continue
        name = str(member.get("agent_id", ""))
        marks = [str(member.get("harness") or ""), "here" if member.get("present") else "away"]
        if member.get("is_owner"):
            marks.append("has the stick")
        lines.append(f"{name}  {', '.join(filter(None, marks))}")
    return lines or ["nobody is in the room"]
