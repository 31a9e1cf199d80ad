"""Requests over a real WebSocket: fields, options, rights, and the mailbox that all doors share."""

import pytest
from tests.daemon.stage import check_output, run_as_person
from tests.doors.ws.stage import Client, Stage


@pytest.fixture
def luna(stage: Stage) -> Client:
    """The connection of luna, which has a token for itself. There is another agent, nova."""
    stage.join("luna", "nova")
    return stage.client(stage.token("luna"))


@pytest.fixture
def bridge(stage: Stage) -> Client:
    """A connection that acts for luna, nova and a bridge, which is no agent."""
    stage.join("luna", "nova")
    return stage.client(stage.token("--acts-for", "luna,nova,slack-bridge"))


@pytest.mark.parametrize(
    ("type", "fields", "missing"),
    [
        ("msg.send", {}, "from"),
        ("msg.send", {"from_": "luna"}, "to"),
        ("msg.send", {"from_": "luna", "to": "//"}, "to"),
        ("msg.route", {}, "from"),
        ("msg.route", {"from_": "luna"}, "path"),
        ("msg.route", {"from_": "luna", "path": "///"}, "path"),
        ("msg.broadcast", {}, "from"),
        ("msg.receive", {"agentId": None}, "agentId"),
        ("msg.listen", {"agentId": ""}, "agentId"),
        ("msg.sub.add", {"agentId": "luna"}, "pattern"),
        ("msg.sub.remove", {"agentId": "luna", "pattern": "/"}, "pattern"),
        ("msg.ack", {"agentId": "luna"}, "messageIds"),
        ("msg.session.receive", {}, "agentId"),
        ("msg.session.receive", {"agentId": "luna"}, "sessionId"),
    ],
)
def test_missing_field_is_named(luna: Client, type: str, fields: dict[str, object], missing: str) -> None:
    assert luna.refused(type, **fields) == ("bad_request", f"{missing} is required")


@pytest.mark.parametrize(
    ("type", "fields", "sentence"),
    [
        ("msg.send", {"from_": 5, "to": "nova"}, "from must be a text"),
        ("msg.send", {"from_": "luna", "to": ["nova"]}, "to must be a text"),
        ("msg.send", {"from_": "luna", "to": "nova", "command": {}}, "command must be a text"),
        ("msg.history", {"agentId": "luna", "options": 5}, "options must be an object"),
        (
            "msg.history",
            {"agentId": "luna", "options": {"limit": "5"}},
            "limit must be a whole number, 0 or more",
        ),
        ("msg.unmatched", {"options": {"limit": True}}, "limit must be a whole number, 0 or more"),
        ("msg.unmatched", {"options": {"fromTime": -1}}, "fromTime must be a whole number, 0 or more"),
        ("msg.unmatched", {"options": {"toTime": 1.5}}, "toTime must be a whole number, 0 or more"),
        ("msg.unmatched", {"options": {"limit": 1001}}, "limit must be between 0 and 1000, not 1001"),
        ("msg.listen", {"agentId": "luna", "after": "1"}, "after must be a whole number, 0 or more"),
        ("msg.ack", {"agentId": "luna", "messageIds": "x"}, "messageIds must be a list of message ids"),
    ],
)
def test_field_of_the_wrong_kind_is_named(
    luna: Client, type: str, fields: dict[str, object], sentence: str
) -> None:
    assert luna.refused(type, **fields) == ("bad_request", sentence)


@pytest.mark.parametrize(
    ("path", "limit"), [("a" * 1025, "1024"), ("a/" * 65, "64 segments"), ("a/**/" * 9, "8 ")]
)
def test_limit_of_a_path_is_named(luna: Client, path: str, limit: str) -> None:
    for code, sentence in (
        luna.refused("msg.route", from_="luna", path=path),
        luna.refused("msg.sub.add", agentId="luna", pattern=path),
    ):
        assert code in ("bad_request", "message_too_large")
        assert limit in sentence


@pytest.mark.parametrize(
    ("type", "fields"),
    [
        ("msg.send", {"from_": "nova", "to": "luna"}),
        ("msg.route", {"from_": "human", "path": "a/b"}),
        ("msg.broadcast", {"from_": "slack-bridge"}),
        ("msg.receive", {"agentId": "nova"}),
        ("msg.history", {"agentId": "nova"}),
        ("msg.listen", {"agentId": "nova"}),
        ("msg.unlisten", {"agentId": "nova"}),
        ("msg.ack", {"agentId": "nova", "messageIds": []}),
        ("msg.sub.add", {"agentId": "nova", "pattern": "a"}),
        ("msg.sub.remove", {"agentId": "nova", "pattern": "a"}),
        ("msg.sub.list", {"agentId": "nova"}),
        ("msg.session.sub.add", {"agentId": "nova", "sessionId": "s", "pattern": "a"}),
        ("msg.session.sub.remove", {"agentId": "nova", "sessionId": "s", "pattern": "a"}),
        ("msg.session.sub.list", {"agentId": "nova", "sessionId": "s"}),
        ("msg.session.listen", {"agentId": "nova", "sessionId": "s"}),
        ("msg.session.receive", {"agentId": "nova", "sessionId": "s"}),
        ("msg.session.history", {"agentId": "nova", "sessionId": "s"}),
    ],
)
def test_token_acts_only_for_its_agent(luna: Client, type: str, fields: dict[str, object]) -> None:
    code, sentence = luna.refused(type, **fields)

    assert code == "not_you"
    assert sentence.startswith("you are luna and cannot act as ")


def test_name_may_be_written_in_capitals_and_the_reply_repeats_it(luna: Client) -> None:
    assert luna.ok("msg.sub.list", agentId="@Luna")["agentId"] == "@Luna"


def test_token_for_several_names_acts_only_for_these(stage: Stage, bridge: Client) -> None:
    stage.join("orla")

    assert bridge.refused("msg.send", from_="orla", to="luna") == (
        "not_you",
        "you are luna or nova or slack-bridge and cannot act as orla; use your own name",
    )
    assert bridge.refused("msg.receive", agentId="orla")[0] == "not_you"


def test_bridge_that_is_no_agent_can_send_and_has_no_mailbox(stage: Stage, bridge: Client) -> None:
    bridge.ok("msg.sub.add", agentId="luna", pattern="slack/**")

    sent = bridge.ok(
        "msg.route", from_="slack-bridge", path="slack/team/#general", source="slack", externalId="ts-1"
    )

    assert (sent["from"], sent["deliveredTo"]) == ("slack-bridge", ["luna"])
    assert (sent["source"], sent["externalId"]) == ("slack", "ts-1")
    (event,) = stage.home.events("--type", "message")
    assert event["from"] == "slack-bridge"
    assert event["payload"]["sender_kind"] == "external"
    code, sentence = bridge.refused("msg.receive", agentId="slack-bridge")
    assert code == "not_found"
    assert "'pal join --name slack-bridge'" in sentence


def test_events_of_a_token_for_several_names_say_which_token(stage: Stage, bridge: Client) -> None:
    (token,) = run_as_person(stage.home, "token", "list", "--json").lines
    bridge.ok("msg.send", from_="luna", to="nova")
    bridge.ok("msg.sub.add", agentId="luna", pattern="a/b")
    bridge.ok("msg.receive", agentId="nova")
    bridge.ok("msg.unmatched.clear")

    written = [
        event
        for kind in ("message", "path.subscribed", "delivery", "dead.cleared")
        for event in stage.home.events("--type", kind)
    ]

    assert [event.get("by") for event in written] == [f"token {token['id']}"] * len(written)
    assert [event["from"] for event in written] == ["luna", "luna", "nova", "script"]


def test_events_of_a_token_for_one_agent_are_its_own(stage: Stage, luna: Client) -> None:
    luna.ok("msg.send", from_="luna", to="nova")

    assert "by" not in stage.home.events("--type", "message")[0]


def test_token_for_all_acts_for_agents_that_join_later_but_not_for_people(stage: Stage) -> None:
    client = stage.client(stage.token("--acts-for", "all"))
    stage.join("luna")

    client.ok("msg.send", from_="luna", to="luna")
    for name in ("human", "script", "[pal-events]", "system", "all"):
        assert client.refused("msg.send", from_=name, to="luna")[0] == "bad_name"
    assert [event["from"] for event in stage.home.events("--type", "message")] == ["luna"]


@pytest.mark.parametrize("names", ["all", "luna,zed"])
def test_token_for_several_names_never_acts_for_a_registered_person(stage: Stage, names: str) -> None:
    stage.join("luna")
    client = stage.client(stage.token("--acts-for", names))
    check_output(run_as_person(stage.home, "agent", "register", "zed", "--person"))

    assert client.refused("msg.send", from_="zed", to="luna")[0] == "not_you"
    assert client.refused("msg.receive", agentId="zed")[0] == "not_you"
    assert stage.home.events("--type", "message") == []


def test_token_for_all_never_raises_the_rights_of_an_agent(stage: Stage) -> None:
    stage.join("luna")
    client = stage.client(stage.token("--acts-for", "all"))

    assert client.refused("msg.sub.add", agentId="luna", pattern="agent/**")[0] == "not_allowed"


def test_message_is_taken_once_whichever_door_takes_it(stage: Stage, luna: Client) -> None:
    for text in ("one", "two", "three"):
        stage.home.ok("send", "luna", text)

    first = luna.ok("msg.receive", agentId="luna", options={"limit": 1})["messages"]
    second = stage.shells["luna"].ok("recv", "--limit", "1", "--json").json
    third = luna.ok("msg.receive", agentId="luna")["messages"]

    assert [one["payload"] for one in (*first, *third)] == [{"text": "one"}, {"text": "three"}]
    assert second["text"] == "two"
    assert {one["status"] for one in (*first, *third)} == {"delivered"}
    assert luna.ok("msg.receive", agentId="luna")["messages"] == []
    assert stage.shells["luna"].ok("recv").out == ""
    (entry,) = stage.home.ok("receipts", first[0]["id"], "--json").lines
    assert "handed" in str(entry)


def test_messages_are_acknowledged_by_their_ids(stage: Stage, luna: Client) -> None:
    kept, read = (stage.home.ok("send", "luna", text, "--json").json["id"] for text in ("one", "two"))

    assert luna.ok("msg.ack", agentId="luna", messageIds=[read]) == {
        "type": "msg.ack.ok",
        "agentId": "luna",
        "messageIds": [read],
    }

    assert [one["id"] for one in luna.ok("msg.receive", agentId="luna")["messages"]] == [kept]
    other = stage.home.ok("send", "nova", "three", "--json").json["id"]
    assert luna.refused("msg.ack", agentId="luna", messageIds=[kept, other])[0] == "not_found"


def test_history_is_newest_first_and_can_be_limited(stage: Stage, luna: Client) -> None:
    for text in ("one", "two", "three"):
        luna.ok("msg.send", from_="luna", to="luna", command=text)
    newest = luna.ok("msg.history", agentId="luna")["messages"]

    assert [one["command"] for one in newest] == ["three", "two", "one"]
    assert luna.ok("msg.history", agentId="luna", options={"limit": 0})["messages"] == []
    between = {"fromTime": newest[1]["timestamp"], "toTime": newest[1]["timestamp"], "limit": 1000.0}
    assert newest[1] in luna.ok("msg.history", agentId="luna", options=between)["messages"]
    later = {"fromTime": newest[0]["timestamp"] + 1}
    assert luna.ok("msg.history", agentId="luna", options=later)["messages"] == []


@pytest.mark.parametrize("payload", [None, False, 0, ""])
def test_falsy_payload_becomes_an_empty_object(luna: Client, payload: object) -> None:
    sent = luna.ok("msg.send", from_="luna", to="luna", payload=payload)

    assert sent["message"]["payload"] == {}


@pytest.mark.parametrize("payload", [[], {}, [0], "text", 1, 1.5, True, {"a": {"b": [None]}}])
def test_any_other_payload_is_kept(luna: Client, payload: object) -> None:
    luna.ok("msg.send", from_="luna", to="luna", payload=payload)

    (message,) = luna.ok("msg.receive", agentId="luna")["messages"]
    assert message["payload"] == payload


def test_own_path_is_subscribed_already(luna: Client) -> None:
    made = luna.ok("msg.sub.add", agentId="luna", pattern="agent/luna")

    assert (made["note"], made["subscriptions"]) == ("auto-subscribed", [])


def test_session_is_created_by_its_first_subscription(stage: Stage, luna: Client) -> None:
    luna.ok("msg.session.sub.add", agentId="luna", sessionId="mon", pattern="slack/**")

    sent = luna.ok("msg.route", from_="luna", path="slack/a")

    assert sent["deliveredToSessions"] == [{"agentId": "luna", "sessionId": "mon"}]
    (copy,) = luna.ok("msg.receive", agentId="luna")["messages"]
    assert (copy["handled"], copy["handledBy"]) == (True, [{"agentId": "luna", "sessionId": "mon"}])
    (own,) = luna.ok("msg.session.receive", agentId="luna", sessionId="mon")["messages"]
    assert "handled" not in own
    assert luna.refused("msg.session.receive", agentId="luna", sessionId="a/b")[0] == "bad_request"


@pytest.mark.parametrize("id", [7, "r", 0, "", False, None, 1.5])
def test_request_id_is_repeated_in_every_reply(luna: Client, id: object) -> None:
    for type, fields in (
        ("ping", {}),
        ("nope", {}),
        ("msg.receive", {}),
        ("msg.receive", {"agentId": "nova"}),
        ("msg.history", {"agentId": "luna"}),
    ):
        assert luna.ask(type, reqId=id, **fields)["reqId"] == id
    assert "reqId" not in luna.ask("ping")


@pytest.mark.parametrize("type", ["nope", "__proto__", "auth", "agent.list", "session.start", "logs.search"])
def test_unknown_type_is_named(luna: Client, type: str) -> None:
    assert luna.ask(type) == {
        "type": "error",
        "error": f"Unknown message type: {type}",
        "code": "bad_request",
    }


# Tokens for several agents


def test_only_a_person_creates_a_token_for_several_agents(stage: Stage) -> None:
    stage.join("luna")
    for asked in (
        stage.home.pal("token", "create", "--acts-for", "luna", "--json"),
        stage.shells["luna"].pal("token", "create", "--acts-for", "luna", "--json"),
    ):
        assert (asked.status, asked.error["error"]) == (1, "not_allowed")


@pytest.mark.parametrize(
    ("names", "error"),
    [("", "usage"), ("luna,", "usage"), ("human", "bad_name"), ("luna,all", "bad_name"), ("a b", "bad_name")],
)
def test_names_of_a_token_must_be_names_of_agents(stage: Stage, names: str, error: str) -> None:
    asked = run_as_person(stage.home, "token", "create", "--acts-for", names, "--json")

    assert asked.error["error"] == error


def test_token_for_several_agents_is_not_created_for_a_person(stage: Stage) -> None:
    stage.join("luna")
    check_output(run_as_person(stage.home, "agent", "register", "zed", "--person"))

    refused = run_as_person(stage.home, "token", "create", "--acts-for", "luna,Zed", "--json")

    assert refused.error == {
        "error": "bad_request",
        "message": "zed is a person, for whom no token acts: leave zed out of --acts-for",
    }
    assert [one for one in stage.home.ok("token", "list", "--json").lines if "acts_for" in one] == []


def test_token_for_several_agents_is_listed_and_revoked(stage: Stage) -> None:
    stage.join("luna")
    made = check_output(run_as_person(stage.home, "token", "create", "--acts-for", "Luna,slack-bridge"))
    assert "this acts for luna, slack-bridge on the WebSocket" in made.err
    assert "no agent has this name, so it can send but has no mailbox: slack-bridge" in made.err
    run_as_person(stage.home, "token", "create", "--acts-for", "all")

    several, everyone = stage.home.ok("token", "list", "--json").lines
    assert (several["name"], several["acts_for"]) == ("", ["luna", "slack-bridge"])
    assert (several["standing"], everyone["standing"]) == ("worker", "operator")
    assert "  luna, slack-bridge  worker, by human" in stage.home.ok("token", "list").out
    assert "  all agents  operator, by human" in stage.home.ok("token", "list").out

    assert stage.shells["luna"].pal("token", "revoke", several["id"]).status == 1
    check_output(run_as_person(stage.home, "token", "revoke", several["id"]))
    assert [one["id"] for one in stage.home.ok("token", "list", "--json").lines] == [everyone["id"]]
