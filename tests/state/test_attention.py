"""Attention: how each entry begins and ends, its sentences, and the commands that it offers."""

import msgspec
import pytest
from tests.state.recomputed import FakeFacts
from tests.state.test_conversations import message, other, report

from palaver.domain.turns import failed_reason
from palaver.harness import hooks
from palaver.log.memory import MemoryRows
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.message import LOST
from palaver.protocol.views import Attention, AttentionKind
from palaver.state.agents import read_agents
from palaver.state.attention import (
    ATTENTION,
    LIMIT_KIND,
    attention_of,
    beginning_of,
    each_attention,
    read_attention,
    touched_by,
)
from palaver.state.fold import apply
from palaver.state.reasons import COMPACTING, TURN_FAILED, USED_UP, USED_UP_ASKED

LUNA = {"name": "luna", "base": "luna", "holder": "h"}


class Home:
    """Events that are folded one by one, with the facts that the list needs."""

    def __init__(self, *events: Event) -> None:
        self.rows = MemoryRows()
        self.facts = FakeFacts()
        self.changed: list[frozenset[str]] = []
        self.add(*events)

    def add(self, *events: Event) -> None:
        """Fold events, and check that `touched_by` names each entry that they change."""
        for event in events:
            before = self.entries()
            self.facts.events[event.seq] = event
            self.rows.change(apply(self.rows, event))
            self.facts.known = read_agents(self.rows)
            after = self.entries()
            keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            touched = touched_by(event)
            ends = tuple(key for key in touched if key.endswith("/"))
            assert all(key in touched or key.startswith(ends) for key in keys), (event, keys, touched)

    def entries(self) -> dict[str, Attention]:
        found = read_attention(self.rows, self.facts)
        assert [attention_of(self.rows, one.key, self.facts) for one in found] == found
        return {one.key: one for one in found}

    def keys(self) -> list[str]:
        return [one.key for one in read_attention(self.rows, self.facts)]

    def one(self) -> Attention:
        (found,) = read_attention(self.rows, self.facts)
        return found


def commands(entry: Attention) -> dict[str, str]:
    return {action.word: " ".join(action.command) for action in entry.actions}


def ask(seq: int, *names: str, **fields: object) -> Event:
    """Return a request of luna."""
    return message(seq, "luna", *names, intent="request", **fields)


def hello(seq: int, **fields: object) -> Event:
    return other(seq, "agent.hello", payload={"agent": {**LUNA, **fields}})


def status(seq: int, state: str, **fields: object) -> Event:
    return other(seq, "status", payload={"state": state, **fields})


def asked(seq: int, id_: str = "3f9c2a1", sender: str = "luna") -> Event:
    payload = {"permission": id_, "tool": "Bash", "text": "Bash: make", "digest": "d", "until": 90_000}
    return other(seq, "permission.asked", sender, payload=payload)


def answered(seq: int, id_: str = "3f9c2a1") -> Event:
    return other(seq, "permission.answered", "human", payload={"agent": "luna", "permission": id_})


# Requests to the person


def test_request_to_the_person_is_listed_with_a_command_to_reply() -> None:
    entry = Home(ask(4, "human", text="May I deploy?")).one()

    assert (entry.key, entry.kind, entry.who, entry.seq) == ("request/4", "request", "luna", 4)
    assert (entry.what, entry.since, entry.to) == ("May I deploy?", 1004, ("human",))
    assert entry.why == "luna asked you and has no reply yet."
    assert commands(entry) == {"reply": "pal send --reply-to 4", "show": "pal show 4"}


def test_message_that_expects_a_reply_of_the_person_is_listed() -> None:
    assert Home(message(4, "luna", "human", expects_reply=True)).keys() == ["request/4"]


@pytest.mark.parametrize(
    "event",
    [
        message(4, "luna", "human"),
        message(4, "luna", intent="request"),
        message(4, "human", "human", intent="request"),
        ask(4, "nova"),
        ask(4, "human", migrated=["human"]),
        other(4, "message", payload={"intent": "request", "mentions": ["human"]}),
        other(4, "message", payload=ask(4, "human").payload, imported=7),
    ],
    ids=["no request", "broadcast", "of the person", "to an agent", "migrated", "not delivered", "imported"],
)
def test_other_messages_do_not_need_a_reply_of_the_person(event: Event) -> None:
    assert Home(event).keys() == []


def test_entry_that_ends_while_the_list_is_read_is_left_out() -> None:
    home = Home(*(ask(seq, "human") for seq in range(1, 4)))
    steps = each_attention(home.rows, home.facts)
    first = next(steps)

    home.rows.change(apply(home.rows, message(9, "human", "luna", reply_to="2")))
    rest = [one for one in steps if one is not None]

    assert first is not None
    assert [first.key, *(one.key for one in rest)] == ["request/3", "request/1"]


def test_request_in_a_broadcast_that_also_names_the_person_is_listed() -> None:
    event = msgspec.structs.replace(ask(1), to=("@all", "@human"))

    assert Home(event).keys() == ["request/1"]


def test_request_ends_with_the_reply_of_the_person() -> None:
    home = Home(ask(4, "human"), ask(5, "human"))

    home.add(message(6, "human", "luna", reply_to="4"))

    assert home.keys() == ["request/5"]


def test_reply_without_a_number_ends_the_request_that_it_answers() -> None:
    home = Home(ask(4, "human"))

    home.add(message(5, "human", "luna", answers=4))

    assert home.keys() == []


def test_request_stays_when_it_is_read_and_when_others_reply() -> None:
    home = Home(ask(4, "human"), report(5, "human", "seen", 4))

    home.add(message(6, "nova", "luna", reply_to="4"), message(7, "nova", "luna", reply_to="4", intent="ack"))

    assert home.keys() == ["request/4"]


def test_sender_withdraws_a_request_by_an_ack_to_it() -> None:
    home = Home(ask(4, "human"), message(5, "luna", "human", reply_to="4"))
    assert home.keys() == ["request/4"]

    home.add(message(6, "luna", "human", reply_to="4", intent="ack"))

    assert home.keys() == []


def test_reply_of_the_person_to_another_message_ends_nothing() -> None:
    home = Home(ask(4, "human"), message(5, "nova", "human"))

    home.add(message(6, "human", "nova", reply_to="5"))

    assert home.keys() == ["request/4"]


def test_request_that_expires_ends() -> None:
    home = Home(ask(4, "human", expires=9), ask(5, "nova", expires=9))

    home.add(report(6, "human", "expired", 4), report(7, "nova", "expired", 5))

    assert home.keys() == []


def test_held_request_is_listed_as_held_and_after_its_release_as_request() -> None:
    home = Home(ask(4, "human", held="7 replies between agents"))
    assert home.keys() == ["held/4"]

    home.add(report(5, "human", "queued", 4))

    assert home.keys() == ["request/4"]


# Held messages


def test_held_message_says_why_and_how_to_release_it() -> None:
    reason = "more than 30 messages a minute from luna to one agent"
    entry = Home(message(4, "luna", "nova", "kira", held=reason)).one()

    assert (entry.key, entry.who, entry.what) == ("held/4", "luna", "text 4")
    assert entry.why == f"A brake holds it: {reason}. Only a person can release it."
    assert entry.to == ("kira", "nova")
    assert commands(entry) == {"release": "pal release 4", "show": "pal show 4"}


def test_held_message_ends_when_no_recipient_waits_for_its_release() -> None:
    home = Home(message(4, "luna", "nova", "kira", held="x"))

    home.add(report(5, "nova", "queued", 4))
    assert home.one().to == ("kira",)
    home.add(report(6, "kira", "expired", 4))

    assert home.keys() == []


def test_message_whose_content_is_lost_is_held_by_a_report() -> None:
    home = Home(message(4, "luna", "nova", "kira"))

    home.add(report(5, "nova", "held", 4, reason=LOST), report(6, "kira", "held", 4, reason=LOST))

    entry = home.one()
    assert (entry.who, entry.since) == ("luna", 1005)
    assert entry.why == (
        "Its content is lost. Restore its file in blobs/ ('pal doctor' names it), then release it."
    )


def test_message_whose_turns_failed_says_so() -> None:
    home = Home(message(4, "luna", "nova"), report(5, "nova", "held", 4, reason=failed_reason(3, "no model")))

    assert home.one().why == (
        "It is held because the automatic turn failed 3 times, last as #3: no model. "
        "Only a person can release it."
    )


def test_messages_held_by_a_gate_or_a_usage_limit_are_not_listed() -> None:
    home = Home(message(4, "luna", "nova"), message(5, "luna", "nova"), message(6, "luna", "nova", "kira"))

    home.add(
        report(7, "nova", "held", 4, lane="terminal", reason="dialog"),
        report(8, "nova", "held", 5, reason="usage limit until 12:00"),
        report(9, "nova", "held", 6, reason="usage limit"),
    )
    assert home.keys() == []

    home.add(report(10, "kira", "held", 6, reason=LOST), report(11, "kira", "queued", 6))
    assert home.keys() == []


def test_held_message_that_is_answered_ends() -> None:
    home = Home(message(4, "luna", "nova", held="x"))

    home.add(message(5, "nova", "luna", reply_to="4"))

    assert home.keys() == []


def test_held_reply_answers_nothing_until_its_release() -> None:
    home = Home(ask(4, "human"), message(5, "human", "luna", reply_to="4", held="x"))
    assert home.keys() == ["request/4", "held/5"]

    home.add(report(6, "luna", "queued", 5, author="human", answers=4))

    assert home.keys() == []


def test_released_reply_of_an_agent_ends_no_request_to_the_person() -> None:
    home = Home(ask(4, "human"), message(5, "nova", "luna", reply_to="4", held="x"))

    home.add(report(6, "luna", "queued", 5, author="nova", answers=4))

    assert home.keys() == ["request/4"]


# Unconfirmed messages


def test_unconfirmed_message_is_listed_for_each_recipient() -> None:
    home = Home(
        message(4, "luna", "nova", "kira+mon"),
        report(5, "nova", "submitted", 4, lane="terminal"),
        report(6, "nova", "submitted", 4, unconfirmed=True),
        report(7, "kira+mon", "submitted", 4, lane="hook"),
        report(8, "kira+mon", "submitted", 4, lane="hook", unconfirmed=True),
    )

    first, second = home.entries().values()
    assert (first.key, first.who, first.since, first.to) == ("unconfirmed/4/nova", "luna", 1006, ("nova",))
    assert first.why == "The terminal lane carried it to nova, and nothing proves that nova has read it."
    assert commands(first) == {"redeliver": "pal redeliver 4", "show": "pal show 4"}
    assert second.key == "unconfirmed/4/kira+mon"
    assert second.why.startswith("The hook lane carried it to kira (session mon), and")


@pytest.mark.parametrize(
    "event",
    [
        report(7, "nova", "queued", 4),
        report(7, "nova", "seen", 4, grade="context"),
        message(7, "nova", "luna", reply_to="4"),
    ],
    ids=["redelivered", "seen", "answered"],
)
def test_unconfirmed_message_ends_with_proof_or_redelivery(event: Event) -> None:
    home = Home(message(4, "luna", "nova"), report(5, "nova", "submitted", 4))
    home.add(report(6, "nova", "submitted", 4, unconfirmed=True))
    assert home.one().why.startswith("A lane carried it to nova")

    home.add(event)

    assert home.keys() == []


def test_unconfirmed_keys_are_not_listed_because_they_are_never_repeated() -> None:
    home = Home(message(4, "luna", "nova", raw="eQ=="), report(5, "nova", "submitted", 4))

    home.add(report(6, "nova", "submitted", 4, unconfirmed=True), report(7, "nova", "seen", 4))

    assert home.keys() == []


def test_unconfirmed_report_about_an_unknown_message_has_no_sender() -> None:
    home = Home(report(6, "nova", "dead", 4, unconfirmed=True))

    assert (home.one().key, home.one().who, home.one().what) == ("unconfirmed/4/nova", "", "")


# Dead letters


def test_dead_letter_is_listed_until_the_list_is_cleared() -> None:
    home = Home(
        message(4, "luna", "nova", dead=["build/done", "x/y"]), message(5, "luna", "nova", dead=["x"])
    )
    entry = home.entries()["dead/4"]
    assert entry.why == (
        "No agent is subscribed to build/done, x/y, so no agent received it there. "
        "Clearing removes all dead letters from this list."
    )
    assert (entry.who, entry.to) == ("luna", ("build/done", "x/y"))
    assert commands(entry) == {"show": "pal show 4", "clear": "pal dead --clear"}

    home.add(other(6, "dead.cleared", "human", payload={"up_to": 4}))

    assert home.keys() == ["dead/5"]
    assert attention_of(home.rows, "dead/4", home.facts) is None


# Permission requests


def test_permission_request_is_listed_until_it_is_answered() -> None:
    home = Home(hello(1), asked(2))
    entry = home.one()
    assert (entry.key, entry.id, entry.who, entry.what) == (
        "permission/3f9c2a1",
        "3f9c2a1",
        "luna",
        "Bash: make",
    )
    assert (entry.until, entry.seq) == (90_000, 2)
    assert entry.why == "luna waits for your decision. If there is none in time, the request is denied."
    assert commands(entry) == {"approve": "pal approve 3f9c2a1", "deny": "pal deny 3f9c2a1"}

    home.add(answered(3, "other"), answered(4))

    assert home.keys() == []


def test_permission_request_that_can_get_no_answer_is_not_listed() -> None:
    home = Home(hello(1), asked(2))
    home.facts.closed.add("3f9c2a1")

    assert home.keys() == []
    assert attention_of(home.rows, "permission/3f9c2a1", home.facts) is None


def test_start_of_the_daemon_ends_all_permission_requests() -> None:
    home = Home(hello(1), asked(2), asked(3, "a2"), ask(4, "human"))

    home.add(other(5, "life", "[pal-events]", payload={"action": "daemon_started", "pid": 1}))

    assert home.keys() == ["request/4"]


def test_permission_request_without_an_id_is_not_listed() -> None:
    assert Home(hello(1), asked(2, "")).keys() == []


def test_agent_with_an_open_permission_request_is_not_listed_twice() -> None:
    home = Home(hello(1), asked(2), status(3, "blocked", detail="permission"))
    assert home.keys() == ["permission/3f9c2a1"]
    assert attention_of(home.rows, "agent/luna", home.facts) is None

    home.add(answered(4))

    assert home.keys() == ["agent/luna"]


# Blocked and stale agents


def test_blocked_agent_is_listed_until_its_state_changes() -> None:
    home = Home(
        hello(1), status(2, "blocked", detail="question"), status(3, "blocked", detail="permission: Bash")
    )
    entry = home.one()
    assert (entry.key, entry.kind, entry.what) == ("agent/luna", AttentionKind.BLOCKED, "permission: Bash")
    assert entry.why == "luna is blocked until a person answers in its own terminal."
    assert commands(entry) == {"attach": "pal attach luna", "show": "pal status luna"}

    home.add(status(4, "idle"), status(5, "active"))

    assert home.keys() == []


def test_blocked_agent_without_a_reason_and_a_terminal_can_only_be_shown() -> None:
    entry = Home(hello(1, holder=""), status(2, "blocked")).one()

    assert entry.what == "the reason is not known"
    assert commands(entry) == {"show": "pal status luna"}


def test_blocked_sub_agent_is_answered_in_the_terminal_of_its_parent() -> None:
    child = {"name": "luna_x_1", "base": "luna_x_1", "parent": "luna", "session": "a1"}
    home = Home(hello(1), other(2, "agent.hello", "luna_x_1", payload={"agent": child}))

    home.add(other(3, "status", "luna_x_1", payload={"state": "blocked", "detail": "question"}))

    assert home.one().why == "luna_x_1 is blocked until a person answers in the terminal of luna."
    assert commands(home.one()) == {"attach": "pal attach luna", "show": "pal status luna_x_1"}


def test_blocked_sub_agent_of_an_unknown_parent_has_its_own_terminal() -> None:
    child = {"name": "luna_x_1", "base": "luna_x_1", "parent": "luna", "session": "a1", "state": "blocked"}

    entry = Home(other(2, "agent.hello", "luna_x_1", payload={"agent": child})).one()

    assert entry.why == "luna_x_1 is blocked until a person answers in its own terminal."


@pytest.mark.parametrize("detail", ["usage limit", "usage limit, resets 3pm (UTC)"])
def test_agent_with_a_usage_limit_waits_for_no_person(detail: str) -> None:
    assert Home(hello(1), status(2, "blocked", detail=detail)).keys() == []


def test_agent_that_asks_what_to_do_about_a_usage_limit_is_listed() -> None:
    assert Home(hello(1), status(2, "blocked", detail="usage limit: upgrade?")).keys() == ["agent/luna"]


def test_agent_that_left_or_is_not_present_is_not_listed() -> None:
    home = Home(hello(1), status(2, "blocked", detail="question"))
    home.facts.absent.add("luna")
    assert home.keys() == []
    home.facts.absent.clear()

    home.add(other(3, "agent.bye", payload={"reason": "done"}))

    assert home.keys() == []
    assert home.rows.scan(ATTENTION, "") == []


def test_agent_that_returns_has_the_state_of_its_new_session() -> None:
    home = Home(hello(1, state="blocked"))
    assert home.keys() == ["agent/luna"]

    home.add(other(2, "life", payload={"action": "resumed", "agent": {**LUNA, "state": "idle"}}))
    assert home.keys() == []
    home.add(other(3, "agent.hello", payload={"runtime": "x", "version": "1"}))
    home.add(other(4, "life", payload={"action": "ready", "name": "luna"}))

    assert home.keys() == []


def test_active_agent_is_stale_after_a_long_silence() -> None:
    home = Home(hello(1), status(2, "active", detail="make test", tool="Bash"))
    home.facts.stale_after_ms, home.facts.now_ms = 600_000, 1 + 600_001

    entry = home.one()

    assert (entry.key, entry.kind, entry.what) == ("agent/luna", AttentionKind.STALE, "Bash make test")
    assert entry.why == "luna is active and has not reported for more than 10m."
    assert commands(entry) == {"attach": "pal attach luna", "show": "pal status luna"}
    home.facts.now_ms -= 1
    assert home.keys() == []


def test_idle_left_and_absent_agents_are_never_stale() -> None:
    home = Home(hello(1), status(2, "active"))
    home.facts.stale_after_ms = 1
    assert home.one().what == "active"
    home.facts.absent.add("luna")
    assert home.keys() == []
    home.facts.absent.clear()
    home.facts.known = [Agent(name="luna", base="luna", state="active", left=True)]
    assert read_attention(home.rows, home.facts) == []

    home.add(status(3, "idle"))

    assert home.keys() == []


# Sticks

ROOM = "app-x2y3"


def member(seq: int, name: str) -> Event:
    payload = {"room": ROOM, "base": ROOM, "path": "/w/app", "name": "app"}
    return other(seq, "member_joined", name, payload=payload)


def claim(seq: int, name: str, turn: int = 1) -> Event:
    payload = {"room": ROOM, "turn_id": turn, "lease_id": "l", "reason": "", "from": None, "until": 5_000}
    return other(seq, "claim", "[pal-events]", payload=payload, to=(name,))


def test_stick_of_an_offline_owner_is_listed() -> None:
    home = Home(member(1, "luna"), member(2, "nova"), claim(3, "luna"))
    home.facts.now_ms = 4_000
    assert home.keys() == []
    home.facts.absent.add("luna")

    entry = home.one()

    assert (entry.key, entry.who, entry.room, entry.until) == (f"stick/{ROOM}", "luna", ROOM, 5_000)
    assert (entry.what, entry.since) == ("turn 1 in /w/app", 1)
    assert entry.why == "luna has the stick of app and is offline."
    assert commands(entry) == {
        "kick": f"pal room kick luna --room {ROOM} --force",
        "show": f"pal room state --room {ROOM}",
    }


def test_stick_of_the_person_is_listed_only_when_its_lease_has_ended() -> None:
    home = Home(member(1, "luna"), member(2, "human"), claim(3, "human"))
    home.facts.absent.add("human")

    entry = home.one()

    assert entry.why == "You have the stick of app, and your lease has ended."
    assert commands(entry) == {
        "renew": f"pal stick heartbeat --room {ROOM}",
        "show": f"pal room state --room {ROOM}",
    }
    home.facts.leases[ROOM] = home.facts.now_ms + 1
    assert home.keys() == []


def test_stick_of_an_owner_that_has_left_is_listed_since_then() -> None:
    home = Home(
        hello(1),
        member(2, "luna"),
        claim(3, "luna"),
        msgspec.structs.replace(other(4, "agent.bye", payload={"reason": "exited"}), ts=77),
    )
    home.facts.absent.add("luna")

    assert home.one().since == 77


def test_stick_whose_lease_has_ended_is_listed_until_it_is_renewed() -> None:
    home = Home(member(1, "luna"), member(2, "human"), claim(3, "luna"))

    entry = home.one()

    assert (entry.why, entry.since) == ("luna has the stick of app, and its lease has ended.", 5_000)
    assert entry.actions[0].command == (
        *("pal", "stick", "takeover", "--room", ROOM, "--override", "--reason"),
        "the lease of luna has ended",
    )
    assert commands(entry)["kick"] == f"pal room kick luna --room {ROOM} --force"
    home.facts.leases[ROOM] = home.facts.now_ms + 1
    assert home.keys() == []


def test_person_in_the_room_can_take_the_stick_of_an_offline_owner() -> None:
    home = Home(member(1, "luna"), member(2, "human"), claim(3, "luna"))
    home.facts.absent.add("luna")

    assert home.one().actions[0].command[-1] == "luna is offline"


def test_stick_without_an_owner_is_not_listed() -> None:
    home = Home(member(1, "luna"), claim(2, "luna"))
    assert home.keys() == [f"stick/{ROOM}"]

    home.add(other(3, "release", payload={"room": ROOM, "turn_id": 1}))
    assert home.keys() == []
    home.add(claim(4, "luna", 2), other(5, "close", payload={"room": ROOM}))

    assert home.keys() == []


# The list


def test_entries_are_listed_oldest_first() -> None:
    home = Home(hello(1), message(2, "luna", "nova", dead=["x"]), ask(3, "human"))

    home.add(message(4, "luna", "nova", held="x"), status(5, "blocked"))

    assert home.keys() == ["agent/luna", "dead/2", "request/3", "held/4"]


def test_list_has_the_newest_entries_of_each_kind() -> None:
    rows, facts = MemoryRows(), FakeFacts()
    for seq in range(1, LIMIT_KIND + 3):
        rows.change(apply(rows, ask(seq, "human")))

    found = read_attention(rows, facts)

    assert [found[0].seq, len(found)] == [3, LIMIT_KIND]


@pytest.mark.parametrize(
    "key",
    ["", "request", "request/", "request/x", "request/9", "agent/nova", "agent/", "x/1", "stick/y", "held/²"],
)
def test_unknown_key_has_no_entry(key: str) -> None:
    home = Home(ask(4, "human"), hello(5))

    assert attention_of(home.rows, key, home.facts) is None


def test_rows_contain_no_text_of_a_message() -> None:
    home = Home(ask(4, "human", text="secret words", held="x", dead=["y"]))

    assert not any(b"secret" in value for _, value in home.rows.scan(ATTENTION, ""))


def test_beginning_of_a_long_text_is_cut() -> None:
    assert beginning_of(message(1, "luna", "nova", text="x" * 300)) == "x" * 300
    assert beginning_of(message(1, "luna", "nova", text="x" * 301)) == "x" * 299 + "…"


def test_other_events_touch_no_entry() -> None:
    assert touched_by(other(1, "app.event")) == frozenset()
    assert touched_by(other(1, "permission.answered", payload={"permission": "a"})) == {
        "permission/a",
        "agent/luna",
    }
    assert touched_by(other(1, "status", payload={"agent": "nova"})) == {"agent/nova"}
    assert touched_by(other(1, "life", payload={"action": "typed"})) == {"agent/luna"}


def test_reasons_are_those_that_other_packages_write() -> None:
    assert (USED_UP, USED_UP_ASKED) == (hooks.USED_UP, hooks.USED_UP_ASKED)
    assert hooks.COMPACTING == COMPACTING
    assert failed_reason(1, "x").startswith(TURN_FAILED)


def test_held_broadcast_is_listed_until_its_last_recipient_is_released() -> None:
    names = [f"agent{n:02d}" for n in range(30)]
    home = Home(message(1, "luna", *names, held="x"))

    for at, name in enumerate(names[:-1]):
        home.add(report(2 + at, name, "queued", 1))
        assert home.keys() == ["held/1"]
    home.add(report(50, names[-1], "queued", 1))

    assert home.keys() == []


def test_usage_limits_of_many_recipients_keep_no_message_in_the_list() -> None:
    names = [f"agent{n:02d}" for n in range(30)]
    home = Home(message(1, "luna", *names))
    for at, name in enumerate(names[:-1]):
        home.add(report(2 + at, name, "held", 1, reason="usage limit"))
    home.add(report(40, names[-1], "held", 1, reason=LOST))
    assert home.keys() == ["held/1"]

    home.add(report(41, names[-1], "queued", 1))

    assert home.keys() == []
