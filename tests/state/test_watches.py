"""Watches and subscriptions as rows: the changes of each event."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.log.memory import MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import Filter
from palaver.protocol.subscriptions import Watch, WatchDue
from palaver.state.fold import SKIPPED, apply
from palaver.state.rows import LedgerEntry, encode_row, ledger_key
from palaver.state.watches import (
    due_watches,
    read_due,
    read_open_requests,
    read_seen_requests,
    read_subscription,
    read_subscriptions,
    read_watch,
    read_watches,
    watch_changes,
)


def event(seq: int, type: str, sender: str = "luna", **payload: object) -> Event:
    return Event(
        seq=seq, id=f"id-{seq}", type=type, sender=sender, to=(), ts=seq, device="TEST", payload=payload
    )


def asked(seq: int, *names: str, kind: str = "instance") -> Event:
    return event(seq, "message", text="?", sender_kind=kind, intent="request", delivered_to=list(names))


def message_event(seq: int, sender: str = "luna", **payload: object) -> Event:
    return event(seq, "message", sender, text="!", delivered_to=[], **payload)


def notice_event(seq: int, **payload: object) -> Event:
    return message_event(seq, "[pal-events]", sender_kind="system", **payload)


def seen(seq: int, agent: str, *seqs: int) -> Event:
    return event(seq, "delivery", agent, agent=agent, messages=list(seqs), state="seen")


def reported(seq: int, agent: str, state: str, *seqs: int, **more: object) -> Event:
    return event(seq, "delivery", "[pal]", agent=agent, messages=list(seqs), state=state, **more)


def folded(events: Iterable[Event]) -> MemoryRows:
    rows = MemoryRows()
    for name in ("luna", "nova", "kira"):
        rows.change([("agent", name, encode_row(Agent(name=name, base=name)))])
    for one in events:
        rows.change(apply(rows, one))
    return rows


def open_watches(rows: MemoryRows) -> list[tuple[str, int]]:
    return [(watch.agent, watch.request) for watch in read_watches(rows)]


def test_request_is_watched_except_for_its_sender_and_the_human() -> None:
    rows = folded([asked(5, "kira", "nova", "luna", "human"), message_event(6, intent="inform")])

    assert open_watches(rows) == [("kira", 5), ("nova", 5)]
    assert read_watch(rows, "nova", 5) == Watch(agent="nova", request=5, sender="luna", ts=5)
    assert read_watch(rows, "luna", 5) is None


@pytest.mark.parametrize("kind", ["external", "system"])
def test_requests_of_scripts_and_the_bus_are_not_watched(kind: str) -> None:
    assert open_watches(folded([asked(5, "nova", kind=kind)])) == []


def test_seen_request_is_due_when_its_agent_goes_idle() -> None:
    rows = folded(
        [
            asked(5, "nova", "kira"),
            asked(6, "nova"),
            seen(7, "nova", 5),
            event(8, "status", "nova", state="idle"),
        ]
    )

    assert due_watches(rows) == [("nova", 5)]
    assert due_watches(rows, "kira") == []
    assert read_due(rows, "nova", 5) == WatchDue(state="idle", cause="id-8")
    assert read_due(rows, "nova", 6) is None


@pytest.mark.parametrize("state", ["active", "blocked", "starting"])
def test_other_states_make_nothing_due(state: str) -> None:
    rows = folded([asked(5, "nova"), seen(6, "nova", 5), event(7, "status", "nova", state=state)])

    assert due_watches(rows) == []


def test_alias_of_idle_counts_and_a_status_may_name_its_agent() -> None:
    rows = folded(
        [asked(5, "nova"), seen(6, "nova", 5), event(7, "status", "holder", agent="nova", state="listening")]
    )

    assert due_watches(rows) == [("nova", 5)]


def test_all_requests_are_due_when_an_agent_stops() -> None:
    rows = folded(
        [
            asked(5, "nova"),
            asked(6, "nova"),
            seen(7, "nova", 6),
            event(8, "status", "nova", state="idle"),
            event(9, "agent.bye", "nova", reason="left"),
        ]
    )

    assert due_watches(rows, "nova") == [("nova", 5), ("nova", 6)]
    assert read_due(rows, "nova", 5) == WatchDue(state="stopped", cause="id-9")
    assert read_due(rows, "nova", 6) == WatchDue(state="idle", cause="id-8")


@pytest.mark.parametrize(
    "end",
    [
        message_event(9, "nova", reply_to="5"),
        notice_event(9, watch={"agent": "nova", "request": 5}),
        event(9, "sub.removed", id="w5-nova", reason="removed"),
    ],
    ids=["a reply", "the notice", "a removal"],
)
def test_watch_ends_with_a_reply_or_notice_or_removal(end: Event) -> None:
    before = [asked(5, "nova", "kira"), event(8, "agent.bye", "nova")]

    assert open_watches(folded([*before, end])) == [("kira", 5)]
    assert due_watches(folded([*before, end])) == []


@pytest.mark.parametrize("state", ["expired", "refused", "dead"])
def test_final_state_of_a_copy_ends_its_watch(state: str) -> None:
    before = [asked(5, "nova", "kira"), asked(6, "nova"), event(7, "agent.bye", "nova")]

    rows = folded([*before, reported(8, "nova", state, 5, 4)])

    assert open_watches(rows) == [("kira", 5), ("nova", 6)]
    assert due_watches(rows) == [("nova", 6)]


@pytest.mark.parametrize("state", ["expired", "submitted", "queued"])
def test_report_without_a_final_state_ends_no_watch(state: str) -> None:
    rows = folded([asked(5, "nova"), seen(6, "nova", 5), reported(7, "nova", state, 5)])

    assert open_watches(rows) == [("nova", 5)]


def test_held_reply_ends_its_watch_when_it_is_released() -> None:
    reply = event(
        6, "message", "nova", text="!", delivered_to=["luna", "kira"], reply_to="5", held="60 a minute"
    )
    held = [asked(5, "nova"), reply]
    again = reported(7, "luna", "queued", 6, author="nova", answers=5)

    assert open_watches(folded(held)) == [("nova", 5)]
    assert open_watches(folded([*held, again])) == []


def test_release_that_changes_nothing_ends_no_watch() -> None:
    rows = folded([asked(5, "nova"), reported(6, "luna", "queued", 4, author="nova", answers=5)])

    assert open_watches(rows) == [("nova", 5)]


def test_only_the_bus_reports_that_a_watch_has_fired() -> None:
    rows = folded(
        [asked(5, "nova"), message_event(6, watch={"agent": "nova", "request": 5}, sender_kind="instance")]
    )

    assert open_watches(rows) == [("nova", 5)]


def test_subscription_is_stored_with_its_seq_until_it_is_removed() -> None:
    added = event(5, "sub.added", id="a1b2c3", owner="luna", filter={"types": ["status"]}, text="x")

    rows = folded([added])

    made = read_subscription(rows, "a1b2c3")
    assert made is not None
    assert (made.owner, made.filter, made.seq, made.ts, made.text) == (
        "luna",
        Filter(types=("status",)),
        5,
        5,
        "x",
    )
    assert list(read_subscriptions(rows)) == [made]
    assert read_subscription(rows, "zzzzzz") is None
    removed = event(6, "sub.removed", id="a1b2c3", reason="x")
    assert list(read_subscriptions(folded([added, removed, removed]))) == []


@pytest.mark.parametrize(("once", "spent"), [(True, 6), (False, 0)])
def test_first_hit_uses_up_a_once_subscription(once: bool, spent: int) -> None:
    added = event(5, "sub.added", id="a1b2c3", owner="luna", filter={}, once=once)

    rows = folded(
        [
            added,
            notice_event(6, sub="a1b2c3", event=4),
            notice_event(7, sub="a1b2c3", event=5),
            notice_event(8, sub="zzzzzz"),
        ]
    )

    made = read_subscription(rows, "a1b2c3")
    assert made is not None
    assert made.spent == spent


def test_foreign_subscription_is_ignored() -> None:
    assert list(read_subscriptions(folded([event(5, "sub.added", id="a1b2c3", pattern="agent/*")]))) == []


def test_unreadable_event_is_skipped_and_counted() -> None:
    rows = folded(
        [
            event(5, "sub.added", id=7, owner="luna", filter={}),
            event(6, "sub.removed"),
            notice_event(7, watch={"agent": "nova"}),
            event(8, "status", "nova"),
        ]
    )

    assert [key for key, _ in rows.scan(SKIPPED, "")] == ["message", "status", "sub.added", "sub.removed"]
    assert watch_changes(rows, event(9, "status", "nova"), "nova") == []


def test_all_watches_are_read_over_several_pages() -> None:
    rows = folded(asked(seq, "nova") for seq in range(1, 1502))

    rows.change(apply(rows, event(2000, "agent.bye", "nova")))

    assert len(open_watches(rows)) == len(due_watches(rows)) == 1501
    exact = folded(asked(seq, "nova") for seq in range(1, 1001))
    assert len(open_watches(exact)) == 1000


days = st.lists(
    st.tuples(
        st.sampled_from(["ask", "see", "idle", "active", "bye", "reply", "notice", "remove"]),
        st.sampled_from(["nova", "kira"]),
        st.integers(1, 12),
    ),
    max_size=30,
)


def happened(seq: int, verb: str, agent: str, sent_seq: int) -> Event:
    made = {
        "ask": asked(seq, agent),
        "see": seen(seq, agent, sent_seq),
        "idle": event(seq, "status", agent, state="idle"),
        "active": event(seq, "status", agent, state="active"),
        "bye": event(seq, "agent.bye", agent),
        "reply": message_event(seq, agent, reply_to=str(sent_seq)),
        "notice": notice_event(seq, watch={"agent": agent, "request": sent_seq}),
        "remove": event(seq, "sub.removed", id=f"w{sent_seq}-{agent}"),
    }
    return made[verb]


@given(days)
def test_watch_is_due_exactly_when_its_events_say_so(day: list[tuple[str, str, int]]) -> None:
    watches: dict[tuple[str, int], str] = {}
    left: set[str] = set()
    for seq, (verb, agent, index) in enumerate(day, 1):
        key = (agent, index)
        left |= {agent} if verb == "bye" else set()
        if verb == "ask":
            watches[agent, seq] = "due" if agent in left else "open"
        elif verb == "see" and watches.get(key) == "open":
            watches[key] = "seen"
        elif verb in ("reply", "notice", "remove"):
            watches.pop(key, None)
        elif verb in ("idle", "bye"):
            owes = ("seen",) if verb == "idle" else ("seen", "open")
            watches |= {key: "due" for key, state in watches.items() if key[0] == agent and state in owes}

    rows = folded(happened(seq, *one) for seq, one in enumerate(day, 1))

    assert set(open_watches(rows)) == set(watches)
    assert set(due_watches(rows)) == {key for key, state in watches.items() if state == "due"}


def test_ledger_decides_which_requests_were_seen() -> None:
    rows = folded([asked(5, "nova")])
    rows.change(
        [
            (
                "ledger",
                ledger_key(5, "nova"),
                encode_row(LedgerEntry(state="submitted", ts=6, unconfirmed=True)),
            )
        ]
    )

    rows.change(apply(rows, event(7, "status", "nova", state="idle")))

    assert due_watches(rows) == []


def test_request_to_an_agent_that_has_left_is_due_at_once() -> None:
    rows = folded([event(4, "agent.bye", "nova", reason="left"), asked(5, "nova", "kira")])

    assert due_watches(rows) == [("nova", 5)]
    assert read_due(rows, "nova", 5) == WatchDue(state="stopped", cause="id-5")


def test_request_stays_open_after_a_notice_until_it_is_answered() -> None:
    notice = notice_event(8, watch={"agent": "nova", "request": 5})
    events = [asked(5, "nova"), asked(6, "nova"), event(7, "agent.bye", "nova", reason="left"), notice]

    rows = folded(events)
    answered = folded([*events, message_event(9, "nova", answers=5)])

    assert open_watches(rows) == [("nova", 6)]
    assert [watch.request for watch in read_open_requests(rows, "nova", "luna")] == [6, 5]
    assert [watch.request for watch in read_open_requests(answered, "nova", "luna")] == [6]


def test_notice_of_an_ended_watch_leaves_no_open_request() -> None:
    rows = folded(
        [
            asked(5, "nova"),
            message_event(6, "nova", reply_to="5"),
            notice_event(7, watch={"agent": "nova", "request": 5}),
        ]
    )

    assert read_open_requests(rows, "nova", "luna") == []


def test_open_requests_are_those_of_one_sender() -> None:
    of_kira = event(
        6, "message", "kira", text="?", sender_kind="instance", intent="request", delivered_to=["nova"]
    )
    rows = folded([asked(5, "nova"), of_kira])

    assert [watch.request for watch in read_open_requests(rows, "nova", "kira")] == [6]
    assert read_open_requests(rows, "kira", "luna") == []


def test_seen_requests_are_those_without_an_answer() -> None:
    rows = folded(
        [
            asked(4, "nova"),
            asked(5, "nova"),
            asked(6, "nova"),
            seen(7, "nova", 4, 5),
            message_event(8, "nova", reply_to="4"),
        ]
    )

    assert read_seen_requests(rows, "nova") == [(5, 7)]
