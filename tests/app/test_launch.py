"""Preparing a harness: its files are written only to the home of the bus."""

import json
import os
from pathlib import Path

import pytest

from palaver.app.launch import LAUNCHERS, prepare_claude, with_pal, write_files

SESSION = "1f3d72b3-15cc-4f80-9cb4-c8d75e9b7d6b"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "account"), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "home").mkdir(mode=0o700)
    return str(tmp_path / "home")


def test_claude_code_gets_a_plugin_and_the_arguments_of_the_user(
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


def test_continue_resumes_the_last_session_of_the_folder(home: str, environment: dict[str, str]) -> None:
    sessions = Path(environment["HOME"]) / ".claude/projects/-src-demo"
    sessions.mkdir(parents=True)
    (sessions / f"{SESSION}.jsonl").touch()

    assert prepare_claude(["--continue"], "", home, environment, "/src/demo").session == SESSION
    assert prepare_claude(["--continue"], "", home, environment, "/src/other").session == ""


def test_resume_without_a_session_offers_the_sessions_of_the_folder(
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


def test_session_to_resume_is_passed_on_the_command_line(home: str, environment: dict[str, str]) -> None:
    made = prepare_claude([], SESSION, home, environment, "/src")

    assert made.argv[2:] == ("--resume", SESSION)
    assert made.session == SESSION


def test_command_that_is_not_a_session_runs_unchanged(home: str, environment: dict[str, str]) -> None:
    made = prepare_claude(["mcp", "list"], "", home, environment, "/src")

    assert (made.argv, made.is_agent) == (("claude", "mcp", "list"), False)
    assert list(Path(home).iterdir()) == []


def test_headless_run_is_recognised(home: str, environment: dict[str, str]) -> None:
    assert prepare_claude(["-p", "go"], "", home, environment, "/src").is_headless


def test_files_are_written_once_and_other_content_gets_another_folder(tmp_path: Path) -> None:
    first = write_files(tmp_path, "x", {"a/b.txt": "one"})
    (first / "a/b.txt").touch()
    again = write_files(tmp_path, "x", {"a/b.txt": "one"})
    other = write_files(tmp_path, "x", {"a/b.txt": "two"})

    assert first == again != other
    assert (first / "a/b.txt").read_text() == "one"
    assert {path.name for path in tmp_path.iterdir()} == {first.name, other.name}


def test_missing_pal_is_added_at_the_end_of_the_path(home: str) -> None:
    changed = with_pal({"PATH": "/nowhere"}, home, "/opt/pal")
    again = with_pal({"PATH": "/nowhere"}, home, "/opt/newer/pal")

    assert changed["PATH"] == again["PATH"] == f"/nowhere{os.pathsep}{home}/bin"
    assert os.readlink(f"{home}/bin/pal") == "/opt/newer/pal"


def test_path_that_contains_pal_is_unchanged(tmp_path: Path, home: str) -> None:
    program = tmp_path / "pal"
    program.touch(mode=0o755)

    assert with_pal({"PATH": str(tmp_path)}, home, "/opt/pal") == {"PATH": str(tmp_path)}
    assert not Path(home, "bin").exists()


def test_claude_can_be_launched() -> None:
    assert LAUNCHERS["claude"] is prepare_claude
