"""Open mail and the ledger, step by step."""

import pytest
from msgspec import structs

from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.protocol.message import Priority
from palaver.state.agents import (
    find_mail,
    is_carried,
    read_carried,
    read_entry,
    read_line,
    read_tips,
    read_unread,
    read_unsure,
)
from palaver.state.fold import apply
from palaver.state.rows import EXPIRY, MAIL, LedgerEntry, answered_seq, priority_of_key
from palaver.state.turns import read_queued


class Line:
    """The mail of one agent in its own state, changed by events."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self._seq = 0

    def write(
        self, type_: str, payload: dict[str, object], *, sender: str = "luna", by: str | None = None
    ) -> int:
        self._seq += 1
        event = Event(
            seq=self._seq,
            id=f"ID{self._seq}",
            type=type_,
            sender=sender,
            to=(),
            ts=1000 + self._seq,
            device="TEST",
            payload=payload,
            by=by,
        )
        self.rows.change(apply(self.rows, event))
        return self._seq

    def message(self, **payload: object) -> int:
        return self.write("message", {"delivered_to": ["nova"], **payload})

    def report(self, seq: int, state: str, *, by: str | None = None, **fields: object) -> None:
        payload = {"agent": "nova", "messages": [seq], "state": state, **fields}
        self.write("delivery", payload, sender="nova", by=by)

    def entry(self, seq: int) -> LedgerEntry:
        found = read_entry(self.rows, seq, "nova")
        assert found is not None
        return found

    @property
    def unread(self) -> int:
        return read_unread(self.rows, "nova")


@pytest.fixture
def line() -> Line:
    return Line()


def test_waiting_message_has_no_ledger_entry(line: Line) -> None:
    seq = line.message(priority="interrupt", expires=5000)

    assert read_entry(line.rows, seq, "nova") is None
    assert read_line(line.rows, seq, "nova") == LedgerEntry(state="queued", ts=0)
    found = find_mail(line.rows, "nova", seq)
    assert found is not None
    assert priority_of_key(found[0]) is Priority.INTERRUPT
    assert line.unread == 1
    assert len(line.rows.scan(EXPIRY, "")) == 1


def test_held_mail_has_an_entry_with_the_reason(line: Line) -> None:
    seq = line.message(held="rate")

    assert (line.entry(seq).state, line.entry(seq).reason) == ("held", "rate")


@pytest.mark.parametrize(("step", "unread"), [("queued", 1), ("submitted", 1), ("seen", 0), ("expired", 0)])
def test_held_mail_counts_as_unread_only_after_it_is_released(line: Line, step: str, unread: int) -> None:
    seq = line.message(held="rate")
    before = line.unread

    line.report(seq, step)

    assert (before, line.unread) == (0, unread)


def test_tips_shown_with_messages_are_remembered(line: Line) -> None:
    seq = line.message()

    line.report(seq, "seen", tips=("request", "thread"))

    assert read_tips(line.rows, "nova") == {"request", "thread"}


def test_mail_that_is_held_later_does_not_count_as_unread(line: Line) -> None:
    seq = line.message()

    line.report(seq, "held", reason="dialog")

    assert line.unread == 0


def test_entry_records_the_time_of_every_state(line: Line) -> None:
    seq = line.message(expires=5000)

    line.report(seq, "submitted", lane="hook")
    carried, expiring = read_carried(line.rows, "nova"), line.rows.scan(EXPIRY, "")
    line.report(seq, "seen", grade="context", by="kira")

    entry = line.entry(seq)
    assert carried == [seq]
    assert expiring == []
    assert (entry.state, entry.lane, entry.grade, entry.by) == ("seen", "hook", "context", "kira")
    assert (entry.submitted, entry.seen) == (1002, 1003)
    assert (line.unread, read_carried(line.rows, "nova"), line.rows.scan(MAIL, "")) == (0, [], [])


def test_refused_mail_returns_to_its_position(line: Line) -> None:
    first, second = line.message(expires=5000), line.message()
    line.report(first, "submitted")

    line.report(first, "queued", reason="no session")

    found = find_mail(line.rows, "nova", first)
    assert found is not None
    assert found[1].state == "queued"
    assert line.entry(first).reason == "no session"
    assert (line.unread, len(line.rows.scan(EXPIRY, "")), is_carried(line.entry(first))) == (2, 1, False)
    assert read_entry(line.rows, second, "nova") is None


def test_unconfirmed_mail_leaves_the_queue_and_is_listed_as_unconfirmed(line: Line) -> None:
    seq = line.message()
    line.report(seq, "submitted")

    line.report(seq, "submitted", unconfirmed=True)
    line.report(seq, "submitted", unconfirmed=True)

    assert (line.entry(seq).state, line.entry(seq).unconfirmed) == ("submitted", True)
    assert line.entry(seq).submitted == 1002
    assert (line.unread, read_unsure(line.rows, "nova"), read_carried(line.rows, "nova")) == (0, [seq], [])


@pytest.mark.parametrize(("word", "priority"), [("interrupt", Priority.INTERRUPT), ("", Priority.NORMAL)])
def test_unconfirmed_mail_is_queued_again_by_a_person(line: Line, word: str, priority: Priority) -> None:
    seq = line.message()
    line.report(seq, "submitted")
    line.report(seq, "submitted", unconfirmed=True)

    line.report(seq, "queued", priority=word)

    found = find_mail(line.rows, "nova", seq)
    assert found is not None
    assert priority_of_key(found[0]) is priority
    assert (line.unread, read_unsure(line.rows, "nova")) == (1, [])


def test_unconfirmed_mail_that_is_seen_later_is_confirmed(line: Line) -> None:
    seq = line.message()
    line.report(seq, "submitted")
    line.report(seq, "submitted", unconfirmed=True)

    line.report(seq, "seen", grade="acked")

    assert (line.entry(seq).state, read_unsure(line.rows, "nova"), line.unread) == ("seen", [], 0)


@pytest.mark.parametrize(
    "steps", [[], ["held"], ["submitted"], ["seen"], ["expired"], ["submitted", "unsure"]]
)
def test_reply_answers_a_message_in_any_state(line: Line, steps: list[str]) -> None:
    seq = line.message(expires=5000)
    for step in steps:
        line.report(seq, "submitted" if step == "unsure" else step, unconfirmed=step == "unsure")

    answer = line.write("message", {"delivered_to": ["luna"], "reply_to": str(seq)}, sender="nova")
    line.write("message", {"delivered_to": ["luna"], "reply_to": str(seq)}, sender="nova")

    entry = line.entry(seq)
    assert (entry.state, entry.answer, entry.unconfirmed) == ("answered", answer, False)
    assert (line.unread, line.rows.scan(EXPIRY, "")) == (0 if steps else 1, [])
    assert (read_unsure(line.rows, "nova"), read_carried(line.rows, "nova")) == ([], [])


@pytest.mark.parametrize("expires", [0, 5000])
def test_mail_answered_unread_stays_queued_until_it_is_seen(line: Line, expires: int) -> None:
    seq = line.message(expires=expires)
    answer = line.write("message", {"delivered_to": ["luna"], "reply_to": str(seq)}, sender="nova")
    was_unread = line.unread

    line.report(seq, "seen", lane="recv", grade="flushed")
    line.report(seq, "seen", lane="recv", grade="flushed")

    entry = line.entry(seq)
    assert (was_unread, line.unread) == (1, 0)
    assert (entry.state, entry.answer, entry.grade) == ("answered", answer, "flushed")


def test_held_reply_answers_when_it_is_released(line: Line) -> None:
    seq = line.message()
    held: dict[str, object] = {"delivered_to": ["luna"], "reply_to": str(seq), "held": "too many"}
    answer = line.write("message", held, sender="nova")
    was = read_entry(line.rows, seq, "nova")

    released = {"agent": "luna", "messages": [answer], "state": "queued", "author": "nova", "answers": seq}
    line.write("delivery", released, sender="luna")
    line.write("delivery", released, sender="luna")

    entry = line.entry(seq)
    assert was is None
    assert (entry.state, entry.answer) == ("answered", answer)


def test_reply_of_an_agent_that_is_not_a_recipient_answers_nothing(line: Line) -> None:
    seq = line.message()

    line.write("message", {"delivered_to": ["luna"], "reply_to": str(seq)}, sender="kira")

    assert read_entry(line.rows, seq, "kira") is None
    assert line.unread == 1


def test_report_about_a_message_to_others_changes_nothing(line: Line) -> None:
    line.report(99, "seen")

    assert read_line(line.rows, 99, "nova") is None


def test_message_named_twice_in_a_report_changes_once(line: Line) -> None:
    first, second = line.message(), line.message()

    payload: dict[str, object] = {"agent": "nova", "messages": [first, first], "state": "seen"}
    line.write("delivery", payload, sender="nova")

    assert line.unread == 1
    assert find_mail(line.rows, "nova", second) is not None


def test_unmatched_path_has_a_ledger_entry(line: Line) -> None:
    seq = line.message(delivered_to=[])

    line.write("delivery", {"agent": "x/y", "messages": [seq], "state": "dead"}, sender="x/y")

    entry = read_entry(line.rows, seq, "x/y")
    assert entry is not None
    assert entry.state == "dead"
    assert line.rows.scan(MAIL, "") == []


def test_reply_that_was_imported_answers_no_message_of_this_log() -> None:
    payload: dict[str, object] = {"text": "yes", "reply_to": "4"}
    event = Event(type="message", id="A", sender="nova", ts=1, payload=payload, seq=9, device="BOXE")

    assert answered_seq(event) == 4
    assert answered_seq(structs.replace(event, imported=7)) is None


def test_migrated_message_waits_only_where_it_was_not_taken() -> None:
    line = Line()

    seq = line.message(delivered_to=["nova+mon", "nova", "kira"], migrated=["nova"], wakes=[])

    assert line.entry(seq).state == "seen"
    assert [find_mail(line.rows, name, seq) is not None for name in ("nova+mon", "nova", "kira")] == [
        True,
        False,
        True,
    ]
    assert [read_unread(line.rows, name) for name in ("nova+mon", "nova", "kira")] == [1, 0, 1]


def test_migrated_message_answers_nothing_and_its_dead_path_has_an_entry() -> None:
    line = Line()
    request = line.message()

    seq = line.write(
        "message",
        {"delivered_to": [], "migrated": [], "dead": ["slack/x"], "reply_to": str(request)},
        sender="nova",
    )

    dead = read_entry(line.rows, seq, "slack/x")
    assert dead is not None
    assert (dead.state, dead.ts) == ("dead", 1000 + seq)
    assert read_entry(line.rows, request, "nova") is None


def test_migrated_message_with_an_unreadable_list_is_skipped() -> None:
    line = Line()

    seq = line.message(migrated=7)

    assert find_mail(line.rows, "nova", seq) is None


def test_migrated_message_starts_no_automatic_turn() -> None:
    line = Line()
    line.write(
        "setting.changed", {"key": "autoRun", "value": True, "old": None, "agent": "nova"}, sender="human"
    )

    line.message(migrated=[], wakes=[])
    new = line.message()

    assert [seq for seq, _ in read_queued(line.rows, "nova", "main")] == [new]
