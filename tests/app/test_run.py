"""`pal run` and `pal attach` for a person: a real terminal, a real daemon, a real holder."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import Person, holders_of, persons
from tests.daemon.stage import Home, new_home, wait_until
from tests.holder.stage import PROGRAMS

from palaver.app.run import parse_order

DETACH = b"\x1cd"


def command(name: str, *words: str) -> str:
    return " ".join([shlex.join([sys.executable, "-I", str(PROGRAMS / f"{name}.py")]), *words])


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        made.start_daemon()
        yield made


@pytest.fixture
def person(home: Home) -> Iterator[Person]:
    with persons(home) as here:
        here.append(Person(home))
        yield here[0]


def test_order_of_the_daemon_is_parsed() -> None:
    order = parse_order(["--ticket-fd", "7", "--detach", "--name", "luna", "--", "sh", "-c", "--detach"])

    assert order.options == {"--ticket-fd": "7", "--name": "luna"}
    assert order.is_detached
    assert order.command == ("sh", "-c", "--detach")


def test_run_in_a_terminal_attaches_and_returns_the_status_of_the_program(
    person: Person,
) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    person.press(b"hello\r")
    person.until(b"got 'hello'")
    person.press(b"exit 7\r")

    person.until(b"status 7")


@pytest.mark.parametrize(("event", "rest"), [("started", "read x; "), ("ended", "")])
def test_program_runs_before_its_holder_has_loaded_and_nothing_is_lost(
    person: Person, home: Home, event: str, rest: str
) -> None:
    folder = home.path.parent
    late, pid = PROGRAMS / "late_holder.py", folder / "pid"
    python = folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'[ "$3" = palaver.holder.main ] || exec {shlex.quote(sys.executable)} "$@"\n'
        f'shift 3; exec {shlex.quote(sys.executable)} -I {shlex.quote(str(late))} {event} {pid} "$@"\n'
    )
    python.chmod(0o755)
    program = f"echo fi''rst; echo $$ > {pid}.new; mv {pid}.new {pid}; {rest}exit 7"

    person.run(f"PALAVER_PYTHON={python} pal run --name luna -- sh -c {shlex.quote(program)}")
    person.until(b"first")
    if event == "started":
        person.press(b"\r")

    person.until(b"status 7")


def test_no_holder_stays_for_a_harness_that_needs_none(person: Person, home: Home) -> None:
    folder = home.path.parent / "bin"
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\necho re''ady; read x; exit 7\n")
    (folder / "claude").chmod(0o755)

    person.run(f"PATH={folder}:$PATH pal claude -p hello")
    person.until(b"[y/N]")
    person.press(b"n\r")
    person.until(b"ready")

    wait_until(lambda: not holders_of(home.path))
    person.press(b"\r")
    person.until(b"status 7")


def test_killed_program_returns_the_status_of_a_shell(person: Person) -> None:
    person.run("pal run -- sh -c 'echo re''ady; read x; kill -9 $$'")
    person.until(b"ready")

    person.press(b"\r")

    person.until(b"status 137")


def test_agent_can_be_detached_and_attached_again(person: Person, home: Home) -> None:
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


def test_detached_run_prints_only_the_name(home: Home, person: Person) -> None:
    result = home.ok("run", "--detach", "--name", "luna", "--", *shlex.split(command("lines")))

    assert result.out == "luna\n"
    assert len(holders_of(home.path)) == 1


@pytest.mark.parametrize("words", [("--detach",), ("--detach", "--json")])
def test_detached_program_that_fails_at_its_start_is_reported(home: Home, words: tuple[str, ...]) -> None:
    script = "echo 'no such setting: colour' >&2; exit 3"

    result = home.pal("run", *words, "--name", "luna", "--", "sh", "-c", script)

    assert (result.status, result.out) == (3, "")
    assert "no such setting: colour" in result.err
    assert "sh exited during its start: exited with 3" in result.err


def test_detached_harness_that_ends_at_its_start_is_reported(home: Home) -> None:
    folder = home.path.parent / "bin"
    folder.mkdir()
    (folder / "codex").write_text("#!/bin/sh\necho 'config.toml: line 7 is wrong'\nexit 4\n")
    (folder / "codex").chmod(0o755)
    path = f"{folder}:{home.environment['PATH']}"

    result = home.pal("codex", "--name", "luna", "--detach", env={"PATH": path})

    assert (result.status, result.out) == (4, "")
    assert "config.toml: line 7 is wrong" in result.err
    assert "codex exited during its start: exited with 4" in result.err


def test_outdated_opencode_is_refused_with_the_required_version(
    home: Home,
) -> None:
    folder = home.path.parent / "bin"
    folder.mkdir()
    (folder / "opencode").write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.17.0 || touch started\n')
    (folder / "opencode").chmod(0o755)
    path = f"{folder}:{home.environment['PATH']}"

    for _ in range(2):  # the second time the version is cached
        result = home.pal("opencode", "--name", "luna", "--detach", env={"PATH": path}, cwd=folder)

        assert (result.status, result.out) == (1, "")
        assert "OpenCode 1.17.0 is too old" in result.err
        assert "1.17.18 or newer" in result.err
    assert not (folder / "started").exists()


def test_detached_program_that_succeeds_at_once_is_not_a_failure(home: Home) -> None:
    result = home.pal("run", "--detach", "--name", "luna", "--", "true")

    assert (result.status, result.out) == (0, "luna\n")


def test_detached_silent_program_is_waited_for_only_briefly(home: Home) -> None:
    result = home.pal("run", "--detach", "--name", "luna", "--", "sleep", "600")

    assert (result.status, result.out) == (0, "luna\n")


@pytest.mark.parametrize("status", [0, 7])
def test_without_a_terminal_run_waits_and_returns_the_status(home: Home, status: int) -> None:
    result = home.pal("run", "--name", "luna", "--", "sh", "-c", f"exit {status}")

    assert (result.status, result.out) == (status, "")
    assert "luna is running" in result.err


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_program_that_cannot_run_is_reported_and_joins_nothing(home: Home, program: str, status: int) -> None:
    result = home.pal("run", "--detach", "--", program)

    assert result.status == status
    assert f"{program} cannot be run" in result.err
    assert home.ok("list", "--json").out == ""


def test_program_has_the_terminal_size_of_the_person(person: Person) -> None:
    person.run(f"pal run -- {command('size')}")
    person.until(b"size 80x24")

    person.resize(101, 33)

    person.until(b"size 101x33")


def test_terminal_is_restored_on_detach(person: Person) -> None:
    person.run("stty -g >before; pal run -- sh -c 'printf \"\\033[?1002h on\"; read x'")
    person.until(b"\x1b[?1002h")

    person.press(DETACH)
    person.until(b"status 0")
    person.press(b"stty -g | cmp - before && echo sa''me\r")

    person.until(b"same")
    assert person.shown.rindex(b"\x1b[?1002l") > person.shown.rindex(b"\x1b[?1002h")


def test_all_keys_arrive_unchanged(person: Person, tmp_path: Path) -> None:
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


def test_colours_mouse_and_focus_sequences_arrive_unchanged(person: Person) -> None:
    drawn = b"\x1b[38;5;208mx\x1b[48;2;1;2;3my\x1b[0m\x1b[?1004h\x1b[?1006h\x1b[?1002h"
    written = drawn.decode().replace("\x1b", "\\033")
    person.run(f"pal run -- sh -c 'read x; printf \"{written}\"; read x'")
    person.until(b"\x1b[2J")

    person.press(b"\r")

    person.until(drawn)


def test_lost_holder_is_reported_and_the_terminal_is_restored(person: Person, home: Home) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    (holder,) = holders_of(home.path)
    os.kill(holder, signal.SIGKILL)

    person.until(b"lost the connection to the holder of luna")
    person.until(b"status 1")


def test_messages_arrive_while_attached_and_across_a_daemon_death(person: Person, home: Home) -> None:
    person.run(f"pal run --name luna -- {command('lines')}")
    person.until(b"ready")

    home.ok("send", "@luna", "--", "before")
    person.until(b"from: script] before'")
    home.kill()
    home.ok("send", "@luna", "--", "after")

    person.until(b"from: script] after'")
    assert person.shown.count(b"got '") == 2
