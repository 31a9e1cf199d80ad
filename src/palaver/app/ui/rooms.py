"""The screen of the rooms: members, the stick with its lease running down, handoffs, notes and tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from textual.content import Content

from palaver.app.ui.messages import Look, wrapped
from palaver.protocol.display import safe
from palaver.protocol.views import RoomHandoff, RoomMember, RoomNote, RoomPage, RoomRow, RoomTask

_Item = TypeVar("_Item")

# --------------------
# A room as lines. Pure.

_INDENT: Final = 2
_LABELS: Final = {
    "status": "Status",
    "next_action": "Next",
    "artifacts": "Artifacts",
    "open_questions": "Questions",
    "do_not": "Do not",
}
"""The parts of a handoff in the order in which they are read."""


def time_left(until_ms: int, now_ms: int) -> str:
    """Return the time until a moment, in whole seconds: `4:58`, `1:02:03`; or for how long it is over."""
    seconds = -(-(until_ms - now_ms) // 1000)
    minutes, second = divmod(abs(seconds), 60)
    hours, minute = divmod(minutes, 60)
    text = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{text} left" if seconds > 0 else f"over for {text}"


def stick_text(row: RoomRow, look: Look, now_ms: int) -> str:
    """Return who has the stick of a room, and for how long."""
    if row.stick == "closed":
        return "the room is closed"
    if row.owner:
        left = f", lease {time_left(row.lease_until, now_ms)}" if row.lease_until else ""
        return f"{look.name(row.owner)} has the stick{left}"
    if row.reserved_for:
        left = f", {time_left(row.claim_until, now_ms)} to take it" if row.claim_until else ""
        return f"reserved for {look.name(row.reserved_for)}{left}"
    return "the stick is free"


def is_running(row: RoomRow) -> bool:
    """Return whether a room shows a time that runs down."""
    return row.stick != "closed" and bool(
        (row.owner and row.lease_until) or (row.reserved_for and row.claim_until)
    )


def room_line(row: RoomRow, look: Look, width: int, now_ms: int) -> Content:
    """Return a room in one line of a list."""
    here = f"  {row.present:,} of {row.members:,} here"
    stick = f"  {stick_text(row, look, now_ms)}"
    return Content.assemble((safe(row.name or row.id), "bold"), here, (stick, "dim")).truncate(width)


def member_line(member: RoomMember, look: Look, width: int) -> Content:
    """Return a member in one line: what it does in the room, and its state."""
    notes = [member.state if member.is_present else "away"]
    if member.is_owner:
        notes.insert(0, "has the stick")
    elif member.place:
        notes.insert(0, f"number {member.place:,} in the waiting line")
    elif member.is_waiting:
        notes.insert(0, "waits for events")
    if member.last_turn:
        notes.append(f"last turn {member.last_turn}")
    text = ", ".join(filter(None, map(safe, notes)))
    return Content.assemble("  ", (look.name(member.name), "bold"), f"  {text}").truncate(width)


def handoff_texts(handoff: Mapping[str, object]) -> Iterator[str]:
    """Yield the parts of a handoff, each with its label. Nothing is left out."""
    known = [key for key in _LABELS if handoff.get(key) not in (None, [], "")]
    for key in (*known, *(key for key in handoff if key not in _LABELS)):
        value = handoff[key]
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            yield f"{_LABELS.get(key, key)}: {_artifact(part) if key == 'artifacts' else _text(part)}"


def _artifact(part: object) -> str:
    if not isinstance(part, Mapping) or not isinstance(part.get("path"), str):
        return _text(part)
    rest = {key: value for key, value in part.items() if key not in ("path", "lines")}
    lines = part.get("lines")
    at = f":{', '.join(map(_text, lines)) if isinstance(lines, list) else _text(lines)}" if lines else ""
    return f"{part['path']}{at}{f' {_text(rest)}' if rest else ''}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class RoomLines:
    """One room as rows. Members are drawn when they are shown: a room may have thousands."""

    def __init__(self, page: RoomPage, look: Look, now_ms: Callable[[], int]) -> None:
        self.page = page
        self._look = look
        self._now_ms = now_ms
        self._width = 0
        self._head: Sequence[Content] = ()
        self._tail: Sequence[Content] = ()
        self.set_width(80)

    @property
    def total(self) -> int:
        """The number of lines."""
        return len(self._head) + len(self.page.members) + len(self._tail)

    def row(self, index: int, width: int) -> Content | None:
        """Return a line."""
        self.set_width(width)
        if index == 1:
            turn = f", turn {self.page.turn}" if self.page.turn else ""
            return Content(f"{stick_text(self.page.row, self._look, self._now_ms())}{turn}").truncate(width)
        if index < len(self._head):
            return self._head[index]
        index -= len(self._head)
        if index < len(self.page.members):
            return member_line(self.page.members[index], self._look, width)
        index -= len(self.page.members)
        return self._tail[index] if index < len(self._tail) else None

    def want(self, first: int, last: int) -> None:
        """Do nothing: the room is there."""

    def key(self, index: int) -> str:
        """Return the number of a line."""
        return str(index)

    def find(self, key: str) -> int:
        """Return the line of a number, or -1."""
        return int(key) if key.isdecimal() and int(key) < self.total else -1

    def set_width(self, width: int) -> None:
        """Lay the texts out again if the width has changed."""
        if width != self._width:
            self._width = width
            self._head, self._tail = list(self._head_lines(width)), list(self._tail_lines(width))

    def _head_lines(self, width: int) -> Iterator[Content]:
        row = self.page.row
        yield Content.assemble((safe(row.name or row.id), "bold"), f"  {safe(row.path)}").truncate(width)
        yield Content("")  # the stick
        yield Content("")
        yield _title(f"Members: {row.present:,} of {row.members:,} here", width)

    def _tail_lines(self, width: int) -> Iterator[Content]:
        page = self.page
        yield from _section("Handoffs", page.handoffs, lambda one: self._handoff(one, width), width)
        yield from _section("Tasks", page.tasks, lambda one: self._task(one, width), width)
        yield from _section("Notes", page.notes, lambda one: self._note(one, width), width)

    def _handoff(self, one: RoomHandoff, width: int) -> Iterator[Content]:
        is_open = self.page.is_handoff_open and one is self.page.handoffs[0]
        to = f" {self._look.arrow} {self._look.name(one.to)}" if one.to else ""
        state = "  waits for the next owner" if is_open else ""
        head = f"#{one.seq} {self._look.clock(one.ts)} {self._look.name(one.sender)}{to}{state}"
        yield from wrapped(head, width, _INDENT, "bold")
        for text in handoff_texts(one.handoff):
            yield from wrapped(text, width, 2 * _INDENT)

    def _task(self, one: RoomTask, width: int) -> Iterator[Content]:
        who = f", {self._look.name(one.assignee)}" if one.assignee else ""
        yield from wrapped(f"Task {one.number} ({one.status}{who}): {one.title}", width, _INDENT)

    def _note(self, one: RoomNote, width: int) -> Iterator[Content]:
        state = " (resolved)" if one.is_resolved else ""
        head = f"{self._look.clock(one.ts)} {self._look.name(one.sender)}{state}: {one.text}"
        yield from wrapped(head, width, _INDENT, "dim" if one.is_resolved else "")


def _title(text: str, width: int) -> Content:
    return Content.styled(text, "bold underline").truncate(width)


def _section(
    title: str, items: Sequence[_Item], lines: Callable[[_Item], Iterator[Content]], width: int
) -> Iterator[Content]:
    yield Content("")
    yield _title(f"{title}: {len(items)}" if items else f"{title}: none", width)
    for item in items:
        yield from lines(item)
