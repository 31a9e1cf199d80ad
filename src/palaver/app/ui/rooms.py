"""The screen of the rooms: members, the stick with its lease running down, handoffs, notes and tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.timer import Timer

from palaver.app.ui.app import BusScreen, letter_key
from palaver.app.ui.composer import MessageComposer, OutgoingText
from palaver.app.ui.messages import NARROW, Look, look_of, wrapped
from palaver.app.ui.rows import RowList
from palaver.errors import PalaverError
from palaver.protocol.display import safe
from palaver.protocol.message import handoff_parts
from palaver.protocol.views import (
    AskRoom,
    AskRooms,
    Changes,
    RoomHandoff,
    RoomMember,
    RoomNote,
    RoomPage,
    RoomRow,
    RoomsPage,
    RoomTask,
    Snapshot,
)

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record

_Item = TypeVar("_Item")

# --------------------
# A room as lines. Pure.

_INDENT: Final = 2


def time_left(until_ms: int, now_ms: int) -> str:
    """Return the time until a moment, in whole seconds: `4:58`, `1:02:03`; or for how long it is over."""
    # Rounded up: `0:00` would be shown for a second before it is over.
    seconds = -(-(until_ms - now_ms) // 1000)
    minutes, second = divmod(abs(seconds), 60)
    hours, minute = divmod(minutes, 60)
    text = f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{text} left" if seconds > 0 else f"over for {text}"


def stick_text(row: RoomRow, look: Look, now_ms: int, *, with_time: bool = True) -> str:
    """Return who has the stick of a room, and for how long."""
    if row.stick == "closed":
        return "the room is closed"
    if row.owner:
        left = f", lease {time_left(row.lease_until, now_ms)}" if row.lease_until and with_time else ""
        return f"{look.name(row.owner)} has the stick{left}"
    if row.reserved_for:
        left = f", {time_left(row.claim_until, now_ms)} to take it" if row.claim_until and with_time else ""
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
    return Content.assemble((safe(row.name or row.id), "bold"), here, (stick, "dim")).truncate(
        width, ellipsis=True
    )


def member_line(member: RoomMember, look: Look, width: int) -> Content:
    """Return a member in one line: its part in the room, and its state."""
    notes = [(member.state or "here") if member.is_present else "away"]
    if member.is_owner:
        notes.insert(0, "has the stick")
    elif member.rank:
        notes.insert(0, f"number {member.rank:,} in the waiting line")
    elif member.is_waiting:
        notes.insert(0, "waits for events")
    if member.last_turn:
        notes.append(f"last turn {member.last_turn}")
    text = ", ".join(filter(None, map(safe, notes)))
    return Content.assemble("  ", (look.name(member.name), "bold"), f"  {text}").truncate(width)


class RoomLines:
    """One room as rows. Members are drawn when they are shown: a room may have thousands."""

    def __init__(self, page: RoomPage, look: Look, now_ms: Callable[[], int]) -> None:
        self.page = page
        self._look = look
        self._now_ms = now_ms
        self._width = 0
        self._head: Sequence[Content] = ()
        self._tail: Sequence[Content] = ()
        self.fit(80)

    @property
    def total(self) -> int:
        """The number of lines."""
        return len(self._head) + len(self.page.members) + len(self._tail)

    def row(self, index: int, width: int) -> Content | None:
        """Return a line."""
        if index == 1:  # not with the other lines: its time runs down
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

    def update(self, page: RoomPage) -> None:
        """Show a newer state of the room."""
        self.page = page
        width, self._width = self._width, 0  # `fit` lays nothing out for the same width
        self.fit(width)

    def fit(self, width: int) -> None:
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
        for label, parts in handoff_parts(one.handoff):
            for part in parts:
                yield from wrapped(f"{label}: {part}", width, 2 * _INDENT)

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


# --------------------
# The screen.


class RoomRows:
    """All rooms by name. Each line shows the state of its stick now."""

    def __init__(self, ui: "PalaverApp") -> None:
        self._ui = ui
        self.rooms: Sequence[RoomRow] = ()
        self._index: Mapping[str, int] = {}

    @property
    def total(self) -> int:
        """The number of rooms."""
        return len(self.rooms)

    def row(self, index: int, width: int) -> Content | None:
        """Return a room in one line."""
        return room_line(self.rooms[index], look_of(self._ui), width, self._ui.now_ms())

    def want(self, first: int, last: int) -> None:
        """Do nothing: all rooms are there."""

    def key(self, index: int) -> str:
        """Return the id of a room."""
        return self.rooms[index].id

    def find(self, key: str) -> int:
        """Return where a room is, or -1."""
        return self._index.get(key, -1)

    def replace(self, rooms: Sequence[RoomRow]) -> None:
        """Show these rooms."""
        self.rooms = sorted(rooms, key=lambda room: (room.stick == "closed", room.name, room.id))
        self._index = {room.id: index for index, room in enumerate(self.rooms)}


class RoomsScreen(BusScreen):
    """All rooms, and one of them completely."""

    KEY = "4"
    AUTO_FOCUS = "#rooms"
    KEYS_LINE = "Enter open  n write  m messages  Esc back  ? keys  : command  q quit"
    KEYS = (
        ("Enter", "show the room: stick, members, handoffs, tasks, notes"),
        ("Tab", "go to the opened room, and back to the list"),
        ("n", "write to all members of the room"),
        ("m", "show the messages of the room"),
        ("Esc", "back to the list"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("n", "write"),
        letter_key("m", "messages"),
        Binding("escape", "back", show=False),
    ]
    DEFAULT_CSS = """
    RoomsScreen #rooms { width: 40%; min-width: 26; max-width: 60; }
    RoomsScreen #room { width: 1fr; padding: 0 0 0 1; }
    RoomsScreen.-narrow #rooms { width: 1fr; max-width: 100%; }
    RoomsScreen.-narrow #room { display: none; padding: 0; }
    RoomsScreen.-narrow.-reading #rooms { display: none; }
    RoomsScreen.-narrow.-reading #room { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = ""
        self._timer: Timer | None = None
        self._is_ticking = False

    def compose_content(self) -> ComposeResult:
        """Build the list, the room and the composer."""
        with Horizontal():
            yield RowList(
                RoomRows(self.ui), id="rooms", empty="no rooms yet; an agent that joins one creates it"
            )
            yield RowList(has_cursor=False, id="room")
        yield self.new_composer()

    def opened(self) -> None:
        """Read the rooms, and let the time of leases run down while the screen is shown."""
        self._timer = self.set_interval(1, self._tick)
        self._is_ticking = True

    @property
    def is_ticking(self) -> bool:
        """Whether the times are drawn every second."""
        return self._is_ticking

    @property
    def rooms(self) -> RowList:
        """The list."""
        return self.query_one("#rooms", RowList)

    @property
    def room_rows(self) -> RoomRows:
        """The rooms."""
        source = self.rooms.source
        assert isinstance(source, RoomRows)
        return source

    @property
    def room_lines(self) -> RoomLines | None:
        """The opened room."""
        source = self.query_one("#room", RowList).source
        return source if isinstance(source, RoomLines) else None

    def changed(self, record: "Record") -> None:
        """Read rooms that have changed."""
        if (
            isinstance(record, Snapshot)
            or not self.room_rows.total
            or (isinstance(record, Changes) and (record.rooms or record.agents))
        ):
            self._read_rooms()

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        if self._timer is not None:
            self._timer.resume()
            self._is_ticking = True
            self._read_rooms()

    @on(events.ScreenSuspend)
    def _suspended(self) -> None:
        if self._timer is not None:
            self._timer.pause()
            self._is_ticking = False

    def on_resize(self, event: events.Resize) -> None:
        """Show one part at a time in a narrow terminal."""
        self.set_class(event.size.width < NARROW, "-narrow")

    def _tick(self) -> None:
        """Draw the times that run down. Without such a time nothing is drawn."""
        # In the past no time runs.
        if not self.store.at and any(map(is_running, self.room_rows.rooms)):
            self.rooms.refresh()
            self.query_one("#room", RowList).refresh()

    @work(group="rooms", exclusive=True)
    async def _read_rooms(self) -> None:
        try:
            page = await self.ui.ask(AskRooms(), RoomsPage)
            self.room_rows.replace(page.rows)
            self.rooms.refresh_rows()
            # In the past the opened room may not exist yet.
            if self._room not in {row.id for row in page.rows}:
                self._room = self.rooms.cursor_key
            if self._room:
                self._show_room(await self.ui.ask(AskRoom(id=self._room), RoomPage))
        except PalaverError as error:
            self.say(str(error), is_error=True)

    def _show_room(self, page: RoomPage) -> None:
        shown, rows = self.room_lines, self.query_one("#room", RowList)
        if shown is not None and shown.page.row.id == page.row.id:
            shown.update(page)
            rows.refresh_rows()
        else:
            rows.show(RoomLines(page, look_of(self.ui), self.ui.now_ms))

    def on_row_list_cursor_moved(self, event: RowList.CursorMoved) -> None:
        """Show the room with the cursor."""
        if event.rows is self.rooms and event.key and event.key != self._room:
            self._room = event.key
            self._read_rooms()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Go to the opened room."""
        if event.rows is self.rooms:
            event.stop()
            self.add_class("-reading")
            self.set_focus(self.query_one("#room", RowList))

    def action_back(self) -> None:
        """Return to the list; from there, from the past."""
        if self.focused is self.rooms:
            self.ui.action_leave_past()
        self.remove_class("-reading")
        self.set_focus(self.rooms)

    def action_write(self) -> None:
        """Write to all members of the room."""
        if self._room and self.ui.may_act():
            self.query_one(MessageComposer).open(OutgoingText(room=self._room))

    def action_messages(self) -> None:
        """Show the messages of the room on the screen Talk."""
        if self._room:
            self.ui.open_talk(f"#{self._room}")
