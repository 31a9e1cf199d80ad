"""The signs of a harness in a process's environment, and the cache of them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.marks import MARKS, SEAT_MARK
from palaver.identity.caller import marks_of
from palaver.identity.process import (
    Environments,
    Process,
    read_arguments,
    read_home,
    read_marks,
    read_process,
    runs_holder,
)

_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@contextmanager
def _waiting(environment: Mapping[str, str], *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that reports its start and waits for the end of its input."""
    command = command or ("/bin/sh", "-c", "echo up; read end")
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child
        finally:
            child.kill()


def _process(pid: int) -> Process:
    process = read_process(pid)
    assert process is not None
    return process


@given(
    marks=st.dictionaries(st.sampled_from([*MARKS, SEAT_MARK]), _VALUES),
    others=st.dictionaries(st.sampled_from(["HOME", "CLAUDE_API_KEY", "CLAUDECODE_TOKEN"]), _VALUES),
)
def test_exactly_the_non_empty_marks_are_read(marks: dict[str, str], others: dict[str, str]) -> None:
    with _waiting(marks | others) as child:
        found = read_marks(child.pid)

    assert found == {name: value for name, value in marks.items() if value}


def test_home_of_a_process_is_read_and_is_empty_if_missing() -> None:
    with _waiting({"HOME": "/home/ann", "HOMES": "/x"}) as child, _waiting({"PATH": "/bin"}) as homeless:
        found = [read_home(pid) for pid in (child.pid, homeless.pid, 0)]

    assert found == ["/home/ann", "", ""]


def test_mark_at_the_end_of_a_long_environment_is_found() -> None:
    filling = {f"FILLING_{number}": "x" * 100_000 for number in range(3)}

    with _waiting(filling | {"CLAUDECODE": "1"}) as child:
        found = read_marks(child.pid)

    assert found == {"CLAUDECODE": "1"}


def test_missing_process_has_neither_marks_nor_arguments() -> None:
    assert read_marks(2**22 + 1) == {}
    assert read_arguments(2**22 + 1) == [""]


def test_environment_is_cached() -> None:
    environments = Environments()
    process = _process(os.getpid())

    assert environments.look(process) is environments.look(process)


def test_oldest_entry_is_dropped_at_the_limit() -> None:
    environments = Environments(limit=1)
    ours, parent = _process(os.getpid()), _process(os.getppid())
    first = environments.look(ours)

    environments.look(parent)

    assert environments.look(ours) is not first


def test_process_that_could_exec_unnoticed_is_read_every_time() -> None:
    environments = Environments()
    hidden = replace(_process(os.getpid()), image=-1)

    assert environments.look(hidden) is not environments.look(hidden)


def test_mark_added_by_an_exec_is_seen_although_the_pid_was_known() -> None:
    environments = Environments()
    script = "echo up; read go; CLAUDECODE=1 exec sh -c 'echo up; read end'"
    with _waiting({"PATH": os.defpath}, "/bin/sh", "-c", script) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        before = environments.look(_process(child.pid)).marks
        child.stdin.write(b"go\n")
        child.stdin.flush()
        child.stdout.readline()

        after = environments.look(_process(child.pid)).marks

    assert (dict(before), dict(after)) == ({}, {"CLAUDECODE": "1"})


def test_ended_process_counts_as_a_possible_harness() -> None:
    with _waiting({}) as child:
        process = _process(child.pid)
    used_again = replace(_process(os.getpid()), start=1)

    assert Environments().look(process).can_be_harness
    assert Environments().look(used_again).can_be_harness


def test_zombie_counts_as_a_possible_harness() -> None:
    with _waiting({}) as child:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        found = Environments().look(_process(child.pid))

    assert found.can_be_harness


@pytest.mark.parametrize("word", ["claude", "codex", "gemini", "opencode"])
def test_program_named_like_a_harness_is_one(word: str, tmp_path: Path) -> None:
    program = tmp_path / word
    program.symlink_to("/bin/sh")

    with _waiting({}, str(program), "-c", "echo up; read end") as child:
        found = Environments().look(_process(child.pid))

    assert (found.harness, found.can_be_harness) == (word, True)


@pytest.mark.parametrize("script", ["gemini.js", "gemini", "gemini-cli/dist/index.js"])
@pytest.mark.parametrize("options", [(), ("-I", "-S")], ids=["plain", "with-options"])
def test_harness_run_by_an_interpreter_is_one(script: str, options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / script).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / script).write_text("print('up', flush=True); input()")
    interpreter = tmp_path / "node22"
    interpreter.symlink_to(sys.executable)

    with _waiting({}, str(interpreter), *options, str(tmp_path / script)) as child:
        found = Environments().look(_process(child.pid))

    assert found.harness == "gemini"


def test_argument_named_like_a_harness_does_not_count(tmp_path: Path) -> None:
    editor = tmp_path / "ed"
    editor.symlink_to("/bin/cat")
    (tmp_path / "claude").write_text("up\n")

    with _waiting({}, str(editor), str(tmp_path / "claude"), "-") as child:
        found = Environments().look(_process(child.pid))

    assert not found.can_be_harness


@pytest.mark.parametrize(
    ("words", "is_holder"),
    [(("-m", "palaver.holder.main"), True), (("palaver.holder.main",), False), (("-m", "x"), False)],
)
def test_holder_is_known_by_the_module_that_it_runs(words: tuple[str, ...], is_holder: bool) -> None:
    with _waiting({}, "/bin/sh", "-c", "echo up; read end", *words) as child:
        found = Environments().look(_process(child.pid))

        assert found.is_holder is runs_holder(child.pid) is is_holder
        assert found.can_be_harness is is_holder


def test_only_marks_are_selected_and_empty_ones_are_ignored() -> None:
    environment = {
        "CLAUDECODE": "1",
        "GEMINI_CLI": "",
        "PALAVER_SEAT": "x",
        "PALAVER_HOME": "/h",
        "TERM": "dumb",
    }

    assert marks_of(environment) == {"CLAUDECODE": "1", "PALAVER_SEAT": "x"}
