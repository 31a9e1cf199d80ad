"""The launch form of the real program, with a program on the PATH that has the name of a harness."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import holders_of
from tests.app.ui.terminals import ScreenPerson
from tests.daemon.stage import Home, new_home
from tests.processes import end_process

WORKING = "echo READY; exec cat"
REFUSED = "echo 'Invalid API key. Please run /login' >&2; exit 3"


@pytest.fixture
def bus() -> Iterator[Home]:
    with new_home() as home:
        home.start_daemon()
        try:
            yield home
        finally:
            for holder in holders_of(home.path):
                end_process(holder, signal.SIGKILL)


@pytest.fixture
def programs(bus: Home) -> Path:
    """A folder with a program that has the name of a harness. It does what the file `does` says."""
    folder = bus.path.parent / "programs"
    folder.mkdir()
    program = folder / "claude"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "2.1.0 (Claude Code)" && exit\n. {folder}/does\n'
    )
    program.chmod(0o755)
    (folder / "does").write_text(f"{WORKING}\n")
    return folder


@pytest.fixture
def work(bus: Home) -> Path:
    folder = bus.path.parent / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def person(bus: Home, programs: Path, work: Path) -> Iterator[ScreenPerson]:
    """A person at the opened form, with the cursor on the harness."""
    opened = ScreenPerson(bus, cols=100, rows=30)
    opened.run(f"cd {work}; PATH={programs}:$PATH pal ui")
    opened.sees("No agent has joined yet.")
    opened.press(b"2")
    opened.sees("NAME")
    opened.press(b"n")
    opened.sees("Launch agents", "< claude >", str(work), "$ pal claude --detach")
    yield opened
    opened.close()


def name_it(person: ScreenPerson, name: str) -> None:
    person.press(b"\t\t" + name.encode())  # at once, as from a fast typist
    person.sees(f"$ pal claude --detach --name {name}")


def test_form_launches_an_agent_in_the_chosen_folder(bus: Home, person: ScreenPerson, work: Path) -> None:
    name_it(person, "luna")

    person.press(b"\r")

    person.sees("1 agent: ", "luna")
    person.sees_that(lambda: "Launch agents" not in person.text, "the closed form")
    (agent,) = bus.ok("list", "--json").lines
    assert (agent["name"], agent["harness"], agent["folder"]) == ("luna", "claude", str(work))
    person.press(b"\r")
    person.sees("READY")


def test_error_of_the_harness_is_shown_and_the_form_stays(
    bus: Home, person: ScreenPerson, programs: Path
) -> None:
    (programs / "does").write_text(f"{REFUSED}\n")
    name_it(person, "luna")

    person.press(b"\r")
    person.sees("Invalid API key. Please run /login", "claude exited during its start: exited with 3")
    (programs / "does").write_text(f"{WORKING}\n")
    person.press(b"\r")

    person.sees("1 agent: ", "luna")
    person.sees_that(lambda: "Launch agents" not in person.text, "the closed form")


def test_folder_that_was_deleted_starts_nothing(bus: Home, person: ScreenPerson, work: Path) -> None:
    work.rmdir()

    person.press(b"\r")

    person.sees(f"{work} is not a folder that you can open.", "started.")
    assert bus.ok("list", "--json").lines == []


def test_form_opens_in_a_dashboard_whose_folder_was_deleted(
    bus: Home, person: ScreenPerson, work: Path
) -> None:
    work.rmdir()
    person.press(b"\x1b")
    person.sees_that(lambda: "Launch agents" not in person.text, "the closed form")

    person.press(b"n")

    person.sees("Launch agents", "where it works")
