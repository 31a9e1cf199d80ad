"""A bus in memory for the screens: it answers questions about conversations, rooms and events."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from html import unescape

import msgspec
from tests.app.ui.fake_link import FakeCommands, FakeLink, agent, lines_of, snapshot
from textual.app import App
from textual.pilot import Pilot

from palaver.app.ui.app import PalaverApp
from palaver.app.ui.widgets import StatusLine
from palaver.errors import NotFound
from palaver.protocol.views import (
    LIMIT_LEDGER,
    AgentRow,
    AnyAsk,
    AskConversations,
    AskLedger,
    AskLog,
    AskMessages,
    AskPast,
    AskRoom,
    AskRooms,
    AskSeq,
    Attention,
    Changes,
    ConversationRow,
    ConversationsPage,
    EventRow,
    LedgerPage,
    LedgerStep,
    LogPage,
    Mark,
    MessageRow,
    MessagesPage,
    RoomMember,
    RoomPage,
    RoomRow,
    RoomsPage,
    SeqPage,
    Snapshot,
    ViewValue,
    WaitReason,
)

TRIES = 200
WIDE = (120, 30)
WAITS = WaitReason(code="not_fetched", text="nova has not called pal recv", moves="nova calls pal recv")


class FakeBus:
    """Messages by conversation, rooms and a log. A test adds what it needs."""

    def __init__(self) -> None:
        self.talks: dict[str, list[MessageRow]] = {}
        self.rows: dict[str, ConversationRow] = {}
        self.rooms: dict[str, RoomPage] = {}
        self.agents: tuple[AgentRow, ...] = (agent("luna"), agent("nova"))
        self.last = 10
        self.link = FakeLink()
        self.commands = FakeCommands()
        for kind, answer in (
            (AskConversations, self._conversations),
            (AskMessages, self._messages),
            (AskLedger, self._ledger),
            (AskRooms, self._rooms),
            (AskRoom, self._room),
            (AskLog, self._log),
            (AskSeq, lambda question: SeqPage(seq=self.last, found=4)),
            (AskPast, self._past),
        ):
            self.link.answers[kind] = answer  # type: ignore[assignment]

    def say(self, key: str, seq: int, text: str, *, sender: str = "nova", **fields: object) -> MessageRow:
        """Add a message to a conversation."""
        base = {"seq": seq, "id": f"id{seq}", "ts": seq * 1000, "sender": sender, "text": text, **fields}
        row = msgspec.convert(base, MessageRow)
        self.talks.setdefault(key, []).append(row)
        self.last = max(self.last, seq)
        kind = "room" if key.startswith("#") else "thread" if key.startswith("thread/") else "pair"
        unread = sum(one.is_unread for one in self.talks[key])
        self.rows[key] = ConversationRow(
            key=key, kind=kind, title=key, seq=seq, ts=seq * 1000, sender=sender, text=text, unread=unread
        )
        return row

    def room(self, room_id: str, *members: str, **fields: object) -> None:
        """Add a room."""
        base = {"id": room_id, "name": room_id, "path": f"/home/ada/{room_id}", "stick": "idle", **fields}
        row = msgspec.convert({**base, "members": len(members), "present": len(members)}, RoomRow)
        found = tuple(RoomMember(name=name, state="idle", is_present=True) for name in members)
        self.rooms[room_id] = RoomPage(seq=self.last, row=row, members=found)

    def start(self, *attention: Attention) -> None:
        """Send the snapshot."""
        self.link.push(self.snapshot(*attention))

    def snapshot(self, *attention: Attention) -> Snapshot:
        base = snapshot(*self.agents, attention=attention, seq=self.last)
        return msgspec.structs.replace(base, talks=tuple(self.rows.values()))

    def changed(self, after: int, key: str, *, moved: Iterable[int] = ()) -> None:
        """Report that a conversation has changed."""
        self.link.push(Changes(after=after, seq=self.last, talks=(self.rows[key],), moved=tuple(moved)))

    def app(self, first: str = "3", room: str = "", *, is_ascii: bool = False) -> PalaverApp:
        return PalaverApp(self.link, self.commands, first=first, room=room, is_ascii=is_ascii)

    @asynccontextmanager
    async def opened(
        self,
        text: str,
        *,
        first: str = "3",
        room: str = "",
        widget: str = "#messages",
        size: tuple[int, int] = WIDE,
        attention: Sequence[Attention] = (),
    ) -> AsyncIterator[tuple[PalaverApp, Pilot[int]]]:
        """Run the dashboard on this bus, from the time at which one of its widgets shows a text."""
        self.start(*attention)
        app = self.app(first, room)
        async with app.run_test(size=size) as pilot:
            await settle(pilot, lambda: text in shown(app, widget))
            yield app, pilot

    def asked(self, kind: type[AnyAsk]) -> list[AnyAsk]:
        """Return the questions of one kind."""
        return [question for question in self.link.asked if isinstance(question, kind)]

    def _conversations(self, question: AskConversations) -> ViewValue:
        rows = sorted(self.rows.values(), key=lambda row: -row.seq)
        found = [
            row
            for row in rows
            if question.find in row.title and (not question.before or row.seq < question.before)
        ]
        return ConversationsPage(seq=self.last, rows=tuple(found), has_more=False)

    def _messages(self, question: AskMessages) -> ViewValue:
        rows = [
            row
            for row in self.talks.get(question.conversation, ())
            if not question.at or row.seq <= question.at
        ]
        if question.after:
            later = [row for row in rows if row.seq > question.after]
            found, has_more = later[: question.limit], len(later) > question.limit
        else:
            earlier = [row for row in rows if not question.before or row.seq < question.before]
            found, has_more = earlier[-question.limit :], len(earlier) > question.limit
        return MessagesPage(seq=self.last, rows=tuple(found), has_more=has_more)

    def _ledger(self, question: AskLedger) -> ViewValue:
        for rows in self.talks.values():
            for row in rows:
                if str(row.seq) == question.message:
                    steps = [LedgerStep(seq=row.seq, ts=row.ts, name="", state="queued", by=row.sender)]
                    steps += [
                        LedgerStep(seq=row.seq, ts=row.ts, name=mark.name, state=mark.state, lane="hook")
                        for mark in row.marks[question.first : question.first + LIMIT_LEDGER]
                        if mark.state != "queued"
                    ]
                    return LedgerPage(
                        seq=self.last,
                        message=row,
                        receipts=_receipts(row),
                        steps=tuple(steps),
                        recipients=len(row.marks),
                    )
        raise NotFound("no such message")

    def _rooms(self, question: AskRooms) -> ViewValue:
        return RoomsPage(seq=self.last, rows=tuple(page.row for page in self.rooms.values()))

    def _room(self, question: AskRoom) -> ViewValue:
        return self.rooms[question.id]

    def _log(self, question: AskLog) -> ViewValue:
        last = min(question.at or self.last, self.last)
        if question.search:
            seqs: Sequence[int] = [seq for seq in range(1, last + 1) if seq % 100 == 0]
        else:
            seqs = range(1, last + 1)
        if question.after:
            found = seqs[_below(seqs, question.after + 1) :][: question.limit]
        else:
            found = seqs[: _below(seqs, question.before or last + 1)][-question.limit :]
        rows = tuple(_event(seq, question.search) for seq in found)
        return LogPage(seq=last, first=1, rows=rows, has_more=bool(found) and found[0] != seqs[0])

    def _past(self, question: AskPast) -> ViewValue:
        kept = {key: rows for key, rows in self.talks.items() if rows[0].seq <= question.at}
        talks = tuple(msgspec.structs.replace(self.rows[key], seq=kept[key][0].seq) for key in kept)
        base = snapshot(agent("luna", "active"), seq=question.at)
        return msgspec.structs.replace(base, talks=talks, now=1_700_000_000_000)


def _below(seqs: Sequence[int], seq: int) -> int:
    if isinstance(seqs, range):
        return max(0, min(seq - 1, len(seqs)))
    return sum(one < seq for one in seqs)


def _event(seq: int, search: str) -> EventRow:
    text = f"event {seq} {search}".rstrip()
    hits = ((len(text) - len(search), len(text)),) if search else ()
    return EventRow(seq=seq, ts=seq * 1000, type="status", sender="luna", text=text, hits=hits)


def waiting(*names: str) -> list[dict[str, object]]:
    """Return marks of recipients that wait."""
    marks = [Mark(name=name, state="queued", reason=WAITS) for name in names]
    return [msgspec.to_builtins(mark) for mark in marks]


async def settle(pilot: Pilot[int], is_so: Callable[[], object]) -> None:
    """Wait until the screen has drawn what a test expects."""
    for _ in range(TRIES):
        await pilot.pause()
        if is_so():
            return
    raise AssertionError(f"it did not become so:\n{screen_text(pilot.app)}")


def screen_text(app: App[int]) -> str:
    """Return everything that the screen shows, line by line."""
    picture = re.sub(r"<style>.*?</style>|<[^>]+>", "", app.export_screenshot(), flags=re.DOTALL)
    return unescape(picture).replace("\N{NO-BREAK SPACE}", " ").strip()


def status(app: PalaverApp) -> str:
    """Return the last line of the screen."""
    assert app.bus_screen is not None
    return app.bus_screen.query_one(StatusLine).text


def shown(app: PalaverApp, widget: str) -> str:
    """Return the text of one widget of the shown screen."""
    assert app.bus_screen is not None
    return "\n".join(lines_of(app.bus_screen.query_one(widget)))


def _receipts(row: MessageRow) -> msgspec.Raw:
    """Return the receipts of a message, which its marks are a part of."""
    receipts = [{"name": mark.name, "state": mark.state, "wait": mark.reason} for mark in row.marks]
    return msgspec.Raw(msgspec.json.encode({"seq": row.seq, "receipts": receipts}))
