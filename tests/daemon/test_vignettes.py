"""Eight stories of agents that share a workspace, run with real processes from start to end.

Luna runs Codex, nova Claude Code, gale Gemini CLI, opal OpenCode. Each is a shell that stays; a `pal` process
that runs in parallel follows its events.
"""

import pytest
from tests.daemon.crew import HANDOFF, Agent, Crew
from tests.daemon.stage import Home, JsonLine, write_settings

MOVES = ("claim", "release", "pass", "takeover")


@pytest.fixture
def bus(home: Home) -> Home:
    """A bus with a long waiter grace: an agent that has just waited counts as waiting for the whole story."""
    write_settings(home, room_waiter_grace_s=600)
    home.start_daemon()
    return home


@pytest.fixture
def crew(bus: Home) -> Crew:
    """A folder in which several agents work."""
    return Crew(bus)


@pytest.fixture
def luna(crew: Crew) -> Agent:
    """A Codex agent in the room."""
    return crew.member("luna", "codex")


@pytest.fixture
def nova(crew: Crew) -> Agent:
    """A Claude Code agent in the room."""
    return crew.member("nova", "claude")


def heard(line: JsonLine) -> tuple[str, str, str]:
    """Return a message as its reader sees it: sender, priority and text."""
    return line["from"], line["priority"], line["text"]


def test_observer_corrects_the_owner_during_its_turn(crew: Crew, luna: Agent, nova: Agent) -> None:
    mail = luna.listen("recv", "--follow", "--json")
    events = luna.listen(
        "events",
        "--follow",
        "--room",
        "shop",
        "--type",
        "message_sent",
        "--target",
        "self",
        "--all",
        "--json",
    )
    turn = luna.claim()

    sent = nova.ok(
        "send", "codex", "--room", "shop", "--interrupt", "--json", "--", "session.ts? it is token.ts:84"
    ).json

    assert sent["delivered_to"] == ["luna"]
    assert heard(mail.next()) == ("nova", "interrupt", "session.ts? it is token.ts:84")
    event = events.next()
    assert (event["type"], event["seq"]) == ("message_sent", sent["seq"])
    assert event["payload"]["delivery_hint"] == "interrupt"
    # A message grants no rights: the stick does not move, and luna ends the turn herself.
    refused = nova.pal("stick", "takeover", "--reason", "wrong file", "--json")
    assert refused.error["error"] == "takeover_not_available"
    luna.ok("stick", "release", "--status", "fixed token.ts, as nova saw", "--next", "review it")
    (release,) = crew.events("release")
    assert release["payload"]["turn_id"] == turn["turn_id"]
    assert "nova saw" in nova.claim()["handoff"]["status"]


def test_person_joins_in_the_middle_of_a_turn(crew: Crew, luna: Agent, nova: Agent) -> None:
    nova.claim()
    stream = nova.follow("--target", "self", "--type", "member_joined")
    assert stream.next()["from"] == "luna"

    crew.person("room", "join")

    event = stream.next()
    assert (event["type"], event["from"]) == ("member_joined", "human")
    # It is only news: nova keeps working, and mentions it in the handoff.
    assert nova.state()["owner_agent_id"] == "nova"
    nova.ok("stick", "pass", "luna", "--status", f"half way; {event['from']} joined", "--next", "go on")
    assert luna.claim()["handoff"]["status"] == "half way; human joined"


def test_person_interrupts_the_owner_of_the_stick(crew: Crew, luna: Agent, nova: Agent) -> None:
    turn = luna.claim()
    mail = luna.listen("recv", "--follow", "--json")

    crew.person("send", "luna", "--room", "shop", "--interrupt", "--", "stop after the parser test passes")

    line = mail.next()
    assert heard(line) == ("human", "interrupt", "stop after the parser test passes")
    assert (line["sender_kind"], line["room"]) == ("human", luna.state()["room_id"])
    state = luna.state()
    assert (state["owner_agent_id"], state["turn_id"]) == ("luna", turn["turn_id"])
    assert "human" not in [member["agent_id"] for member in state["members"]]


def test_member_leaves_before_the_handoff(crew: Crew, luna: Agent, nova: Agent) -> None:
    gale = crew.member("gale", "gemini")
    nova.claim()
    stream = nova.follow("--type", "member_left")

    gale.ok("room", "leave")

    event = stream.next()
    assert (event["from"], event["payload"]["reason"]) == ("gale", "left")
    refused = nova.pal("stick", "pass", "gale", *HANDOFF, "--json")
    assert refused.error["error"] == "unknown_member"
    nova.ok("stick", "pass", "luna", *HANDOFF)
    assert luna.claim()["reason"] == "direct_pass"


def test_member_exits_before_the_handoff(crew: Crew, luna: Agent, nova: Agent) -> None:
    gale = crew.member("gale", "gemini")
    nova.claim()

    gale.shell.close()
    nova.sees_away("gale")

    refused = nova.pal("stick", "pass", "gale", *HANDOFF, "--json")
    assert refused.error["error"] == "recipient_unreachable"
    nova.ok("stick", "pass", "luna", *HANDOFF)
    assert luna.claim()["reason"] == "direct_pass"


def test_member_that_is_absent_too_long_is_removed_from_the_room(home: Home) -> None:
    write_settings(home, room_presence_s=1)
    home.start_daemon()
    crew = Crew(home)
    nova, gale = crew.member("nova", "claude"), crew.member("gale", "gemini")
    nova.claim()
    stream = nova.follow("--type", "member_left")

    gale.shell.close()

    event = stream.next()
    assert (event["payload"]["from"], event["payload"]["reason"]) == ("gale", "inactive")
    assert nova.pal("stick", "pass", "gale", *HANDOFF, "--json").error["error"] == "unknown_member"
    state = nova.state()
    assert [member["agent_id"] for member in state["members"]] == ["nova"]
    assert state["owner_agent_id"] == "nova"


def test_owner_tells_the_next_member_about_the_coming_handoff(crew: Crew, luna: Agent, nova: Agent) -> None:
    luna.claim()
    mail = nova.listen("recv", "--follow", "--json")
    waiting = nova.run_in_background("stick", "wait", "--json")
    luna.sees_waiting("nova")

    luna.ok("send", "claude", "--room", "shop", "--interrupt", "--", "start with tests/cli.test.ts")

    # It knows already, but does not have the stick yet.
    assert heard(mail.next()) == ("luna", "interrupt", "start with tests/cli.test.ts")
    assert nova.state()["owner_agent_id"] == "luna"
    luna.ok("stick", "pass", "nova", "--status", "done", "--next", "tests/cli.test.ts, as I wrote")
    turn = waiting.end().json
    assert (turn["status"], turn["handoff"]["next_action"]) == ("your_turn", "tests/cli.test.ts, as I wrote")


def test_third_harness_joins_two_that_take_turns(crew: Crew, luna: Agent, nova: Agent) -> None:
    for first, second in ((luna, nova), (nova, luna)):
        first.claim()
        first.ok("stick", "pass", second.name, *HANDOFF)
    luna.claim()
    streams = [agent.follow("--type", "member_joined") for agent in (luna, nova)]
    for stream in streams:
        assert [stream.next()["from"] for _ in range(2)] == ["luna", "nova"]

    opal = crew.member("opal", "opencode")

    for stream in streams:
        event = stream.next()
        assert (event["from"], event["payload"]["harness"]) == ("opal", "opencode")
    assert opal.pal("stick", "claim", "--json").status == 3
    luna.ok("stick", "release", "--status", "done; opal is new here", "--next", "show opal around")
    assert opal.state()["reserved_for"] == "opal"
    assert opal.claim()["handoff"]["next_action"] == "show opal around"


def test_pass_is_visible_as_an_event_and_only_a_claim_starts_the_turn(
    crew: Crew, luna: Agent, nova: Agent
) -> None:
    luna.claim()
    stream = nova.follow("--type", "pass")

    luna.ok("stick", "pass", "nova", *HANDOFF)

    event = stream.next()
    assert (event["from"], event["to"]) == ("luna", ["nova"])
    assert event["payload"]["handoff"] == {"status": "parser done", "next_action": "review it"}
    state = nova.state()
    assert (state["room_state"], state["owner_agent_id"], state["reserved_for"]) == ("reserved", None, "nova")
    assert nova.claim()["turn_id"] == 2


def test_two_members_discuss_a_question_while_one_of_them_works(crew: Crew, luna: Agent, nova: Agent) -> None:
    turn = luna.claim()
    streams = {agent.name: agent.listen("recv", "--follow", "--json") for agent in (luna, nova)}
    talk = [
        (luna, "is force_new tied to canonical_path or to room_id?"),
        (nova, "canonical_path. There's a UNIQUE constraint on it"),
        (luna, "and two worktrees?"),
        (nova, "share the main checkout's, so they share the room"),
        (luna, "then `--new` nests?"),
        (nova, "it does; 'quoted' and $HOME and \\n stay as they are"),
        (luna, "thanks"),
        (nova, "any time"),
    ]

    for number, (speaker, text) in enumerate(talk):
        other = nova if speaker is luna else luna
        words = ("--room", "shop") if number % 2 else ()  # With and without the room: both work the same.
        speaker.ok("send", other.name, *words, "--", text)
        line = streams[other.name].next()
        assert (line["from"], line["text"]) == (speaker.name, text)

    # Eight messages, one turn, no handoff; and all of them can be read again.
    assert [event["type"] for event in crew.events(*MOVES)] == ["claim"]
    state = luna.state()
    assert (state["owner_agent_id"], state["turn_id"]) == ("luna", turn["turn_id"])
    assert crew.home.texts() == [text for _, text in talk]
