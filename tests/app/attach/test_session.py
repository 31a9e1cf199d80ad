r"""The attach screen as a person sees it, driven in tmux: every key, every size, every ending."""

import base64
import hashlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.attach.panes import PROGRAMS, Pane, open_pane
from tests.app.person import holders_of
from tests.daemon.stage import (
    Home,
    check_output,
    new_home,
    run_as_person,
    run_script_as_person,
    wait_until,
    write_settings,
)
from tests.processes import end_process

MENU = "C-\\"


def program(name: str, *words: str) -> list[str]:
    return [sys.executable, "-I", str(PROGRAMS / f"{name}.py"), *words]


@pytest.fixture
def bus() -> Iterator[Home]:
    """Yield a home with a running daemon; remaining agents are ended with it."""
    with new_home() as home:
        home.start_daemon()
        try:
            yield home
        finally:
            for holder in holders_of(home.path):
                end_process(holder, signal.SIGKILL)


@pytest.fixture
def pane(bus: Home) -> Iterator[Pane]:
    with open_pane(bus) as opened:
        yield opened


@pytest.fixture
def luna(pane: Pane) -> Pane:
    """Return a terminal in which luna was just started: it replies `got '…'` to every line."""
    pane.run("pal", "run", "--name", "luna", "--", *program("lines"), then="; echo status $?")
    pane.until("ready", "luna | ", "normal>")
    return pane


def test_line_in_the_bar_is_typed_into_the_agent(luna: Pane) -> None:
    luna.type("hello there")
    luna.until_row(-1, "normal> hello there")
    luna.keys("Enter")

    luna.until("got 'hello there'")
    luna.until_row(-1, "normal>")
    assert luna.lines[-2].startswith(" luna | ")
    assert [
        event["payload"]["text"] for event in luna.home.events("--type", "life") if "text" in event["payload"]
    ] == ["hello there"]


def test_line_of_another_priority_is_queued_without_a_head(luna: Pane) -> None:
    luna.keys("Tab", "Tab", "Tab")
    luna.until_row(-1, "idle>")
    luna.type("when you have time")
    luna.keys("Enter")

    luna.until("queued as #")
    luna.until("got 'when you have time'")
    (event,) = luna.home.events("--type", "message")
    assert (event["from"], event["payload"]["priority"]) == ("human", "idle")


def test_passthrough_sends_every_key_until_ctrl_backslash(bus: Home, pane: Pane) -> None:
    record = bus.path.parent / "keys"
    pane.run("pal", "run", "--name", "luna", "--", *program("keys", str(record), "paste"))
    pane.until("ready", "normal>")

    pane.keys(MENU)
    pane.until_row(-1, "p passthrough")
    pane.keys("p")
    pane.until("passthrough, queue paused")
    wait_until(lambda: pane.flag("cursor_y") == "1")
    pane.keys("a", "Up", "C-c", "Tab", "Escape")
    wait_until(lambda: record.exists() and record.read_bytes() == b"a\x1b[A\x03\t\x1b")
    pane.keys(MENU)

    pane.until("| input")
    pane.type("x")
    pane.until_row(-1, "normal> x")
    assert record.read_bytes() == b"a\x1b[A\x03\t\x1b"


def test_passthrough_mirrors_the_modes_of_the_program_while_it_lasts(pane: Pane) -> None:
    script = (
        "import sys; sys.stdout.write('\\x1b[?1000h\\x1b[?1006h\\x1b[?1hready'); sys.stdout.flush(); input()"
    )
    pane.run("pal", "run", "--name", "luna", "--", sys.executable, "-I", "-c", script)
    pane.until("ready", "normal>")
    assert (pane.flag("mouse_any_flag"), pane.flag("keypad_cursor_flag")) == ("0", "0")

    pane.keys(MENU, "p")
    pane.until("passthrough, queue paused")  # the menu also contains the word `passthrough`
    wait_until(lambda: (pane.flag("mouse_any_flag"), pane.flag("mouse_sgr_flag")) == ("1", "1"))
    wait_until(lambda: pane.flag("keypad_cursor_flag") == "1")
    pane.keys(MENU)
    pane.until("| input")

    wait_until(lambda: (pane.flag("mouse_any_flag"), pane.flag("keypad_cursor_flag")) == ("0", "0"))


def test_agent_has_two_rows_less_at_every_size(bus: Home, pane: Pane) -> None:
    pane.run("pal", "run", "--name", "luna", "--", *program("size"))
    pane.until("size 80x22", "normal>")

    for cols, rows in ((40, 10), (200, 60), (80, 24)):
        pane.resize(cols, rows)
        pane.until(f"size {cols}x{rows - 2}")
        pane.until_row(-2, " luna | ")
        pane.until_row(-1, "normal>")


def test_terminal_too_small_for_a_bar_belongs_to_the_agent(luna: Pane) -> None:
    luna.resize(40, 4)
    wait_until(lambda: "normal>" not in "\n".join(luna.lines))
    luna.type("small")
    luna.keys("Enter")
    luna.until("got 'small'")
    luna.keys(MENU)
    luna.until_row(-1, "p keys s scroll d leave")

    luna.keys("Escape")
    luna.resize(80, 24)

    luna.until_row(-2, " luna | ")
    luna.until_row(-1, "normal>")


def test_scrollback_includes_output_from_before_the_attach(luna: Pane) -> None:
    for number in range(14):
        luna.type(f"number {number}")
        luna.keys("Enter")
        luna.until(f"got 'number {number}'")
    luna.keys(MENU, "d")
    luna.until("detached from luna")
    luna.run("pal", "attach", "luna")
    luna.until("got 'number 13'", "normal>")

    luna.keys("PPage")

    luna.until("scroll back", "ready", "got 'number 0'")
    luna.keys("q")
    luna.until("got 'number 13'", "| input")


def fill(luna: Pane, count: int) -> None:
    """Make the agent write numbered lines, more than fit on the screen."""
    for number in range(count):
        luna.type(f"number {number}")
        luna.keys("Enter")
        luna.until(f"got 'number {number}'")


def test_search_in_the_scrollback_and_copy_of_the_marked_lines(luna: Pane) -> None:
    luna.take_clipboard()
    fill(luna, 14)
    luna.keys("PPage")
    luna.until("scroll back")

    luna.type("/Number 3")
    luna.until_row(-1, "search> Number 3")
    luna.keys("Enter")
    luna.until("not found: Number 3")
    luna.type("/number 3")
    luna.keys("Enter")

    luna.until("match 2 of 2", "got 'number 3'")
    assert luna.clipboard == ""
    luna.keys("v")
    luna.until("1 line marked")
    luna.keys("Up")
    luna.until("2 lines marked")
    luna.keys("y")
    luna.until("2 lines sent to your terminal's clipboard")
    wait_until(lambda: luna.clipboard == "> number 3\ngot 'number 3'")
    luna.keys("q")
    luna.until("got 'number 13'", "| input")


def test_navigator_shows_another_agent_in_the_same_terminal(luna: Pane) -> None:
    home = luna.home
    home.ok("run", "--detach", "--name", "nova", "--", *program("lines"))
    luna.type("I am luna")
    luna.keys("Enter")
    luna.until("got 'I am luna'")

    luna.keys(MENU, "n")
    luna.until("> nova", "Enter shows that agent here")
    luna.keys("Enter")

    luna.until("ready", "nova | ", "normal>")
    assert "I am luna" not in "\n".join(luna.lines)
    luna.type("I am nova")
    luna.keys("Enter")
    luna.until("got 'I am nova'")
    luna.keys(MENU, "n")
    luna.until("> luna")
    luna.keys("Enter")
    luna.until("got 'I am luna'", "luna | ")
    luna.keys(MENU, "d")
    luna.until("detached from luna", "status 0")
    assert home.ok("status", "nova", "--json").json["present"] is True


def test_navigator_stays_here_if_the_other_agent_cannot_be_shown(luna: Pane) -> None:
    (luna.home.path / "agents" / "nova.sock").touch()
    luna.home.shell().ok("join", "--name", "nova")
    luna.keys(MENU, "n")
    luna.until("> nova")

    luna.keys("Enter")

    luna.until("! there is no terminal of nova")
    luna.keys("q")
    luna.until("ready", "luna | ", "normal>")


def test_navigator_closes_if_the_bus_does_not_reply(luna: Pane) -> None:
    luna.home.shell().ok("join", "--name", "nova")
    luna.home.ok("down")
    luna.until("bus away")

    luna.keys(MENU, "n")

    luna.until("! the bus does not reply, so the other agents are not known", "ready", "normal>")


def test_failed_agent_is_started_again_after_attach(luna: Pane) -> None:
    luna.keys(MENU, "d")
    luna.until("detached")
    luna.run("pal", "attach", "luna", then="; echo status $?")
    luna.until("ready", "normal>")
    luna.type("exit 7")
    luna.keys("Enter")
    luna.until("luna has ended: exited with 7", "press r to start it again")

    luna.keys("r")

    luna.until("ready", "luna | ", "normal>")
    assert luna.home.ok("status", "luna", "--json").json["present"] is True
    luna.type("exit 8")
    luna.keys("Enter")
    luna.until("luna has ended: exited with 8; 'pal resume luna' starts it again\npress r")  # each time
    luna.keys("r")
    luna.until("ready", "luna | ", "normal>")
    luna.type("exit 0")
    luna.keys("Enter")
    luna.until("luna has ended: exited with 0", "status 0")
    assert "\n".join(luna.lines).count("press r") == 2  # after each failure, not after the exit with 0


def test_detaching_leaves_the_agent_running_and_restores_the_terminal(luna: Pane) -> None:
    luna.keys(MENU, "d")

    luna.until("detached from luna; to attach again, run 'pal attach luna'", "status 0", "$")
    assert luna.flag("alternate_on") == "0"
    assert luna.flag("wrap_flag") == "1"
    assert luna.flag("cursor_flag") == "1"
    assert luna.home.ok("status", "luna", "--json").json["present"] is True


def test_quitting_asks_once_and_exits_with_the_status_of_the_agent(luna: Pane) -> None:
    luna.keys(MENU, "q")
    luna.until_row(-1, "stop luna")
    luna.keys("n")
    luna.until("luna keeps running")

    luna.type("exit 7")
    luna.keys("Enter")

    luna.until("luna has ended: exited with 7", "status 7", "ready")


def test_confirmed_quit_ends_the_agent_politely(pane: Pane) -> None:
    pane.run("pal", "run", "--name", "luna", "--", "sleep", "600", then="; echo status $?")
    pane.until("luna | ", "normal>")

    pane.keys(MENU, "q", "y")

    wait_until(
        lambda: "luna was asked to end" in "\n".join(pane.lines) or "has ended" in "\n".join(pane.lines)
    )
    pane.until("luna has ended: killed by SIG", "status 1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_restores_the_terminal(luna: Pane, number: int) -> None:
    (pid,) = clients_of(luna)

    os.kill(pid, number)

    luna.until("$")
    wait_until(lambda: luna.flag("alternate_on") == "0")
    luna.run("stty", "-a")
    luna.until(" icanon", " echo ", " icrnl")
    assert luna.home.ok("status", "luna", "--json").json["present"] is True


def test_status_line_shows_when_the_bus_is_away_and_back(luna: Pane) -> None:
    luna.home.ok("down")
    luna.until("bus away")
    luna.type("without a bus")
    luna.keys("Enter")
    luna.until("got 'without a bus'")

    luna.home.ok("up")

    wait_until(lambda: "bus away" not in luna.lines[-2])
    luna.until("queue 0")


def test_status_line_shows_when_the_bus_hangs_and_when_it_replies_again(luna: Pane) -> None:
    luna.until("queue 0")

    os.kill(luna.home.pid, signal.SIGSTOP)
    try:
        luna.until("bus away")
    finally:
        os.kill(luna.home.pid, signal.SIGCONT)

    wait_until(lambda: "bus away" not in luna.lines[-2])
    luna.until("queue 0")


def test_status_line_shows_how_many_entries_wait_for_the_person(luna: Pane) -> None:
    luna.until("queue 0")
    nova = luna.home.shell()
    nova.ok("join", "--name", "nova")

    asked = nova.ok("send", "@human", "--intent", "request", "--json", "--", "may I?").json["seq"]

    luna.until("| 1 needs you |")
    check_output(run_as_person(luna.home, "send", "--reply-to", str(asked), "--", "yes"))
    wait_until(lambda: "needs you" not in luna.lines[-2])


def test_status_line_says_why_messages_wait(bus: Home, pane: Pane) -> None:
    record = bus.path.parent / "keys"
    pane.run("pal", "run", "--name", "luna", "--", *program("dialog", str(record), "now"))
    pane.until("Proceed? [y/n]", "queue 0")

    bus.ok("send", "@luna", "--", "look here")

    pane.until("queue 1", "(waits: a dialog is open)")
    wait_until(lambda: pane.lines[-2].startswith(" luna | "))
    assert not record.read_bytes()


def test_show_names_the_file_of_a_message_to_a_terminal(luna: Pane) -> None:
    home = luna.home
    text = "a long text " * 40
    sent = home.ok("send", "@luna", "--json", "--", text).json
    luna.until("Read ")

    shown = home.ok("show", str(sent["seq"])).out.split("\n")
    fields = home.ok("show", str(sent["seq"]), "--json").json

    (file,) = (home.path / "messages" / "luna").iterdir()
    assert f"file {file}" in shown
    assert fields["files"] == {"luna": str(file)}
    assert file.read_text() == f"{text}\n"


def test_message_with_line_ends_is_its_file_without_bracketed_paste(luna: Pane) -> None:
    home = luna.home
    luna.resize(200, 24)
    wait_until(lambda: len(luna.lines[-2]) > 100)

    home.ok("send", "@luna", "--", "one\ntwo\tthree")

    luna.until("got '[pal message #")
    (file,) = (home.path / "messages" / "luna").iterdir()
    luna.until(f"Read {file}'")
    assert file.read_text() == "one\ntwo\tthree\n"


def test_stop_ends_an_interactive_shell_with_a_hangup(bus: Home, pane: Pane) -> None:
    pane.run("pal", "run", "--name", "luna", "--", "bash", "--norc", "-i")
    pane.until("bash-", "luna | ")

    stopped = run_script_as_person(bus, "pal stop luna")

    assert check_output(stopped).out == "luna has ended: killed by SIGHUP\n"
    assert stopped.err == "pal: luna: sent SIGHUP\n"
    pane.until("luna has ended: killed by SIGHUP; 'pal resume luna' starts it again")


def test_status_line_says_that_a_draft_holds_messages_until_it_is_sent(luna: Pane) -> None:
    luna.keys(MENU, "p")
    luna.until("passthrough, queue paused")
    luna.type("half a line")
    luna.until("> half a line")
    luna.home.ok("send", "@luna", "--", "look here")
    luna.until("(waits: its input has a draft)")
    luna.keys(MENU)
    luna.until("(waits: its input has a draft) | input")
    assert "look here" not in "\n".join(luna.lines[:-2])

    luna.keys(MENU, "p")
    luna.until("| passthrough")
    luna.keys("Enter")
    luna.until("got 'half a line'", "(waits: you have the keyboard)")
    luna.keys(MENU)

    luna.until("got 'half a line'", "look here", "queue 0")


def test_status_line_shows_the_role_and_the_folder(bus: Home) -> None:
    with open_pane(bus, 120, 24) as pane:
        folder = bus.path.parent / "api"
        folder.mkdir()
        pane.type(f"HOME={bus.path.parent}; cd ~/api; clear")
        pane.keys("Enter")
        pane.run("pal", "run", "--name", "luna", "--role", "operator", "--", *program("lines"))

        pane.until("ready", "| operator in ~/api ", "Ctrl-\\ menu")


def test_bar_is_normal_again_after_an_interrupt(luna: Pane) -> None:
    luna.keys("Tab")
    luna.until_row(-1, "interrupt>")
    luna.type("stop")
    luna.keys("Enter")

    luna.until("queued as #", "got 'stop'")
    luna.until_row(-1, "normal>")


def test_upgraded_holder_keeps_the_screen(luna: Pane) -> None:
    (holder,) = holders_of(luna.home.path)

    os.kill(holder, signal.SIGUSR2)
    wait_until(lambda: b"--resume-fd" in Path(f"/proc/{holder}/cmdline").read_bytes())
    luna.type("still there?")
    luna.keys("Enter")

    luna.until("got 'still there?'")
    luna.until_row(-1, "normal>")


def test_refusal_is_shown_and_the_line_is_restored(luna: Pane) -> None:
    luna.keys("Tab")
    luna.home.ok("down")
    luna.until("bus away")

    luna.type("urgent")
    luna.keys("Enter")

    luna.until("! the bus is not running")
    luna.until_row(-1, "interrupt> urgent")


def test_new_size_while_scrolled_back_is_drawn_completely(luna: Pane) -> None:
    luna.keys("PPage")
    luna.until("scroll back")

    luna.resize(50, 12)

    luna.until("ready")
    luna.until_row(-2, " luna | ")
    luna.keys("q")
    luna.until_row(-1, "normal>")


CRASHING = """
import os, sys
from palaver.app.attach import attach, session

def broken(*_):
    if console.notice:
        raise ZeroDivisionError("a mistake in the screen")
    return compose(*_)

compose, session.compose = session.compose, broken
console = session.Console("luna")
session.Console = lambda *_, **__: console
sys.exit(attach.attach(os.environ["PALAVER_HOME"], "luna", os.environ))
"""


def test_crash_of_the_screen_restores_the_terminal(luna: Pane) -> None:
    luna.keys(MENU, "d")
    luna.until("detached")
    luna.run(sys.executable, "-I", "-c", CRASHING, then="; echo status $?")
    luna.until_row(-1, "normal>")

    luna.keys("Enter")

    luna.until("ZeroDivisionError: a mistake in the screen", "status 1")
    assert luna.flag("alternate_on") == "0"
    luna.run("stty", "-a")
    luna.until(" icanon", " echo ", " icrnl")


def test_without_a_utf_8_locale_the_screen_is_in_ascii(pane: Pane) -> None:
    pane.run("env", "LANG=C", "pal", "run", "--name", "luna", "--", "printf", "┌─┐ é → end\\n")

    pane.until("+-+ e > end", "luna has ended")


def test_attaching_without_a_terminal_is_refused(luna: Pane) -> None:
    luna.keys(MENU, "d")
    luna.until("detached")

    luna.run("pal", "attach", "luna", then=" | cat")

    luna.until("pal: attach requires a terminal; to print an agent's screen, use 'pal peek'")


def test_plain_attach_gives_the_terminal_to_the_agent(luna: Pane) -> None:
    assert luna.flag("pane_title") == "luna"
    luna.keys(MENU, "d")
    luna.until("detached")
    title = luna.flag("pane_title")
    luna.run("pal", "attach", "luna", "--plain", then="; echo status $?")
    luna.until("ready")

    luna.type("hello")
    luna.keys("Enter")

    luna.until("got 'hello'")
    assert "normal>" not in "\n".join(luna.lines)
    luna.keys(MENU, "d")
    shown = [line for line in luna.until("detached from luna", "status 0") if line]
    detached = "detached from luna; to attach again, run 'pal attach luna'"
    assert shown[:6] == ["ready", "> hello", "got 'hello'", ">", detached, "status 0"]
    assert luna.flag("pane_title") == title != "luna"


def test_plain_attach_to_a_full_screen_program_restores_the_shell(pane: Pane) -> None:
    script = "import sys; print('\\x1b[?1049h\\x1b[2J\\x1b[Hfull', end='', flush=True); sys.stdin.read()"
    pane.run("pal", "run", "--detach", "--name", "luna", "--", sys.executable, "-I", "-c", script)
    pane.until("luna", "$")
    pane.run("pal", "attach", "luna", "--plain")
    pane.until("full")

    pane.keys(MENU, "d")

    shown = pane.until("detached from luna; to attach again, run 'pal attach luna'\n$")
    assert "full" not in shown
    assert int(pane.flag("cursor_y")) < 6


def clients_of(pane: Pane) -> list[int]:
    """Return the processes that show this home's agents, found by their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            surroundings = (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"__run" in words and os.fsencode(f"PALAVER_HOME={pane.home.path}\0") in surroundings:
            found.append(int(entry.name))
    return found


def test_line_in_the_bar_never_approves_a_dialog(bus: Home, pane: Pane) -> None:
    record = bus.path.parent / "keys"
    pane.run("pal", "run", "--name", "luna", "--", *program("dialog", str(record), "now"))
    pane.until("Proceed? [y/n]", "normal>")

    pane.type("looks good")
    pane.keys("Enter")

    pane.until("! a dialog is open")
    pane.until_row(-1, "normal> looks good")
    assert not record.read_bytes()
    assert not [event for event in bus.events("--type", "life") if event["payload"]["action"] == "typed"]


HIDDEN = """
import getpass
print("taken", len(getpass.getpass("Password: ")), flush=True)
input()
"""


def test_password_in_the_bar_is_shown_as_dots_and_stored_nowhere(bus: Home, pane: Pane) -> None:
    pane.run("pal", "run", "--name", "luna", "--", sys.executable, "-I", "-c", HIDDEN)
    pane.until("Password:", "secret input")

    pane.type("hunter2")
    pane.until_row(-1, "normal> •••••••")
    pane.keys("Enter")

    pane.until("taken 7", "| input")
    assert "typed (secret, 7 characters)" in bus.ok("events", "--type", "life").out
    pane.keys("Up")
    pane.type("x")
    pane.until_row(-1, "normal> x")
    assert files_with(bus.path, b"hunter2") == []


SLOW_HIDDEN = """
import getpass, sys, tty, os
print("taken", len(getpass.getpass("Password: ")), flush=True)
tty.setraw(0)
os.write(1, b"API key: ")
key = b""
while not key.endswith(b"\\r"):
    key += os.read(0, 1)
    os.write(1, b"*")
os.write(1, b"\\r\\nkey taken %d\\r\\n" % len(key))
os.read(0, 1)
"""


def test_raw_keys_at_a_hidden_prompt_leave_a_length_and_a_hash(bus: Home) -> None:
    with open_pane(bus) as pane:
        pane.run("pal", "run", "--name", "luna", "--", sys.executable, "-I", "-c", SLOW_HIDDEN)
        # The pane may show the word first as part of the typed command.
        wait_until(lambda: '"secret"' in bus.pal("status", "luna", "--json").out)

        sent = run_script_as_person(bus, r"printf 'hunter2\r' | pal send luna --raw --stdin --json")
        pane.until("taken 7", "API key:")
        drawn = run_script_as_person(bus, r"printf 'sk-98765\r' | pal send luna --raw --stdin")
        pane.until("key taken 9")

    assert check_output(sent).json["state"] == "seen"
    check_output(drawn)
    first, second = (event["payload"] for event in bus.events("--type", "message"))
    assert (first["text"], first["secret"], first["raw"]) == ("secret, 7 characters", 7, "")
    assert (second["text"], second["secret"]) == ("secret, 8 characters", 8)
    assert verify(first["hash"], b"hunter2\r")
    assert not verify(first["hash"], b"hunter3\r")
    for secret in (b"hunter2", base64.b64encode(b"hunter2\r"), b"sk-98765", base64.b64encode(b"sk-98765\r")):
        assert files_with(bus.path, secret) == []
    assert bus.ok("events", "--search", "hunter2").out == ""


def verify(kept: str, keys: bytes) -> bool:
    """Compare keys with their stored hash."""
    _, n, r, p, salt, digest = kept.split("$")
    made = hashlib.scrypt(keys, salt=base64.b64decode(salt), n=int(n), r=int(r), p=int(p), dklen=32)
    return made == base64.b64decode(digest)


def files_with(folder: Path, text: bytes) -> list[str]:
    """Return the files below a folder that contain these bytes."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and text in path.read_bytes()
    ]


CLAUDE = """#!/bin/sh
'''exec' {python} -I "$0" "$@"
'''
import os, signal, sys, tty
tty.setraw(0)
record = os.open({record!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def size(*_):
    columns, rows = os.get_terminal_size(0)
    os.write(1, b"\\r\\nsize %dx%d" % (columns, rows))
signal.signal(signal.SIGWINCH, size)
os.write(1, b"\\x1b[?2004h\\x1b[?1000h\\x1b[?1006hready")
size()
while data := os.read(0, 4096):
    os.write(record, data)
"""


@pytest.mark.parametrize("harness", ["claude", "codex", "opencode"])
def test_harness_starts_with_the_keyboard_and_one_key_opens_the_bar(
    bus: Home, pane: Pane, harness: str
) -> None:
    write_settings(bus, agent_commands="no")
    record = bus.path.parent / "keys"
    folder = bus.path.parent / "harness"
    folder.mkdir()
    (folder / harness).write_text(CLAUDE.format(python=shlex.quote(sys.executable), record=str(record)))
    (folder / harness).chmod(0o755)
    pane.type(f"PATH={folder}:$PATH")
    pane.keys("Enter")
    options = ["--no-hooks"] if harness == "codex" else []
    pane.run("pal", harness, "--name", "luna", *options)
    pane.until("ready", "keys to the agent", "Ctrl-\\ opens the message bar")
    wait_until(lambda: (pane.flag("mouse_any_flag"), pane.flag("mouse_sgr_flag")) == ("1", "1"))

    pane.keys("/", "@", "BTab", "Escape")

    wait_until(lambda: record.exists() and record.read_bytes() == b"/@\x1b[Z\x1b")
    pane.paste("two\nlines")
    wait_until(lambda: record.read_bytes().endswith(b"\x1b[200~two\rlines\x1b[201~"))
    typed = record.read_bytes()
    pane.keys(MENU)
    pane.until("Esc back, Ctrl-\\ menu")
    pane.until_row(-1, "normal>")
    pane.type("to the bar")
    pane.until_row(-1, "normal> to the bar")
    assert record.read_bytes() == typed
    pane.keys("Escape")
    pane.until("keys to the agent")
    pane.keys("x")
    wait_until(lambda: record.read_bytes() == typed + b"x")
    pane.resize(60, 20)
    pane.until("size 60x18", "keys to the agent")
    pane.keys(MENU, MENU, "d")
    pane.until("detached from luna")


def test_ctrl_z_in_a_harness_suspends_pal_and_fg_comes_back(bus: Home, pane: Pane) -> None:
    write_settings(bus, agent_commands="no")
    record = bus.path.parent / "keys"
    folder = bus.path.parent / "harness"
    folder.mkdir()
    (folder / "claude").write_text(CLAUDE.format(python=shlex.quote(sys.executable), record=str(record)))
    (folder / "claude").chmod(0o755)
    pane.type(f"PATH={folder}:$PATH")
    pane.keys("Enter")
    pane.run("pal", "claude", "--name", "luna")
    pane.until("ready", "keys to the agent")

    pane.keys("a", "C-z")

    pane.until("Stopped", "$")
    assert pane.flag("alternate_on") == "0"
    assert pane.flag("mouse_any_flag") == "0"
    pane.type("fg")
    pane.keys("Enter")
    pane.until("ready", "keys to the agent")
    pane.keys("b")
    wait_until(lambda: record.read_bytes() == b"ab")
    pane.keys(MENU, MENU, "d")
    pane.until("detached from luna")


def test_ctrl_z_without_a_shell_leaves_the_screen_as_it_is(bus: Home, pane: Pane) -> None:
    write_settings(bus, agent_commands="no")
    record = bus.path.parent / "keys"
    folder = bus.path.parent / "harness"
    folder.mkdir()
    (folder / "claude").write_text(CLAUDE.format(python=shlex.quote(sys.executable), record=str(record)))
    (folder / "claude").chmod(0o755)
    pane.type(f"PATH={folder}:$PATH")
    pane.keys("Enter")
    pane.type("clear; exec pal claude --name luna")
    pane.keys("Enter")
    pane.until("ready", "keys to the agent")

    pane.keys("C-z", "b")

    wait_until(lambda: record.exists() and record.read_bytes() == b"b")
    pane.until("ready", "keys to the agent")


def test_ended_harness_is_reported_with_the_command_that_continues_it(bus: Home, pane: Pane) -> None:
    write_settings(bus, agent_commands="no")
    folder = bus.path.parent / "harness"
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\necho ready; read x; exit 7\n")
    (folder / "claude").chmod(0o755)
    pane.type(f"PATH={folder}:$PATH")
    pane.keys("Enter")
    pane.run("pal", "claude", "--name", "luna")
    pane.until("ready", "keys to the agent")

    pane.keys("Enter")

    pane.until(
        "luna has ended: exited with 7; 'pal resume luna' starts it again", "press r to start it again"
    )
    pane.keys("q")
    pane.until("(10 s)\n$")
    pane.run("pal", "resume", "luna")
    pane.until("ready", "luna |", "keys to the agent")
    pane.keys("Enter")
    pane.until("luna has ended: exited with 7", "press r")
    pane.keys("r")
    pane.until("ready", "luna |", "keys to the agent")
    assert pane.home.ok("status", "luna", "--json").json["present"] is True
    pane.keys("Enter")
    pane.until("press r")
    pane.keys("q")
    pane.until("(10 s)\n$")
