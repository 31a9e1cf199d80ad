"""Conversations: rooms, threads, pairs and broadcasts, newest first, with the person's unread messages."""

from hypothesis import given
from hypothesis import strategies as st
from tests.state.recomputed import check_conversations

from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.protocol.query import shown_conversations
from palaver.state.conversations import (
    TALK_OPEN,
    TALK_ORDER,
    TALKS,
    conversations_of,
    count_unread,
    read_conversation,
    read_conversations,
)
from palaver.state.fold import apply


def message(seq: int, sender: str, *names: str, **fields: object) -> Event:
    """Return a message to some names; without one it is a broadcast to the person and to nova."""
    to = names or ("human", "nova")
    payload: dict[str, object] = {
        "text": f"text {seq}",
        "scope": "mentions" if names else "broadcast",
        "mentions": list(names),
        "sender_kind": "instance",
        "delivered_to": list(to),
        **fields,
    }
    return Event(
        seq=seq,
        id=f"ID{seq}",
        type="message",
        sender=sender,
        to=tuple(f"@{name}" for name in names),
        ts=1000 + seq,
        device="TEST",
        payload=payload,
    )


def report(seq: int, agent: str, state: str, *messages: int, **fields: object) -> Event:
    payload: dict[str, object] = {"agent": agent, "messages": list(messages), "state": state, **fields}
    return Event(
        seq=seq, id=f"ID{seq}", type="delivery", sender=agent, ts=1000 + seq, device="TEST", payload=payload
    )


def other(seq: int, type_: str, sender: str = "luna", **fields: object) -> Event:
    payload = fields.pop("payload", {})
    return Event(seq=seq, id=f"ID{seq}", type=type_, sender=sender, ts=1, payload=payload, **fields)  # type: ignore[arg-type]  # fields of an event


def folded(*events: Event) -> MemoryRows:
    rows = MemoryRows()
    for one in events:
        rows.change(apply(rows, one))
    check_conversations(rows, events)
    return rows


def keys_of(rows: MemoryRows) -> list[str]:
    return [one.key for one in read_conversations(rows, limit=100)]


# Where a message belongs


def test_direct_message_belongs_to_one_pair_per_recipient() -> None:
    assert conversations_of(message(1, "luna", "nova", "Kira")) == ("@kira@luna", "@luna@nova")


def test_message_of_a_thread_belongs_to_its_thread_too() -> None:
    assert conversations_of(message(1, "luna", "nova", thread="Plan")) == ("@luna@nova", "thread/Plan")


def test_room_message_belongs_only_to_its_room() -> None:
    assert conversations_of(message(1, "luna", "nova", room="app-x2y3")) == ("#app-x2y3",)


def test_broadcast_belongs_to_the_general_conversation() -> None:
    assert conversations_of(message(1, "luna")) == ("#general",)


def test_imported_messages_raw_keys_and_other_events_belong_to_none() -> None:
    imported = other(1, "message", payload={"delivered_to": ["nova"], "scope": "mentions"}, imported=4)

    assert conversations_of(imported) == ()
    assert conversations_of(message(1, "luna", "nova", raw="eQ==")) == ()
    assert conversations_of(other(1, "status")) == ()


def test_message_to_many_recipients_belongs_to_no_pair() -> None:
    assert conversations_of(message(1, "luna", *(f"agent{n}" for n in range(60)))) == ()


names = st.lists(st.sampled_from(["nova", "Kira", "human", "luna", "nova+mon"]), max_size=12)
tokens = st.lists(
    st.sampled_from(["@nova", "@all", "#app", "irc/local/bob", "irc/local/#dev", "x/y", "@human"]), max_size=4
)
words = st.sampled_from(["", "one", "#Two"])


@given(names, tokens, st.sampled_from(["mentions", "broadcast", "path", "room"]), words, words, words)
def test_conversations_are_the_places_without_single_agents(
    to: list[str], addresses: list[str], scope: str, thread: str, room: str, channel: str
) -> None:
    fields = {"scope": scope, "delivered_to": to, "thread": thread, "room": room, "channel": channel}
    payload = {key: value for key, value in fields.items() if value}
    for type_ in ("message", "app.event"):
        made = other(1, type_, payload=payload, to=tuple(addresses), delivered_to=tuple(to))

        shared = {one for one in shown_conversations(made) if one[0] != "@" or one.count("@") > 1}
        assert conversations_of(made) == tuple(sorted(shared))


# The list


def test_conversations_are_listed_newest_first_with_titles() -> None:
    join = {"room": "app-x2y3", "base": "app-x2y3", "path": "/w/App", "name": "App"}
    rows = folded(
        other(1, "member_joined", payload=join),
        message(2, "luna", "nova"),
        message(3, "luna", "human"),
        message(4, "luna", "nova", room="app-x2y3"),
        message(5, "luna", channel="#Dev", scope="mentions"),
        message(6, "luna"),
        message(7, "luna", "human", thread="plan", room="gone-a2b3"),
        message(8, "human", "human"),
    )

    assert [(one.key, one.kind, one.title) for one in read_conversations(rows, limit=100)] == [
        ("@human@human", "pair", "human"),
        ("#gone-a2b3", "room", "#gone-a2b3"),
        ("thread/plan", "thread", "plan"),
        ("#general", "all", "everyone"),
        ("#dev", "room", "#dev"),
        ("#app-x2y3", "room", "App"),
        ("@human@luna", "pair", "luna"),
        ("@luna@nova", "pair", "luna and nova"),
    ]


def test_conversation_has_its_newest_message_and_the_number_of_all() -> None:
    rows = folded(message(1, "luna", "nova"), message(2, "nova", "luna"))

    found = read_conversation(rows, "@luna@nova", text_of=lambda seq: f"text of #{seq}")

    assert found is not None
    assert (found.seq, found.ts, found.sender, found.count) == (2, 1002, "nova", 2)
    assert found.text == "text of #2"
    assert read_conversation(rows, "@luna@kira") is None


def test_rows_of_conversations_contain_no_text() -> None:
    rows = folded(message(1, "luna", "human", text="a secret", thread="plan"))

    values = [value for table in (TALKS, TALK_ORDER, TALK_OPEN) for _, value in rows.scan(table, "")]

    assert not any(b"secret" in value for value in values)


def test_pages_continue_below_the_last_seq_and_never_split_a_message() -> None:
    rows = folded(*(message(n, f"agent{n}", "nova", "kira", "human") for n in range(1, 5)))

    first = read_conversations(rows, limit=2)
    second = read_conversations(rows, before=first[-1].seq, limit=4)

    assert [one.seq for one in first] == [4, 4, 4]
    assert [one.seq for one in second] == [3, 3, 3, 2, 2, 2]


def test_conversations_stay_ordered_over_a_long_log() -> None:
    """Most messages do not move their conversation in the order, because they are close together."""
    seqs = [1, 2, 600, 601, 1300, 1301, 5000, 5001]
    rows = folded(*(message(seq, "luna", f"agent{at % 3}") for at, seq in enumerate(seqs)))

    assert keys_of(rows) == ["@agent1@luna", "@agent0@luna", "@agent2@luna"]
    assert len(rows.scan(TALK_ORDER, "")) == 3


def test_long_list_is_read_in_several_scans() -> None:
    rows = folded(*(message(n, f"agent{n}", "nova") for n in range(1, 1200)))

    assert [one.seq for one in read_conversations(rows, limit=1100)] == list(range(1199, 99, -1))


# Unread messages of the person


def unread(rows: MemoryRows) -> dict[str, int]:
    return {one.key: one.unread for one in read_conversations(rows, limit=100) if one.unread}


def test_message_to_the_person_is_unread_until_it_is_seen() -> None:
    sent = [
        message(1, "luna", "human"),
        message(2, "luna", "human", thread="plan"),
        message(3, "luna", "nova"),
    ]

    assert unread(folded(*sent)) == {"@human@luna": 2, "thread/plan": 1}
    assert unread(folded(*sent, report(4, "human", "seen", 1))) == {"@human@luna": 1, "thread/plan": 1}
    assert unread(folded(*sent, report(4, "human", "seen", 2))) == {"@human@luna": 1}
    assert count_unread(folded(*sent, report(4, "human", "seen", 1, 2))) == 0


def test_report_about_another_agent_changes_no_unread_count() -> None:
    rows = folded(message(1, "luna"), report(2, "nova", "seen", 1))

    assert unread(rows) == {"#general": 1}


def test_held_message_is_unread_only_after_its_release() -> None:
    held = message(1, "luna", "human", held="too many")

    assert unread(folded(held)) == {}
    assert unread(folded(held, report(2, "human", "queued", 1))) == {"@human@luna": 1}
    assert unread(folded(held, report(2, "human", "expired", 1))) == {}


def test_message_held_by_a_gate_stays_unread() -> None:
    rows = folded(message(1, "luna", "human"), report(2, "human", "held", 1, lane="terminal"))

    assert unread(rows) == {"@human@luna": 1}


def test_unconfirmed_message_is_unread_again_after_redelivery() -> None:
    steps = [
        message(1, "luna", "human"),
        report(2, "human", "submitted", 1, lane="native"),
        report(3, "human", "submitted", 1, unconfirmed=True),
        report(4, "human", "queued", 1, priority="normal"),
    ]

    assert [unread(folded(*steps[:count])) for count in (2, 3, 4)] == [
        {"@human@luna": 1},
        {},
        {"@human@luna": 1},
    ]


def test_message_that_the_person_answers_unread_stays_unread() -> None:
    rows = folded(message(1, "luna", "human"), message(2, "human", "luna", reply_to="1"))

    assert unread(rows) == {"@human@luna": 1}


def test_held_message_that_the_person_answers_is_not_unread() -> None:
    rows = folded(message(1, "luna", "human", held="x"), message(2, "human", "luna", reply_to="1"))

    assert unread(rows) == {}
    assert rows.scan(TALK_OPEN, "") == []


def test_released_reply_of_the_person_ends_the_wait_of_a_held_message() -> None:
    """Brakes hold no message of the person, but a log may contain it."""
    rows = folded(
        message(1, "luna", "human", held="x"),
        message(2, "human", "luna", held="x", reply_to="1"),
        report(3, "luna", "queued", 2, author="human", answers=1),
    )

    assert rows.scan(TALK_OPEN, "") == []


def test_handled_copy_of_the_person_is_not_unread() -> None:
    rows = folded(message(1, "luna", "human", handled={"human": ["mon"]}))

    assert unread(rows) == {}


def test_envelope_to_the_person_is_unread_in_its_pair() -> None:
    rows = folded(other(1, "app.event", to=("@human",), delivered_to=("human",)))

    assert unread(rows) == {"@human@luna": 1}


def test_mail_of_a_log_without_conversations_is_read_without_an_error() -> None:
    """An older version wrote the message, and the rebuild after the upgrade has failed."""
    rows = MemoryRows()
    rows.change(
        change for change in apply(rows, message(1, "luna", "human")) if not change[0].startswith("talk")
    )

    rows.change(apply(rows, report(2, "human", "seen", 1)))

    assert read_conversations(rows) == []


def test_removed_conversation_is_not_listed() -> None:
    """A damaged log can have a row of the order without its conversation."""
    rows = folded(message(1, "luna", "human"))
    rows.change([(TALKS, "@human@luna", None)])

    rows.change(apply(rows, report(2, "human", "seen", 1)))

    assert read_conversations(rows) == []
