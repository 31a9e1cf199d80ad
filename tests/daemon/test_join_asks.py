"""Joining at a person's terminal asks first; a refusal for lack of rights says the cause and the way out."""

import pytest
from tests.daemon.stage import Home, check_output, run_as_person, run_script_as_person
from tests.daemon.tmux import HAS_TMUX, pane

needs_tmux = pytest.mark.skipif(not HAS_TMUX, reason="needs tmux")


@needs_tmux
@pytest.mark.parametrize(("reply", "is_agent"), [("y", True), ("YES", True), ("n", False), ("", False)])
def test_person_is_asked_before_the_shell_becomes_an_agent(bus: Home, reply: str, is_agent: bool) -> None:
    with pane(bus, "pal join --name luna --tag api") as person:
        person.shows("this makes your shell the agent api-luna; continue? [y/N]")
        person.say(reply)
        if is_agent:
            person.shows("you are api-luna", "ended with 0")
        else:
            person.shows("nothing was changed", "pal claude --name luna", "ended with 1")

        assert bus.ok("list", "--names").out.split() == (["api-luna"] if is_agent else [])


@needs_tmux
def test_question_without_a_name_and_end_of_input(bus: Home) -> None:
    with pane(bus, "pal join") as person:
        person.shows("this makes your shell an agent; continue? [y/N]")
        person.press("C-d")
        person.shows("ended with 1")


@needs_tmux
def test_yes_and_programs_are_not_asked(bus: Home) -> None:
    with pane(bus, "pal join --name luna --yes") as person:
        person.shows("you are luna", "ended with 0")
    shell = bus.shell()

    assert shell.ok("join", "--name", "nova").out == "you are nova\n"
    assert check_output(run_as_person(bus, "join", "--name", "kira")).out == "you are kira\n"


def test_refused_agent_learns_the_cause_and_the_way_out(bus: Home) -> None:
    nova = bus.shell()
    nova.ok("join", "--name", "nova")

    refused = nova.pal("config", "set", "brake_hops", "0")

    assert "config set requires a person; you are a worker" in refused.err
    assert "This process belongs to the agent nova" in refused.err
    assert "a person can do this in a new shell" in refused.err
    assert "agent nova" in nova.pal("stop", "--all", "--json").error["message"]


def test_shell_that_left_learns_to_open_a_new_one(bus: Home) -> None:
    refused = run_script_as_person(bus, "pal join --name luna && pal leave && pal config set brake_hops 0")

    assert refused.status == 1
    assert "This shell was an agent, and such a shell does not become a person again" in refused.err
    assert "open a new shell" in refused.err


def test_shell_that_left_learns_why_it_cannot_act_as_an_agent(bus: Home) -> None:
    bus.shell().ok("join", "--name", "nova")

    refused = run_script_as_person(bus, "pal join --name luna && pal leave && pal send @all --as nova -- hi")

    assert refused.status == 1
    assert "it cannot use --as nova" in refused.err
    assert "This shell was an agent" in refused.err
    assert "You act as nova" not in refused.err


def test_script_and_acting_caller_learn_the_cause(bus: Home) -> None:
    nova = bus.shell()
    nova.ok("join", "--name", "nova")

    script = bus.pal("redeliver", "1")
    harness = bus.pal("redeliver", "1", env={"CLAUDECODE": "1"})
    acting = run_as_person(bus, "config", "set", "brake_hops", "0", "--as", "nova")

    assert "not in the foreground of a person's terminal" in script.err
    assert "runs inside a harness" in harness.err
    assert "You act as nova with --as; leave it out" in acting.err


def test_help_starts_with_starting_an_agent(bus: Home) -> None:
    lines = bus.ok("help").out.splitlines()

    start = lines.index("Start here")
    commands = [line.strip() for line in lines[start + 1 :] if line.startswith("  pal ")]
    assert commands[0] == "pal claude --name luna"


def test_join_with_an_empty_remote_name_is_refused_and_joins_no_agent(bus: Home) -> None:
    shell = bus.shell()

    refused = shell.pal("join", "--remote", "")

    assert (refused.status, "--remote requires a value" in refused.err) == (2, True)
    assert bus.ok("list", "--names").out == ""
