"""Whether agents may use the safe commands without a prompt: a person decides once, at a real terminal."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import Home, new_home, run_as_person

from palaver.harness.claude.launch import allow_rules

QUESTION = b"Allow these without a prompt? [y/N]"
RULES = f"--allowedTools={','.join(allow_rules())}"


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        made.start_daemon()
        folder = made.path.parent / "bin"
        folder.mkdir()
        (folder / "claude").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >args.new\nmv args.new args\n')
        (folder / "claude").chmod(0o755)
        yield made


@pytest.fixture
def person(home: Home) -> Iterator[Person]:
    with persons(home) as here:
        here.append(Person(home))
        yield here[0]


def path_of(home: Home) -> str:
    return f"{home.path.parent / 'bin'}:{home.environment['PATH']}"


def args_of(home: Home) -> list[str]:
    """Return the arguments of the last start, and forget them."""
    path = home.path.parent / "args"
    found = path.read_text().splitlines()
    path.unlink()
    return found


def start(person: Person, home: Home, reply: bytes = b"") -> list[str]:
    """Have a person start Claude Code, and reply to the question if one is expected."""
    person.shown = b""
    person.run(f"PATH={shlex.quote(path_of(home))} pal claude -p hello")
    if reply:
        person.until(QUESTION)
        person.press(reply)
    person.until(b"status 0")
    assert person.shown.count(QUESTION) == bool(reply)
    return args_of(home)


def decision(home: Home) -> str:
    """Return the decision as `pal config` shows it: the value that the next start would use."""
    found = {line["key"]: line for line in home.ok("config", "list", "--json").lines}["agent_commands"]
    return str(found.get("next", found["value"]))


def test_person_who_agrees_is_asked_once(person: Person, home: Home) -> None:
    first = start(person, home, b"y\r")
    second = start(person, home)

    assert RULES in first
    assert RULES in second
    assert decision(home) == "yes"
    (changed,) = home.events("--type", "setting.changed")
    assert (changed["from"], changed["payload"]["key"]) == ("human", "agent_commands")


def test_person_who_declines_is_not_asked_again(person: Person, home: Home) -> None:
    first = start(person, home, b"n\r")
    second = start(person, home)

    assert RULES not in first
    assert RULES not in second
    assert decision(home) == "no"


def test_decision_can_be_taken_back(person: Person, home: Home) -> None:
    start(person, home, b"y\r")
    person.output_of("pal config set agent_commands ask && pal down && pal up")

    again = start(person, home, b"n\r")

    assert RULES not in again


def test_without_a_terminal_only_the_setting_allows(home: Home) -> None:
    env = {"PATH": path_of(home)}
    home.ok("claude", "-p", "hello", env=env, cwd=home.path.parent)
    unasked = args_of(home)

    assert run_as_person(home, "config", "set", "agent_commands", "yes").status == 0
    home.ok("claude", "-p", "hello", env=env, cwd=home.path.parent)

    assert RULES not in unasked
    assert RULES in args_of(home)


def test_agent_cannot_allow_itself_anything(home: Home) -> None:
    luna = home.shell()
    luna.ok("join", "--name", "luna")

    refused = luna.pal("config", "set", "agent_commands", "yes", "--json")

    assert refused.error["error"] == "not_allowed"
    assert decision(home) == "ask"


def test_variable_cannot_allow_anything(home: Home) -> None:
    home.ok("down")

    refused = home.pal("up", env={"PALAVER_AGENT_COMMANDS": "yes"})

    assert "PALAVER_AGENT_COMMANDS cannot be set in the environment" in refused.err


def test_install_asks_once_and_writes_the_same_list(person: Person, home: Home) -> None:
    settings = Path(home.environment["HOME"]) / ".claude" / "settings.json"
    person.run("pal install claude")
    person.until(QUESTION)
    person.press(b"y\r")
    person.until(b"Write this? [y/N]")
    person.press(b"y\r")
    person.until(b"status 0")

    written = json.loads(settings.read_text())
    assert written["permissions"]["allow"] == allow_rules()
    assert RULES in start(person, home)

    person.output_of("pal config set agent_commands no && pal install claude --yes")

    assert "permissions" not in json.loads(settings.read_text())
    person.output_of("pal uninstall claude --yes")
    assert not settings.exists()


@pytest.mark.parametrize("line", ["pal claude -p hello", "pal install claude"])
def test_ctrl_c_at_the_question_ends_without_a_traceback(person: Person, home: Home, line: str) -> None:
    # With a trap, Ctrl-C ends only the program, and not the whole line of the shell.
    person.run(f"trap : INT; PATH={shlex.quote(path_of(home))} {line}")
    person.until(QUESTION)

    person.press(b"\x03")

    person.until(b"status 130")
    assert b"Traceback" not in person.shown
    assert decision(home) == "ask"
