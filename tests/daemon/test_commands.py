"""Every command in both of its output forms, and help without side effects."""

import json
from collections.abc import Iterator, Mapping

import pytest
from tests.daemon.stage import Home, check_output, finish, new_home, run_as_person

from palaver.doors.cli.run import COMMANDS, HANDLERS
from palaver.doors.cli.spec import Command

PLACE = 8
"""The seq of the first message for nova, after the events of the daemon and of two joined agents."""

WORDS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("up",): (),
    ("status",): (),
    ("doctor",): (),
    ("completion",): ("bash",),
    ("__complete",): ("--", "se"),
    ("whoami",): (),
    ("list",): ("--verbose",),
    ("status", "set"): ("--as", "nova", "active", "--detail", "running the tests"),
    ("send",): ("@nova", "--", "hello"),
    ("recv",): ("--as", "nova", "--limit", "1"),
    ("inbox",): ("--as", "nova"),
    ("show",): (f"{PLACE}",),
    ("receipts",): (f"{PLACE}",),
    ("trace",): (f"{PLACE}",),
    ("ack",): ("--as", "nova", f"#{PLACE + 2}"),
    ("session", "create"): ("nova", "chat", "--as", "nova", "--title", "Team"),
    ("sub", "add"): ("chat/*", "--as", "nova", "--session", "chat"),
    ("sub", "list"): ("--as", "nova"),
    ("route",): ("chat/1", "--payload", "[]"),
    ("history",): ("nova", "--session", "chat"),
    ("session", "list"): ("nova",),
    ("session", "show"): ("nova", "chat"),
    ("sub", "rm"): ("chat/*", "--as", "nova", "--session", "chat"),
    ("session", "rm"): ("nova", "chat", "--as", "nova"),
    ("dead",): ("--clear",),
    ("put",): ("build.done", "--to", "nova", "--payload", '{"ok": true}'),
    ("events",): (),
    ("join",): ("--as", "luna"),
    ("leave",): (),
    ("down",): (),
}
"""Example arguments of each command, run in this order."""

TRIED_ELSEWHERE = frozenset(
    {
        "agent",
        "approve",
        "archive",
        "attach",
        "backup",
        "bridge",
        "bundle",
        "chat",
        "claude",
        "codex",
        "config",
        "deny",
        "export",
        "fork",
        "gemini",
        "hook",
        "import",
        "install",
        "irc",
        "kill",
        "mcp",
        "monitor",
        "note",
        "notify",
        "opencode",
        "pause",
        "peek",
        "pending",
        "resume",
        "rewake",
        "room",
        "run",
        "start",
        "stick",
        "stop",
        "tag",
        "task",
        "thread",
        "token",
        "turn",
        "ui",
        "web",
        "webhook",
        "transcript",
        "uninstall",
        "unpause",
    }
)
PERSONS = frozenset({("redact",), ("redeliver",), ("release",)})
HARNESS_PLACES = (
    ("join", "--harness"),
    ("run", "--harness"),
    ("doctor", "--harness"),
    ("install",),
    ("uninstall",),
    ("start",),
    ("hook",),
)
"""The words after which a harness is expected; the last takes only harnesses with hooks."""
TEXT_ONLY = frozenset({("completion",), ("__complete",)})
SILENT = frozenset({("status", "set"), ("ack",)})


def set_up(home: Home) -> Home:
    """Set up a bus with the agent nova, the exited agent luna, and a message to nova."""
    home.start_daemon()
    luna, nova = home.shell(), home.shell()
    luna.ok("join", "--name", "luna")
    luna.ok("leave")
    nova.ok("join", "--name", "nova")
    assert home.ok("send", "@nova", "--thread", "t", "--json", "--", "first").json["seq"] == PLACE
    return home


@pytest.fixture
def stage(home: Home) -> Home:
    return set_up(home)


@pytest.fixture(scope="module")
def still() -> Iterator[Home]:
    """One home for all tests that change nothing."""
    with new_home() as home:
        yield set_up(home)


def test_every_command_is_tested_here_or_listed_as_tested_elsewhere() -> None:
    others = {path for path in HANDLERS if path[0] in TRIED_ELSEWHERE or path[:-1] == ("events",)}

    assert set(WORDS) | PERSONS | others == set(HANDLERS)


@pytest.mark.parametrize("form", ["--text", "--json"])
def test_every_command_prints_text_and_json(home: Home, form: str) -> None:
    set_up(home)

    answers = {path: home.pal(*path, form, *words) for path, words in WORDS.items()}

    for path, answered in answers.items():
        assert answered.status == 0, (path, answered)
        assert answered.err == "", path
        if form == "--json" and path not in TEXT_ONLY:
            assert answered.lines, path
            assert all(isinstance(line, dict) for line in answered.lines), path
        else:
            assert bool(answered.out) is (path not in SILENT), path
            assert answered.out.endswith("\n") or path in SILENT, path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.path))
def test_help_of_a_command_has_no_effect_whatever_else_the_line_holds(still: Home, command: Command) -> None:
    path, before = command.path, still.events()

    shown = still.ok(*path, *(word for word in WORDS.get(path, ()) if word != "--"), "--help")

    assert "pal" in shown.out
    assert still.events() == before
    assert still.ok("status", "--json").json["pid"] == still.pid


def test_list_leaves_out_exited_agents_unless_all_are_requested(still: Home) -> None:
    short = still.ok("list", "--json").lines
    long = still.ok("list", "-v", "--json").lines

    assert [line["name"] for line in short] == ["nova"]
    assert [(line["name"], line["state"]) for line in long] == [("nova", "idle"), ("luna", "exited")]


def test_list_shows_which_agent_has_read_the_callers_last_message(stage: Home) -> None:
    before = stage.ok("list", "-v", "--json").lines[0]["last_sent"]

    stage.ok("recv", "--as", "nova")
    after = stage.ok("list", "-v", "--json").lines[0]["last_sent"]

    assert before.pop("wait")["code"] == "not_fetched"
    assert (before, after) == ({"seq": PLACE, "state": "queued"}, {"seq": PLACE, "state": "seen"})
    assert '"first" read by nova [1/1]' in stage.ok("list", "-v").out


def test_verbose_list_shows_recent_messages_and_their_readers(stage: Home) -> None:
    kira = stage.shell()
    kira.ok("join", "--name", "kira")
    for word in ("one", "two", "three", "four"):
        kira.ok("send", "@nova", "@luna", "--", word)
    stage.ok("recv", "--as", "nova", "--limit", "4")

    shown = {line["name"]: line["recent"] for line in stage.ok("list", "-v", "--json").lines}
    text, before = stage.ok("list", "-v").out, stage.events()

    assert [(one["text"], one["read_by"], one["total"]) for one in shown["kira"]] == [
        ("four", [], 2),
        ("three", ["nova"], 2),
        ("two", ["nova"], 2),
    ]
    assert set(shown["kira"][0]) == {"seq", "ts", "text", "read_by", "total", "waiting"}
    assert [(one["agent"], one["wait"]["code"]) for one in shown["kira"][1]["waiting"]] == [("luna", "left")]
    assert shown["nova"] == []
    assert '): "three" read by nova [1/2]' in text
    assert before == stage.events()


def test_inbox_shows_messages_with_their_state_and_changes_nothing(stage: Home) -> None:
    stage.ok("recv", "--as", "nova")
    stage.ok("send", "@nova", "--", "second")

    shown = stage.ok("inbox", "--as", "nova", "--json").lines
    again = stage.ok("inbox", "--as", "nova", "--json").lines

    assert [(line["text"], line["state"]) for line in shown] == [("first", "seen"), ("second", "queued")]
    assert again == shown


def test_message_is_found_by_its_seq_its_id_and_the_end_of_its_id(still: Home) -> None:
    id_ = still.ok("show", f"{PLACE}", "--json").json["id"]

    words = (f"{PLACE}", f"#{PLACE}", id_, id_[-6:].lower())
    found = [still.ok("show", word, "--json").json["seq"] for word in words]

    assert found == [PLACE] * 4


def test_status_of_an_agent_shows_its_detail_and_unread_count(stage: Home) -> None:
    stage.ok("status", "set", "--as", "nova", "listening", "--detail", "all ears")

    shown = stage.ok("status", "@Nova", "--json").json

    assert (shown["state"], shown["detail"], shown["unread"]) == ("idle", "all ears", 1)


@pytest.mark.parametrize(
    "words",
    [
        ("show",),
        ("send", "hello", "--reply-to"),
        ("thread", "show"),
        ("bundle", "show"),
        ("events", "unsub"),
        ("events", "--agent"),
    ],
    ids=" ".join,
)
def test_long_name_is_cut_in_an_error(stage: Home, words: tuple[str, ...]) -> None:
    result = stage.pal(*words, "x" * 300)

    assert f"{'x' * 70}" in result.err
    assert "x" * 81 not in result.err


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("frobnicate",), 2),
        (("send",), 2),
        (("send", "@nova"), 2),
        (("send", "--", ""), 1),
        (("send", "@nova", "--file", "x", "--", "text"), 2),
        (("send", "@nova", "--expires", "0", "--", "x"), 2),
        (("send", "@nova", "--intent", "ack", "--", "x"), 1),
        (("show", "99"), 1),
        (("show", "?"), 1),
        (("status", "nobody"), 1),
        (("recv",), 1),
        (("ack", f"{PLACE}"), 1),
        (("leave",), 1),
        (("whoami", "--as", "nobody"), 1),
        (("redeliver", f"{PLACE}"), 1),
        (("release", f"{PLACE}"), 1),
        (("config", "get", "colour"), 1),
        (("config", "set", "hints", "x"), 1),
        (("config", "edit"), 1),
        (("events", "--since", "yesterday"), 2),
        (("events", "--since", "0001-01-01"), 2),
        (("events", "--search", "x", "--follow"), 2),
        (("recv", "--as", "nova", "--peek", "--follow"), 2),
        (("status", "set", "dancing"), 2),
        (("join", "--pid", "x"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refusal_is_a_sentence_or_an_object_with_its_code(
    still: Home, words: tuple[str, ...], status: int
) -> None:
    result = still.pal(*words)
    before = [*words[: words.index("--")]] if "--" in words else [*words]
    coded = still.pal(*before, "--json", *words[len(before) :])

    assert (result.status, coded.status) == (status, status)
    assert result.out == coded.out == ""
    assert result.err.startswith("pal: ")
    assert result.err.count("\n") == 1
    details = coded.error.get("details", {})
    assert coded.error == {"error": coded.error["error"], "message": coded.error["message"]} | (
        {"details": details} if details else {}
    )
    assert coded.error["message"] in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("recv", "--as", "nova", "--limit"),
        ("inbox", "--as", "nova", "--limit"),
        ("note", "list", "--limit"),
        ("task", "list", "--limit"),
        ("bundle", "list", "--limit"),
        ("thread", "list", "--limit"),
        ("transcript", "nova", "--last"),
        ("events", "--last"),
        ("thread", "show", "t", "--last"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_limit_must_be_at_least_one(still: Home, words: tuple[str, ...], number: str) -> None:
    refused = still.pal(*words, number)

    assert (refused.status, refused.out) == (2, "")
    expected = f"{words[-1]} requires a whole number of at least 1, not {number!r}; omit it for the default"
    assert expected in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ("send", "@nova", "--reply-to=", "--", "hello"),
        ("send", "@nova", "--bundle=", "--", "hello"),
        ("send", "@nova", "--id=", "--", "hello"),
        ("route", "chat/1", "--id="),
        ("task", "create", "write the tests", "--assignee="),
        ("bundle", "create", "b", "--extends="),
        ("events", "sub", "--type", "message", "--for="),
    ],
    ids=" ".join,
)
def test_empty_reference_is_refused_and_not_ignored(still: Home, words: tuple[str, ...]) -> None:
    before = still.events()[-1]["seq"]

    refused = still.pal(*words)

    name = next(word.removesuffix("=") for word in words if word.endswith("="))
    said = f"pal: {name} requires a value, which is empty here; leave {name} out for none\n"
    assert (refused.status, refused.err) == (2, said)
    assert still.events()[-1]["seq"] == before


@pytest.mark.parametrize("command", ["whoami", "recv", "join"])
def test_empty_name_to_act_as_is_refused(still: Home, command: str) -> None:
    refused = still.pal(command, "--as=")

    said = "pal: --as requires the full name of an agent; leave it out to act as yourself\n"
    assert (refused.status, refused.out, refused.err) == (2, "", said)


def test_refusal_names_the_callers_that_may_start_an_agent_again(still: Home) -> None:
    refused = still.pal("fork", "nova", "--as", "nova")

    assert refused.err.startswith("pal: fork requires an operator, or the caller that started it; ")


def test_redeliver_is_refused_for_a_message_that_is_not_unconfirmed(still: Home) -> None:
    refused = run_as_person(still, "redeliver", f"{PLACE}")

    assert refused.status == 1
    assert f"#{PLACE} has no unconfirmed delivery" in refused.err


def test_under_a_harness_a_stream_is_json_unless_text_is_requested(still: Home) -> None:
    marks = {"CLAUDECODE": "1"}

    stream = still.shell(env=marks).begin("events", "--follow", "--after", "0")
    text = still.shell(env=marks).begin("events", "--follow", "--after", "0", "--text")

    assert json.loads(stream.line())["type"] == "life"
    assert text.line().startswith("#1 ")


def test_times_are_shown_in_the_time_zone_of_the_caller(still: Home) -> None:
    shown = {
        zone: still.ok("show", f"{PLACE}", env={"TZ": zone}).out.splitlines()[0]
        for zone in ("UTC", "Asia/Tokyo")
    }

    assert shown["UTC"] != shown["Asia/Tokyo"]


@pytest.mark.parametrize(
    "zone", ["../../etc/passwd", "/etc/passwd", "\x01", "Mars/Olympus", "EST5EDT,M3.2.0"]
)
def test_unknown_time_zone_is_treated_as_utc(still: Home, zone: str) -> None:
    shown = still.ok("show", f"{PLACE}", env={"TZ": zone}).out

    assert shown == still.ok("show", f"{PLACE}", env={"TZ": "UTC"}).out


def test_control_characters_in_a_status_detail_are_refused(still: Home) -> None:
    refused = still.pal("status", "set", "active", "--as", "nova", "--detail", "\x1b[2J")

    assert refused.status == 1
    assert "U+001B" in refused.err


def test_person_has_a_separate_mailbox(stage: Home) -> None:
    stage.ok("send", "@human", "--", "look at this")

    read = check_output(run_as_person(stage, "recv", "--json")).lines
    refused = stage.pal("recv", "--as", "human")

    assert [line["text"] for line in read] == ["look at this"]
    assert refused.status == 1


def test_help_without_a_bus_reports_an_output_error(home: Home) -> None:
    shell = home.shell()

    full = shell.begin_script("pal help >/dev/full").end()
    cut = shell.begin_script("exec 7> >(true); while [ -d /proc/$! ]; do :; done; pal help >&7").end()

    assert (full.status, full.err) == (1, "pal: standard output: No space left on device\n")
    assert (cut.status, cut.err) == (128 + 13, "")


def test_command_in_the_process_of_the_client_reports_an_output_error(still: Home) -> None:
    with open("/dev/full", "wb") as full:
        skill = finish(still.start("install", "skill", "--print", stdout=full))
        doctor = finish(still.start("doctor", stdout=full))

    for result in (skill, doctor):
        assert (result.status, result.err) == (1, "pal: standard output: No space left on device\n")


def test_completion_lists_the_agents_of_the_bus(still: Home) -> None:
    words = check_output(still.pal("__complete", "--", "send", "@n")).out.split()

    assert "@nova" in words


def test_completion_lists_the_tags_of_agents_and_the_harnesses(home: Home) -> None:
    home.shell().ok("join", "--name", "nova", "--tag", "api")
    home.shell().ok("join", "--name", "luna")

    tags = home.ok("__complete", "--", "send", "@a").out.splitlines()
    harnesses = [home.ok("__complete", "--", *words, "").out.split() for words in HARNESS_PLACES]

    assert tags == ["@api-nova", "@api-\tall agents with the tag api", "@all\teverybody"]
    assert all({"claude", "codex", "gemini", "opencode"} <= set(found) for found in harnesses[:-1])
    assert harnesses[0] == ["aider", "claude", "codex", "copilot", "gemini", "opencode", "qwen"]
    assert harnesses[-2] == ["claude", "codex", "gemini", "opencode"]
    assert harnesses[-1] == ["claude", "codex", "gemini"]
