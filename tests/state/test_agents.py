"""Reading the state."""

import pytest

from palaver.log.memory import MemoryLog, MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Draft
from palaver.protocol.events import DeliveryReport, State, can_rise
from palaver.protocol.message import Priority
from palaver.state.agents import (
    AGENTS,
    SESSIONS,
    agents_with_carried,
    can_step,
    find_mail,
    is_carried,
    read_agent,
    read_agents,
    read_carried,
    read_entry,
    read_line,
    read_mail,
    read_mail_up_to,
    read_receivers,
    read_session,
    read_tips,
    read_unread,
    read_unread_of_all,
    read_unsure,
    read_unsure_of_all,
)
from palaver.state.fold import apply
from palaver.state.rows import (
    CARRIED,
    LEDGER,
    MAIL,
    TIP,
    UNREAD,
    UNSURE,
    LedgerEntry,
    OpenMessage,
    agent_key,
    encode_row,
    ledger_key,
    mail_key,
)


def rows_with(entry: LedgerEntry | None = None, *, is_waiting: bool = False) -> MemoryRows:
    """Return the rows of message 7 to nova: with a ledger entry, queued, or neither."""
    rows = MemoryRows()
    if entry is not None:
        rows.change([(LEDGER, ledger_key(7, "nova"), encode_row(entry))])
    if is_waiting:
        mail = OpenMessage(seq=7, state="queued")
        rows.change([(MAIL, mail_key("nova", Priority.IDLE, 7), encode_row(mail))])
    return rows


def report(state: str, *, unconfirmed: bool = False) -> DeliveryReport:
    return DeliveryReport(agent="nova", messages=(7,), state=state, unconfirmed=unconfirmed)


def test_empty_state_returns_nothing() -> None:
    rows = MemoryRows()

    assert (read_agent(rows, "luna"), read_agents(rows), read_session(rows, "claude", "s")) == (
        None,
        [],
        None,
    )
    assert (read_entry(rows, 7, "nova"), read_line(rows, 7, "nova"), find_mail(rows, "nova", 7)) == (
        None,
    ) * 3
    assert (read_unread(rows, "nova"), read_carried(rows, "nova"), read_unsure(rows, "nova")) == (0, [], [])


def test_many_agents_are_read_page_by_page() -> None:
    agents = [Agent(name=f"a{number:04d}", base="a") for number in range(1001)]
    rows = MemoryRows()
    rows.change([(AGENTS, agent.name, encode_row(agent)) for agent in agents])
    rows.change([(SESSIONS, "claude/s", b"a0007")])

    assert read_agents(rows) == agents
    assert read_session(rows, "claude", "s") == "a0007"


def test_counts_and_short_lists_belong_to_one_agent() -> None:
    rows = MemoryRows()
    rows.change([(UNREAD, "nova", b"3"), (UNREAD, "nova2", b"5")])
    for table in (CARRIED, UNSURE):
        rows.change([(table, agent_key("nova", 7), b"1"), (table, agent_key("nova2", 8), b"1")])

    assert (read_unread(rows, "nova"), read_carried(rows, "nova"), read_unsure(rows, "nova")) == (3, [7], [7])
    assert read_unread_of_all(rows) == {"nova": 3, "nova2": 5}
    assert read_unsure_of_all(rows) == {"nova": (7,), "nova2": (8,)}


def test_recipients_are_read_from_the_ledger_and_from_open_mail() -> None:
    rows = rows_with(LedgerEntry(state="seen", ts=1))
    rows.change([(AGENTS, name, encode_row(Agent(name=name, base=name))) for name in ("kira", "mila")])
    waiting = encode_row(OpenMessage(seq=7, state="queued"))
    rows.change([(MAIL, mail_key(name, Priority.NORMAL, 7), waiting) for name in ("kira", "human")])
    rows.change([(LEDGER, ledger_key(70, "mila"), encode_row(LedgerEntry(state="seen", ts=1)))])

    assert read_receivers(rows, 7) == ["human", "kira", "nova"]
    assert read_receivers(rows, 8) == []


def test_tips_of_one_agent_are_separate_from_those_of_another() -> None:
    rows = MemoryRows()
    rows.change([(TIP, "nova/request", b"1"), (TIP, "nova/thread", b"1"), (TIP, "nova2/broadcast", b"1")])

    assert read_tips(rows, "nova") == {"request", "thread"}
    assert read_tips(rows, "luna") == frozenset()


def test_waiting_mail_has_a_queued_entry() -> None:
    assert read_line(rows_with(is_waiting=True), 7, "nova") == LedgerEntry(state="queued", ts=0)
    assert read_line(rows_with(LedgerEntry(state="seen", ts=1)), 7, "nova") == LedgerEntry(state="seen", ts=1)


def test_only_submitted_mail_that_is_not_unconfirmed_is_in_transit() -> None:
    assert is_carried(LedgerEntry(state="submitted", ts=1))
    assert not is_carried(LedgerEntry(state="submitted", ts=1, unconfirmed=True))
    assert not is_carried(LedgerEntry(state="seen", ts=1))


@pytest.mark.parametrize("state", State)
def test_report_changes_a_message_to_others_only_if_it_is_dead(state: State) -> None:
    assert can_step(rows_with(), report(state), 7) is (state is State.DEAD)


@pytest.mark.parametrize("old", [state for state in State if state not in (State.QUEUED, State.ANSWERED)])
@pytest.mark.parametrize("new", [state for state in State if state is not State.QUEUED])
def test_report_changes_an_entry_only_upwards(old: State, new: State) -> None:
    rows = rows_with(LedgerEntry(state=old, ts=1))

    assert can_step(rows, report(new), 7) is can_rise(old, new)


@pytest.mark.parametrize("old", State)
def test_only_submitted_or_held_mail_can_be_queued_again(old: State) -> None:
    rows = rows_with(LedgerEntry(state=old, ts=1))

    assert can_step(rows, report("queued"), 7) is (old in (State.SUBMITTED, State.HELD))


def test_only_mail_in_transit_becomes_unconfirmed_and_only_once() -> None:
    carried, unsure = (
        LedgerEntry(state="submitted", ts=1),
        LedgerEntry(state="submitted", ts=1, unconfirmed=True),
    )

    assert can_step(rows_with(carried), report("submitted", unconfirmed=True), 7)
    assert not can_step(rows_with(unsure), report("submitted", unconfirmed=True), 7)
    assert not can_step(rows_with(is_waiting=True), report("submitted", unconfirmed=True), 7)
    assert not can_step(rows_with(carried), report("seen", unconfirmed=True), 7)


async def test_open_mail_is_read_in_order_and_up_to_a_seq() -> None:
    log = MemoryLog(apply=apply)
    kinds: list[tuple[str, list[str] | None]] = [
        ("idle", None),
        ("normal", None),
        ("normal", []),
        ("idle-first", None),
        ("idle-first", []),
        ("interrupt", []),
    ]
    seqs: list[tuple[str, int]] = []
    for number, (priority, wakes) in enumerate(kinds * 250):
        payload: dict[str, object] = {"text": "x", "delivered_to": ["nova"], "priority": priority}
        if wakes is not None:
            payload["wakes"] = wakes
        draft = Draft(type="message", sender="luna", payload=payload, to=("nova",), id=f"ID{number}", ts=1)
        event = (await log.commit(None, lambda rows, draft=draft: draft)).event  # type: ignore[misc]  # bound now
        assert event is not None
        seqs.append((priority, event.seq))

    walked = [mail.seq for mail in read_mail(log.rows, "nova")]
    middle = seqs[len(seqs) // 2][1]

    assert walked == [
        seq
        for wanted in ("interrupt", "normal", "idle-first", "idle")
        for seq in sorted((seq for word, seq in seqs if word == wanted), reverse=wanted == "idle-first")
    ]
    assert [mail.seq for mail in read_mail_up_to(log.rows, "nova", middle)] == [
        seq for seq in walked if seq <= middle
    ]


def test_every_agent_with_mail_in_transit_is_found() -> None:
    rows = MemoryRows()
    rows.change([(CARRIED, agent_key("luna", seq), b"1") for seq in range(1, 2001)])
    rows.change([(CARRIED, agent_key("nova", 7), b"1")])

    assert agents_with_carried(rows) == ["luna", "nova"]
