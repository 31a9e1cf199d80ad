"""Showing an agent in a new window: the command of each terminal, and real windows of those that are here."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import Home, new_home, run_as_person, wait_until
from tests.holder.stage import PROGRAMS

from palaver.app.window import TERMINALS, open_window, window_command
from palaver.config import settings_from
from palaver.errors import BadRequest, Unavailable

PAL = ["/opt/my tools/pal", "--home", "/a;b", "attach", "luna"]

ROWS: dict[str, tuple[Mapping[str, str], list[str]]] = {
    "tmux": (
        {"TMUX": "/tmp/tmux-0/default,12,0", "KITTY_WINDOW_ID": "1"},
        ["tmux", "new-window", "-n", "luna", "--", *PAL],
    ),
    "kitty, with remote control": (
        {"KITTY_LISTEN_ON": "unix:/tmp/kitty", "KITTY_WINDOW_ID": "1"},
        ["kitty", "@", "launch", "--type=os-window", "--os-window-title", "luna", "--title", "luna", *PAL],
    ),
    "kitty": ({"KITTY_WINDOW_ID": "1"}, ["kitty", "--detach", "--title", "luna", *PAL]),
    "WezTerm": ({"WEZTERM_PANE": "0"}, ["wezterm", "cli", "spawn", "--new-window", "--", *PAL]),
    "iTerm2": (
        {"TERM_PROGRAM": "iTerm.app"},
        [
            *("osascript", "-e", "on run argv", "-e", 'tell application "iTerm2"'),
            *("-e", "set made to (create window with default profile command (item 1 of argv))"),
            *("-e", "tell current session of made to set name to (item 2 of argv)"),
            *("-e", "end tell", "-e", "end run"),
            *("'/opt/my tools/pal' --home '/a;b' attach luna", "luna"),
        ],
    ),
    "Windows Terminal": (
        {"WT_SESSION": "8a3c", "WSL_DISTRO_NAME": "Debian"},
        [
            *("wt.exe", "-w", "0", "new-tab", "--title", "luna", "--suppressApplicationTitle"),
            *("wsl.exe", "-d", "Debian", "--exec", PAL[0], "--home", "/a\\;b", "attach", "luna"),
        ],
    ),
    "GNOME Terminal": (
        {"GNOME_TERMINAL_SCREEN": "/org/gnome/Terminal/screen/1"},
        ["gnome-terminal", "--window", "--title", "luna", "--", *PAL],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_terminal_gets_the_command_as_arguments(name: str) -> None:
    environment, expected = ROWS[name]

    assert window_command("luna", PAL, environment) == expected


def test_every_terminal_has_a_test() -> None:
    assert [terminal.name for terminal in TERMINALS] == list(ROWS)


@pytest.mark.parametrize(
    "environment",
    [{}, {"TMUX": "", "TERM": "xterm"}, {"WT_SESSION": "8a3c"}, {"TERM_PROGRAM": "Apple_Terminal"}],
)
def test_unknown_terminal_is_refused_with_the_setting_to_use(environment: Mapping[str, str]) -> None:
    with pytest.raises(Unavailable, match=r"pal config set window 'xterm -T \{name\} -e \{command\}'"):
        window_command("luna", PAL, environment)


def test_setting_of_the_user_takes_precedence() -> None:
    made = window_command("luna", PAL, {"TMUX": "x"}, "foot -T 'agent {name}' {command}")

    assert made == ["foot", "-T", "agent luna", *PAL]


@pytest.mark.parametrize("value", ["xterm", "xterm -e{command}", "xterm '{command}", "{name}"])
def test_setting_without_a_command_is_refused(value: str) -> None:
    with pytest.raises(BadRequest, match=r"the word \{command\}"):
        settings_from({"window": value})


def test_launcher_that_is_missing_is_reported_with_the_way_to_the_agent(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('window = "/nowhere/xterm {command}"\n')

    with pytest.raises(Unavailable, match=r"/nowhere/xterm opened no window: .*pal attach luna"):
        open_window(str(tmp_path), "luna", os.environ)


def test_launcher_that_fails_is_reported_with_its_error(tmp_path: Path) -> None:
    script = "echo no display >&2; exit 3"
    (tmp_path / "config.toml").write_text(f"window = \"sh -c '{script}' {{command}}\"\n")

    with pytest.raises(Unavailable, match="sh opened no window: no display; luna is running"):
        open_window(str(tmp_path), "luna", os.environ)


# With a bus, and with tmux


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


class Tmux:
    """A server of tmux with one window, on a private socket."""

    def __init__(self, home: Home) -> None:
        self._socket = home.path.parent / "tmux"
        self._environment = {**home.environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}

    def run(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True)
        return done.stdout

    def titles(self) -> dict[str, str]:
        """Return the title of each window, by its name."""
        lines = self.run("list-windows", "-F", "#{window_name} #{pane_title}").splitlines()
        return dict(line.split(" ", 1) for line in lines)


@pytest.fixture
def tmux(home: Home, person: Person) -> Iterator[Tmux]:
    made = Tmux(home)
    made.run("new-session", "-d", "-n", "first", "-x", "100", "-y", "30", "bash --norc --noprofile")
    try:
        yield made
    finally:
        made.run("kill-server")


def lines() -> str:
    return shlex.join([sys.executable, "-I", str(PROGRAMS / "lines.py")])


def test_agent_is_shown_in_a_new_window_of_tmux(tmux: Tmux, home: Home) -> None:
    tmux.run("send-keys", "-t", "first", f"pal run --window --name luna -- {lines()}", "Enter")

    wait_until(lambda: tmux.titles().get("luna") == "luna")
    wait_until(lambda: "ready" in tmux.run("capture-pane", "-p", "-t", "luna"))
    assert list(tmux.titles()) == ["first", "luna"]
    wait_until(lambda: "luna\n" in tmux.run("capture-pane", "-p", "-t", "first"))

    tmux.run("kill-window", "-t", "luna")

    assert home.ok("list", "--json").lines[0]["name"] == "luna"
    tmux.run("send-keys", "-t", "first", "pal attach luna --window", "Enter")
    wait_until(lambda: "luna" in tmux.titles())


# With the terminals of a desktop, on a display in memory

DESKTOP: dict[str, list[str]] = {
    "kitty": ["kitty"],
    "kitty, with remote control": [
        *("kitty", "-o", "allow_remote_control=socket-only", "--listen-on", "unix:{home}/kitty"),
    ],
    "GNOME Terminal": ["dbus-run-session", "--", "gnome-terminal", "--wait", "--"],
}
"""How a person opens the first window of each terminal, without the program that runs in it."""


class Display:
    """The windows of a display, and a person's keyboard."""

    def __init__(self, name: str) -> None:
        self.name = name

    def xdotool(self, *words: str) -> str:
        """Run one command; a search that finds nothing prints nothing."""
        environment = {"PATH": os.environ["PATH"], "DISPLAY": self.name}
        done = subprocess.run(["xdotool", *words], env=environment, capture_output=True, check=False)
        return done.stdout.decode()

    def window(self, title: str) -> str:
        """Return the id of the window with this title; empty if there is none."""
        return self.xdotool("search", "--onlyvisible", "--name", f"^{title}$").strip()


@contextmanager
def display() -> Iterator[Display]:
    """Run a display. The programs on it end with it."""
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1280x800x24", "-nolisten", "tcp"],
        pass_fds=[writing],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with open(reading, "rb") as file:
            number = file.readline().decode().strip()
        yield Display(f":{number}")
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("name", DESKTOP)
def test_agent_is_shown_in_a_new_window_of_a_desktop(name: str, person: Person, home: Home) -> None:
    words = [word.format(home=home.path) for word in DESKTOP[name]]
    needed = {"Xvfb", "xdotool", words[0], "kitty" if "kitty" in words else "gnome-terminal"}
    if missing := sorted(program for program in needed if shutil.which(program) is None):
        pytest.skip(f"A WINDOW OF {name} WAS NOT TESTED: install {', '.join(missing)}")
    (home.path.parent / "start.sh").write_text(
        f"pal run --window --name luna -- {lines()} >said.new 2>&1\nmv said.new said\nexec cat\n"
    )
    record = home.path.parent / "said"

    with display() as screen:
        person.run(f"DISPLAY={screen.name} {shlex.join(words)} sh start.sh >terminal.log 2>&1")
        wait_until(record.exists)
        assert record.read_text() == "luna\n"
        wait_until(lambda: screen.window("luna"))

        def has_answered() -> bool:
            # Keys before the screen of the agent is there are lost, so they are typed again.
            screen.xdotool("windowfocus", "--sync", screen.window("luna"), "type", "hello\n")
            return "got 'hello'" in home.ok("peek", "luna").out

        wait_until(has_answered)

    person.until(b"status ")
    assert home.ok("list", "--names").out == "luna\n"


def test_without_a_known_terminal_nothing_is_started(home: Home) -> None:
    refused = run_as_person(home, "run", "--window", "--name", "luna", "--", "sleep", "60")

    assert refused.status == 1
    assert "pal config set window" in refused.err
    assert home.ok("list", "--json").lines == []


def test_setting_opens_the_window_of_another_terminal(person: Person, home: Home) -> None:
    shown = home.path.parent / "shown"
    opener = home.path.parent / "opener"
    opener.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{shown}.new\nmv {shown}.new {shown}\n')
    opener.chmod(0o755)
    person.output_of(f"pal config set window '{opener} {{name}} {{command}}'")

    person.output_of(f"pal run --window --name luna -- {lines()}")

    title, pal, *rest = shown.read_text().splitlines()
    assert (title, Path(pal).name) == ("luna", "pal")
    assert rest == ["--home", str(home.path), "attach", "luna"]


def test_agent_cannot_open_a_window(home: Home) -> None:
    luna = home.shell()
    luna.ok("join", "--name", "luna")

    refused = luna.pal("run", "--window", "--json", "--", "true")

    assert refused.error["error"] == "not_allowed"
    assert "only a person can open a window" in refused.error["message"]


def test_window_cannot_be_combined_with_detach(home: Home) -> None:
    refused = home.pal("claude", "--window", "--detach")

    assert refused.status == 2
    assert "--window" in refused.err
