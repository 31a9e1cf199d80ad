"""The dashboard as a person runs it: a real terminal, a real daemon, real agents."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import holders_of
from tests.app.ui.terminals import ScreenPerson
from tests.daemon.stage import Home, Shell, new_home, set_approvals, wait_until
from tests.processes import end_process

_COLOUR = re.compile(rb"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[0-9;]*m")


@pytest.fixture
def bus() -> Iterator[Home]:
    """A home in which agents wait for a person's decision."""
    with new_home() as home:
        set_approvals(home)
        home.start_daemon()
        try:
            yield home
        finally:
            for holder in holders_of(home.path):
                end_process(holder, signal.SIGKILL)


@pytest.fixture
def person(bus: Home) -> Iterator[ScreenPerson]:
    opened = ScreenPerson(bus, cols=100, rows=30)
    yield opened
    opened.close()


def joined(bus: Home, name: str) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", name, "--harness", "claude")
    return shell


def ask(shell: Shell, command: str) -> None:
    asked = {
        "session_id": "s1",
        "hook_event_name": "PermissionRequest",
        "tool_name": "Bash",
        "tool_input": {"command": command},
    }
    shell.begin_script(f"printf %s '{json.dumps(asked)}' | pal hook claude PermissionRequest")


def dashboard_of(home: Home) -> int:
    """Return the process of the dashboard."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environ = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"__ui" in words and b"PALAVER_HOME=" + str(home.path).encode() in environ:
            found.append(int(entry.name))
    (pid,) = found
    return pid


def test_person_sees_and_answers_what_waits(bus: Home, person: ScreenPerson) -> None:
    luna, nova = joined(bus, "luna"), joined(bus, "nova")
    ask(luna, "make [red]all[/]")
    person.run("pal")
    person.sees("permission", "make [red]all[/]", "1 needs you", "bus up")

    # Not on Talk, which soon marks as read the message of the conversation that it shows.
    nova.ok("send", "@human", "--intent", "request", "--", "Which branch?")
    person.sees("2 need you", "1 unread")
    person.press(b"3")
    person.sees("Which branch?", "0 unread")
    person.press(b"1")
    person.sees("Which branch?")
    person.press(b"a")
    person.sees("approve this request of luna?", '"command": "make [red]all[/]"', "y yes")
    person.press(b"y")
    person.sees("allowed: luna", "1 needs you")
    person.press(b"r")
    person.sees("to @nova, reply to #")
    person.press(b"main\r")
    person.sees("Nothing waits for you.", "0 need you")

    (answered,) = bus.events("--type", "permission.answered")
    assert (answered["from"], answered["payload"]["decision"]) == ("human", "allow")
    reply = bus.events("--type", "message")[-1]
    assert (reply["from"], reply["to"], reply["payload"]["text"]) == ("human", ["@nova"], "main")


def test_request_answered_elsewhere_is_refused_with_what_happened(bus: Home, person: ScreenPerson) -> None:
    ask(joined(bus, "luna"), "make all")
    person.run("pal ui")
    person.sees("permission")
    person.press(b"a")
    person.sees("y yes")
    other = ScreenPerson(bus)
    (asked,) = bus.events("--type", "permission.asked")
    other.run(f"pal deny {asked['payload']['permission']}")
    other.until(b"status 0")
    other.close()

    person.sees("This request has ended meanwhile")
    person.press(b"y")

    person.sees("error: pal approve", "answered")
    assert [event["payload"]["decision"] for event in bus.events("--type", "permission.answered")] == ["deny"]


def test_attach_suspends_the_dashboard_and_returns(bus: Home, person: ScreenPerson) -> None:
    person.run("pal run --detach --name zoe -- cat")
    person.sees("status 0")
    person.run("pal ui")
    person.sees("bus up")
    person.press(b"2")
    person.sees("zoe")

    person.press(b"a")
    person.sees("zoe |", "normal>")
    person.press(b"\x1cd")
    person.sees("NAME^", "zoe")

    person.press(b"\r")
    person.sees("Queue", "nothing waits for this agent")
    person.press(b"q")
    person.sees("status 0")


@pytest.mark.parametrize("size", [(20, 5), (80, 24), (200, 60)])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_every_size_and_locale_is_drawn(bus: Home, size: tuple[int, int], locale: str) -> None:
    ask(joined(bus, "luna"), "echo héllo → 宽")
    person = ScreenPerson(bus, cols=size[0], rows=size[1])
    person.run(f"clear; LC_ALL={locale} pal ui")
    person.sees("permission", "up")
    person.shown = b""

    person.press(b"a")
    person.sees("y yes")
    person.press(b"n")
    person.sees_that(lambda: "y yes" not in person.text, "the screen without the question")
    person.press(b"2")
    person.sees("> luna")
    person.press(b"?")
    person.sees("Esc closes")
    person.press(b"\x1b")
    person.sees_that(lambda: "Esc closes" not in person.text, "the screen without help")
    person.press(b"q")
    person.sees("status 0")
    person.close()

    if locale == "C":
        assert person.shown.isascii()


def test_no_color_removes_every_colour(bus: Home, person: ScreenPerson) -> None:
    ask(joined(bus, "luna"), "make all")
    person.run("clear; NO_COLOR=1 pal ui")
    person.sees("permission", "bus up")
    person.press(b"a")
    person.sees("y yes")
    person.press(b"n")
    person.sees_that(lambda: "y yes" not in person.text, "the screen without the question")
    person.press(b"2")
    person.sees("NAME^")

    assert _COLOUR.findall(person.shown) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_restores_the_terminal(bus: Home, person: ScreenPerson, number: signal.Signals) -> None:
    person.run("pal ui")
    person.sees("bus up")

    end_process(dashboard_of(bus), number)

    person.sees(f"status {128 + number}")
    assert person.shown.rindex(b"\x1b[?1049l") > person.shown.rindex(b"\x1b[?1049h")
    assert person.shown.rindex(b"\x1b[?25h") > person.shown.rindex(b"\x1b[?25l")
    person.run("clear; stty -a")
    person.sees(" icanon", " echo ", "status 0")


def test_closed_window_ends_the_dashboard(bus: Home) -> None:
    person = ScreenPerson(bus)
    person.run("pal ui")
    person.sees("bus up")
    pid = dashboard_of(bus)

    person.close()

    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_dashboard_is_drawn_if_standard_error_goes_elsewhere(bus: Home, person: ScreenPerson) -> None:
    person.run("pal ui 2>/dev/null")
    person.sees("bus up")
    person.press(b"q")
    person.sees("status 0")


def test_bytes_that_are_not_utf_8_do_not_end_the_dashboard(bus: Home, person: ScreenPerson) -> None:
    person.run("pal ui")
    person.sees("bus up")

    person.press(b"\xe4\xff")
    joined(bus, "luna")
    person.sees("1 agent")
    person.press(b"2")

    person.sees("[2 Agents]", "luna")


def test_dashboard_continues_after_the_bus_was_down(bus: Home, person: ScreenPerson) -> None:
    person.run("pal ui")
    person.sees("bus up")

    bus.ok("down")
    person.sees("bus away")
    bus.ok("up")
    person.sees("bus up")
    joined(bus, "luna").ok("send", "@human", "--intent", "request", "--", "still there?")

    person.sees("still there?")


def test_resize_during_a_paste_loses_nothing(bus: Home, person: ScreenPerson) -> None:
    joined(bus, "luna").ok("send", "@human", "--intent", "request", "--", "what?")
    pasted = "\n".join(f"line {number} " + "x" * 40 for number in range(40))
    person.run("pal ui")
    person.sees("what?")
    person.press(b"r")
    person.sees("to @luna")

    person.press(b"\x1b[200~" + pasted[:700].encode())
    person.resize(20, 5)
    person.press(pasted[700:].encode() + b"\x1b[201~")
    person.resize(90, 28)
    person.sees("line 39")
    person.press(b"\r")
    person.sees("Nothing waits for you.")

    assert bus.texts()[-1] == pasted


def test_typed_command_runs_as_the_person(bus: Home, person: ScreenPerson) -> None:
    person.run("pal ui")
    person.sees("bus up")

    person.press(b":whoami\r")

    person.sees("human", "Esc closes")


def test_pal_with_output_to_a_pipe_prints_help(bus: Home, person: ScreenPerson) -> None:
    person.run("clear; pal | head -3")

    person.sees("Usage: pal COMMAND", "status 0")
