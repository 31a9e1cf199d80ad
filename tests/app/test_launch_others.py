"""Preparing OpenCode and Gemini CLI: additions only; no file of the user is written."""

import json
from pathlib import Path

import pytest

from palaver.app.launch import LAUNCHERS, NO_CHOICES, Launch, LaunchChoices
from palaver.holder.opencode import instructions_path, read_endpoint


def _prepare(harness: str, folder: Path, *args: str, session: str = "", **more: str) -> Launch:
    environment = {"HOME": str(folder / "account"), "PATH": "/nowhere", **more}
    (folder / "home").mkdir(exist_ok=True)
    return LAUNCHERS[harness](args, session, str(folder / "home"), environment, str(folder), NO_CHOICES)


def test_opencode_gets_a_port_and_a_password_known_to_its_holder(tmp_path: Path) -> None:
    made = _prepare("opencode", tmp_path, "--agent", "plan")

    endpoint = read_endpoint(Path(made.native))
    assert endpoint is not None
    assert made.argv == ("opencode", "--port", str(endpoint.port), "--agent", "plan")
    assert made.environment["OPENCODE_SERVER_PASSWORD"] == endpoint.password
    assert len(endpoint.password) == 32
    assert (endpoint.user, endpoint.began.agent) == ("opencode", "plan")
    instructions = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])["instructions"]
    assert instructions == [str(instructions_path(Path(made.native)))]
    assert not (tmp_path / "account").exists()


def test_opencode_resumes_a_session(tmp_path: Path) -> None:
    made = _prepare("opencode", tmp_path, session="ses_1")
    forked = _prepare("opencode", tmp_path, "-s", "ses_1", "--fork")

    assert made.argv[3:] == ("--session", "ses_1")
    assert made.session == "ses_1"
    assert forked.session == ""


def test_opencode_without_its_terminal_has_no_server(tmp_path: Path) -> None:
    made = _prepare("opencode", tmp_path, "run", "hello")

    assert (made.is_agent, made.is_headless, made.native) == (True, True, "")
    assert made.argv == ("opencode", "run", "hello")
    assert not (tmp_path / "home" / "agents").exists()


def test_command_that_is_not_a_session_runs_unchanged(tmp_path: Path) -> None:
    listed = _prepare("opencode", tmp_path, "session", "list")
    asked = _prepare("gemini", tmp_path, "--version")

    assert (listed.is_agent, listed.argv) == (False, ("opencode", "session", "list"))
    assert (asked.is_agent, asked.argv) == (False, ("gemini", "--version"))
    assert "GEMINI_CLI_HOME" not in asked.environment


def test_gemini_gets_a_home_with_our_extension(tmp_path: Path) -> None:
    made = _prepare("gemini", tmp_path, "-m", "x", session="abc")

    assert made.argv == ("gemini", "--resume", "abc", "-m", "x")
    assert made.session == "abc"
    extension = Path(made.environment["GEMINI_CLI_HOME"]) / ".gemini" / "extensions" / "palaver"
    assert json.loads((extension / "gemini-extension.json").read_text())["name"] == "palaver"
    assert made.environment["COLORTERM"] == "truecolor"
    assert {path.name for path in (tmp_path / "account" / ".gemini").iterdir()} == {"tmp", "history"}


def test_gemini_keeps_the_colours_of_its_terminal(tmp_path: Path) -> None:
    assert _prepare("gemini", tmp_path, COLORTERM="24bit").environment["COLORTERM"] == "24bit"
    assert _prepare("gemini", tmp_path, "-p", "hello").is_headless


def _prepare_allowed(harness: str, folder: Path, *args: str) -> Launch:
    environment = {"HOME": str(folder / "account"), "PATH": "/nowhere"}
    (folder / "home").mkdir(exist_ok=True)
    choices = LaunchChoices(may_use_bus=lambda: True)
    return LAUNCHERS[harness](args, "", str(folder / "home"), environment, str(folder), choices)


def test_gemini_gets_a_policy_next_to_those_of_the_user(tmp_path: Path) -> None:
    theirs = tmp_path / "account" / ".gemini" / "policies"
    theirs.mkdir(parents=True)

    made = _prepare_allowed("gemini", tmp_path, "-m", "x")

    home = Path(made.environment["GEMINI_CLI_HOME"])
    user, ours = (word.removeprefix("--policy=") for word in made.argv[3:])
    assert Path(user) == home / ".gemini" / "policies"
    assert Path(ours).is_relative_to(tmp_path / "home")
    assert '"pal send"' in Path(ours).read_text()


@pytest.mark.parametrize("settings_path", ["account", "."])
def test_gemini_gets_no_policy_if_its_settings_name_policies(tmp_path: Path, settings_path: str) -> None:
    settings = tmp_path / settings_path / ".gemini" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"policyPaths": ["/mine"]}')

    assert _prepare_allowed("gemini", tmp_path).argv == ("gemini",)


def test_opencode_gets_no_rules_if_its_settings_deny_the_tools(tmp_path: Path) -> None:
    allowed = _prepare_allowed("opencode", tmp_path)
    (tmp_path / "opencode.json").write_text('{"permission": {"palaver_*": "deny"}}')

    denied = _prepare_allowed("opencode", tmp_path)

    assert "permission" in json.loads(allowed.environment["OPENCODE_CONFIG_CONTENT"])
    assert "permission" not in json.loads(denied.environment["OPENCODE_CONFIG_CONTENT"])


def test_codex_calls_tools_without_a_dialog_only_if_that_is_allowed(tmp_path: Path) -> None:
    assert "--uses-bus" in _prepare_allowed("codex", tmp_path).argv
    assert "--uses-bus" not in _prepare("codex", tmp_path).argv
