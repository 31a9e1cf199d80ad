"""`pal route`, `sub`, `dead`, `history` and `session`, and sessions in the commands about messages."""

import json
from collections.abc import Iterator

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, Shell, check_output, run_as_person, wait_until

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


@pytest.fixture
def monitored(luna: Shell) -> Shell:
    """The agent luna, whose session mon is subscribed to ci/*."""
    luna.ok("sub", "add", "ci/*", "--session", "mon")
    return luna


# Routing


def test_route_reaches_the_subscribers_of_a_path_and_no_other(bus: Home, luna: Shell, nova: Shell) -> None:
    luna.ok("sub", "add", "slack/team/*")
    sent = bus.ok("route", "slack/team/#general", "--command", "new", "--payload", '{"a": [1]}').out

    got = luna.ok("recv", "--json").json

    seq = got["seq"]
    assert sent == f"sent #{seq} to luna\n"
    assert (got["command"], got["payload"], got["path"]) == ("new", {"a": [1]}, "slack/team/#general")
    assert (got["source"], got["text"], got["from"]) == ("internal", 'new {"a":[1]}', "script")
    assert "session" not in got
    assert "handled" not in got
    assert nova.ok("recv", "--json").out == ""


def test_result_of_a_route_names_agents_and_sessions(bus: Home, monitored: Shell) -> None:
    routed = bus.ok("route", "ci/main", "--json").json

    assert routed["delivered"] is True
    assert routed["deliveredTo"] == ["luna"]
    assert [(one["agentId"], one["sessionId"]) for one in routed["deliveredToSessions"]] == [("luna", "mon")]
    assert (routed["messageId"], routed["unmatched"]) == (routed["id"], False)
    assert bus.ok("route", "ci/main").out == f"sent #{routed['seq'] + 1} to luna (session mon), luna\n"


def test_route_to_no_subscriber_is_a_dead_letter_and_not_an_error(bus: Home, luna: Shell) -> None:
    first = bus.ok("route", "slack/x").out
    second = bus.ok("route", "agent/nix", "--command", "go", "--payload", "[]", "--json").json

    found = bus.ok("dead", "--json").lines

    number = found[1]["seq"]
    assert first == (
        f"stored as #{number}: no agent is subscribed to slack/x (a dead letter; 'pal dead' lists them)\n"
    )
    assert (second["delivered"], second["unmatched"], second["deliveredTo"]) == (False, True, [])
    assert [(one["path"], one["command"], one["payload"]) for one in found] == [
        ("agent/nix", "go", []),
        ("slack/x", "message", {}),
    ]
    assert {one["reason"] for one in found} == {"no_subscribers"}
    assert bus.ok("dead").out.split("\n")[1].split()[2] == "agent/nix"


def test_cleared_dead_letters_stay_in_the_log(bus: Home, luna: Shell) -> None:
    seq = bus.ok("route", "slack/x", "--json").json["seq"]

    luna.ok("dead", "--clear")
    later = bus.ok("route", "slack/y", "--json").json["seq"]

    assert [one["seq"] for one in bus.ok("dead", "--json").lines] == [later]
    assert bus.ok("show", str(seq), "--json").json["path"] == "slack/x"


def test_dead_letters_are_limited_by_number_and_time(bus: Home, luna: Shell) -> None:
    seqs = [bus.ok("route", f"x/{number}", "--json").json["seq"] for number in range(3)]

    def shown(*options: str) -> list[int]:
        return [one["seq"] for one in bus.ok("dead", "--json", *options).lines]

    assert shown("--limit", "2") == [seqs[2], seqs[1]]
    assert shown("--since", "1h") == seqs[::-1]
    assert shown("--until", "1h") == []
    assert bus.pal("dead", "--limit", "1001").status == 2
    assert bus.pal("dead", "--limit", "0").status == 2


@pytest.mark.parametrize(
    ("options", "content", "payload"),
    [
        (("--payload", '"hi"'), None, "hi"),
        (("--payload", "-"), b"[1, 2]\n", [1, 2]),
        (("--stdin",), b'{"a": null}', {"a": None}),
        (("--payload", "[]"), None, []),
        (("--payload", "null"), None, {}),
        (("--payload", "0"), None, {}),
        ((), None, {}),
    ],
)
def test_payload_is_any_json_value_and_a_falsy_one_is_empty(
    bus: Home, luna: Shell, options: tuple[str, ...], content: bytes | None, payload: object
) -> None:
    bus.ok("route", "agent/luna", *options, content=content)

    assert luna.ok("recv", "--json").json["payload"] == payload


def test_payload_of_a_file_is_read_by_the_client(bus: Home, luna: Shell) -> None:
    path = bus.path.parent / "m.json"
    path.write_text('{"big": "é"}')

    bus.ok("route", "agent/luna", "--file", str(path))

    assert luna.ok("recv", "--json").json["payload"] == {"big": "é"}


@pytest.mark.parametrize("words", ["hello", "{", "[" * 100_000, "NaN", ""])
def test_payload_that_is_not_json_is_refused_and_nothing_is_sent(bus: Home, luna: Shell, words: str) -> None:
    before = bus.events()

    refused = bus.pal("route", "agent/luna", "--payload", words)

    assert refused.status == 2
    assert refused.err.startswith("pal: --payload is ")
    assert "nothing was sent" in refused.err
    assert bus.events() == before


def test_same_id_again_sends_nothing(bus: Home, luna: Shell) -> None:
    first = bus.ok("route", "agent/luna", "--id", ULID, "--json").json

    second = bus.ok("route", "agent/luna", "--id", ULID.lower(), "--json").json
    third = bus.ok("route", "agent/luna", "--id", ULID).out

    assert (second["seq"], second["repeat"], first.get("repeat")) == (first["seq"], True, None)
    assert third == f"#{first['seq']} was sent before, to luna\n"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("///", "path is required"),
        ("a" * 1025, "the limit is 1024"),
        ("/".join("a" * 65), "at most 64 segments"),
        ("**/a/" * 9, "at most 8 '**'"),
    ],
)
def test_path_over_a_limit_is_refused_with_the_limit(bus: Home, path: str, words: str) -> None:
    refused = bus.pal("route", path, "--json")

    assert refused.status == 1
    assert words in refused.error["message"]


# Subscriptions


def test_subscriptions_are_listed_with_their_sessions(luna: Shell) -> None:
    luna.ok("sub", "add", "/slack//team/*/")
    luna.ok("sub", "add", "slack/team/*")
    added = luna.ok("sub", "add", "ci/**", "--session", "mon", "--json").json

    listed = luna.ok("sub", "list", "--json").lines
    own = luna.ok("sub", "list", "--session", "mon", "--json").lines

    assert [(one["pattern"], one.get("session")) for one in listed] == [
        ("slack/team/*", None),
        ("ci/**", "mon"),
    ]
    assert own == listed[1:]
    assert added["subscriptions"] == [{key: own[0][key] for key in ("ts", "pattern", "addedAt")}]
    lines = luna.ok("sub", "list").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["PATTERN", "FOR"],
        ["slack/team/*", "luna"],
        ["ci/**", "luna"],
    ]
    assert "luna (session mon)" in lines[2]


def test_own_path_is_subscribed_automatically_and_stays(luna: Shell) -> None:
    added = luna.ok("sub", "add", "agent/luna").out
    noted = luna.ok("sub", "add", "agent/luna", "--json").json

    refused = luna.pal("sub", "rm", "agent/luna", "--json")

    assert added == "luna is subscribed to agent/luna: auto-subscribed\n"
    assert (noted["note"], noted["subscriptions"]) == ("auto-subscribed", [])
    assert refused.error["message"] == "Cannot unsubscribe from auto-subscription"
    assert luna.ok("sub", "list", "--json").out == ""


def test_removed_subscription_receives_nothing_more(bus: Home, monitored: Shell) -> None:
    removed = monitored.ok("sub", "rm", "ci/*", "--session", "mon").out
    again = monitored.ok("sub", "rm", "ci/*", "--session", "mon").out

    assert removed == "luna (session mon) is no longer subscribed to ci/*\n"
    assert again == "luna (session mon) was not subscribed to ci/*\n"
    assert bus.ok("route", "ci/main", "--json").json["unmatched"] is True


def test_person_subscribes_an_agent_with_as(bus: Home, luna: Shell) -> None:
    check_output(run_as_person(bus, "sub", "add", "news/*", "--as", "luna"))

    assert bus.ok("route", "news/x").out.endswith(" to luna\n")


def test_caller_subscribes_only_itself(bus: Home, luna: Shell, nova: Shell) -> None:
    script = bus.pal("sub", "add", "news/*")
    session = nova.pal("session", "create", "luna", "mon")
    reaching = luna.pal("sub", "add", "agent/*")

    assert (script.status, session.status, reaching.status) == (1, 1, 1)
    assert "--as NAME" in script.err
    assert session.err == (
        "pal: you are nova and cannot act as luna; use your own name. To act as luna, if you may: --as luna\n"
    )
    assert "requires an operator" in reaching.err


# Sessions and their mailboxes


def test_session_is_created_changed_shown_and_removed(luna: Shell) -> None:
    made = luna.ok("session", "create", "luna", "mon", "--title", "Builds").out
    changed = luna.ok("session", "create", "luna", "mon", "--harness-session", "h1", "--json").json
    luna.ok("sub", "add", "ci/*", "--session", "mon")

    shown = luna.ok("session", "show", "luna", "mon").out.splitlines()
    listed = luna.ok("session", "list", "luna", "--json").lines
    removed = luna.ok("session", "rm", "luna", "mon").out
    missing = luna.pal("session", "show", "luna", "mon")

    assert (made, removed) == ("created luna (session mon)\n", "removed luna (session mon)\n")
    assert (changed["title"], changed["harnessSession"], changed["isDefault"]) == ("Builds", "h1", False)
    assert shown[0] == "luna (session mon)"
    assert shown[2:] == ["title Builds", "harness session h1", "subscribed to ci/*"]
    assert [(one["id"], one["isDefault"]) for one in listed] == [("main", True), ("mon", False)]
    assert [one["pattern"] for one in listed[1]["subscriptions"]] == ["ci/*"]
    assert missing.err == "pal: there is no session mon of luna: 'pal session list luna' shows them\n"


def test_main_session_cannot_be_removed(luna: Shell) -> None:
    refused = luna.pal("session", "rm", "luna", "main")

    assert refused.status == 1
    assert "cannot be removed" in refused.err
    assert luna.ok("session", "show", "luna", "--json").json["id"] == "main"


def test_session_takes_its_own_copy_and_the_agent_keeps_a_handled_one(bus: Home, monitored: Shell) -> None:
    seq = bus.ok("route", "ci/main", "--command", "red", "--payload", "[]", "--json").json["seq"]

    peeked = monitored.ok("recv", "--session", "mon", "--peek", "--json").json
    taken = monitored.ok("recv", "--session", "mon").out
    again = monitored.ok("recv", "--session", "mon", "--json").out
    mine = monitored.ok("inbox", "--json").json
    received = monitored.ok("recv").out

    assert (peeked["session"], peeked["text"], "handled" in peeked) == ("mon", "red []", False)
    assert taken == f"<pal>[new message #{seq}] script → luna (session mon): red []</pal>\n"
    assert again == ""
    assert (mine["state"], mine["handled"], mine["handled_by"]) == ("queued", True, ["mon"])
    assert received == f"<pal>[new message #{seq}] script → luna: red [] (handled by mon)</pal>\n"


def test_session_waits_for_and_acknowledges_its_own_mail(bus: Home, monitored: Shell) -> None:
    waiting = monitored.begin("recv", "--session", "mon", "--wait", "--json")
    seqs = [bus.ok("route", "ci/main", "--json").json["seq"]]
    got = [json.loads(waiting.line())["seq"]]
    assert waiting.end().status == 0
    seqs.append(bus.ok("route", "ci/main", "--json").json["seq"])

    acked = monitored.ok("ack", "--session", "mon", str(seqs[1]), "--json").json

    assert got == seqs[:1]
    assert (acked["session"], acked["messages"]) == ("mon", seqs[1:])
    assert [one["state"] for one in monitored.ok("inbox", "--session", "mon", "--json").lines] == [
        "seen",
        "seen",
    ]


def test_unknown_session_of_a_reader_is_refused(luna: Shell) -> None:
    for command in ("recv", "inbox", "history"):
        refused = luna.pal(command, "--session", "nix")

        assert refused.status == 1, command
        assert refused.err == "pal: there is no session nix of luna: 'pal session list luna' shows them\n"


def test_history_shows_each_copy_with_its_status_newest_first(bus: Home, monitored: Shell) -> None:
    bus.ok("send", "@luna", "--thread", "t", "--", "a text")
    bus.ok("route", "ci/main", "--command", "red")
    monitored.ok("recv", "--session", "mon")

    agent = monitored.ok("history", "--json").lines
    session = bus.ok("history", "luna", "--session", "mon", "--json").lines

    assert [(one["command"], one["payload"], one["status"]) for one in agent] == [
        ("red", {}, "pending"),
        ("message", {"text": "a text"}, "pending"),
    ]
    assert (agent[0]["handled"], agent[0]["handledBy"][0]["sessionId"]) == (True, "mon")
    assert (agent[1]["handled"], agent[1]["path"], agent[1]["thread"]) == (False, "agent/luna", "t")
    assert [(one["command"], one["status"], "handled" in one) for one in session] == [
        ("red", "delivered", False)
    ]
    lines = monitored.ok("history").out.splitlines()
    assert lines[1].endswith("red {} (handled by mon)")
    assert lines[2].endswith("a text")


# Texts about routed messages


def test_receipts_and_trace_name_sessions_for_people_and_programs(bus: Home, monitored: Shell) -> None:
    seq = str(bus.ok("route", "ci/main", "--json").json["seq"])
    monitored.ok("recv", "--session", "mon")

    lines = bus.ok("receipts", seq).out.splitlines()
    shown = [line.split("  ") for line in lines if not line.startswith(" ")]
    receipts = bus.ok("receipts", seq, "--json").json["receipts"]
    trace = bus.ok("trace", seq).out

    assert [line[0] for line in shown] == ["luna (session mon)", "luna"]
    assert shown[1][-1] == "handled by mon"
    reasons = [line for line in lines if line.startswith(" ")]
    assert [line.strip().partition(":")[0] for line in reasons] == ["handled", "what moves it"]
    assert [(one["agent"], one.get("session"), one["state"]) for one in receipts] == [
        ("luna", "mon", "seen"),
        ("luna", None, "queued"),
    ]
    assert receipts[1]["handled_by"] == ["mon"]
    assert "to luna (session mon), luna" in trace
    assert "only for pull: handled by mon" in trace


def test_dead_path_with_a_plus_is_not_taken_for_a_session(luna: Shell) -> None:
    seq = str(luna.ok("route", "c++", "--json").json["seq"])

    receipt = luna.ok("receipts", seq, "--json").json["receipts"][0]

    assert (receipt["agent"], "session" in receipt) == ("c++", False)
    assert luna.ok("receipts", seq).out.startswith("c++ ")


def test_mail_of_another_mailbox_is_not_acknowledged(bus: Home, monitored: Shell) -> None:
    seq = str(bus.ok("send", "@luna", "--json", "--", "hello").json["seq"])

    refused = monitored.pal("ack", seq, "--session", "mon")

    assert refused.status == 1
    assert refused.err.startswith(f"pal: #{seq} was not sent to luna (session mon); nothing was marked")


def test_sender_sees_the_readers_of_a_routed_message(monitored: Shell, nova: Shell) -> None:
    nova.ok("route", "ci/main", "--command", "red")
    monitored.ok("recv", "--session", "mon")

    listed = nova.ok("list", "-v").out

    assert '"red {}" read by luna [1/1]' in listed


def test_show_and_events_read_a_routed_message_as_its_command(bus: Home, luna: Shell) -> None:
    words = ("--command", "new", "--payload", '{"a": 1}', "--source", "slack", "--external-id", "ts-1")
    seq = str(bus.ok("route", "agent/luna", *words, "--json").json["seq"])

    shown = bus.ok("show", seq).out
    listed = bus.ok("events", "--type", "message").out

    assert "\nsource slack\nexternal id ts-1\n" in shown
    assert shown.endswith('\n\nnew {"a":1}\n')
    assert 'new {"a":1}' in listed


def test_events_have_summaries_of_paths_and_sessions(bus: Home, monitored: Shell) -> None:
    monitored.ok("sub", "rm", "ci/*", "--session", "mon")
    monitored.ok("session", "create", "luna", "two", "--title", "Second")
    monitored.ok("session", "rm", "luna", "two")
    bus.ok("route", "x/y")
    monitored.ok("dead", "--clear")

    listed = bus.ok("events", "--all").out

    for words in (
        "ci/* (for luna (session mon))",
        "two (of luna, Second)",
        "two (of luna)",
        "up to #",
    ):
        assert words in listed, words


def test_session_of_a_text_by_path_is_named_to_its_sender(bus: Home, monitored: Shell) -> None:
    assert bus.ok("send", "ci/main", "--", "hello").out.endswith(" to luna (session mon), luna\n")
    assert monitored.ok("recv", "--session", "mon", "--json").json["text"] == "hello"


# The file of a message


@pytest.fixture
def kira(bus: Home) -> Iterator[FakeHolder]:
    """An agent in a terminal, whose session mon is subscribed to ci/*."""
    with FakeHolder(bus) as holder:
        holder.hold(ticket_of(words_of(bus, "run", "--name", "kira", "--", "bash")))
        holder.open_lane(is_open=False)
        check_output(run_as_person(bus, "sub", "add", "ci/*", "--session", "mon", "--as", "kira"))
        yield holder


def test_file_of_a_routed_message_contains_its_command(bus: Home, kira: FakeHolder) -> None:
    seq = str(bus.ok("route", "ci/main", "--command", "red", "--json").json["seq"])
    folder = bus.path / "messages" / "kira"
    wait_until(lambda: list(folder.glob("*.md")))

    (path,) = folder.glob("*.md")

    assert path.read_text() == "red {}\n"
    assert bus.ok("show", seq, "--json").json["files"] == {"kira": str(path)}


# Completion


def test_completion_offers_sessions_and_own_patterns(bus: Home, monitored: Shell) -> None:
    monitored.ok("sub", "add", "news/builds")

    def offered(*words: str) -> list[str]:
        return monitored.ok("__complete", "--", *words).out.splitlines()

    assert offered("recv", "--session", "") == ["main", "mon"]
    assert offered("sub", "rm", "n") == ["news/builds"]
    assert bus.ok("__complete", "--", "session", "rm", "luna", "").out.split() == ["main", "mon"]
    assert bus.ok("__complete", "--", "sub", "rm", "--as", "luna", "n").out.split() == ["news/builds"]
    assert bus.ok("__complete", "--", "recv", "--session", "m").out == ""
    assert "mon" in bus.ok("__complete", "--", "history", "luna", "--session", "").out.split()
