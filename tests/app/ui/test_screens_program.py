"""Talk, Rooms, Log, Past, the chat and the plain form as a person runs them: real terminal, real daemon."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.app.ui.terminals import ScreenPerson
from tests.daemon.crew import HANDOFF, Agent, Crew
from tests.daemon.stage import Home, new_home
from tests.limits import LIMIT_S

SIZES = [(20, 5), (80, 24), (200, 60)]


@pytest.fixture
def bus() -> Iterator[Home]:
    with new_home() as home:
        home.start_daemon()
        yield home


@pytest.fixture
def crew(bus: Home) -> Crew:
    return Crew(bus)


@pytest.fixture
def luna(crew: Crew) -> Agent:
    """A member with the stick that has written to the room and asks the person."""
    agent = crew.member("luna", "codex")
    agent.ok("send", "--room", "shop", "--", "hello room")
    agent.ok("send", "@human", "--intent", "request", "--", "which pört?")
    agent.claim()
    return agent


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_every_screen_fits_every_terminal(bus: Home, luna: Agent, size: tuple[int, int], locale: str) -> None:
    person = ScreenPerson(bus, cols=size[0], rows=size[1])
    person.run(f"clear; LC_ALL={locale} pal ui")
    person.sees("up")
    person.shown = b""

    person.press(b"3")
    person.sees("> luna")
    person.press(b"\r")
    person.sees("which p")
    person.press(b"4")
    person.sees("shop")
    person.press(b"\r")
    person.sees("luna has the stick")
    person.press(b"5")
    person.sees("claim" if size[0] > 40 else "luna")
    person.press(b"6")
    person.sees("t go to")
    person.press(b"t1\r")
    person.sees("past #1" if size[0] > 20 else "past")
    person.press(b"3")
    person.sees("no conversations" if size[0] >= 80 else "no messages yet")
    person.press(b"q")
    person.sees("status 0")
    person.close()

    if locale == "C":
        assert person.shown.isascii()


def test_person_reads_answers_and_looks_at_the_ledger(bus: Home, luna: Agent) -> None:
    person = ScreenPerson(bus, cols=100, rows=30)
    person.run("pal ui")
    person.sees("1 needs you")

    person.press(b"3")
    person.sees("which pört?", "✓ seen: you")
    person.press(b"\rr")
    person.sees("to @luna, reply to #", "which pört?")
    person.press(b"8080\r")
    person.sees("0 need you", "↩ answered: you", "○ waiting: luna: ")
    person.press(b"\r")
    person.sees("stored by you", "Why: ", "Next: ")
    luna.ok("recv")
    person.sees("evidence")
    person.press(b"\x1b")
    person.sees("✓ seen: luna")
    person.press(b"q")
    person.sees("status 0")
    person.close()

    (seen,) = [event for event in bus.events("--type", "delivery") if event["payload"]["agent"] == "human"]
    assert (seen["payload"]["state"], seen["payload"]["lane"]) == ("seen", "ui")


def test_handoff_tasks_and_notes_of_a_room_are_complete(bus: Home, crew: Crew, luna: Agent) -> None:
    nova = crew.member("nova", "claude")
    nova.ok("note", "add", "CI has no libpq")
    luna.ok("stick", "pass", "nova", *HANDOFF)
    person = ScreenPerson(bus, cols=100, rows=40)
    person.run("pal ui")
    person.sees("bus up")

    person.press(b"4")

    person.sees("reserved for nova", "status: parser done", "next: review it", "CI has no libpq", "Notes: 1")
    nova.claim()
    person.sees("nova has the stick, lease")
    person.close()


def test_log_is_searched_and_hits_are_marked(bus: Home, luna: Agent) -> None:
    person = ScreenPerson(bus, cols=100, rows=30)
    person.run("pal ui")
    person.sees("bus up")
    person.press(b"5")
    person.sees("claim luna")

    person.press(b"/type:message hello\r")
    person.sees_that(lambda: "claim" not in person.text and "hello room" in person.text, "only the hit")
    assert b"\x1b[1;4" in person.shown
    person.press(b"/ form:luna\r")
    person.sees("no such filter: form")
    person.close()


def test_past_shows_the_bus_as_it_was_and_refuses_to_send(bus: Home, luna: Agent) -> None:
    (asked,) = [event for event in bus.events("--type", "message") if event["to"] == ["@human"]]
    seq = asked["seq"]
    person = ScreenPerson(bus, cols=100, rows=30)
    person.run("pal ui")
    person.sees("1 needs you")

    person.press(f"6t{seq - 1}\r".encode())
    person.sees(f"past #{seq - 1}", "0 need you", "now 1 needs you")
    person.press(b"3")
    person.sees_that(
        lambda: "[3 Talk]" in person.text and "hello room" in person.text and "which" not in person.text,
        "only what was there then",
    )
    person.press(b"n")
    person.sees("nothing can be changed there")
    person.press(b"\x1b[C")
    person.sees(f"past #{seq}", "1 needs you")
    person.press(b"\x1b")
    person.sees("which pört?", "bus up")
    person.close()

    assert [event["from"] for event in bus.events("--type", "message")] == ["luna", "luna"]


def test_plain_form_prints_lines_and_ends_with_its_reader(bus: Home, luna: Agent) -> None:
    process = bus.start("ui", "--plain", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    first = [process.stdout.readline().decode() for _ in range(2)]

    luna.ok("send", "@human", "--intent", "request", "--", "and this?")
    lines = [process.stdout.readline().decode() for _ in range(2)]
    process.stdout.close()
    luna.ok("send", "@human", "--", "one more")

    assert first[0].startswith("Agents: ")
    assert first[1].startswith("Attention: request, luna: which pört?")
    assert any("luna to @human: and this?" in line for line in lines)
    assert any(line.startswith("Attention: request, luna: and this?") for line in lines)
    assert process.wait(LIMIT_S) is not None
