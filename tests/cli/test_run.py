"""`pal run` and `pal attach` for a person: a real terminal, a real daemon, a real holder."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.stage import PROGRAMS
from tests.cli.person import Person, holders_of, persons
from tests.daemon.stage import Home, new_home, wait_until

from palaver.cli.run import parse_order

DETACH = b"\x1cd"


def command(name: str, *words: str) -> str:
    return " ".join([shlex.join([sys.executable, "-I", str(PROGRAMS / f"{name}.py")]), *words])


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        made.ok("up")
        yield made


@pytest.fixture
def person(home: Home) -> Iterator[Person]:
    with persons(home) as here:
        here.append(Person(home))
        yield here[0]


def test_the_words_of_the_daemon_are_read() -> None:
    order = parse_order(["--ticket-fd", "7", "--detach", "--name", "luna", "--", "sh", "-c", "--detach"])

    assert order.options == {"--ticket-fd": "7", "--name": "luna"}
    assert order.is_detached
    assert order.command == ("sh", "-c", "--detach")


def test_in_a_terminal_it_attaches_and_the_status_of_the_program_is_that_of_the_command(
    person: Person,
) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    person.press(b"hello\r")
    person.until(b"got 'hello'")
    person.press(b"exit 7\r")

    person.until(b"status 7")


def test_a_program_that_is_killed_gives_the_status_a_shell_would(person: Person) -> None:
    person.run("pal run -- sh -c 'echo re''ady; read x; kill -9 $$'")
    person.until(b"ready")

    person.press(b"\r")

    person.until(b"status 137")


def test_it_can_be_left_and_attached_to_again(person: Person, home: Home) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    person.press(DETACH)
    person.until(b"status 0")
    person.shown = b""
    person.run("pal attach luna")
    person.until(b"ready")

    person.press(b"back\r")
    person.until(b"got 'back'")
    person.press(b"exit 3\r")
    person.until(b"status 3")


def test_closing_the_window_only_detaches(person: Person, home: Home) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    person.close()

    with persons(home) as others:
        others.append(Person(home))
        others[0].run("pal attach luna")
        others[0].until(b"ready")
        others[0].press(b"still here\r")
        others[0].until(b"got 'still here'")


def test_detached_it_prints_the_name_and_nothing_else(home: Home, person: Person) -> None:
    result = home.ok("run", "--detach", "--name", "luna", "--", *shlex.split(command("lines")))

    assert result.out == "luna\n"
    assert len(holders_of(home.path)) == 1


@pytest.mark.parametrize("words", [("--detach",), ("--detach", "--json")])
def test_detached_a_program_that_fails_at_its_start_is_reported_with_its_own_error(
    home: Home, words: tuple[str, ...]
) -> None:
    script = "echo 'no such setting: colour' >&2; exit 3"

    result = home.pal("run", *words, "--name", "luna", "--", "sh", "-c", script)

    assert (result.status, result.out) == (3, "")
    assert "no such setting: colour" in result.err
    assert "sh ended while it was starting: exited with 3" in result.err


def test_detached_a_harness_that_ends_at_its_start_is_reported_with_its_own_error(home: Home) -> None:
    folder = home.path.parent / "bin"
    folder.mkdir()
    (folder / "codex").write_text("#!/bin/sh\necho 'config.toml: line 7 is wrong'\nexit 4\n")
    (folder / "codex").chmod(0o755)
    path = f"{folder}:{home.environment['PATH']}"

    result = home.pal("codex", "--name", "luna", "--detach", env={"PATH": path})

    assert (result.status, result.out) == (4, "")
    assert "config.toml: line 7 is wrong" in result.err
    assert "codex ended while it was starting: exited with 4" in result.err


def test_an_opencode_that_is_too_old_is_not_started_and_the_error_says_which_version_works(
    home: Home,
) -> None:
    folder = home.path.parent / "bin"
    folder.mkdir()
    (folder / "opencode").write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.17.0 || touch started\n')
    (folder / "opencode").chmod(0o755)
    path = f"{folder}:{home.environment['PATH']}"

    for _ in range(2):  # the second time the version is known
        result = home.pal("opencode", "--name", "luna", "--detach", env={"PATH": path}, cwd=folder)

        assert (result.status, result.out) == (1, "")
        assert "OpenCode 1.17.0 is too old" in result.err
        assert "1.17.18 or newer" in result.err
    assert not (folder / "started").exists()


def test_detached_a_program_that_has_done_its_work_at_once_is_no_failure(home: Home) -> None:
    result = home.pal("run", "--detach", "--name", "luna", "--", "true")

    assert (result.status, result.out) == (0, "luna\n")


def test_detached_a_program_that_shows_and_reads_nothing_is_waited_for_only_a_moment(home: Home) -> None:
    result = home.pal("run", "--detach", "--name", "luna", "--", "sleep", "600")

    assert (result.status, result.out) == (0, "luna\n")


@pytest.mark.parametrize("status", [0, 7])
def test_without_a_terminal_it_waits_for_the_end_and_gives_the_status(home: Home, status: int) -> None:
    result = home.pal("run", "--name", "luna", "--", "sh", "-c", f"exit {status}")

    assert (result.status, result.out) == (status, "")
    assert "luna runs" in result.err


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_run_is_said_and_nobody_joins(home: Home, program: str, status: int) -> None:
    result = home.pal("run", "--detach", "--", program)

    assert result.status == status
    assert f"{program} cannot be run" in result.err
    assert home.ok("list", "--json").out == ""


def test_the_window_of_the_person_is_that_of_the_program(person: Person) -> None:
    person.run(f"pal run -- {command('size')}")
    person.until(b"size 80x24")

    person.resize(101, 33)

    person.until(b"size 101x33")


def test_the_terminal_is_as_it_was_when_it_is_left(person: Person) -> None:
    person.run("stty -g >before; pal run -- sh -c 'printf \"\\033[?1002h on\"; read x'")
    person.until(b"\x1b[?1002h")

    person.press(DETACH)
    person.until(b"status 0")
    person.press(b"stty -g | cmp - before && echo sa''me\r")

    person.until(b"same")
    assert person.shown.rindex(b"\x1b[?1002l") > person.shown.rindex(b"\x1b[?1002h")


def test_keys_of_every_kind_come_through_untouched(person: Person, tmp_path: Path) -> None:
    record = tmp_path / "record"
    keys = (
        bytes(range(5, 13))
        + b"\x0e\x0f\x1a\x1b[A\x1bOP\x1b[<0;3;4M\x1b[I\x1b[O\x1b[200~p\x1b[201~\x7f\x00\xff\x80"
    )
    person.run(f"pal run -- {command('keys', str(record), 'paste')}")
    person.until(b"ready")

    person.press(keys + b"\x1c\x1c" + b"end")
    wait_until(lambda: record.read_bytes().endswith(b"end"))

    assert record.read_bytes() == keys + b"\x1c" + b"end"


def test_colours_mouse_and_focus_of_the_program_come_through_untouched(person: Person) -> None:
    drawn = b"\x1b[38;5;208mx\x1b[48;2;1;2;3my\x1b[0m\x1b[?1004h\x1b[?1006h\x1b[?1002h"
    written = drawn.decode().replace("\x1b", "\\033")
    person.run(f"pal run -- sh -c 'read x; printf \"{written}\"; read x'")
    person.until(b"\x1b[2J")

    person.press(b"\r")

    person.until(drawn)


def test_a_lost_holder_is_said_and_the_terminal_is_given_back(person: Person, home: Home) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    (holder,) = holders_of(home.path)
    os.kill(holder, signal.SIGKILL)

    person.until(b"the holder of luna was lost")
    person.until(b"status 1")


def test_mail_comes_while_a_person_watches_and_while_the_daemon_dies(person: Person, home: Home) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    home.ok("send", "@luna", "--", "before")
    person.until(b"from: script] before'")
    home.kill()
    home.ok("send", "@luna", "--", "after")

    person.until(b"from: script] after'")
    assert person.shown.count(b"got '") == 2
