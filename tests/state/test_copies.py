"""Handled copies and the mail of sessions, as rows of the fold."""

import pytest

from palaver.log.memory import MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import DeliveryReport
from palaver.protocol.message import Priority
from palaver.protocol.subscriptions import WatchDue
from palaver.state.agents import (
    agents_with_carried,
    can_step,
    carried_by_lanes,
    count_handled,
    find_mail,
    mailbox_on_lane,
    mailboxes_with_carried,
    read_entry,
    read_lane_entry,
    read_mail,
    read_receivers,
    read_seen,
    read_session_entries,
    read_tips,
    read_unread,
    read_unread_of_all,
    read_unsure,
    read_unsure_of_all,
)
from palaver.state.fold import agent_of, apply
from palaver.state.paths import read_agent_session
from palaver.state.rows import (
    HELD,
    MAIL,
    PUSHED,
    MailKind,
    deliverable,
    encode_row,
    kind_of_key,
    priority_of_key,
)
from palaver.state.watches import (
    due_reminders,
    due_watches,
    read_due,
    read_reminder,
    read_seen_requests,
    read_watch,
)

COPIES = ["nova+mon", "nova+slack", "nova", "kira"]


class Copies:
    """The state after events that a test writes one by one."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        for name in ("luna", "nova", "kira"):
            self.rows.change([("agent", name, encode_row(Agent(name=name, base=name, state="active")))])
        self._seq = 0

    def write(self, type_: str, sender: str = "luna", **payload: object) -> Event:
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
        )
        self.rows.change(apply(self.rows, event))
        return event

    def routed(self, **payload: object) -> int:
        handled = {"nova": ["mon", "slack"]}
        fields: dict[str, object] = {"delivered_to": COPIES, "handled": handled, **payload}
        return self.write("message", **fields).seq  # type: ignore[arg-type]  # its payload

    def report(self, mailbox: str, state: str, *seqs: int, **fields: object) -> Event:
        agent = mailbox.partition("+")[0]
        return self.write("delivery", agent, agent=mailbox, messages=list(seqs), state=state, **fields)

    def state(self, seq: int, mailbox: str) -> str:
        entry = read_entry(self.rows, seq, mailbox)
        return "" if entry is None else entry.state


@pytest.fixture
def copies() -> Copies:
    return Copies()


# Handled copies


def test_handled_copy_has_its_own_kind_and_is_not_unread(copies: Copies) -> None:
    seq = copies.routed(priority="interrupt")

    found = {name: find_mail(copies.rows, name, seq) for name in COPIES}

    kinds = {name: kind_of_key(mail[0]) for name, mail in found.items() if mail is not None}
    assert kinds == dict.fromkeys(COPIES, MailKind.WAKING) | {"nova": MailKind.HANDLED}
    assert {priority_of_key(mail[0]) for mail in found.values() if mail is not None} == {Priority.INTERRUPT}
    assert read_unread_of_all(copies.rows) == {"nova+mon": 1, "nova+slack": 1, "kira": 1}
    assert count_handled(copies.rows, "nova") == 1


def test_handled_copy_is_read_in_order_and_left_out_of_pushed_mail(copies: Copies) -> None:
    first = copies.write("message", delivered_to=["nova"]).seq
    handled = copies.routed()
    quiet = copies.write("message", delivered_to=["nova"], wakes=[]).seq

    assert [mail.seq for mail in read_mail(copies.rows, "nova")] == [first, handled, quiet]
    assert [mail.seq for mail in read_mail(copies.rows, "nova", PUSHED)] == [first, quiet]


def test_handled_copy_keeps_its_kind_when_it_is_released(copies: Copies) -> None:
    seq = copies.routed(held="too many")
    before = (read_unread_of_all(copies.rows), count_handled(copies.rows, "nova"))

    copies.report("nova", "queued", seq)

    assert before == ({}, 0)
    assert (read_unread(copies.rows, "nova"), count_handled(copies.rows, "nova")) == (0, 1)
    found = find_mail(copies.rows, "nova", seq)
    assert found is not None
    assert kind_of_key(found[0]) is MailKind.HANDLED
    assert [key for key, _ in copies.rows.scan(HELD, "")] == [
        f"{seq:015d}/{name}" for name in ("kira", "nova+mon", "nova+slack")
    ]


@pytest.mark.parametrize("state", ["seen", "expired", "dead"])
def test_handled_copy_that_ends_changes_no_count(copies: Copies, state: str) -> None:
    copies.write("message", delivered_to=["nova"])
    seq = copies.routed()

    copies.report("nova", state, seq)

    assert read_unread(copies.rows, "nova") == 1
    assert find_mail(copies.rows, "nova", seq) is None
    assert copies.state(seq, "nova") == state


def test_reply_to_an_unread_handled_copy_answers_it(copies: Copies) -> None:
    seq = copies.routed()

    copies.write("message", "nova", delivered_to=[], reply_to=str(seq))

    assert [copies.state(seq, name) for name in COPIES] == ["", "", "answered", ""]
    assert read_unread(copies.rows, "nova") == 0


@pytest.mark.parametrize("handled", ["nova", ["nova"], {"nova": 5}])
def test_unreadable_list_of_handled_copies_is_an_error(handled: object) -> None:
    event = Event(
        seq=1, id="A", type="message", sender="luna", to=(), ts=1, device="T", payload={"handled": handled}
    )

    with pytest.raises(ValueError, match="handled"):
        deliverable(event)


# Mailboxes of sessions


def test_no_mail_of_a_session_is_under_the_name_of_its_agent(copies: Copies) -> None:
    copies.write("message", delivered_to=["nova+mon"])

    assert copies.rows.scan(MAIL, "nova/") == []
    assert list(read_mail(copies.rows, "nova")) == []


def test_step_of_a_session_is_about_its_agent(copies: Copies) -> None:
    seq = copies.routed()

    event = copies.report("nova+mon", "seen", seq, tips=["request"])

    assert agent_of(event) == "nova"
    assert read_tips(copies.rows, "nova") == {"request"}


@pytest.mark.parametrize(("state", "is_used"), [("seen", True), ("submitted", False)])
def test_session_is_used_when_it_has_seen_a_message(copies: Copies, state: str, is_used: bool) -> None:
    created = copies.write("session.created", "nova", agent="nova", session="mon")
    seq = copies.routed()

    step = copies.report("nova+mon", state, seq)

    session = read_agent_session(copies.rows, "nova", "mon")
    assert session is not None
    assert session.last_used_at == (step.ts if is_used else created.ts)


def test_report_without_news_does_not_use_a_session(copies: Copies) -> None:
    created = copies.write("session.created", "nova", agent="nova", session="mon")

    copies.report("nova+mon", "seen", 99)

    session = read_agent_session(copies.rows, "nova", "mon")
    assert session is not None
    assert session.last_used_at == created.ts


def test_lists_of_lanes_include_the_sessions_of_an_agent(copies: Copies) -> None:
    own = copies.write("message", delivered_to=["nova"]).seq
    seq = copies.routed()
    for mailbox, one in (("nova", own), ("nova+mon", seq), ("nova+slack", seq), ("kira", seq)):
        copies.report(mailbox, "submitted", one, lane="hook")

    assert agents_with_carried(copies.rows) == ["kira", "nova"]
    assert mailboxes_with_carried(copies.rows, "nova") == ["nova+mon", "nova+slack", "nova"]
    assert carried_by_lanes(copies.rows, "nova") == [own, seq]

    for mailbox, one in (("nova", own), ("nova+mon", seq), ("nova+slack", seq)):
        copies.report(mailbox, "submitted", one, unconfirmed=True)

    assert mailboxes_with_carried(copies.rows, "nova") == []
    assert read_unsure(copies.rows, "nova") == [own, seq]
    assert read_unsure_of_all(copies.rows) == {"nova": (own, seq)}


def test_copy_that_a_lane_carried_last_is_found(copies: Copies) -> None:
    own = copies.write("message", delivered_to=["nova"]).seq
    seq = copies.routed()
    names = [mailbox_on_lane(copies.rows, "nova", one) for one in (own, seq)]
    copies.report("nova", "submitted", own)
    copies.report("nova+mon", "held", seq, lane="terminal")
    names += [mailbox_on_lane(copies.rows, "nova", one) for one in (own, seq)]
    copies.report("nova+slack", "submitted", seq)
    names.append(mailbox_on_lane(copies.rows, "nova", seq))
    copies.report("nova+mon", "submitted", seq)
    names.append(mailbox_on_lane(copies.rows, "nova", seq))

    assert names == ["nova", "nova", "nova", "nova", "nova+slack", "nova+mon"]
    assert read_lane_entry(copies.rows, seq, "nova") == read_entry(copies.rows, seq, "nova+mon")
    assert set(read_session_entries(copies.rows, seq, "nova")) == {"nova+mon", "nova+slack"}


def test_recipients_of_a_lost_message_include_sessions(copies: Copies) -> None:
    seq = copies.routed()
    copies.report("nova+mon", "seen", seq)

    assert read_receivers(copies.rows, seq) == sorted(COPIES)


@pytest.mark.parametrize(
    ("steps", "is_possible"), [((), True), (("held",), True), (("submitted",), False), (("seen",), False)]
)
def test_waiting_mail_of_a_removed_session_can_end(
    copies: Copies, steps: tuple[str, ...], is_possible: bool
) -> None:
    seq = copies.routed()
    for state in steps:
        copies.report("nova+mon", state, seq)
    dead = DeliveryReport(agent="nova+mon", messages=(seq,), state="dead", reason="the session was removed")

    assert can_step(copies.rows, dead, seq) is is_possible

    copies.report("nova+mon", "dead", seq, reason=dead.reason)
    entry = read_entry(copies.rows, seq, "nova+mon")
    assert entry is not None
    assert (entry.reason == dead.reason) is is_possible


def test_reply_answers_the_copies_in_the_sessions_of_its_author(copies: Copies) -> None:
    seq = copies.routed()
    copies.report("nova+mon", "submitted", seq)
    copies.report("nova+slack", "held", seq, lane="terminal")

    reply = copies.write("message", "nova", delivered_to=[], reply_to=str(seq))

    assert [copies.state(seq, name) for name in COPIES] == ["answered", "held", "answered", ""]
    entry = read_entry(copies.rows, seq, "nova+mon")
    assert entry is not None
    assert entry.answer == reply.seq
    assert find_mail(copies.rows, "nova+mon", seq) is None
    assert find_mail(copies.rows, "nova+slack", seq) is not None
    assert read_unread_of_all(copies.rows) == {"nova+slack": 1, "kira": 1}


# Requests


def test_request_to_a_session_is_watched_for_its_agent_alone(copies: Copies) -> None:
    seq = copies.routed(intent="request", sender_kind="instance", expects_reply=True)

    watched = [name for name in COPIES if read_watch(copies.rows, name, seq)]
    owing = [name for name in COPIES if read_reminder(copies.rows, name, seq)]

    assert (watched, owing) == (["nova", "kira"], ["nova", "kira"])


def test_copy_that_a_session_has_seen_counts_for_its_agent(copies: Copies) -> None:
    seq = copies.routed(intent="request", sender_kind="instance", expects_reply=True)
    copies.report("nova+mon", "submitted", seq)
    copies.write("status", "nova", state="idle")
    before = (due_watches(copies.rows), due_reminders(copies.rows), read_seen_requests(copies.rows, "nova"))
    copies.write("status", "nova", state="active")

    seen = copies.report("nova+mon", "seen", seq)
    went_idle = copies.write("status", "nova", state="idle")

    assert before == ([], [], [])
    assert read_seen_requests(copies.rows, "nova") == [(seq, seen.ts)]
    assert read_due(copies.rows, "nova", seq) == WatchDue(state="idle", cause=went_idle.id)
    assert due_reminders(copies.rows) == [("nova", seq)]


def test_idle_agents_session_that_sees_a_request_makes_a_reminder_due(copies: Copies) -> None:
    seq = copies.routed(sender_kind="instance", expects_reply=True)
    copies.write("status", "nova", state="idle")

    copies.report("nova+mon", "seen", seq)

    assert due_reminders(copies.rows) == [("nova", seq)]


def test_own_copy_counts_as_seen_before_those_of_sessions(copies: Copies) -> None:
    seq = copies.routed()
    assert read_seen(copies.rows, seq, "nova") is None
    copies.report("nova+slack", "seen", seq)
    by_session = read_seen(copies.rows, seq, "nova")
    copies.report("nova", "seen", seq)

    assert by_session == read_entry(copies.rows, seq, "nova+slack")
    assert read_seen(copies.rows, seq, "nova") == read_entry(copies.rows, seq, "nova")


def test_ended_copy_of_a_session_ends_no_watch_of_its_agent(copies: Copies) -> None:
    seq = copies.routed(intent="request", sender_kind="instance")

    copies.report("nova+mon", "dead", seq)

    assert read_watch(copies.rows, "nova", seq) is not None
