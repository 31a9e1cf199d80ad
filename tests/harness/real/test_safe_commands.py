"""The safe commands and tools of the bus run without a prompt in the real programs, and no others do.

Each program runs in the permission mode that it has without an option.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.daemon.stage import run_as_person
from tests.harness.real.claude_stage import claude_stage
from tests.harness.real.codex_stage import codex_stage
from tests.harness.real.gemini_stage import gemini_stage
from tests.harness.real.harness_stage import HarnessStage, reply, tool
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

pytestmark = pytest.mark.harness

SAFE = (
    "pal send @human -- hello from {name}",
    "pal list",
)
UNSAFE = (
    "pal send @human -- hi && touch {made}",
    "pal send @human -- hi; touch {made}",
    "pal send @human -- hi | tee {made}",
    "pal send @human -- hi || touch {made}",
    "pal send @human -- hi & touch {made}",
    "pal send @human -- hi\ntouch {made}",
    'pal send @human -- "$(touch {made})"',
    "pal send @human -- `touch {made}`",
    "pal send @human -- <(touch {made})",
    "pal list > {made}",
    "PATH={evil}:$PATH pal send @human -- {made}",
    "env PATH={evil} pal send @human -- {made}",
    "pal run -- touch {made}",
    "pal config set hints {made}",
    "pal sendx {made} || touch {made}",
)
"""Each would make the file `made`: by another command on the line, or by a command outside of the list."""

READING = (
    "pal send @human --file {secret}",
    "pal send @human --file={relative}",
    "pal send @human --file link",
    "pal send @human --file folder/secret.txt",
    "pal send @human --file folder/../secret.txt",
    "pal send @human --file /proc/self/root{secret}",
    "pal send --home {other} @human --file {secret}",
    "cd {folder} && pal send @human --file secret.txt",
    "cd folder && pal send @human --file secret.txt",
    "pal send @human - < {secret}",
    "pal send @human --stdin < link",
    'pal send @human -- "$(cat {secret})"',
    'pal send @human -- "$(<{secret})"',
    "pal bundle create stolen --files {secret}",
    "pal bundle create stolen --files link",
    "pal bundle create stolen --root {folder} --files secret.txt",
    "pal bundle create stolen --root folder --files folder/secret.txt",
    "pal note add --stdin < {secret}",
    "pal status --home {folder}",
    "pal room join --home {other}",
    "pal list --home {other}",
    "pal up --home {other}",
)
"""Each would store a file from outside the working directory, or make a bus of another folder."""

STAGES: dict[str, Callable[[Path], AbstractContextManager[HarnessStage]]] = {
    "claude": claude_stage,
    "codex": codex_stage,
    "gemini": gemini_stage,
    "opencode": opencode_stage,
}


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[HarnessStage]:
    """A home with a bus on which a person has agreed."""
    with STAGES[request.param](installed(request.param)) as made:
        assert run_as_person(made.home, "config", "set", "agent_commands", "yes").status == 0
        made.home.ok("down")
        made.home.ok("up")
        yield made


def every(*harnesses: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stage", harnesses, indirect=True)


def said_to_human(stage: HarnessStage) -> list[str]:
    return [one["payload"]["text"] for one in stage.home.events("--type", "message")]


def write_evil(stage: HarnessStage) -> Path:
    """Write another program `pal`, which makes the file that its last argument names."""
    folder = stage.project / "evil"
    folder.mkdir()
    (folder / "pal").write_text('#!/bin/sh\nfor last; do :; done\ntouch "$last"\n')
    (folder / "pal").chmod(0o755)
    return folder


@every("claude", "gemini")
def test_safe_command_runs_and_nothing_that_is_added_to_it(stage: HarnessStage) -> None:
    evil = write_evil(stage)
    safe = [command.format(name=stage.harness) for command in SAFE]
    made = [stage.project / f"made-{number}" for number in range(len(UNSAFE))]
    unsafe = [command.format(made=path, evil=evil) for command, path in zip(UNSAFE, made, strict=True)]
    stage.script.add(*(reply("", stage.shell(command)) for command in (*safe, *unsafe)), reply("the end"))

    result = stage.run_headless("--name", "nova", "-p", "go")

    assert "the end" in result.out
    assert f"hello from {stage.harness}" in said_to_human(stage)
    assert [path.name for path in made if path.exists()] == []
    assert stage.home.ok("config", "get", "hints").out == "\n"
    assert "nova" in stage.requests(len(safe) + 1)[len(safe)].conversation  # the output of `pal list`


@every("claude", "gemini")
def test_safe_command_reads_no_file_outside_and_makes_no_other_bus(
    stage: HarnessStage, tmp_path: Path
) -> None:
    folder, other = tmp_path / "outside", tmp_path / "other"
    folder.mkdir()
    secret = folder / "secret.txt"
    secret.write_text("the secret of the user\n")
    (stage.project / "notes.txt").write_text("notes of the project\n")
    (stage.project / "link").symlink_to(secret)
    (stage.project / "folder").symlink_to(folder)
    relative = os.path.relpath(secret, stage.project)
    values = {"secret": secret, "relative": relative, "folder": folder, "other": other}
    commands = ["pal send @human --file notes.txt", *(command.format(**values) for command in READING)]
    stage.script.add(*(reply("", stage.shell(command)) for command in commands), reply("the end"))

    result = stage.run_headless("--name", "nova", "-p", "go")

    assert "the end" in result.out
    assert said_to_human(stage) == ["notes of the project\n"]
    assert stage.home.events("--type", "bundle") == []
    assert stage.home.events("--type", "note_added") == []
    assert [path.name for path in folder.iterdir()] == ["secret.txt"]
    assert not other.exists()


@every("claude", "codex", "gemini")
def test_safe_tool_needs_no_dialog_and_another_command_does(stage: HarnessStage) -> None:
    made = stage.project / "made.txt"
    stage.script.add(
        *stage.bus_replies("send", text=f"hello from {stage.harness}", to=["@human"]),
        reply("", stage.asking_to_make(made)),
    )

    stage.begin("go", asks=True)

    stage.until(lambda: stage.question in stage.screen())
    assert said_to_human(stage) == [f"hello from {stage.harness}"]
    stage.until(lambda: stage.state()[0] == "blocked")
    assert not made.exists()


@every("codex", "gemini")
def test_tool_needs_a_dialog_after_a_person_declined(stage: HarnessStage) -> None:
    assert run_as_person(stage.home, "config", "set", "agent_commands", "no").status == 0
    stage.home.ok("down")
    stage.home.ok("up")
    stage.script.add(*stage.bus_replies("send", text="hello", to=["@human"]))

    stage.begin("go", asks=True)

    stage.until(lambda: stage.state()[0] == "blocked")
    assert said_to_human(stage) == []


ASKING: dict[str, object] = {
    "one word": "ask",
    "for each tool": {"bash": "ask", "palaver_*": "ask"},
    "for patterns": {"*": "ask", "bash": {"*": "ask", "ls *": "allow"}},
}
"""Settings by which OpenCode asks; it does not by default."""


@every("opencode")
@pytest.mark.parametrize("permission", ASKING)
def test_opencode_that_asks_calls_the_safe_tools_and_runs_no_command(
    stage: HarnessStage, permission: str
) -> None:
    assert isinstance(stage, OpenCodeStage)
    settings = json.loads(stage.settings.read_text())
    stage.settings.write_text(json.dumps({**settings, "permission": ASKING[permission]}))
    made = stage.project / "made"
    stage.script.add(
        *stage.bus_replies("send", text="hello from a tool", to=["@human"]),
        reply("", stage.shell(f"pal list > {made}")),
    )

    result = stage.run_headless("--name", "nova", "run", "go")

    assert said_to_human(stage) == ["hello from a tool"]
    assert "permission requested: bash" in result.out + result.err
    assert not made.exists()


@every("opencode")
def test_denial_in_the_settings_of_opencode_stays(stage: HarnessStage) -> None:
    assert isinstance(stage, OpenCodeStage)
    settings = json.loads(stage.settings.read_text())
    stage.settings.write_text(json.dumps({**settings, "permission": {"palaver_*": "deny"}}))
    stage.script.add(reply("", tool("palaver_send", text="hello", to=["@human"])), reply("the end"))

    stage.run_headless("--name", "nova", "run", "go")

    assert said_to_human(stage) == []
