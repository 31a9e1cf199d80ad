"""The pages that views show: lists, details, the ledger, rooms and the log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.doors.view_stage import ViewParts, opened_views
from tests.fakes import HUMAN, open_sqlite

from palaver.errors import BadQuery, NotFound
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import State
from palaver.protocol.requests import AddNote, Claim, Import, JoinRoom, Redeliver, ReleaseStick, SetStatus
from palaver.protocol.tasks import CreateTask
from palaver.protocol.views import (
    AgentPage,
    AgentsPage,
    AnyAsk,
    AskAgent,
    AskAgents,
    AskConversations,
    AskLedger,
    AskLog,
    AskMessages,
    AskPast,
    AskPermission,
    AskRoom,
    AskRooms,
    AskSeq,
    ConversationsPage,
    LedgerPage,
    LogPage,
    MessagesPage,
    PermissionPage,
    RoomPage,
    RoomsPage,
    SeqPage,
    Snapshot,
)
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader
from palaver.state.rooms import read_open_rooms

Answer = (
    AgentPage
    | AgentsPage
    | ConversationsPage
    | LedgerPage
    | LogPage
    | MessagesPage
    | PermissionPage
    | RoomPage
    | RoomsPage
    | SeqPage
    | Snapshot
)


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[ViewParts]:
    async with opened_views(open_sqlite, tmp_path) as opened:
        yield opened


@pytest.fixture
async def luna(parts: ViewParts) -> Caller:
    return await parts.bus.join("luna")


@pytest.fixture
async def nova(parts: ViewParts) -> Caller:
    return await parts.bus.join("nova")


async def ask(parts: ViewParts, question: AnyAsk) -> Answer:
    """Return an answer as a client decodes it."""
    answer = await parts.views.answer(question)
    return msgspec.json.decode(msgspec.json.encode(answer), type=type(answer))  # type: ignore[return-value]  # of this kind


# Agents


async def test_agents_come_in_pages_by_name(parts: ViewParts) -> None:
    for number in range(7):
        await parts.bus.join(f"agent{number}")

    first = await ask(parts, AskAgents(limit=3))
    second = await ask(parts, AskAgents(after="agent2", limit=3))
    last = await ask(parts, AskAgents(after="agent5", limit=3))

    pages = [first, second, last]
    assert all(isinstance(page, AgentsPage) for page in pages)
    assert [[row.name[-1] for row in page.rows] for page in pages if isinstance(page, AgentsPage)] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6"],
    ]
    assert [page.has_more for page in pages if isinstance(page, AgentsPage)] == [True, True, False]


async def test_other_callers_run_while_a_long_page_is_built(parts: ViewParts) -> None:
    for number in range(300):
        await parts.bus.join(f"agent{number}")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    page = await ask(parts, AskAgents(limit=300))
    counting.cancel()

    assert isinstance(page, AgentsPage)
    assert len(page.rows) == page.total == 300
    assert turns >= 15


async def test_row_says_what_an_agent_waits_for(parts: ViewParts, luna: Caller, nova: Caller) -> None:
    await parts.bus.send(luna, "please review", "@nova", intent="request")
    await parts.broker.submit(nova, SetStatus(state="blocked", detail="Bash: rm", tool="Bash"))

    page = await ask(parts, AskAgents())

    assert isinstance(page, AgentsPage)
    assert [(row.name, row.waits_for) for row in page.rows] == [
        ("luna", "a reply of nova"),
        ("nova", "a person"),
    ]
    assert page.rows[0].last == "please review"


async def test_agent_page_has_its_queue_with_reasons(parts: ViewParts, luna: Caller, nova: Caller) -> None:
    for number in range(3):
        await parts.bus.send(luna, f"text {number}", "@nova")
    answered = await parts.bus.send(nova, "hello", "@luna")

    page = await ask(parts, AskAgent(name="@nova", limit=2))

    assert isinstance(page, AgentPage)
    assert [one.text for one in page.queue] == ["text 0", "text 1"]
    assert page.queue_total == 3
    assert all(one.reason.text and one.reason.moves for one in page.queue)
    assert [one.text for one in page.messages] == ["text 2", "hello"]
    assert page.row.last_seq == answered.seq


# Conversations


async def test_conversations_are_newest_first_and_in_pages(parts: ViewParts, luna: Caller) -> None:
    for number in range(6):
        await parts.bus.send(luna, f"text {number}", "@human", thread=f"thread-{number % 3}")

    first = await ask(parts, AskConversations(limit=2))
    assert isinstance(first, ConversationsPage)
    second = await ask(parts, AskConversations(before=first.rows[-1].seq, limit=2))
    found = await ask(parts, AskConversations(find="READ-1", limit=2))

    assert isinstance(second, ConversationsPage)
    assert isinstance(found, ConversationsPage)
    keys = [row.key for row in (*first.rows, *second.rows)]
    assert sorted(keys) == ["@human@luna", "thread/thread-0", "thread/thread-1", "thread/thread-2"]
    assert first.has_more
    assert not second.has_more
    assert [(row.title, row.text) for row in found.rows] == [("thread-1", "text 4")]


async def test_messages_of_a_conversation_have_marks_and_quotes(parts: ViewParts, luna: Caller) -> None:
    sent = await parts.bus.send(luna, "may I?", "@human", intent="request")
    await parts.bus.send(HUMAN, "yes", "@luna", reply_to=str(sent.seq))
    long = await parts.bus.send(luna, "x" * 5000, "@human")

    page = await ask(parts, AskMessages(conversation="@human@luna"))

    assert isinstance(page, MessagesPage)
    asked, reply, last = page.rows
    assert [(mark.name, mark.state, mark.reason) for mark in asked.marks] == [("human", "answered", None)]
    assert (reply.reply_to, reply.quote) == (sent.seq, "may I?")
    assert reply.marks[0].reason is not None
    assert (len(last.text), last.is_cut, last.is_unread, last.seq) == (4000, True, True, long.seq)


async def test_messages_are_read_backwards_and_forwards(parts: ViewParts, luna: Caller) -> None:
    sent = [await parts.bus.send(luna, f"text {number}", "@human") for number in range(10)]

    newest = await ask(parts, AskMessages(conversation="@human@luna", limit=3))
    older = await ask(parts, AskMessages(conversation="@human@luna", before=sent[7].seq, limit=3))
    later = await ask(parts, AskMessages(conversation="@human@luna", after=sent[7].seq, limit=3))

    texts = [
        [row.text for row in page.rows] for page in (newest, older, later) if isinstance(page, MessagesPage)
    ]
    assert texts == [["text 7", "text 8", "text 9"], ["text 4", "text 5", "text 6"], ["text 8", "text 9"]]


async def test_room_can_be_read_with_what_its_members_write_outside(
    parts: ViewParts, luna: Caller, nova: Caller
) -> None:
    for agent in (luna, nova):
        await parts.broker.submit(agent, JoinRoom(workspaces=("/home/ada/project",)))
    (room,) = read_open_rooms(parts.queries.rows)
    await parts.bus.send(luna, "in the room", f"#{room.slug}")
    await parts.bus.send(luna, "outside", "@nova")

    inside = await ask(parts, AskMessages(conversation=f"#{room.id}"))
    all_of_it = await ask(parts, AskMessages(conversation=f"#{room.id}", has_outside=True))

    assert isinstance(inside, MessagesPage)
    assert isinstance(all_of_it, MessagesPage)
    assert [row.text for row in inside.rows] == ["in the room"]
    assert [row.text for row in all_of_it.rows] == ["in the room", "outside"]


async def test_message_to_many_has_the_first_marks(parts: ViewParts, luna: Caller) -> None:
    for number in range(60):
        await parts.bus.join(f"agent{number}")
    sent = await parts.bus.send(luna, "to all", "@all", is_confirmed=True)

    page = await ask(parts, AskLedger(message=str(sent.seq)))

    assert isinstance(page, LedgerPage)
    assert (len(page.message.marks), page.message.recipients) == (50, 60)


# The ledger


async def test_ledger_has_every_step(parts: ViewParts, luna: Caller, nova: Caller) -> None:
    sent = await parts.bus.send(luna, "may I?", "@nova", intent="request")
    await parts.bus.report("nova", State.SUBMITTED, sent.seq, lane="terminal")
    await parts.bus.report("nova", State.SEEN, sent.seq, lane="terminal", grade="context")
    reply = await parts.bus.send(nova, "yes", "@luna", reply_to=str(sent.seq))

    page = await ask(parts, AskLedger(message=sent.id))

    assert isinstance(page, LedgerPage)
    assert [(step.state, step.name, step.lane, step.grade) for step in page.steps] == [
        ("queued", "", "", ""),
        ("submitted", "nova", "terminal", ""),
        ("seen", "nova", "terminal", "context"),
        ("answered", "nova", "", ""),
    ]
    assert page.steps[-1].seq == reply.seq
    receipts = msgspec.json.decode(page.receipts)
    assert [(one["name"], one["agent"], one["state"]) for one in receipts["receipts"]] == [
        ("nova", "nova", "answered")
    ]


async def test_ledger_names_the_person_that_made_a_step(parts: ViewParts, luna: Caller, nova: Caller) -> None:
    sent = await parts.bus.send(luna, "once more", f"@{nova.name}")
    await parts.bus.report(nova.name, State.SUBMITTED, sent.seq, lane="terminal")
    await parts.broker.submit(HUMAN, Redeliver(message=str(sent.seq)))

    page = await ask(parts, AskLedger(message=str(sent.seq)))

    assert isinstance(page, LedgerPage)
    assert (page.steps[-1].reason, page.steps[-1].by) == ("redelivered by human", "human")


# Permissions


async def test_permission_page_has_the_whole_input(parts: ViewParts, luna: Caller) -> None:
    given = {"command": "rm -rf build", "lines": ["x"] * 100}
    pending = parts.permissions.add(luna, "s", "Bash", given, now_ms=1, wait_ms=1000)

    page = await ask(parts, AskPermission(id=pending.id))
    parts.permissions.close(pending, "it has ended")

    assert isinstance(page, PermissionPage)
    assert msgspec.json.decode(page.input) == given
    assert (page.agent, page.digest, page.until) == ("luna", pending.digest, 1001)
    with pytest.raises(NotFound):
        await ask(parts, AskPermission(id=pending.id))


# Rooms


async def test_room_page_has_members_stick_handoffs_notes_and_tasks(
    parts: ViewParts, luna: Caller, nova: Caller
) -> None:
    for agent in (luna, nova):
        await parts.broker.submit(agent, JoinRoom(workspaces=("/home/ada/project",)))
    (room,) = read_open_rooms(parts.queries.rows)
    await parts.broker.submit(luna, Claim(room=room.id))
    (room,) = read_open_rooms(parts.queries.rows)
    handoff: dict[str, object] = {"status": "tests pass", "next_action": "review"}
    parts.member_presence.waiting.add((room.id, "nova"))
    await parts.broker.submit(
        luna, ReleaseStick(room=room.id, turn=room.turn, lease=room.lease, handoff=handoff)
    )
    await parts.broker.submit(nova, AddNote(room=room.id, text="mind the gap"))
    await parts.broker.submit(nova, CreateTask(title="write docs", to=("luna",)))

    page = await ask(parts, AskRoom(id=room.slug))
    rooms = await ask(parts, AskRooms())

    assert isinstance(page, RoomPage)
    assert isinstance(rooms, RoomsPage)
    assert {one.name: one.rank for one in page.members} == {"luna": 0, "nova": 1}
    assert [(one.sender, dict(one.handoff)["status"]) for one in page.handoffs] == [("luna", "tests pass")]
    assert page.is_handoff_open
    assert [one.text for one in page.notes] == ["mind the gap"]
    assert [one.title for one in page.tasks] == ["write docs"]
    assert rooms.rows == (page.row,)
    assert (page.row.stick, page.row.reserved_for, page.row.members) == ("reserved", "nova", 2)


# The log


async def test_log_is_read_backwards_forwards_and_by_filter(parts: ViewParts, luna: Caller) -> None:
    sent = [await parts.bus.send(luna, f"text {number}", "@human") for number in range(10)]

    newest = await ask(parts, AskLog(limit=2))
    older = await ask(parts, AskLog(before=sent[5].seq, limit=2))
    later = await ask(parts, AskLog(after=sent[5].seq, limit=2))
    hellos = await ask(parts, AskLog(types=("agent.hello",)))
    nothing = await ask(parts, AskLog(senders=("zoe",)))

    pages = [page for page in (newest, older, later, hellos, nothing) if isinstance(page, LogPage)]
    assert [[row.text for row in page.rows] for page in pages] == [
        ["text 8", "text 9"],
        ["text 3", "text 4"],
        ["text 6", "text 7"],
        ["joined"],
        [],
    ]
    assert [page.has_more for page in pages] == [True, True, True, False, False]


async def test_search_marks_its_hits(parts: ViewParts, luna: Caller) -> None:
    await parts.bus.send(luna, "The café is open, CAFE closed. cafeteria", "@human")
    await parts.bus.send(luna, "x " * 400 + "needle in a haystack", "@human")

    short = await ask(parts, AskLog(search="cafe"))
    far = await ask(parts, AskLog(search="needle"))
    phrase = await ask(parts, AskLog(search='"is open"'))
    prefix = await ask(parts, AskLog(search="cafet*"))
    with pytest.raises(BadQuery):
        await ask(parts, AskLog(search=" ** "))

    def hits(page: Answer) -> list[str]:
        assert isinstance(page, LogPage)
        return [row.text[start:end] for row in page.rows for start, end in row.hits]

    assert hits(short) == ["café", "CAFE"]
    assert hits(far) == ["needle"]
    assert hits(phrase) == ["is open"]
    assert hits(prefix) == ["cafeteria"]
    assert isinstance(far, LogPage)
    assert len(far.rows[0].text) <= 300


async def test_long_hit_near_the_beginning_is_marked_where_it_is(parts: ViewParts, luna: Caller) -> None:
    await parts.bus.send(luna, "a " * 25 + "w" * 400, "@human")

    page = await ask(parts, AskLog(search="w*"))

    assert isinstance(page, LogPage)
    assert page.rows[0].text == "a " * 25 + "w" * 249 + "…"
    assert page.rows[0].hits == ((50, 299),)


async def test_archived_events_are_part_of_the_log(parts: ViewParts, luna: Caller) -> None:
    sent = [await parts.bus.send(luna, f"text {number}", "@human") for number in range(30)]
    before = await ask(parts, AskLog(limit=500))
    await parts.log.archive(sent[20].seq)

    newest = await ask(parts, AskLog(limit=500))
    middle = await ask(parts, AskLog(before=sent[25].seq, limit=10))
    old = await ask(parts, AskLog(before=sent[10].seq, limit=3))
    forward = await ask(parts, AskLog(after=sent[17].seq, limit=5))
    found = await ask(parts, AskLog(search="text", limit=15))

    pages = [page for page in (middle, old, forward, found) if isinstance(page, LogPage)]
    assert newest == before
    assert [[row.text.removeprefix("text ") for row in page.rows] for page in pages] == [
        [str(number) for number in range(15, 25)],
        ["7", "8", "9"],
        ["18", "19", "20", "21", "22"],
        [str(number) for number in range(15, 30)],
    ]


async def test_archived_last_message_of_an_agent_is_shown(parts: ViewParts, luna: Caller) -> None:
    nova = await parts.bus.join("nova")
    sent = await parts.bus.send(luna, "the last of luna", "@nova")
    await parts.log.archive(sent.seq + 1)
    await parts.bus.send(nova, "and of nova", "@luna")

    page = await ask(parts, AskAgents())
    one = await ask(parts, AskAgent(name="luna"))

    assert isinstance(page, AgentsPage)
    assert isinstance(one, AgentPage)
    assert parts.queries.archived() >= sent.seq
    assert [(row.name, row.last) for row in page.rows] == [
        ("luna", "the last of luna"),
        ("nova", "and of nova"),
    ]
    assert (one.row.last, one.row.last_seq) == ("the last of luna", sent.seq)


async def test_archived_last_message_follows_a_later_archive(parts: ViewParts, luna: Caller) -> None:
    first = await parts.bus.send(luna, "one", "@human")
    await parts.log.archive(first.seq + 1)
    before = await ask(parts, AskAgents())
    second = await parts.bus.send(luna, "two", "@human")
    await parts.bus.send(HUMAN, "so", "@luna")
    await parts.log.archive(second.seq + 1)

    after = await ask(parts, AskAgents())

    assert isinstance(before, AgentsPage)
    assert isinstance(after, AgentsPage)
    assert [row.last for row in (*before.rows, *after.rows)] == ["one", "two"]


async def test_message_in_an_old_archive_is_not_searched_for_in_a_list(
    parts: ViewParts, luna: Caller
) -> None:
    sent = await parts.bus.send(luna, "long ago", "@human")
    for _ in range(5):
        await parts.bus.send(HUMAN, "hello", "@luna")
    await parts.log.archive(parts.queries.last())
    reader = LogReader(parts.queries, archived_seqs=2)
    pages = ViewPages(parts.queries.rows, reader, parts.views.facts)

    (row,) = (await pages.agents("", 10)).rows
    opened = await pages.agent("luna", 50)

    assert row.last == f"(archived before #{reader.searched_from + 1}, or none)"
    assert (opened.row.last, opened.row.last_seq) == ("long ago", sent.seq)


async def test_lost_archive_leaves_the_last_message_empty(parts: ViewParts, luna: Caller) -> None:
    await parts.bus.send(luna, "hello", "@human")
    await parts.bus.send(HUMAN, "hello", "@luna")
    archived = await parts.log.archive(parts.queries.last())
    assert archived.path is not None
    archived.path.unlink()

    page = await ask(parts, AskAgents())

    assert isinstance(page, AgentsPage)
    assert [row.last for row in page.rows] == [""]


async def test_time_is_found_as_a_seq(parts: ViewParts, luna: Caller) -> None:
    parts.timers.advance(60)
    sent = await parts.bus.send(luna, "later", "@human")

    page = await ask(parts, AskSeq(ts=sent.ts))
    snapshot = await ask(parts, AskPast())

    assert isinstance(page, SeqPage)
    assert page.found == sent.seq
    assert isinstance(snapshot, Snapshot)
    assert snapshot.seq == parts.queries.last()


async def test_time_is_found_as_a_seq_next_to_imported_and_archived_events(
    parts: ViewParts, luna: Caller
) -> None:
    own = [await later(parts, luna) for _ in range(4)]
    # So many that the middle of the log is one of them.
    imported = [
        msgspec.structs.replace(own[0], seq=number, id=f"01ARZ3NDEKTSV4RRFFQ69G5F{number}", ts=number)
        for number in range(10, 22)
    ]
    await parts.bus.broker.submit(HUMAN, Import(events=tuple(imported)))
    own += [await later(parts, luna) for _ in range(2)]
    now_ms = parts.bus.clock.now_ms()

    before = [await seq_at(parts, event.ts) for event in own]
    after_all = await seq_at(parts, now_ms + 1)
    await parts.log.archive(own[4].seq)
    archived = [await seq_at(parts, event.ts) for event in own]

    assert before == archived == [event.seq for event in own]
    assert after_all == parts.queries.last() + 1


async def later(parts: ViewParts, luna: Caller) -> Event:
    parts.timers.advance(60)
    return await parts.bus.send(luna, "later", "@human")


async def seq_at(parts: ViewParts, ts: int) -> int:
    page = await ask(parts, AskSeq(ts=ts))
    assert isinstance(page, SeqPage)
    return page.found
