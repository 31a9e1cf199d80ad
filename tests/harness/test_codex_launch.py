"""Starting Codex: user arguments stay, ours are added, and other commands are left alone."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.base import instructions
from palaver.harness.codex.launch import (
    Kind,
    instructions_in,
    launch_settings,
    plan_launch,
    read_arguments,
    resumed,
    setting,
    shell_tip,
)

SESSION = "01a1df0a-ef73-7b11-8d53-518d54a20d59"
OURS = ("-c", 'x="ours"')


def value_of(words: tuple[str, ...], key: str) -> object:
    """Return the last value that Codex reads for a key."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{key}=")]
    return tomllib.loads(f"value = {found[-1]}")["value"]


def test_terminal_session_gets_its_own_server() -> None:
    launch = plan_launch(
        ["-m", "gpt", "hello"], address="/h/s.sock", settings=OURS, instructions="You are nova"
    )

    assert launch.arguments == ("--remote", "unix:///h/s.sock", "-m", "gpt", "hello")
    assert launch.server[:3] == ("app-server", "--listen", "unix:///h/s.sock")
    assert launch.server[3:5] == OURS
    assert value_of(launch.server, "developer_instructions") == "You are nova"


def test_user_settings_are_passed_to_the_server_after_ours() -> None:
    words = ["-c", 'x="theirs"', "--enable=fast", "-cy=1", "--disable", "slow"]

    launch = plan_launch(words, address="/s", settings=OURS, instructions="")

    assert launch.server[3:-2] == (*OURS, *words)
    assert value_of(launch.server, "x") == "theirs"


@pytest.mark.parametrize(
    "words",
    [
        ["-c", 'developer_instructions="Be kind"'],
        ['--config=developer_instructions="Be kind"'],
        ['-cdeveloper_instructions="Be kind"'],
        ["-c", "developer_instructions=Be kind"],
    ],
)
def test_user_instructions_come_before_ours(words: list[str]) -> None:
    launch = plan_launch(words, address="/s", settings=(), instructions="You are nova")

    assert value_of(launch.server, "developer_instructions") == "Be kind\n\nYou are nova"


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "work"],
        ["--profile=work", "hi"],
        ["--oss"],
        ["--no-daemon"],
        ["--dangerously-bypass-hook-trust"],
    ],
)
def test_options_unknown_to_a_server_start_codex_without_one(words: list[str]) -> None:
    launch = plan_launch(words, address="/s", settings=OURS, instructions="x")

    assert launch.server == ()
    assert launch.arguments.count("--no-daemon") == 1
    assert launch.arguments[-len(words) :] == tuple(words)


@pytest.mark.parametrize(
    ("words", "rights", "screen"),
    [
        (["resume", "--last", "-s", "read-only"], ['sandbox_mode="read-only"'], ["resume", "--last"]),
        (["-anever", "resume"], ['approval_policy="never"'], ["resume"]),
        (["fork", "--sandbox=read-only", "--", "-s"], ['sandbox_mode="read-only"'], ["fork", "--", "-s"]),
        (["resume", "-s"], [], ["resume", "-s"]),
        (
            ["resume", "--yolo", "-m", "--"],
            ['sandbox_mode="danger-full-access"', 'approval_policy="never"'],
            ["resume", "-m", "--"],
        ),
    ],
)
def test_rights_of_a_resumed_conversation_are_passed_to_the_server(
    words: list[str], rights: list[str], screen: list[str]
) -> None:
    launch = plan_launch(words, address="/s", settings=(), instructions="")

    assert launch.server[3:-2] == tuple(word for right in rights for word in ("-c", right))
    assert launch.arguments == ("--remote", "unix:///s", *screen)


def test_rights_of_a_new_conversation_stay_with_the_screen() -> None:
    launch = plan_launch(["-s", "read-only", "hello"], address="/s", settings=(), instructions="")

    assert launch.arguments == ("--remote", "unix:///s", "-s", "read-only", "hello")


@pytest.mark.parametrize("word", ["--add-dir=/x", "--approve-for-me"])
def test_rights_that_only_codex_can_restore_start_no_server(word: str) -> None:
    assert not plan_launch(["resume", word], address="/s", settings=(), instructions="").server
    assert plan_launch([word], address="/s", settings=(), instructions="").server


def test_server_of_the_user_is_kept() -> None:
    launch = plan_launch(["--remote", "ws://box:1"], address="/s", settings=OURS, instructions="x")

    assert (launch.arguments, launch.server) == (("--remote", "ws://box:1"), ())


@pytest.mark.parametrize("words", [["exec", "go"], ["-m", "gpt", "e", "go"], ["review"]])
def test_headless_run_has_no_server(words: list[str]) -> None:
    launch = plan_launch(words, address="/s", settings=OURS, instructions="x")

    assert read_arguments(words).kind is Kind.HEADLESS
    assert launch.server == ()
    assert launch.arguments[:2] == OURS
    assert launch.arguments[-len(words) :] == tuple(words)
    assert "--no-daemon" not in launch.arguments


@pytest.mark.parametrize("words", [["login"], ["--version"], ["mcp", "list"], ["exec", "--help"], ["-h"]])
def test_command_without_a_session_is_unchanged(words: list[str]) -> None:
    assert read_arguments(words).kind is Kind.OTHER
    assert plan_launch(words, address="/s", settings=OURS, instructions="x").arguments == tuple(words)


@pytest.mark.parametrize(
    ("words", "session", "is_last"),
    [
        (["resume", SESSION], SESSION, False),
        (["-m", "gpt", "fork", SESSION], SESSION, False),
        (["resume", "--last"], "", True),
        (["resume", "my thread"], "", False),
        (["tell me about resume"], "", False),
        (["--", "resume", SESSION], "", False),
        (["-i", "a.png", "b.png", "--last"], "", False),
        (["-m", "resume"], "", False),
    ],
)
def test_resumed_conversation_is_recognized(words: list[str], session: str, is_last: bool) -> None:
    asked = read_arguments(words)

    assert asked.kind is Kind.SCREEN
    assert (asked.session, asked.is_last) == (session, is_last)


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["-m", "gpt", "do it"], ["resume", SESSION, "-m", "gpt"]),
        (["resume", "--last", "--search"], ["resume", SESSION, "--search"]),
        (["fork", "another"], ["resume", SESSION]),
        (["exec", "do it"], ["exec", "do it"]),
    ],
)
def test_resumed_agent_continues_without_its_first_prompt(words: list[str], again: list[str]) -> None:
    assert list(resumed(words, SESSION)) == again
    assert list(resumed(words, "")) == words


def test_tools_are_an_mcp_server_for_one_session() -> None:
    settings = launch_settings("/usr/bin/pal", '/home/a "b"')

    assert value_of(settings, "mcp_servers.palaver.command") == "/usr/bin/pal"
    assert value_of(settings, "mcp_servers.palaver.args") == ["mcp"]
    assert value_of(settings, "mcp_servers.palaver.env.PALAVER_HOME") == '/home/a "b"'


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_as_a_setting(text: str) -> None:
    assert value_of(setting("key", text), "key") == text


@given(st.lists(st.text(max_size=10), max_size=6))
def test_user_arguments_are_always_kept_at_the_end(words: list[str]) -> None:
    launch = plan_launch(words, address="/s", settings=OURS, instructions="x")

    assert launch.arguments[len(launch.arguments) - len(words) :] == tuple(words)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('developer_instructions = "Be kind"', "Be kind"),
        ("developer_instructions = 7", ""),
        ("[", ""),
        ("", ""),
        ("a = " + "9" * 5000, ""),
    ],
)
def test_instructions_in_the_settings_are_read(text: str, found: str) -> None:
    assert instructions_in(text) == found


def test_instructions_are_short() -> None:
    text = f"{instructions('nova')}\n{shell_tip('/usr/local/bin/pal')}"

    assert len(text) / 3.5 < 300, "a token is three and a half characters, or more"
