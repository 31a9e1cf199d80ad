"""`pal fork` and `pal resume` with a session id: the command line of the harness, and the refusals."""

import json
from collections.abc import Iterator

import pytest
from tests.app.person import holders_of, persons
from tests.daemon.stage import Home, Result, new_home, run_as_person, wait_until

from palaver.harness.registry import FORKABLE

SESSION = "1f3d72b3-15cc-4f80-9cb4-c8d75e9b7d6b"


@pytest.mark.parametrize(
    ("harness", "words", "kept"),
    [
        ("claude", "", ""),
        ("claude", "--model opus fix_it", "--model opus"),
        ("claude", "--resume abc --model opus", "--model opus"),
        ("claude", "-c --verbose", "--verbose"),
        ("claude", "--session-id=abc --fork-session --add-dir a b", "--add-dir a b"),
        ("claude", "-p --output-format json fix_it", ""),
        ("codex", "-m gpt fix_it", "-m gpt"),
        ("codex", "resume abc -s read-only", "-s read-only"),
        ("codex", "resume --last --all", ""),
        ("codex", "exec --json fix_it", ""),
        ("opencode", "--agent plan --session abc", "--agent plan"),
        ("opencode", "-c --fork -m a/b folder", "-m a/b folder"),
        ("opencode", "--prompt=go --session=abc --model=a/b", "--model=a/b"),
        ("opencode", "run go", ""),
    ],
)
def test_copy_uses_the_options_again_without_session_and_prompt(harness: str, words: str, kept: str) -> None:
    assert list(FORKABLE[harness](words.split())) == kept.split()


@pytest.fixture
def home() -> Iterator[Home]:
    """A home with a stand-in for each harness, which writes its arguments to a file and waits."""
    with new_home() as made, persons(made):
        made.start_daemon()
        folder = made.path.parent / "bin"
        folder.mkdir()
        for name in ("claude", "gemini"):
            note = f'printf "%s\\n" "$@" >{folder}/new; mv {folder}/new {folder}/args-$$'
            (folder / name).write_text(f"#!/bin/sh\n{note}\nexec cat\n")
            (folder / name).chmod(0o755)
        yield made


def start(home: Home, *words: str) -> Result:
    path = f"{home.path.parent / 'bin'}:{home.environment['PATH']}"
    return run_as_person(home, words[0], "--detach", *words[1:], env={"PATH": path})


def take_args(home: Home) -> list[str]:
    """Return the arguments of the harness that was started last, and forget them."""
    (path,) = (home.path.parent / "bin").glob("args-*")
    found = path.read_text().splitlines()
    path.unlink()
    return found


def agents(home: Home) -> dict[str, dict[str, object]]:
    return {line["name"]: line for line in home.ok("list", "--json").lines}


def test_fork_continues_a_copy_under_a_new_name(home: Home) -> None:
    assert (
        start(home, "claude", "--name", "luna", "--session-id", SESSION, "--model", "opus", "go").status == 0
    )
    take_args(home)

    forked = start(home, "fork", "luna", "--name", "nova")

    assert (forked.status, forked.out) == (0, "nova\n")
    assert take_args(home)[1:] == ["--resume", SESSION, "--fork-session", "--model", "opus"]
    assert {"luna", "nova"} <= set(agents(home))
    assert len(holders_of(home.path)) == 2


def test_resume_takes_the_id_of_a_session(home: Home) -> None:
    assert start(home, "claude", "--name", "luna", "--session-id", SESSION).status == 0
    take_args(home)
    assert run_as_person(home, "kill", "luna").status == 0
    wait_until(lambda: not holders_of(home.path))

    resumed = start(home, "resume", SESSION)

    assert (resumed.status, resumed.out) == (0, "luna\n")
    assert SESSION in take_args(home)


def test_unknown_session_is_refused_with_the_command_that_continues_it(home: Home) -> None:
    refused = run_as_person(home, "resume", SESSION, "--json")

    assert refused.error["error"] == "not_found"
    assert "'pal claude --resume ID'" in refused.error["message"]


@pytest.mark.parametrize(
    ("harness", "trouble"), [("gemini", "gemini of luna cannot continue"), ("claude", "has no session yet")]
)
def test_session_that_cannot_be_copied_is_refused(home: Home, harness: str, trouble: str) -> None:
    assert start(home, harness, "--name", "luna").status == 0

    refused = start(home, "fork", "luna", "--json")

    assert json.loads(refused.err)["error"] == "bad_request"
    assert trouble in json.loads(refused.err)["message"]


def test_agent_cannot_copy_the_session_of_another(home: Home) -> None:
    assert start(home, "claude", "--name", "luna", "--session-id", SESSION).status == 0
    theo = home.shell()
    theo.ok("join", "--name", "theo")

    refused = theo.pal("fork", "luna", "--json")

    assert refused.error["error"] == "not_allowed"
