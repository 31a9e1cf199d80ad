"""Groups: several agents started, tagged, paused and stopped with one command, through the real client."""

import shutil
from typing import Any

import pytest
from tests.daemon.stage import Home, Shell, check_output, run_as_person, run_script_as_person
from tests.daemon.tmux import HAS_TMUX, pane


def start_group(home: Home, count: int = 2, *options: str) -> list[str]:
    """Start programs that run until they are stopped, and return their names."""
    started = run_as_person(home, "run", "--count", str(count), *options, "--json", "--", "cat")
    return [line["name"] for line in check_output(started).lines]


def names(home: Home) -> set[str]:
    return {agent["name"] for agent in home.ok("list", "--json").lines}


@pytest.fixture
def nova(bus: Home) -> Shell:
    """An agent that `pal` did not start."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def test_one_command_starts_a_group_and_one_stops_it(bus: Home, nova: Shell) -> None:
    group = start_group(bus, 3, "--tag", "api")
    other = start_group(bus, 2)

    stopped = check_output(run_as_person(bus, "stop", "--tag", "api", "--json"))

    assert len(set(group)) == 3
    assert all(name.startswith("api-") for name in group)
    assert {line["name"] for line in stopped.lines} == set(group)
    assert names(bus) == {"nova", *other}


def test_count_and_name_exclude_each_other(bus: Home) -> None:
    refused = bus.pal("run", "--count", "2", "--name", "luna", "--", "cat")
    too_many = bus.pal("run", "--count", "21", "--", "cat")

    assert (refused.status, too_many.status) == (2, 2)
    assert "use --tag to name the group" in refused.err
    assert "--count must be at most 20" in too_many.err
    assert names(bus) == set()


def test_group_whose_program_fails_prints_why_and_fails(bus: Home) -> None:
    failed = run_as_person(bus, "run", "--count", "2", "--", "sh", "-c", "echo no; exit 3")

    assert failed.status == 1
    assert failed.err.count("exited during its start") == 2
    assert failed.out == ""


def stand_ins(home: Home, *programs: str) -> dict[str, str]:
    """Return a PATH of programs that run until they are stopped, without any other harness."""
    folder = home.path.parent / "bin"
    folder.mkdir()
    for program in ("bash", "cat", "env", "setsid", "sh"):
        found = shutil.which(program)
        assert found
        (folder / program).symlink_to(found)
    (folder / "pal").symlink_to(home.client)
    for program in programs:
        (folder / program).write_text("#!/bin/sh\necho ready\nexec cat\n")
        (folder / program).chmod(0o755)
    return {"PATH": str(folder)}


def start(home: Home, path: dict[str, str], *words: str) -> list[Any]:
    return check_output(run_as_person(home, "start", *words, "--json", env=path)).lines


def test_one_command_starts_agents_of_two_kinds(bus: Home) -> None:
    path = stand_ins(bus, "claude", "gemini")

    started = start(bus, path, "claude:2", "gemini", "--tag", "api", "--role", "observer")

    agents = {one["name"]: one for one in bus.ok("list", "--json").lines}
    assert [agents[one["name"]]["harness"] for one in started] == ["claude", "claude", "gemini"]
    assert all(one["tag"] == "api" and one["role"] == "observer" for one in agents.values())
    assert len(agents) == 3
    check_output(run_as_person(bus, "stop", "--tag", "api"))
    assert names(bus) == set()


def test_one_agent_is_started_in_the_background_too(bus: Home) -> None:
    (started,) = start(bus, stand_ins(bus, "claude"), "Claude")

    assert names(bus) == {started["name"]}


def test_no_agent_starts_if_one_harness_is_missing(bus: Home) -> None:
    path = stand_ins(bus, "claude")

    refused = run_as_person(bus, "start", "claude", "codex", env=path)

    assert refused.status == 127
    assert "no such program; to install it: npm install -g @openai/codex\n" in refused.err
    assert names(bus) == set()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "HARNESS"),
        (("banana:2",), "unknown harness 'banana:2'; choose from claude, codex, gemini, opencode, such as"),
        (("nova",), "unknown harness 'nova'; it is an agent: 'pal resume nova' restarts it"),
        (("claude", "codex:0"), "'codex:0' has no valid number; write codex:N, with 1 to 20"),
        (("claude:",), "'claude:' has no valid number"),
        (("claude:²",), "'claude:²' has no valid number"),
        (("claude:21",), "'claude:21' has no valid number"),
        (("claude:" + "9" * 5000,), "has no valid number; write claude:N, with 1 to 20"),
        (("claude:15", "codex:6"), "21 agents are too many; start at most 20 at once"),
        (("claude", "--name", "luna"), "pal start has no option '--name'"),
    ],
)
def test_wrong_start_is_refused(bus: Home, nova: Shell, words: tuple[str, ...], sentence: str) -> None:
    refused = bus.pal("start", *words)

    assert refused.status == 2
    assert sentence in refused.err
    assert names(bus) == {"nova"}


def test_agent_of_a_group_gets_no_higher_role_from_an_agent(bus: Home, nova: Shell) -> None:
    refused = nova.pal("start", "claude", "--role", "operator", "--json")

    assert refused.error["error"] == "not_allowed"
    assert "only a person can assign the role operator" in refused.error["message"]


def test_several_names_are_killed_and_a_wrong_one_kills_none(bus: Home) -> None:
    first, second = start_group(bus)

    refused = run_as_person(bus, "kill", first, "nobody")
    assert refused.status == 1
    assert names(bus) == {first, second}

    killed = check_output(run_as_person(bus, "kill", first, second, first))
    assert killed.out.count("has ended: killed") == 2
    assert names(bus) == set()


def test_all_stops_what_pal_started_and_names_the_rest(bus: Home, nova: Shell) -> None:
    first, second = start_group(bus)

    stopped = check_output(run_as_person(bus, "stop", "--all"))

    assert f"{first} has ended" in stopped.out
    assert f"{second} has ended" in stopped.out
    assert "not started by pal, so left alone: nova" in stopped.err
    assert names(bus) == {"nova"}
    again = check_output(run_as_person(bus, "stop", "--all"))
    assert "there is no agent to stop" in again.err


def test_group_is_paused_and_unpaused(bus: Home, nova: Shell) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "luna", "--tag", "api")

    paused = check_output(run_as_person(bus, "pause", "--tag", "api", "--json"))
    everyone = check_output(run_as_person(bus, "pause", "--all", "--json"))
    back = check_output(run_as_person(bus, "unpause", "nova", "--tag", "@api-", "--json"))

    assert paused.json == {"agent": "api-luna", "name": "api-luna", "paused": True}
    assert everyone.json == {"agent": "nova", "name": "nova", "paused": True}
    assert [line["name"] for line in back.lines] == ["nova", "api-luna"]
    assert [event["payload"]["agent"] for event in bus.events("--type", "agent.unpaused")] == [
        "nova",
        "api-luna",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("stop",), "name the agents, or select them with --tag TAG or --all"),
        (("kill", "--all", "luna"), "use it without names and tags"),
        (("pause", "--all", "--tag", "api"), "use it without names and tags"),
        (("stop", "--tag", "nope"), "there is no agent with the tag nope"),
    ],
)
def test_unclear_selection_is_refused(bus: Home, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in run_as_person(bus, *words).err


def test_group_commands_need_an_operator(bus: Home, nova: Shell) -> None:
    for verb in ("stop", "kill", "pause", "unpause"):
        assert nova.pal(verb, "--all", "--json").error["error"] == "not_allowed"


def test_agent_is_tagged_later_and_keeps_its_name(bus: Home, nova: Shell) -> None:
    kira = bus.shell()
    kira.ok("join", "--name", "kira")

    assert nova.ok("tag", "nova", "api").out == "nova has the tag api; @api- addresses its group\n"
    assert kira.ok("send", "@api-", "--json", "--", "hello").json["delivered_to"] == ["nova"]
    assert kira.pal("tag", "nova", "web", "--json").error["error"] == "not_allowed"
    assert check_output(run_as_person(bus, "tag", "kira", "@api-", "--json")).json == {
        "agent": "kira",
        "name": "kira",
        "tag": "api",
    }
    assert {
        one["name"] for one in check_output(run_as_person(bus, "pause", "--tag", "api", "--json")).lines
    } == {
        "nova",
        "kira",
    }
    assert nova.ok("tag", "nova", "--remove").out == "nova has no tag\n"
    assert kira.ok("send", "@api-", "--json", "--", "hello").json["delivered_to"] == []


def test_tag_lasts_over_a_restart_and_a_new_process(bus: Home, nova: Shell) -> None:
    nova.ok("tag", "nova", "api")
    bus.kill()
    nova.close()

    check_output(run_script_as_person(bus, "pal join --name nova"))

    (agent,) = bus.ok("list", "-v", "--json").lines
    assert (agent["name"], agent["tag"]) == ("nova", "api")


@pytest.mark.parametrize("words", [("nova",), ("nova", "api", "--remove"), ("nova", ""), ("nova", "@-")])
def test_tag_is_given_or_removed(bus: Home, nova: Shell, words: tuple[str, ...]) -> None:
    assert nova.pal("tag", *words).status == 2


@pytest.mark.skipif(not HAS_TMUX, reason="needs tmux")
@pytest.mark.parametrize(("reply", "is_stopped"), [("y", True), ("n", False), ("", False)])
def test_person_is_asked_before_all_agents_are_stopped(bus: Home, reply: str, is_stopped: bool) -> None:
    first, second = start_group(bus)

    with pane(bus, "pal stop --all") as person:
        screen = person.shows("stop 2 agents:", "[y/N]")
        assert any(first in line and second in line for line in screen)
        person.say(reply)
        person.shows("ended with 0" if is_stopped else "ended with 1")

    assert names(bus) == (set() if is_stopped else {first, second})
