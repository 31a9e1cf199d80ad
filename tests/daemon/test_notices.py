"""Notices of real daemons: 'pal notify' in terminals of a person, once for each event."""

from collections.abc import Iterator

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import Home, Shell, run_as_person, wait_until
from tests.daemon.wires import LinesWire

BELL = b"\a"
HINT = b"sending notices"


@pytest.fixture
def bus(home: Home) -> Home:
    home.start_daemon()
    return home


@pytest.fixture
def people(bus: Home) -> Iterator[list[Person]]:
    with persons(bus) as here:
        yield here


def notifier(bus: Home, people: list[Person]) -> Person:
    """Let a person run 'pal notify' in a new terminal, and wait until it follows the bus."""
    person = Person(bus)
    people.append(person)
    person.run("pal notify")
    person.until(HINT)
    return person


def joined(bus: Home, name: str) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", name)
    shell.ok("status", "set", "active")
    return shell


def count_notices(people: list[Person], text: bytes) -> int:
    """Return how often a text is in any terminal now."""
    for person in people:
        person.drain()
    return sum(person.shown.count(text) for person in people)


def test_two_terminals_send_one_notice_of_an_event(bus: Home, people: list[Person]) -> None:
    nova, luna = joined(bus, "nova"), joined(bus, "luna")
    notifier(bus, people)
    notifier(bus, people)

    nova.ok("send", "@human", "--intent", "request", "--", "SECRET")
    wait_until(lambda: count_notices(people, BELL) == 1)
    # If another terminal also told of the first event, its bell would come before those of the next ones.
    nova.ok("status", "set", "blocked", "--detail", "a question")
    luna.ok("status", "set", "idle")
    wait_until(lambda: count_notices(people, BELL) == 2)

    assert count_notices(people, b"nova asks you") == 1
    assert count_notices(people, b"nova is blocked; luna has finished") == 1
    assert count_notices(people, b"SECRET") == 0


def test_notice_continues_after_the_bus_was_restarted(bus: Home, people: list[Person]) -> None:
    nova = joined(bus, "nova")
    person = notifier(bus, people)
    bus.ok("down")
    bus.ok("up")

    nova.ok("status", "set", "idle")

    person.until(b"nova has finished")


def test_command_and_text_follow_the_settings(bus: Home, people: list[Person]) -> None:
    target = bus.path.parent / "told"
    for key, value in (("notify", "osc777"), ("notify_command", f"tee -a {target}"), ("notify_text", "1")):
        assert run_as_person(bus, "config", "set", key, value).status == 0
    nova = joined(bus, "nova")
    person = notifier(bus, people)

    nova.ok("send", "@human", "--intent", "request", "--", "which colour?")

    person.until(b"which colour?")
    person.until(b"\x1b]777;notify;Palaver;nova asks you")


def test_missing_command_is_reported_once(bus: Home, people: list[Person]) -> None:
    assert run_as_person(bus, "config", "set", "notify_command", "/does/not/exist").status == 0
    nova = joined(bus, "nova")
    person = notifier(bus, people)

    nova.ok("status", "set", "idle")

    person.until(b"notify_command cannot be started")
    assert person.shown.count(BELL) == 1


def test_agent_gets_and_takes_no_notices(bus: Home) -> None:
    nova = joined(bus, "nova")

    refused = nova.pal("notify")

    assert (refused.status, "only a person gets notices" in refused.err) == (1, True)
    with LinesWire(bus.path) as wire:
        assert wire.ask("notice", key="request/1@1")["error"] == "not_allowed"


def dashboard(bus: Home, people: list[Person]) -> Person:
    """Let a person open the dashboard in a new terminal, and wait until it shows the bus."""
    person = Person(bus, cols=100, rows=30, term="xterm-256color")
    people.append(person)
    person.press(b"pal ui\r")
    person.until(b"Nothing waits for you")
    person.shown = b""  # its first sequences end with the byte of a bell
    return person


def test_dashboard_and_terminal_send_one_notice(bus: Home, people: list[Person]) -> None:
    nova, luna = joined(bus, "nova"), joined(bus, "luna")
    notifier(bus, people)
    screen = dashboard(bus, people)
    screen.press(b"2")
    screen.until(b"STATE")

    nova.ok("status", "set", "idle")
    wait_until(lambda: count_notices(people, BELL) == 1)
    luna.ok("status", "set", "idle")
    wait_until(lambda: count_notices(people, BELL) == 2)


def test_entry_in_view_of_the_dashboard_causes_no_notice(bus: Home, people: list[Person]) -> None:
    nova, luna = joined(bus, "nova"), joined(bus, "luna")
    terminal = notifier(bus, people)
    screen = dashboard(bus, people)

    nova.ok("send", "@human", "--intent", "request", "--", "in view")
    screen.until(b"in view")
    luna.ok("status", "set", "idle")

    wait_until(lambda: count_notices(people, BELL) == 1)
    assert count_notices([terminal], b"nova asks you") == 0


# Views that print lines, and the unchanged terminal of an agent


def chat_in_lines(bus: Home, people: list[Person], nova: Shell, end: str = "") -> Person:
    """Let a person chat in lines in a room of an agent that asks, and wait until it follows the bus."""
    folder = bus.path.parent / "shop"
    folder.mkdir()
    nova.ok("room", "join", str(folder))
    nova.ok("send", "@human", "--intent", "request", "--", "may I?")
    person = Person(bus)
    people.append(person)
    person.run(f"pal chat {folder}{end}")
    person.until(b"1 needs you; 'pal pending' shows them")
    return person


def test_chat_in_lines_sends_a_notice_once(bus: Home, people: list[Person]) -> None:
    nova, luna = joined(bus, "nova"), joined(bus, "luna")
    chat_in_lines(bus, people, nova)
    notifier(bus, people)

    nova.ok("status", "set", "idle")
    wait_until(lambda: count_notices(people, BELL) == 1)
    luna.ok("status", "set", "idle")
    wait_until(lambda: count_notices(people, BELL) == 2)


def test_chat_in_lines_alone_sends_notices(bus: Home, people: list[Person]) -> None:
    nova = joined(bus, "nova")
    person = chat_in_lines(bus, people, nova)

    nova.ok("status", "set", "idle")

    person.until(BELL)


def test_chat_in_a_pipe_leaves_notices_to_others(bus: Home, people: list[Person]) -> None:
    nova = joined(bus, "nova")
    chat = chat_in_lines(bus, people, nova, " | cat")
    terminal = notifier(bus, people)

    nova.ok("status", "set", "idle")

    terminal.until(b"nova has finished")
    assert count_notices([chat], BELL) == 0


def test_plain_dashboard_sends_notices(bus: Home, people: list[Person]) -> None:
    nova = joined(bus, "nova")
    person = Person(bus)
    people.append(person)
    person.run("pal ui --plain")
    person.until(b"Open attention: 0")

    nova.ok("status", "set", "idle")

    person.until(BELL)


def test_unchanged_terminal_of_an_agent_sends_notices(bus: Home, people: list[Person]) -> None:
    nova = joined(bus, "nova")
    person = Person(bus)
    people.append(person)
    person.run("pal run --detach --name zoe -- sh -c 'echo rea''dy; cat'")
    person.until(b"status 0")
    person.run("pal attach zoe --plain")
    person.until(b"ready")

    def is_told() -> bool:
        """Let nova finish once more: the terminal shows the agent before it follows the bus."""
        nova.ok("status", "set", "active")
        nova.ok("status", "set", "idle")
        return count_notices(people, BELL) > 0

    wait_until(is_told)
    person.press(b"\x1cd")
    person.until(b"detached from zoe")
