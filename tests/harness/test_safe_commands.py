"""The commands and tools that agents may use without a prompt, in the form of each harness."""

import json
import tomllib
from collections.abc import Mapping

import pytest

from palaver.doors.cli.run import TABLE
from palaver.doors.tools import TOOLS
from palaver.harness.base import SAFE_COMMANDS, SAFE_TOOLS
from palaver.harness.claude.launch import allow_rules, claude_args
from palaver.harness.codex.launch import launch_settings
from palaver.harness.gemini.launch import policy_text, with_policy
from palaver.harness.opencode.launch import CONTENT, is_denied_in_settings, launch_environment

NEVER = ("config", "run", "stop", "kill", "approve", "deny", "install", "uninstall", "claude", "token", "raw")


def test_list_has_exactly_the_safe_commands() -> None:
    assert " ".join(SAFE_COMMANDS) == (
        "send recv inbox show list status events receipts ack thread room stick note task bundle"
    )
    assert set(SAFE_COMMANDS) <= {command.path[0] for command in TABLE.commands if command.path}
    assert not set(SAFE_COMMANDS) & set(NEVER)


def test_no_other_command_begins_with_a_safe_one() -> None:
    others = {command.path[0] for command in TABLE.commands if command.path} - set(SAFE_COMMANDS)

    assert not [other for other in others if other.startswith(SAFE_COMMANDS)]


def test_list_has_exactly_the_tools_of_a_model() -> None:
    """A new tool must be put in the list, or be named here as one that asks."""
    asking = {"route_message"}
    assert set(SAFE_TOOLS) | asking == {tool.name for tool in TOOLS if not tool.is_hidden}
    assert not asking & set(SAFE_TOOLS)


def test_claude_code_gets_one_argument_with_all_rules() -> None:
    words = claude_args(["--model=m", "go"], "/p", may_use_bus=True)

    (allowed,) = [word for word in words if word.startswith("--allowedTools=")]
    assert words[-2:] == ["--model=m", "go"]
    assert allowed.removeprefix("--allowedTools=").split(",") == allow_rules()
    assert "Bash(pal send:*)" in allow_rules()
    assert "mcp__plugin_palaver_palaver__send" in allow_rules()
    assert len(allow_rules()) == len(SAFE_COMMANDS) + len(SAFE_TOOLS)


def test_codex_gets_an_approval_for_each_tool() -> None:
    words = launch_settings("/bin/pal", "/home", may_use_bus=True)
    asking = launch_settings("/bin/pal", "/home")

    settings = tomllib.loads("\n".join(word for word in words if word != "-c"))
    tools = settings["mcp_servers"]["palaver"]["tools"]
    assert tools == {tool: {"approval_mode": "approve"} for tool in SAFE_TOOLS}
    assert not [word for word in asking if "approv" in word]


def test_gemini_gets_a_policy_for_commands_and_one_for_tools() -> None:
    commands, tools = tomllib.loads(policy_text())["rule"]

    assert commands["toolName"] == "run_shell_command"
    assert commands["commandPrefix"] == [f"pal {command}" for command in SAFE_COMMANDS]
    assert (tools["mcpName"], tools["toolName"]) == ("palaver", list(SAFE_TOOLS))
    assert {(rule["decision"], rule["priority"]) for rule in (commands, tools)} == {("allow", 1)}


@pytest.mark.parametrize(
    ("words", "theirs", "expected"),
    [
        ("-m x", "", "-m x --policy=/ours"),
        ("-m x", "/theirs", "-m x --policy=/theirs --policy=/ours"),
        ("--policy=/p go", "/theirs", "--policy=/p go --policy=/ours"),
        ("--policy /p -- --policy", "/theirs", "--policy /p --policy=/ours -- --policy"),
        ("go -- --policy", "/theirs", "go --policy=/theirs --policy=/ours -- --policy"),
    ],
)
def test_policies_of_the_user_are_kept(words: str, theirs: str, expected: str) -> None:
    assert with_policy(words.split(), "/ours", theirs) == expected.split()


def permission(environment: Mapping[str, str]) -> Mapping[str, object]:
    made = launch_environment(environment, password="", mcp=("pal", "mcp"), instructions="", may_use_bus=True)
    found: Mapping[str, object] = json.loads(made[CONTENT])["permission"]
    return found


def test_opencode_gets_rules_next_to_those_of_the_user() -> None:
    ours = permission({})
    with_theirs = permission({CONTENT: json.dumps({"permission": {"bash": "ask", "edit": "deny"}})})
    with_one_word = permission({CONTENT: json.dumps({"permission": "ask"})})

    assert ours == {f"palaver_{tool}": "allow" for tool in SAFE_TOOLS}
    assert with_theirs == {"bash": "ask", "edit": "deny", **ours}
    assert list(with_theirs)[:2] == ["bash", "edit"]
    assert with_one_word == {"*": "ask", **ours}


def test_opencode_without_consent_gets_no_rules() -> None:
    made = launch_environment({}, password="", mcp=("pal", "mcp"), instructions="")

    assert "permission" not in json.loads(made[CONTENT])


@pytest.mark.parametrize(
    ("settings", "is_denied"),
    [
        ("", False),
        ("{", False),
        ("[]", False),
        ("{}", False),
        ('{"permission": "ask"}', False),
        ('{"permission": "deny"}', True),
        ('{"permission": {"bash": "ask", "edit": "deny"}}', False),
        ('{"permission": {"bash": "deny"}}', False),
        ('{"permission": {"palaver_send": {"*": "deny", "x": "allow"}}}', True),
        ('{"permission": {"palaver_send": {"x": "deny"}}}', False),
        ('{"permission": {"palaver_*": "deny"}} // mine', True),
        ('{"permission": {"*": "deny"}}', True),
    ],
)
def test_denial_in_the_settings_of_opencode_is_found(settings: str, is_denied: bool) -> None:
    assert is_denied_in_settings(["{}", settings]) == is_denied
