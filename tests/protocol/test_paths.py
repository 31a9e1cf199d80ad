"""Mailboxes of sessions, and messages as path clients read them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.address import check_path
from palaver.protocol.envelope import Event, is_migrated
from palaver.protocol.events import State
from palaver.protocol.paths import (
    SessionId,
    check_network,
    check_session,
    content_of,
    count_others,
    dead_letter,
    external_sender,
    irc_path,
    is_migrated_sender,
    mailbox_of,
    readable_mailbox,
    route_result,
    routed_message,
    split_irc_path,
    split_mailbox,
)


def event(payload: dict[str, object], type: str = "message") -> Event:
    return Event(
        seq=7, id="i", type=type, sender="writer", to=("slack/x",), ts=3, device="BOXE", payload=payload
    )


ROUTED: dict[str, object] = {
    "text": "",
    "scope": "path",
    "mentions": [],
    "sender_kind": "instance",
    "delivered_to": ["luna+mon", "luna", "nova"],
    "path": "slack/x",
    "command": "new",
    "payload": {"a": 1},
    "source": "slack",
    "external_id": "e",
    "handled": {"luna": ["mon"]},
}


@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9][\w.:@#-]{0,20}", fullmatch=True),
)
def test_mailbox_is_split_into_its_agent_and_session(agent: str, session: str) -> None:
    assert split_mailbox(mailbox_of(agent, session)) == (agent, session)
    assert split_mailbox(mailbox_of(agent)) == (agent, "")
    assert not mailbox_of(agent, session).startswith(f"{agent}/")


def test_path_is_not_taken_for_the_mailbox_of_a_session() -> None:
    assert split_mailbox("slack/c++") == ("slack/c++", "")
    assert readable_mailbox("slack/c++") == "slack/c++"


def test_people_read_a_mailbox_with_its_session() -> None:
    assert readable_mailbox("luna+mon") == "luna (session mon)"
    assert readable_mailbox("luna") == "luna"


@pytest.mark.parametrize(
    ("mailboxes", "others"), [((), 0), (("luna",), 0), (("luna+mon", "luna"), 0), (("luna+mon", "nova"), 1)]
)
def test_agent_and_its_sessions_count_as_one_recipient(mailboxes: tuple[str, ...], others: int) -> None:
    assert count_others(mailboxes) == others


def test_session_id_is_returned_or_refused() -> None:
    assert check_session("slack:C12-3_a.b@c#d") == "slack:C12-3_a.b@c#d"
    with pytest.raises(BadRequest, match="'a/b' cannot be a session id"):
        check_session("a/b")


def test_copy_of_an_agent_says_which_sessions_handled_it() -> None:
    shown = msgspec.to_builtins(routed_message(event(ROUTED), "luna"))

    assert shown == {
        "id": "i",
        "from": "writer",
        "path": "slack/x",
        "command": "new",
        "payload": {"a": 1},
        "status": "pending",
        "timestamp": 3,
        "source": "slack",
        "externalId": "e",
        "handled": True,
        "handledBy": ({"agentId": "luna", "sessionId": "mon"},),
    }


def test_copies_of_other_agents_and_of_sessions_are_not_handled() -> None:
    other = msgspec.to_builtins(routed_message(event(ROUTED), "nova", State.SEEN, with_seq=True))
    session = msgspec.to_builtins(routed_message(event(ROUTED), "luna+mon", State.HELD))

    assert (other["handled"], "handledBy" in other, other["status"], other["seq"]) == (
        False,
        False,
        "delivered",
        7,
    )
    assert ("handled" in session, session["status"]) == (False, "pending")


def test_text_from_another_door_is_the_payload_of_the_command_message() -> None:
    text = event(
        {"text": "hi", "delivered_to": ["luna"], "intent": "request", "thread": "t", "reply_to": "4"}
    )

    shown = msgspec.to_builtins(routed_message(text))

    assert (shown["path"], shown["command"], shown["payload"]) == ("agent/luna", "message", {"text": "hi"})
    assert (shown["intent"], shown["thread"], shown["reply_to"]) == ("request", "t", "4")
    assert (shown["source"], shown["externalId"]) == ("internal", None)


def test_foreign_envelope_is_a_command_with_its_payload() -> None:
    assert content_of(event({"x": 1}, "org.build")) == ("org.build", {"x": 1})
    assert routed_message(event({"x": 1}, "org.build"), "luna").path == "agent/luna"
    assert routed_message(event({"x": 1}, "org.build")).path == "agent/"
    assert content_of(event({"command": "go"})) == ("go", {})


def test_dead_letter_has_a_reason_and_no_status() -> None:
    shown = msgspec.to_builtins(dead_letter(event({**ROUTED, "dead": ["slack/x"]})))

    assert list(shown) == [
        "id",
        "from",
        "path",
        "command",
        "payload",
        "timestamp",
        "source",
        "externalId",
        "reason",
        "seq",
    ]
    assert (shown["path"], shown["reason"]) == ("slack/x", "no_subscribers")
    assert dead_letter(event({}, "org.build")).path == ""


def test_result_separates_agents_from_sessions() -> None:
    found = route_result("i", ["luna+mon", "luna", "nova"])

    assert (found.delivered, found.unmatched, found.delivered_to) == (True, False, ("luna", "nova"))
    assert found.delivered_to_sessions == (SessionId("luna", "mon"),)
    assert route_result("i", []).unmatched


@pytest.mark.parametrize(
    ("sender", "is_valid"),
    [
        ("slack-bridge", True),
        ("humanist", True),
        ("paleo", True),
        ("a@b.c/d", True),
        ("human", False),
        ("HUMAN_x", False),
        ("pal-events", False),
        ("system", False),
        ("[pal-events]", False),
        ("a b", False),
        ("", False),
        ("x" * 129, False),
    ],
)
def test_sender_of_a_migrated_message_is_not_the_person_or_the_bus(sender: str, is_valid: bool) -> None:
    assert is_migrated_sender(sender) is is_valid


@pytest.mark.parametrize(
    ("type_", "payload", "expected"),
    [
        ("message", {**ROUTED, "migrated": []}, True),
        ("message", ROUTED, False),
        ("path.subscribed", {"agent": "luna", "pattern": "a", "added": 5}, True),
        ("path.subscribed", {"agent": "luna", "pattern": "a"}, False),
        ("session.created", {"agent": "luna", "session": "a", "created": 5}, True),
        ("session.created", {"agent": "luna", "session": "a"}, False),
        ("life", {"action": "migrated"}, True),
        ("life", {"action": "started"}, False),
        ("status", {"state": "idle"}, False),
    ],
)
def test_migrated_events_are_recognized(type_: str, payload: dict[str, object], expected: bool) -> None:
    assert is_migrated(event(payload, type_)) is expected


# Other IRC networks

_targets = st.from_regex(r"[#&]?[A-Za-z\[\]\\`_^{}|ä☃][A-Za-z0-9\[\]\\`_^{}|~-]{0,20}", fullmatch=True)


@given(_targets)
def test_path_of_a_nick_or_channel_leads_back_to_it(target: str) -> None:
    path = irc_path("net", target)

    assert path == check_path(path)
    found = split_irc_path(path)
    assert found is not None
    assert (found[0], irc_path(*found)) == ("net", path)
    assert irc_path("net", target.swapcase() if target.isascii() else target) == path


@given(st.text(max_size=20))
def test_path_of_a_target_has_three_visible_segments_or_is_refused(target: str) -> None:
    try:
        path = irc_path("net", target)
    except BadRequest:
        return
    assert path.count("/") == 2
    assert path.isprintable()
    assert "*" not in path


@pytest.mark.parametrize(
    "target",
    [
        "",
        "#",
        "a b",
        "a/b",
        "a*",
        "#a,b",
        "a!b",
        "a@b",
        "a:b",
        "a\x07",
        "a\u202e",
        "\ud800",
        "x" * 65,
        "$all",
        "1.2",
    ],
)
def test_target_that_cannot_be_one_is_refused(target: str) -> None:
    with pytest.raises(BadRequest, match="cannot be a nick or a channel"):
        irc_path("net", target)


@pytest.mark.parametrize(
    "path",
    ["irc", "irc/net", "irc/net/", "irc/*/bob", "irc/net/*", "irc/net/a/b", "x/net/bob", "irc/net/%ff"],
)
def test_other_paths_are_not_of_a_network(path: str) -> None:
    assert split_irc_path(path) is None


def test_sender_is_a_nick_and_not_a_channel() -> None:
    assert external_sender("net", "Bob") == "irc/net/bob"
    with pytest.raises(BadRequest, match="not a nick"):
        external_sender("net", "#c")


@pytest.mark.parametrize("network", ["", "local", "LOCAL", "a/b", "a b", "-x", "ä", "x" * 65])
def test_network_that_cannot_be_one_is_refused(network: str) -> None:
    with pytest.raises(BadRequest, match="cannot be the name of a network"):
        check_network(network)


def test_network_is_in_lower_case() -> None:
    assert check_network("IRC.Libera.Chat") == "irc.libera.chat"
