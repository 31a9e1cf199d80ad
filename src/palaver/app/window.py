"""Open a new window of the user's terminal that shows an agent.

The terminal is found by the variables that it sets. Each launcher gets the command as separate arguments, so
no text passes through a shell. The window runs `pal attach`: the agent itself was started before, with the
environment of the caller, and keeps running when the window is closed.
"""

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palaver.config import COMMAND_SLOT, NAME_SLOT, load, split_command
from palaver.errors import Unavailable
from palaver.home import find_pal

_START_LIMIT_S: Final = 10.0
"""Seconds that a launcher has to fail. One that still runs then is the terminal itself."""
_LIMIT_ERROR_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalProgram:
    """One terminal program: how to recognize it, and its command for a new window."""

    name: str
    is_here: Callable[[Mapping[str, str]], bool]
    command: Callable[[str, Sequence[str], Mapping[str, str]], list[str]]
    """Returns the launcher's arguments for a title, the arguments to run, and the environment."""


_ITERM: Final = (
    "on run argv",
    'tell application "iTerm2"',
    "set made to (create window with default profile command (item 1 of argv))",
    "tell current session of made to set name to (item 2 of argv)",
    "end tell",
    "end run",
)


def _iterm(title: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command for iTerm2, which takes one line and splits it at unquoted blanks."""
    script = [part for line in _ITERM for part in ("-e", line)]
    return ["osascript", *script, shlex.join(words), title]


def _windows(title: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command for Windows Terminal, which reads a semicolon as the start of its next command."""
    tab = ["wt.exe", "-w", "0", "new-tab", "--title", title, "--suppressApplicationTitle"]
    inside = ["wsl.exe", "-d", environment["WSL_DISTRO_NAME"], "--exec", *words]
    return [*tab, *(word.replace(";", "\\;") for word in inside)]


TERMINALS: Final = (
    TerminalProgram(
        name="tmux",
        is_here=lambda variables: bool(variables.get("TMUX")),
        command=lambda title, words, _: ["tmux", "new-window", "-n", title, "--", *words],
    ),
    TerminalProgram(
        name="kitty, with remote control",
        is_here=lambda variables: bool(variables.get("KITTY_LISTEN_ON")),
        command=lambda title, words, _: [
            *("kitty", "@", "launch", "--type=os-window", "--os-window-title", title, "--title", title),
            *words,
        ],
    ),
    TerminalProgram(
        name="kitty",
        is_here=lambda variables: bool(variables.get("KITTY_WINDOW_ID")),
        command=lambda title, words, _: ["kitty", "--detach", "--title", title, *words],
    ),
    TerminalProgram(
        name="WezTerm",
        is_here=lambda variables: bool(variables.get("WEZTERM_PANE")),
        command=lambda title, words, _: ["wezterm", "cli", "spawn", "--new-window", "--", *words],
    ),
    TerminalProgram(
        name="iTerm2",
        is_here=lambda variables: variables.get("TERM_PROGRAM") == "iTerm.app",
        command=_iterm,
    ),
    TerminalProgram(
        name="Windows Terminal",
        is_here=lambda variables: bool(variables.get("WT_SESSION") and variables.get("WSL_DISTRO_NAME")),
        command=_windows,
    ),
    TerminalProgram(
        name="GNOME Terminal",
        is_here=lambda variables: bool(variables.get("GNOME_TERMINAL_SCREEN")),
        command=lambda title, words, _: ["gnome-terminal", "--window", "--title", title, "--", *words],
    ),
)
"""The known terminals. The first one that is here is used: tmux runs inside another terminal.

WezTerm has no option for a title; `pal attach` sets the title in every terminal.
"""


def window_command(
    name: str, words: Sequence[str], environment: Mapping[str, str], setting: str = ""
) -> list[str]:
    """Return the command that opens a window with this title and runs `words` in it. Raises Unavailable.

    `setting` is the user's own command, with `{name}` and `{command}` in it; it takes precedence.
    """
    if setting:
        parts = [
            [one.replace(NAME_SLOT, name)] if one != COMMAND_SLOT else words for one in split_command(setting)
        ]
        return [word for part in parts for word in part]
    for terminal in TERMINALS:
        if terminal.is_here(environment):
            return terminal.command(name, words, environment)
    known = ", ".join(dict.fromkeys(one.name.partition(",")[0] for one in TERMINALS))
    raise Unavailable(
        f"this is not a terminal in which --window can open a window ({known}); for another one use 'pal "
        "config set window', such as: pal config set window 'xterm -T {name} -e {command}'"
    )


def attach_words(home: str, name: str) -> list[str]:
    """Return the command that shows an agent."""
    return [find_pal(), "--home", home, "attach", name]


def check_window(home: str, environment: Mapping[str, str]) -> None:
    """Raise Unavailable if no window can be opened, before anything is started."""
    window_command("name", attach_words(home, "name"), environment, _setting(home))


def open_window(home: str, name: str, environment: Mapping[str, str]) -> None:
    """Show an agent in a new window. Raises Unavailable."""
    command = window_command(name, attach_words(home, name), environment, _setting(home))
    with tempfile.TemporaryFile() as errors:
        try:
            launcher = subprocess.Popen(
                command,
                # A launcher must not read the keys of this terminal.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=dict(environment),
                start_new_session=True,  # a terminal that stays is not ended by keys in this one
            )
            # Most launchers end as soon as the window is open, and their status says whether it is.
            status = launcher.wait(_START_LIMIT_S)
        except subprocess.TimeoutExpired:
            return
        except OSError as error:
            raise Unavailable(_failed(name, command[0], error.strerror or str(error))) from error
        if status:
            errors.seek(0)
            text = errors.read(_LIMIT_ERROR_BYTES).decode("utf-8", "replace").strip()
            raise Unavailable(_failed(name, command[0], text or f"it exited with {status}"))


def _failed(name: str, program: str, reason: str) -> str:
    return f"{program} opened no window: {reason}; {name} is running: pal attach {name}"


def _setting(home: str) -> str:
    return load(Path(home), {}).settings.window
