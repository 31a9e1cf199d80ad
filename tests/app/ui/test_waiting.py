"""A person with four agents: everything that waits is seen and answered in the dashboard, and only once."""

from collections.abc import Iterator

import pytest
from tests.app.ui.terminals import ScreenPerson
from tests.daemon.stage import Home, Shell, check_output, new_home, run_as_person, write_settings
from tests.daemon.test_permissions import ask, decision, session

from palaver.protocol.display import need_words

LUNA, NOVA, MIRA, KILO = NAMES = ("luna", "nova", "mira", "kilo")


@pytest.fixture
def bus() -> Iterator[Home]:
    """A bus on which agents wait for approvals, and a second message within a minute is held."""
    with new_home() as home:
        write_settings(home, approvals=1, approvals_wait_s=600, brake_per_minute=1)
        home.start_daemon()
        yield home


@pytest.fixture
def agents(bus: Home) -> dict[str, Shell]:
    return {name: session(bus, name) for name in NAMES}


@pytest.fixture
def person(bus: Home) -> Iterator[ScreenPerson]:
    opened = ScreenPerson(bus, cols=110, rows=36)
    yield opened
    opened.close()


def hold(sender: Shell, to: str, text: str) -> int:
    """Send messages until one is held, and return its seq. Earlier ones have another text."""
    sender.ok("send", f"@{to}", "--", "the first one")
    held = sender.pal("send", f"@{to}", "--json", "--", text)
    assert held.error["error"] == "rate_limited", held
    return int(held.error["details"]["message"])


def request(sender: Shell, text: str) -> int:
    """Ask the person, and return the seq of the request."""
    return int(sender.ok("send", "@human", "--intent", "request", "--json", "--", text).json["seq"])


def marked_line(person: ScreenPerson) -> str:
    """Return the line with the cursor."""
    return next((line for line in person.lines if line.startswith(">")), "")


def move(person: ScreenPerson, key: bytes) -> None:
    """Move the cursor to the next entry or to the one before it."""
    before = marked_line(person)
    person.press(key)
    person.sees_that(lambda: marked_line(person) != before, "the cursor on another entry")


def to_entry(person: ScreenPerson, text: str) -> None:
    """Move the cursor to the entry with a text, up or down."""
    for _ in range(10):
        marked = marked_line(person)
        if text in marked:
            return
        lines = list(person.lines)
        wanted = next((at for at, line in enumerate(lines) if at > 1 and text in line), len(lines))
        move(person, b"\x1b[A" if marked in lines and wanted < lines.index(marked) else b"\x1b[B")
    pytest.fail(f"no entry has {text} in:\n{person.text}")


def list_ends(person: ScreenPerson, kind: str) -> None:
    """Wait until the list has no entry of a kind: the top line may be drawn before the list."""
    person.sees_that(
        lambda: not any(line[2:].startswith(kind) for line in person.lines[2:]), f"the list without {kind}"
    )


def state_of(bus: Home, seq: int) -> str:
    """Return the state of a message for its only recipient."""
    (receipt,) = bus.ok("receipts", str(seq), "--json").json["receipts"]
    return str(receipt["state"])


def test_permission_held_message_and_request_are_seen_and_answered(
    bus: Home, agents: dict[str, Shell], person: ScreenPerson
) -> None:
    job = ask(agents[LUNA])
    held = hold(agents[NOVA], MIRA, "please rebase")
    asked = request(agents[KILO], "Which branch?")

    person.run("pal ui")
    person.sees("3 need you", "bus up", "permission", "held", "please rebase", "request", "Which branch?")
    to_entry(person, "permission")
    person.press(b"a")
    person.sees(f"approve this request of {LUNA}?", '"command": "touch x"', "y yes")
    person.press(b"y")
    person.sees("2 need you")
    list_ends(person, "permission")
    to_entry(person, "please rebase")
    person.press(b"l")
    person.sees("release?", "please rebase", f"pal release {held}", "y yes")
    person.press(b"y")
    person.sees("1 needs you")
    list_ends(person, "held")
    to_entry(person, "Which branch?")
    person.press(b"r")
    person.sees(f"to @{KILO}, reply to #{asked}")
    person.press(b"main\r")
    person.sees("Nothing waits for you.", "0 need you")

    assert decision(job.end())["behavior"] == "allow"
    (answered,) = bus.events("--type", "permission.answered")
    assert (answered["from"], answered["payload"]["decision"]) == ("human", "allow")
    assert state_of(bus, held) == "queued"
    assert [line["text"] for line in agents[MIRA].ok("recv", "--json").lines][-1] == "please rebase"
    reply = bus.events("--type", "message", "--from", "human")[-1]
    assert (reply["to"], reply["payload"]["text"]) == ([f"@{KILO}"], "main")
    assert state_of(bus, asked) == "answered"


def test_message_released_elsewhere_is_refused_with_what_happened(
    bus: Home, agents: dict[str, Shell], person: ScreenPerson
) -> None:
    held = hold(agents[NOVA], MIRA, "please rebase")
    person.run("pal ui")
    person.sees("1 needs you", "please rebase")
    person.press(b"l")
    person.sees("release?", "y yes")

    check_output(run_as_person(bus, "release", str(held)))
    person.sees("has ended meanwhile")
    person.press(b"y")

    person.sees(f"error: pal release {held}: #{held} is not held: #{held} was released meanwhile by human")
    (released,) = bus.events("--type", "delivery")
    assert (released["payload"]["messages"], released["by"]) == ([held], "human")


def test_request_answered_elsewhere_keeps_the_reply_unsent(
    bus: Home, agents: dict[str, Shell], person: ScreenPerson
) -> None:
    asked = request(agents[KILO], "Which branch?")
    person.run("pal ui")
    person.sees("1 needs you", "Which branch?")
    person.press(b"r")
    person.sees(f"reply to #{asked}")
    person.press(b"main, I think")
    person.sees("main, I think")

    check_output(run_as_person(bus, "send", f"@{KILO}", "--reply-to", str(asked), "--", "the release branch"))
    person.sees("0 need you")
    person.press(b"\r")

    person.sees("not sent", f"#{asked} was answered meanwhile by human with #", "main, I think")
    assert "main, I think" not in bus.texts()
    assert state_of(bus, asked) == "answered"


def test_opened_request_is_shown_as_seen(bus: Home, agents: dict[str, Shell], person: ScreenPerson) -> None:
    asked = request(agents[KILO], "Which branch?")
    person.run("pal ui")
    person.sees("1 needs you", "1 unread", "Which branch?")

    person.press(b"\r")

    person.sees(f"request: {KILO}", f"#{asked}", "seen: you", "0 unread")
    assert "has not read it" not in person.text


def test_opened_entry_that_has_ended_says_what_happened(
    bus: Home, agents: dict[str, Shell], person: ScreenPerson
) -> None:
    held = hold(agents[NOVA], MIRA, "please rebase")
    person.run("pal ui")
    person.sees("1 needs you", "please rebase")
    person.press(b"\r")
    person.sees(f"held: {NOVA}", f"#{held}")

    check_output(run_as_person(bus, "release", str(held)))
    person.sees("0 need you")
    person.press(b"l")

    person.sees(f"error: #{held} was released meanwhile by human")


def test_request_is_in_the_top_line_of_every_screen_at_once(
    bus: Home, agents: dict[str, Shell], person: ScreenPerson
) -> None:
    person.run("pal ui")
    person.sees("0 need you", "0 unread")

    for number, sender, keys, shown in (
        (1, NOVA, b"2", "[2 Agents]"),
        (2, MIRA, b"4", "[4 Rooms]"),
        (3, KILO, b"5", "[5 Log]"),
        (4, LUNA, b"?", "Esc closes"),
    ):
        person.press(keys)
        person.sees(shown)
        request(agents[sender], f"May I, asks {sender}?")
        person.sees(need_words(number), f"{number} unread", shown)


def test_message_to_an_agent_that_waits_for_an_answer_says_so(
    bus: Home, agents: dict[str, Shell], person: ScreenPerson
) -> None:
    asked = request(agents[KILO], "Which branch?")
    person.run("pal ui")
    person.sees("1 needs you")
    person.press(b"2")
    person.sees("NAME")
    person.sees_that(lambda: KILO in marked_line(person), "the cursor on the first agent")

    person.press(b"m")
    person.sees(f"to @{KILO}", f"{KILO} waits for an answer to #{asked}; this is not a reply")
    person.press(b"one moment\r")

    person.sees(f"to {KILO}; {KILO} waits for an answer to #{asked}", "1 needs you")
    assert state_of(bus, asked) == "queued"
