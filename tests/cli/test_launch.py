"""Making a harness ready: its files lie in the home of the bus, and nowhere else."""

import json
import os
from pathlib import Path

import pytest

from palaver.cli.launch import LAUNCHERS, prepare_claude, with_pal, write_files

SESSION = "1f3d72b3-15cc-4f80-9cb4-c8d75e9b7d6b"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "account"), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "home").mkdir(mode=0o700)
    return str(tmp_path / "home")


def test_claude_code_is_given_a_plugin_and_the_users_arguments(
    home: str, environment: dict[str, str], tmp_path: Path
) -> None:
    made = prepare_claude(["--model", "opus"], "", home, environment, "/src")

    program, plugin, *rest = made.argv
    assert (program, rest) == ("claude", ["--model", "opus"])
    folder = Path(plugin.removeprefix("--plugin-dir="))
    assert folder.is_relative_to(home)
    assert json.loads((folder / ".claude-plugin/plugin.json").read_text())["name"] == "palaver"
    assert (made.is_agent, made.is_headless, made.session) == (True, False, "")
    assert not (tmp_path / "account").exists()


def test_the_last_conversation_of_the_folder_is_the_one_that_goes_on(
    home: str, environment: dict[str, str]
) -> None:
    sessions = Path(environment["HOME"]) / ".claude/projects/-src-demo"
    sessions.mkdir(parents=True)
    (sessions / f"{SESSION}.jsonl").touch()

    assert prepare_claude(["--continue"], "", home, environment, "/src/demo").session == SESSION
    assert prepare_claude(["--continue"], "", home, environment, "/src/other").session == ""


def test_a_person_chooses_among_the_conversations_of_the_folder(
    home: str, environment: dict[str, str]
) -> None:
    sessions = Path(environment["HOME"]) / ".claude/projects/-src-demo"
    sessions.mkdir(parents=True)
    (sessions / f"{SESSION}.jsonl").touch()

    chosen = prepare_claude(["--resume"], "", home, environment, "/src/demo")
    named = prepare_claude(["--resume"], SESSION, home, environment, "/src/demo")

    assert (chosen.session, chosen.among) == ("", (SESSION,))
    assert (named.session, named.among) == (SESSION, ())
    assert prepare_claude([], "", home, environment, "/src/demo").among == ()


def test_a_session_to_resume_is_said_on_the_command_line(home: str, environment: dict[str, str]) -> None:
    made = prepare_claude([], SESSION, home, environment, "/src")

    assert made.argv[2:] == ("--resume", SESSION)
    assert made.session == SESSION


def test_what_is_no_conversation_is_run_as_it_is(home: str, environment: dict[str, str]) -> None:
    made = prepare_claude(["mcp", "list"], "", home, environment, "/src")

    assert (made.argv, made.is_agent) == (("claude", "mcp", "list"), False)
    assert list(Path(home).iterdir()) == []


def test_a_headless_run_is_told_apart(home: str, environment: dict[str, str]) -> None:
    assert prepare_claude(["-p", "go"], "", home, environment, "/src").is_headless


def test_files_are_written_once_and_others_get_another_folder(tmp_path: Path) -> None:
    first = write_files(tmp_path, "x", {"a/b.txt": "one"})
    (first / "a/b.txt").touch()
    again = write_files(tmp_path, "x", {"a/b.txt": "one"})
    other = write_files(tmp_path, "x", {"a/b.txt": "two"})

    assert first == again != other
    assert (first / "a/b.txt").read_text() == "one"
    assert {path.name for path in tmp_path.iterdir()} == {first.name, other.name}


def test_pal_is_found_behind_all_else_where_it_is_not_on_the_path(home: str) -> None:
    changed = with_pal({"PATH": "/nowhere"}, home, "/opt/pal")
    again = with_pal({"PATH": "/nowhere"}, home, "/opt/newer/pal")

    assert changed["PATH"] == again["PATH"] == f"/nowhere{os.pathsep}{home}/bin"
    assert os.readlink(f"{home}/bin/pal") == "/opt/newer/pal"


def test_a_path_that_has_pal_stays_as_it_is(tmp_path: Path, home: str) -> None:
    program = tmp_path / "pal"
    program.touch(mode=0o755)

    assert with_pal({"PATH": str(tmp_path)}, home, "/opt/pal") == {"PATH": str(tmp_path)}
    assert not Path(home, "bin").exists()


def test_claude_is_among_the_harnesses_that_can_be_launched() -> None:
    assert LAUNCHERS["claude"] is prepare_claude
