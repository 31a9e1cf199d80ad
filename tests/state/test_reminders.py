"""Expected replies as rows: the changes of each event."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.log.memory import MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.state.agents import find_mail, read_entry
from palaver.state.fold import SKIPPED, apply
from palaver.state.rows import encode_row
from palaver.state.watches import (
    REMINDER_DUE,
    REMINDERS,
    Reminder,
    ReminderDue,
    due_reminders,
    has_reminders,
    read_reminder,
    read_reminder_due,
    reminder_changes,
)


def event(seq: int, type: str, sender: str = "luna", **payload: object) -> Event:
    return Event(
        seq=seq, id=f"id-{seq}", type=type, sender=sender, to=(), ts=seq, device="TEST", payload=payload
    )


def asked(seq: int, *names: str, kind: str = "instance") -> Event:
    return event(seq, "message", text="?", sender_kind=kind, expects_reply=True, delivered_to=list(names))


def message_event(seq: int, sender: str, **payload: object) -> Event:
    return event(seq, "message", sender, text="!", delivered_to=[], **payload)


def reminded(seq: int, count: int, agent: str = "nova", request: int = 1) -> Event:
    notice = {"agent": agent, "request": request, "count": count}
    return event(
        seq, "message", "[pal-events]", text="?", sender_kind="system", delivered_to=["nova"], nag=notice
    )


def reported(seq: int, state: str, *seqs: int, agent: str = "nova", **more: object) -> Event:
    return event(seq, "delivery", agent, agent=agent, messages=list(seqs), state=state, **more)


def idle(seq: int, agent: str = "nova", state: str = "idle") -> Event:
    return event(seq, "status", agent, state=state)


def bye(seq: int, agent: str = "nova") -> Event:
    return event(seq, "agent.bye", agent, reason="x")


def folded(*events: Event) -> MemoryRows:
    rows = MemoryRows()
    for name in ("luna", "nova", "kira"):
        rows.change([("agent", name, encode_row(Agent(name=name, base=name)))])
    for one in events:
        rows.change(apply(rows, one))
    return rows


def test_replies_are_owed_until_they_are_sent() -> None:
    request = asked(1, "nova")

    assert not has_reminders(folded())
    assert has_reminders(folded(request))
    assert not has_reminders(folded(request, message_event(2, "nova", reply_to="1")))


def test_all_recipients_owe_a_reply_except_the_sender_and_a_person() -> None:
    rows = folded(asked(1, "nova", "kira", "luna", "human"))

    assert read_reminder(rows, "nova", 1) == Reminder(agent="nova", request=1, sender="luna")
    assert read_reminder(rows, "kira", 1) is not None
    assert read_reminder(rows, "luna", 1) is read_reminder(rows, "human", 1) is None


@pytest.mark.parametrize("kind", ["external", "system"])
def test_sender_that_cannot_be_notified_expects_no_reply(kind: str) -> None:
    assert read_reminder(folded(asked(1, "nova", kind=kind)), "nova", 1) is None


def test_recipient_that_has_seen_it_and_goes_idle_is_due() -> None:
    rows = folded(asked(1, "nova"), reported(2, "seen", 1), idle(3, state="listening"), idle(4))

    assert read_reminder_due(rows, "nova", 1) == ReminderDue(state="idle", cause="id-3")
    assert due_reminders(rows) == due_reminders(rows, "nova") == [("nova", 1)]
    assert due_reminders(rows, "kira") == []


def test_recipient_that_has_not_seen_it_or_is_active_is_not_due() -> None:
    assert due_reminders(folded(asked(1, "nova"), idle(2))) == []
    assert due_reminders(folded(asked(1, "nova"), reported(2, "seen", 1), idle(3, state="active"))) == []
    at_work = folded(asked(1, "nova"), idle(2, state="active"), reported(3, "seen", 1), idle(4, "kira"))
    assert due_reminders(at_work) == []
    assert due_reminders(folded(asked(1, "nova"), bye(2), reminded(3, 0), reported(4, "seen", 1))) == []


def test_recipient_that_sees_the_request_while_idle_is_due_until_active() -> None:
    rows = folded(asked(1, "nova"), reported(2, "seen", 1), reported(3, "seen", 1))
    due = read_reminder_due(rows, "nova", 1)

    rows.change(apply(rows, idle(4, state="active")))

    assert due == ReminderDue(state="idle", cause="id-2", since=2)
    assert due_reminders(rows) == []


def test_recipient_that_goes_idle_is_due_at_once_without_a_delay() -> None:
    rows = folded(asked(1, "nova"), reported(2, "seen", 1), idle(3), reported(4, "seen", 1))

    assert read_reminder_due(rows, "nova", 1) == ReminderDue(state="idle", cause="id-3")


@pytest.mark.parametrize("seen", [(), (reported(5, "seen", 4),)])
def test_reply_also_answers_the_reminder_whether_it_was_seen_or_not(seen: tuple[Event, ...]) -> None:
    asking = (asked(1, "nova"), reported(2, "seen", 1), idle(3), reminded(4, 1))

    rows = folded(*asking, *seen, message_event(6, "nova", reply_to="1"))

    waiting = find_mail(rows, "nova", 4)
    assert (waiting is None) == bool(seen)
    assert waiting is None or waiting[1].state == "answered"
    reminder = read_entry(rows, 4, "nova")
    assert reminder is not None
    assert (reminder.state, reminder.answer) == ("answered", 6)


def test_reminder_seen_by_an_idle_recipient_makes_the_next_one_due() -> None:
    rows = folded(asked(1, "nova"), reported(2, "seen", 1), idle(3), reminded(4, 1))

    rows.change(apply(rows, reported(5, "seen", 4)))

    assert read_reminder_due(rows, "nova", 1) == ReminderDue(state="idle", cause="id-5", since=5)


def test_report_of_an_unknown_agent_changes_nothing() -> None:
    assert reminder_changes(MemoryRows(), reported(1, "seen", 1, agent="nobody"), "nobody") == []


def test_reminder_is_counted_and_the_next_waits_until_it_was_seen() -> None:
    rows = folded(asked(1, "nova"), reported(2, "seen", 1), idle(3), reminded(4, 1))
    reminder = read_reminder(rows, "nova", 1)
    assert reminder is not None
    assert (reminder.count, reminder.last, due_reminders(rows)) == (1, 4, [])

    rows.change(apply(rows, idle(5)))
    was_due = due_reminders(rows)
    rows.change(apply(rows, reported(6, "seen", 4)))
    rows.change(apply(rows, idle(7)))

    assert was_due == []
    assert due_reminders(rows) == [("nova", 1)]


def test_notice_to_the_sender_ends_the_reminders() -> None:
    rows = folded(asked(1, "nova"), bye(2), reminded(3, 0))

    assert (read_reminder(rows, "nova", 1), read_reminder_due(rows, "nova", 1)) == (None, None)


def test_reminder_of_an_answered_request_changes_nothing() -> None:
    rows = folded(asked(1, "nova"), message_event(2, "nova", reply_to="1"), reminded(3, 1))

    assert read_reminder(rows, "nova", 1) is None


def test_recipient_that_stops_is_due_whatever_it_has_seen() -> None:
    rows = folded(asked(1, "nova"), reported(2, "seen", 1), idle(3), bye(4))

    assert read_reminder_due(rows, "nova", 1) == ReminderDue(state="stopped", cause="id-4")


def test_reply_ends_the_reminders_of_its_author() -> None:
    rows = folded(asked(1, "nova", "kira"), message_event(2, "nova", reply_to="1"))

    assert read_reminder(rows, "nova", 1) is None
    assert read_reminder(rows, "kira", 1) is not None


def test_held_reply_ends_the_reminders_when_it_is_released() -> None:
    reply = event(2, "message", "nova", text="!", delivered_to=["luna"], reply_to="1", held="too fast")
    rows = folded(asked(1, "nova"), reply)
    was_open = read_reminder(rows, "nova", 1)

    released = reported(3, "queued", 2, agent="luna", author="nova", answers=1)
    rows.change(apply(rows, released))

    assert was_open is not None
    assert read_reminder(rows, "nova", 1) is None


@pytest.mark.parametrize("state", ["expired", "refused"])
def test_reply_to_an_unread_ended_copy_is_not_expected(state: str) -> None:
    rows = folded(asked(1, "nova"), reported(2, state, 1))

    assert read_reminder(rows, "nova", 1) is None


def test_reply_to_a_copy_that_is_queued_again_is_expected() -> None:
    rows = folded(asked(1, "nova"), reported(2, "submitted", 1), reported(3, "queued", 1))

    assert read_reminder(rows, "nova", 1) is not None


def test_other_events_change_nothing() -> None:
    assert reminder_changes(MemoryRows(), event(1, "life", action="ready"), "luna") == []


def test_many_reminders_are_read_page_by_page() -> None:
    events = [asked(seq, "nova") for seq in range(1, 2003)]

    rows = folded(*events, bye(2003))

    assert len(due_reminders(rows)) == 2002


steps = st.lists(
    st.one_of(
        st.builds(lambda names: ("ask", names), st.sets(st.sampled_from(["nova", "kira"]))),
        st.tuples(st.sampled_from(["idle", "bye", "seen", "reply", "nag", "expired"]), st.integers(1, 12)),
    ),
    max_size=25,
)


def _events(chosen: Iterable[tuple[str, object]]) -> list[Event]:
    made: list[Event] = []
    for seq, (word, what) in enumerate(chosen, 1):
        number = what if isinstance(what, int) else 1
        match word:
            case "ask":
                assert isinstance(what, set)
                made.append(asked(seq, *sorted(what)))
            case "idle":
                made.append(idle(seq))
            case "bye":
                made.append(bye(seq))
            case "reply":
                made.append(message_event(seq, "nova", reply_to=str(number)))
            case "nag":
                made.append(reminded(seq, number % 4, request=number))
            case _:
                made.append(reported(seq, word, number))
    return made


@given(steps)
def test_only_owed_replies_can_be_due(chosen: list[tuple[str, object]]) -> None:
    rows = folded(*_events(chosen))

    assert {key for key, _ in rows.scan(REMINDER_DUE, "", limit=100)} <= {
        key for key, _ in rows.scan(REMINDERS, "", limit=100)
    }
    assert rows.get(SKIPPED, "message") is None
