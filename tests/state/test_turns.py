"""Automatic turns as rows: configuration, queue, the running turn, counters."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.protocol.turns import BatchMessage, TurnStats, is_on
from palaver.state.agents import find_mail
from palaver.state.fold import SKIPPED, apply
from palaver.state.turns import (
    TurnState,
    has_auto_runs,
    is_turn_on,
    read_auto_run,
    read_auto_runs,
    read_held_for_turns,
    read_queued,
    read_queued_sessions,
    read_turn,
    read_turn_stats,
    read_turns,
)

HOUR_MS = 3_600_000


class Story:
    """Rows that follow the events of a test."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self.seq = 0

    def put(
        self,
        type_: str,
        payload: dict[str, object],
        *,
        sender: str = "nova",
        ts: int = 0,
        by: str | None = None,
    ) -> int:
        self.seq += 1
        event = Event(
            seq=self.seq,
            id=f"ID{self.seq}",
            type=type_,
            sender=sender,
            to=(),
            ts=ts or self.seq,
            device="TEST",
            payload=payload,
            by=by,
            delivered_to=("luna",) if type_ == "x" else (),
        )
        self.rows.change(apply(self.rows, event))
        return self.seq

    def set(self, agent: str, value: object, session: str = "") -> None:
        fields = {"key": "autoRun", "value": value, "old": None, "agent": agent}
        self.put("setting.changed", fields | ({"session": session} if session else {}), sender="human")

    def send(self, *mailboxes: str, sender: str = "nova", **fields: object) -> int:
        return self.put("message", {"text": "x", "delivered_to": list(mailboxes)} | fields, sender=sender)

    def report(self, mailbox: str, state: str, *seqs: int, **fields: object) -> int:
        return self.put("delivery", {"agent": mailbox, "messages": list(seqs), "state": state, **fields})

    def start(self, session: str, *seqs: int, mailbox: str = "luna", ts: int = 0, **fields: object) -> int:
        body = {
            "agent": "luna",
            "session": session,
            "messages": list(seqs),
            "mailboxes": [mailbox] * len(seqs),
            "attempt": 1,
            **fields,
        }
        return self.put("auto-turn", body, sender="luna", ts=ts)

    def finish(self, turn: int, session: str = "main") -> None:
        self.put("auto-turn-result", {"agent": "luna", "session": session, "turn": turn, "text": "ok"})

    def fail(self, turn: int, session: str = "main", **fields: object) -> None:
        body = {"agent": "luna", "session": session, "turn": turn, "error": "x", "attempt": 1, **fields}
        self.put("auto-turn-error", body)

    def skip(self, session: str, *seqs: int, reason: str = "triage") -> None:
        body: dict[str, object] = {
            "agent": "luna",
            "session": session,
            "messages": list(seqs),
            "reason": reason,
        }
        self.put("turn.skipped", body)

    def queue(self, session: str = "main") -> list[int]:
        return [seq for seq, _ in read_queued(self.rows, "luna", session)]

    def held(self) -> list[int]:
        return [seq for seq, _ in read_held_for_turns(self.rows)]


@pytest.fixture
def story() -> Story:
    made = Story()
    made.set("luna", True)
    return made


def test_configuration_is_stored_and_removed() -> None:
    story = Story()
    assert not has_auto_runs(story.rows)

    story.set("luna", {"debounceMs": 5})
    story.set("luna", False, "mon")
    assert read_auto_run(story.rows, "luna") == {"debounceMs": 5}
    assert sorted(read_auto_runs(story.rows), key=str) == [("luna", {"debounceMs": 5}), ("luna+mon", False)]
    assert (is_turn_on(story.rows, "luna", "main"), is_turn_on(story.rows, "luna", "mon")) == (True, False)

    story.set("luna", None)
    story.set("luna", None, "mon")
    assert read_auto_run(story.rows, "luna") is None
    assert list(read_auto_runs(story.rows)) == []


def test_many_configurations_are_all_read() -> None:
    story = Story()
    names = [f"agent{number:03d}" for number in range(250)]

    for name in names:
        story.set(name, True)

    assert [name for name, _ in read_auto_runs(story.rows)] == names


def test_removed_session_leaves_no_configuration(story: Story) -> None:
    story.set("luna", False, "mon")

    story.put("session.removed", {"agent": "luna", "session": "mon"})

    assert is_turn_on(story.rows, "luna", "mon")
    assert story.rows.scan(SKIPPED, "") == []


def test_message_waits_for_a_turn_of_each_session_that_received_it(story: Story) -> None:
    story.set("luna", {}, "mon")
    story.set("luna", False, "off")

    first = story.send("luna")
    second = story.send("luna+mon", "luna", handled={"luna": ["mon"]})
    third = story.send("luna+main", "luna+off", "nova")
    story.send("luna", sender="luna")
    story.send("luna", raw="eQ==")
    story.put("x", {})

    assert story.queue() == [first, third]
    assert story.queue("mon") == [second]
    assert story.queue("off") == []
    assert read_queued_sessions(story.rows) == ["luna+main", "luna+mon"]
    assert [one.mailbox for _, one in read_queued(story.rows, "luna", "main")] == [
        "luna",
        "luna+main",
    ]


def test_message_of_the_bus_starts_no_turn(story: Story) -> None:
    story.set("luna", True)

    story.send("luna", sender="[pal-events]", sender_kind="system")
    story.put("message", {"text": "x", "delivered_to": ["luna"]}, sender="nova", by="[pal-events]")
    third = story.put("message", {"text": "x", "delivered_to": ["luna"]}, sender="nova", by="script")

    assert story.queue() == [third]


def test_long_queue_is_read_in_order(story: Story) -> None:
    seqs = [story.send("luna") for _ in range(450)]

    assert story.queue() == seqs


def test_message_that_leaves_its_mailbox_leaves_the_queue(story: Story) -> None:
    first, second = story.send("luna"), story.send("luna")

    story.report("luna", "seen", first, lane="recv", grade="acked")

    assert story.queue() == [second]


def test_queue_stays_right_after_the_last_configuration_is_removed(story: Story) -> None:
    first, second = story.send("luna"), story.send("luna")
    story.set("luna", None)

    story.report("luna", "seen", first, lane="recv", grade="acked")
    story.send("luna")

    assert story.queue() == [second]


def test_handled_copy_that_is_read_does_not_end_the_turn_of_main(story: Story) -> None:
    seq = story.send("luna+main", "luna", handled={"luna": ["main"]})

    story.report("luna", "held", seq)
    story.report("luna", "queued", seq)
    story.report("luna", "seen", seq, lane="recv", grade="acked")

    assert story.queue() == [seq]


def test_held_message_waits_apart_until_it_is_released(story: Story) -> None:
    braked = story.send("luna", held="40 hops")
    failed, gated = story.send("luna"), story.send("luna")

    story.report("luna", "held", failed, reason="x")
    story.report("luna", "held", gated, lane="terminal")
    assert (story.queue(), story.held()) == ([gated], [braked, failed])

    story.report("luna", "queued", failed)
    assert (story.queue(), story.held()) == ([failed, gated], [braked])

    story.report("luna", "refused", braked)
    assert story.held() == []


def test_report_moves_only_messages_that_it_changes(story: Story) -> None:
    first, second = story.send("luna"), story.send("luna")
    story.report("luna", "submitted", second, lane="turn")

    story.report("luna", "held", first, second)

    assert (story.queue(), story.held()) == ([second], [first])


def test_turn_is_running_from_its_start_to_its_result(story: Story) -> None:
    seq = story.send("luna")

    turn = story.start("main", seq, triage="accepted", chain="c", hops=3, started_by="human", ts=50)

    batch = (BatchMessage(seq=seq, mailbox="luna"),)
    assert read_turn(story.rows, "luna", "main") == TurnState(
        active=turn, started_ms=50, batch=batch, attempt=1, starts=(50,), hops=3, chain="c"
    )
    story.finish(turn)
    assert read_turn(story.rows, "luna", "main") == TurnState(starts=(50,))
    assert dict(read_turns(story.rows)) == {"luna+main": TurnState(starts=(50,))}
    assert read_turn(story.rows, "luna", "mon") == TurnState()


def test_failed_batch_is_kept_until_its_last_try(story: Story) -> None:
    seq = story.send("luna")
    turn = story.start("main", seq, chain="c", hops=3)

    story.fail(turn)
    failed = read_turn(story.rows, "luna", "main")
    again = story.start("main", seq, attempt=3)
    story.fail(again, held=True)

    assert (failed.active, failed.attempt, failed.hops, failed.chain) == (0, 1, 0, None)
    assert failed.failed_ms
    assert failed.batch
    held = read_turn(story.rows, "luna", "main")
    assert (held.batch, held.attempt, held.failed_ms, len(held.starts)) == ((), 0, 0, 2)


@pytest.mark.parametrize("type_", ["auto-turn-result", "auto-turn-error"])
def test_end_of_another_turn_changes_nothing(story: Story, type_: str) -> None:
    turn = story.start("main")

    body = {"agent": "luna", "session": "main", "turn": turn + 7, "error": "x", "attempt": 1, "text": ""}
    story.put(type_, {name: body[name] for name in body if type_ == "auto-turn-error" or name != "error"})

    assert read_turn(story.rows, "luna", "main").active == turn
    assert story.rows.get(SKIPPED, type_) == b"1"


def test_end_without_a_turn_is_skipped_and_counted(story: Story) -> None:
    story.put("auto-turn-error", {"agent": "luna"})

    assert story.rows.get(SKIPPED, "auto-turn-error") == b"1"


def test_starts_older_than_an_hour_are_forgotten(story: Story) -> None:
    for ts in (1, 2, HOUR_MS + 1):
        story.finish(story.start("main", ts=ts))

    assert read_turn(story.rows, "luna", "main").starts == (2, HOUR_MS + 1)


def test_skipped_message_stays_in_its_mailbox_only(story: Story) -> None:
    first, second = story.send("luna"), story.send("luna")

    story.skip("main", first)

    assert story.queue() == [second]
    assert find_mail(story.rows, "luna", first) is not None


def test_counters_follow_triages_and_turns(story: Story) -> None:
    assert read_turn_stats(Story().rows) == TurnStats()
    seqs = [story.send("luna") for _ in range(4)]
    story.skip("main", seqs[0])
    story.skip("main", seqs[1], reason="reject list")
    story.fail(story.start("main", seqs[2], triage="accepted"))
    story.start("main", seqs[2], triage="error")
    story.set("luna", True, "mon")
    story.send("luna+mon")

    running = read_turn_stats(story.rows)
    story.report("luna", "seen", seqs[3], lane="recv", grade="acked")

    assert running == TurnStats(
        triage_count=3,
        triage_accepted=1,
        triage_rejected=1,
        triage_errors=1,
        execution_count=2,
        execution_errors=1,
        messages_processed=2,
        active_turns=1,
        queued_sessions=1,
        pending_reruns=1,
    )
    assert read_turn_stats(story.rows).pending_reruns == 0


# Any interleaving

MAILBOXES = ("luna", "luna+main", "luna+mon")
SESSION_OF = {"luna": "main", "luna+main": "main", "luna+mon": "mon"}

configs = st.tuples(
    st.just("set"), st.sampled_from(["", "main", "mon"]), st.sampled_from([True, False, None])
)
messages = st.tuples(
    st.just("send"),
    st.lists(st.sampled_from(MAILBOXES), min_size=1, max_size=3, unique=True),
    st.sampled_from(["nova", "nova", "luna"]),
)
reports = st.tuples(
    st.just("report"),
    st.sampled_from(MAILBOXES),
    st.sampled_from(["seen", "submitted", "queued", "held", "refused", "expired", "dead"]),
    st.sets(st.integers(1, 20), min_size=1, max_size=3),
    st.sampled_from(["", "turn", "recv"]),
)
starts = st.tuples(
    st.just("start"), st.sampled_from(["main", "mon"]), st.sets(st.integers(1, 20), max_size=3)
)
ends = st.tuples(st.sampled_from(["finish", "fail"]), st.sampled_from(["main", "mon"]))
skips = st.tuples(st.just("skip"), st.sampled_from(["main", "mon"]), st.sets(st.integers(1, 20), max_size=3))
steps = st.lists(st.one_of(configs, messages, messages, reports, reports, starts, ends, skips), max_size=30)


@given(steps)
def test_queue_has_the_open_messages_that_arrived_while_it_was_on(found: Sequence[tuple]) -> None:  # type: ignore[type-arg]  # of several shapes
    story = Story()
    values: dict[str, object] = {}
    waiting: dict[tuple[str, int], str] = {}
    """The mailbox of each copy that may start a turn, by its session and seq."""

    for step in found:
        match step:
            case "set", session, value:
                story.set("luna", value, session)
                values[session] = value
            case "send", mailboxes, sender:
                seq = story.send(*mailboxes, sender=sender)
                for mailbox in mailboxes:
                    session = SESSION_OF[mailbox]
                    is_handled = mailbox == "luna" and len(mailboxes) > 1
                    if sender != "luna" and not is_handled and is_on(values.get(session), values.get("")):
                        waiting[session, seq] = mailbox
            case "report", mailbox, state, seqs, lane:
                story.report(mailbox, state, *sorted(seqs), lane=lane)
            case "start", session, seqs:
                story.start(session, *sorted(seqs))
            case "finish" | "fail" as end, session:
                turn = read_turn(story.rows, "luna", session).active
                story.finish(turn, session) if end == "finish" else story.fail(turn, session)
            case "skip", session, seqs:
                story.skip(session, *seqs)
                for seq in seqs:
                    mail = find_mail(story.rows, waiting.get((session, seq), ""), seq)
                    if mail is not None and not mail[1].is_kept_back:
                        del waiting[session, seq]
        # A copy that has left its mailbox does not come back by a report to it.
        for (session, seq), mailbox in list(waiting.items()):
            if find_mail(story.rows, mailbox, seq) is None:
                del waiting[session, seq]
        _check(story, waiting)


def _check(story: Story, waiting: dict[tuple[str, int], str]) -> None:
    for session in ("main", "mon"):
        open_: list[int] = []
        held: list[int] = []
        for (one, seq), mailbox in sorted(waiting.items()):
            mail = find_mail(story.rows, mailbox, seq)
            assert mail is not None
            if one == session:
                (held if mail[1].is_kept_back else open_).append(seq)
        assert story.queue(session) == open_
        assert sorted(held) == sorted(
            seq for seq, one in read_held_for_turns(story.rows) if SESSION_OF[one.mailbox] == session
        )
