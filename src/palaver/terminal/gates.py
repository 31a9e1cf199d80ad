"""Decide whether a key may be written to a terminal now: by the program that reads it, and by the screen."""

import enum
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from palaver.harness.base import OPEN, Gate, Prompt
from palaver.protocol.events import AgentState
from palaver.terminal.keyboard import HUMAN_QUIET_MS, HUMAN_SHOWN_MS
from palaver.terminal.screen import Composer, ScreenState

# --------------------
# Recognise programs that would run typed text as commands, or forward it to such a program. Pure.
#
# A program is judged by all of its names: its file, the name that the system shows, and its first argument.
# If the meaning of its options is not certain, it counts as a shell that reads commands.

_POSIX: Final = frozenset(
    {
        *("sh", "bash", "rbash", "dash", "ash", "hush", "posh", "yash", "zsh", "rzsh"),
        *("ksh", "rksh", "ksh93", "rksh93", "ksh2020", "pdksh", "mksh", "lksh", "oksh", "loksh"),
    }
)
_OTHERS: Final = frozenset(
    {*("fish", "csh", "tcsh", "nu", "pwsh", "powershell", "elvish", "xonsh", "osh", "ysh", "oil", "rc", "es")}
)
SHELLS: Final = _POSIX | _OTHERS
"""Shells. They run every line that they read, unless they were started with a script or a command."""

HANDING_ON: Final = frozenset(
    {
        *("tmux", "screen", "zellij", "byobu", "tmate", "dtach", "abduco", "dvtm", "mtm", "reptyr"),
        *("script", "expect", "unbuffer", "rlwrap", "winpty", "asciinema", "ttyrec", "ptyget", "empty"),
        *("ssh", "autossh", "sshpass", "mosh", "mosh-client", "et", "telnet", "rlogin", "rsh", "plink"),
        *("socat", "nc", "ncat", "netcat", "cu", "tip", "minicom", "picocom", "conspy"),
        *("docker", "podman", "nerdctl", "kubectl", "oc", "lxc", "lxc-attach", "incus", "vagrant"),
        *(
            "crictl",
            "ctr",
            "nomad",
            "virsh",
            "adb",
            "tsh",
            "fly",
            "flyctl",
            "heroku",
            "session-manager-plugin",
        ),
        *("machinectl", "systemd-run", "systemd-nspawn", "toolbox", "distrobox", "flatpak", "wsl"),
        *("su", "sudo", "doas", "pkexec", "runuser", "run0", "sg", "newgrp", "login", "agetty"),
        *("unshare", "nsenter", "chroot", "fakechroot", "proot", "bwrap", "firejail"),
    }
)
"""Programs that own another terminal or start another user's shell: we cannot see what reads there."""

_FLAGS: Final = frozenset("abefhklmnprtuvxBCDEHPT")
"""Single-letter options without a value that do not change where commands are read from.

Not `-s`: with it a shell reads commands from its terminal although it has arguments.
"""
_LONG_FLAGS: Final = frozenset(
    {
        *("--login", "--norc", "--noprofile", "--posix", "--restricted", "--verbose", "--noediting"),
        *("--debugger", "--protected"),
    }
)
_LONG_WITH_VALUE: Final = frozenset({"--rcfile", "--init-file"})
_DEVICES: Final = ("/dev/", "/proc/")
_VARIANT: Final = re.compile(r"(?:-static|-preview|-lts|-?\d[\d.]*)+\Z")
"""The end of a name such as `bash-static`, `zsh-5.9` or `pwsh-preview`: packages of the same program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramNames:
    """The names of one process."""

    argv: tuple[str, ...]
    name: str = ""
    """The name that the system shows."""
    program: str = ""
    """The path of its file; empty if it is not visible."""
    shell: str = ""
    """The name of the shell that its file is a copy of; empty if it is not a known shell."""


def names_of(process: ProgramNames) -> set[str]:
    """Return every name of a process: its file, the name that the system shows, and its first argument.

    A name that ends in a version or the like is also returned without it.
    """
    given = _base(process.argv[0]) if process.argv else ""
    # Some programs change their name and add their role, such as `tmux: client`.
    names = {_base(process.program), _base(process.name).partition(":")[0], given, process.shell}
    return names | set(map(_plain, names))


def is_shell(process: ProgramNames) -> bool:
    """Return whether a shell might run the text that is typed into it: itself or a program it forwards to."""
    names = names_of(process)
    # GNU screen calls its background process SCREEN.
    return bool(names & HANDING_ON) or "SCREEN" in names or reads_commands(process)


def reads_commands(process: ProgramNames) -> bool:
    """Return whether it is a shell that would run the text that is typed into it."""
    names = names_of(process)
    words = list(process.argv[1:])
    shells = names & SHELLS
    if "busybox" in names and not shells and words:
        # `busybox sh` runs the program that its first argument names.
        shells = {words.pop(0)} & SHELLS
    if not shells:
        return False
    is_own_file = bool({_plain(_base(process.program)), process.shell} & SHELLS)
    # If an interpreter runs the shell, the options of the shell start after its name.
    for index, word in enumerate(words):
        if not is_own_file and {_base(word), _plain(_base(word))} & shells:
            words = words[index + 1 :]
            break
    return _reads_commands(words) if shells <= _POSIX else _reads_commands_elsewhere(words)


def _reads_commands(words: list[str]) -> bool:
    """Return whether a shell of the Bourne family reads its commands from the terminal."""
    has_command = False
    while words:
        word = words.pop(0)
        if word in ("-", "--"):
            # These end the options: the next word is the script. Without one the shell reads commands.
            return not words or (not has_command and _is_terminal(words[0]))
        if word in _LONG_WITH_VALUE:
            del words[:1]
        elif word.startswith("--"):
            # An unknown option may take the next word as its value, so that word is not certainly a script.
            if word not in _LONG_FLAGS:
                return True
        elif word.startswith(("-", "+")):
            letters = word[1:]
            if word[0] == "-" and "c" in letters:
                has_command = True  # the command is the first argument that is not an option
                letters = letters.replace("c", "")
            # `-o` and `-O` take the next word as their value. Several in one word count as uncertain below.
            values = sum(letter in "oO" for letter in letters)
            if not set(letters) - {"o", "O"} <= _FLAGS or values > 1:
                return True
            del words[:values]
        else:
            return not has_command and _is_terminal(word)
    return True


def _reads_commands_elsewhere(words: list[str]) -> bool:
    """Return the same for other shells. Only a script or `-c COMMAND` as first argument is certain."""
    if not words:
        return True
    if words[0] == "-c":
        # With more words it is not certain that the shell ends after the command.
        return len(words) != 2
    return words[0].startswith(("-", "+")) or _is_terminal(words[0])


def _is_terminal(script: str) -> bool:
    """Return whether a script name is a device such as `/dev/stdin`, not a file."""
    return script.startswith(_DEVICES)


def _plain(name: str) -> str:
    """Return a name without a version or the like at its end."""
    return _VARIANT.sub("", name)


def _base(path: str) -> str:
    # The system adds ` (deleted)` once the file was replaced, and a login shell has a name such as `-bash`.
    return path.removesuffix(" (deleted)").rsplit("/", 1)[-1].lstrip("-")


# --------------------
# Recognise copies of known shells under other names by comparing files. Changes nothing.
#
# This runs before every key, so results are cached. Files of different size are not read.

FOLDERS: Final = ("/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")

_MANY: Final = "busybox"
"""One file that contains many programs; its arguments select one."""
_PIECE_BYTES: Final = 65536


def shell_of(pid: int, folders: tuple[str, ...] = FOLDERS) -> str:
    """Return the name of the shell whose file a process runs; empty if no shell in the folders matches."""
    path = f"/proc/{pid}/exe"
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every key
    # It has ended, or it belongs to another user. Its other names are still compared.
    except OSError:
        return ""
    return _shell_like(path, found.st_size, (found.st_dev, found.st_ino, found.st_mtime_ns), folders)


@lru_cache(maxsize=256)
def _shell_like(path: str, size: int, _mark: tuple[int, int, int], folders: tuple[str, ...]) -> str:
    """Compare a file with the shells of its size. `_mark` tells it from an earlier file at the path."""
    alike = _shells_in(folders).get(size, {})
    return next((name for shell, name in alike.items() if _are_equal(path, shell)), "")


# Read only once: a copy of a shell that is installed later is recognised by its name at most.
@lru_cache(maxsize=8)
def _shells_in(folders: tuple[str, ...]) -> dict[int, dict[str, str]]:
    """Return the paths of all shells with their names, grouped by file size."""
    found: dict[int, dict[str, str]] = {}
    for folder in folders:
        for name in (*sorted(SHELLS), _MANY):
            # Many names are links to one file. The name of that file says which shell it is.
            path = os.path.realpath(f"{folder}/{name}")
            real = path.rpartition("/")[2]
            try:
                size = os.stat(path).st_size  # noqa: PTH116 - as above
            except OSError:
                continue
            found.setdefault(size, {}).setdefault(path, real if real == _MANY or real in SHELLS else name)
    return found


def _are_equal(path: str, other: str) -> bool:
    try:
        with open(path, "rb") as one, open(other, "rb") as two:  # noqa: PTH123 - as above
            while piece := one.read(_PIECE_BYTES):
                if piece != two.read(_PIECE_BYTES):
                    return False
            return not two.read(1)
    except OSError:
        return False


# --------------------
# Recognise programs that interpret every key as a command: editors, pagers, monitors, file managers. Pure.
#
# They fill the screen and have no composer; some request bracketed paste. A text typed into one could delete
# lines, end processes or run commands. A program is judged by all of its names.

COMMANDED: Final = frozenset(
    {
        *("vi", "vim", "nvim", "view", "vimdiff", "rvim", "rview", "ex", "elvis", "nvi", "vile", "neovim"),
        *(
            "nano",
            "rnano",
            "pico",
            "emacs",
            "emacsclient",
            "mg",
            "zile",
            "jed",
            "joe",
            "jmacs",
            "jstar",
            "jpico",
        ),
        *("micro", "ne", "mcedit", "hx", "helix", "kak", "ed", "red", "hexedit", "visudo", "vipw", "vigr"),
        *(
            "less",
            "more",
            "most",
            "pg",
            "man",
            "info",
            "pinfo",
            "bat",
            "batcat",
            "moar",
            "ov",
            "tig",
            "delta",
        ),
        *("top", "htop", "btop", "bpytop", "atop", "iotop", "iftop", "nethogs", "nvtop", "glances", "watch"),
        *("mc", "ranger", "nnn", "lf", "vifm", "yazi", "ncdu", "fzf", "sk", "dialog", "whiptail"),
        *("lazygit", "gitui", "lazydocker", "k9s", "cfdisk", "alsamixer", "nmtui", "aptitude", "dselect"),
        *("w3m", "lynx", "links", "elinks", "mutt", "neomutt", "alpine", "newsboat"),
    }
)
"""Names of programs that fill the screen and interpret each key as a command."""


def takes_commands(process: ProgramNames) -> bool:
    """Return whether a program would interpret typed text as commands.

    Names are compared up to the first dot (`vim.basic`), and Emacs up to the first hyphen (`emacs-nox`).
    """
    names = {name.partition(".")[0] for name in names_of(process)}
    return bool(names & COMMANDED) or any(name.startswith("emacs-") for name in names)


# --------------------
# The gates themselves. Pure: the result depends only on the arguments.
#
# A gate opens only on positive proof; if something is unknown, it stays closed. The caller must write in the
# same step, without awaiting in between, because the result is valid only at that instant.

# Holders report these words to the daemon (`GateOp`), which may have another version: do not rename them.
REASONS: Final = (
    *("exited", "gone", "shell", "foreground", "tool"),
    *("secret", "unreadable", "dialog", "compacting", "starting", "deaf", "passthrough", "human"),
    *("draft", "composer", "prompt"),
)
"""Every reason of a closed gate. If several apply, the first one is reported."""

PASSING: Final = frozenset({"unreadable", "composer", "deaf", "human"})
"""Reasons that often go away within a second: a half-drawn frame, a key just pressed."""


class Foreground(enum.StrEnum):
    """The kind of program that reads input from the terminal."""

    AGENT = "agent"
    SHELL = "shell"
    OTHER = "other"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """Facts that the screen does not show, valid only in the step in which they were read."""

    now_ms: int
    foreground: Foreground
    has_tool: bool = False
    """A process other than the agent waits for input: a tool that the agent started."""
    is_unproven: bool = False
    """No process is known to be the agent yet, and a child of the started program waits for input."""
    is_passthrough: bool = False
    """A person has taken the keyboard."""
    is_secret: bool = False
    """The terminal reads a line without echo: the program asks for a secret."""
    has_unread: bool = False
    """Earlier input is still in the terminal: the program has not read it."""
    is_reading: bool = True
    """False if it is certain that no process waits for input."""
    is_waiting: bool = False
    """True if it is certain that the agent waits for input."""
    is_raw: bool = False
    """The program reads single keys (the terminal is not in line mode)."""
    edits_lines: bool = False
    """The agent has loaded a library that reads single keys and edits whole lines (readline)."""
    takes_commands: bool = False
    """An editor, pager or similar program without a known composer is in front: keys are commands."""


def check(look: ScreenState, facts: GateFacts, *, ours: bool = False, needs_reader: bool = True) -> Gate:
    """Return whether text or Enter may be written. `ours`: the draft in the composer is our own.

    `needs_reader`: false for keys that the terminal itself acts on, such as Ctrl-C. If several of the
    `REASONS` apply, the first one is reported.
    """
    # The program first: a screen that another program has drawn says nothing about the agent.
    closed = (
        _check_process(look, facts)
        or _check_screen(look, facts, needs_reader=needs_reader)
        or _check_person(look, facts)
        or _check_composer(look, facts, ours=ours)
        or _check_prompt(look, facts, ours=ours, needs_reader=needs_reader)
    )
    return Gate(is_open=False, reason=closed) if closed else OPEN


def check_raw(look: ScreenState, facts: GateFacts) -> Gate:
    """Return whether a person's own bytes may be written: the agent's process must be in the foreground."""
    closed = _check_process(look, facts)
    return Gate(is_open=False, reason=closed) if closed else OPEN


def _check_process(look: ScreenState, facts: GateFacts) -> str:
    # After session_end the program may still run: raw keys stay possible, and `_check_screen` stops messages.
    if look.state is AgentState.EXITED and look.reason != "session_end":
        return "exited"
    match facts.foreground:
        case Foreground.AGENT:
            return ""
        case Foreground.SHELL:
            return "shell"
        case Foreground.GONE:
            return "gone"
        case Foreground.OTHER:
            return "foreground"


def _check_screen(look: ScreenState, facts: GateFacts, *, needs_reader: bool) -> str:
    # A tool would read our text as its own input, for example as an answer to a prompt.
    if facts.has_tool or (facts.is_unproven and not look.is_named_prompt):
        return "tool"
    if facts.is_secret:
        return "secret"
    if not look.is_readable:
        return "unreadable"
    if look.has_dialog or look.state is AgentState.BLOCKED:
        return "dialog"
    if look.reason == "compacting":
        return "compacting"
    if look.state is AgentState.STARTING:
        return "starting"
    if look.state is AgentState.EXITED:
        return "exited"
    # Text that no process reads now would be joined with later input.
    if facts.has_unread or (needs_reader and not facts.is_reading):
        return "deaf"
    # A program without any output counts as idle, but it has not shown yet that it has started.
    return "" if look.has_started else "starting"


def _check_person(look: ScreenState, facts: GateFacts) -> str:
    if facts.is_passthrough:
        return "passthrough"
    # However long it stalls: the program may show nothing of a paste before its end.
    if look.is_pasting:
        return "human"
    if look.human_key_ms is None:
        return ""
    # Until the program has shown the effect of a key, the draft on the screen may be incomplete.
    since_ms = facts.now_ms - look.human_key_ms
    is_shown = look.output_ms is not None and look.output_ms >= look.human_key_ms
    return "human" if since_ms < (HUMAN_QUIET_MS if is_shown else HUMAN_SHOWN_MS) else ""


def _check_composer(look: ScreenState, facts: GateFacts, *, ours: bool) -> str:
    if facts.takes_commands:
        return "composer"
    if look.composer is Composer.EMPTY or (ours and look.composer is Composer.DRAFT):
        return ""
    return "draft" if look.composer is Composer.DRAFT else "composer"


def _check_prompt(look: ScreenState, facts: GateFacts, *, ours: bool, needs_reader: bool) -> str:
    """Require proof that a program without a composer rule accepts a message at this line."""
    if look.has_composer_rule:
        return ""
    if facts.is_raw and not look.has_paste_mode and not facts.edits_lines:
        return "prompt"  # each key may answer a question
    # The terminal turns Ctrl-C into a signal, so no prompt receives it.
    if not needs_reader:
        return ""
    # In line mode, the program did not request bracketed paste: an earlier program left it on.
    has_paste = look.has_paste_mode and facts.is_raw
    is_proven = look.prompt is Prompt.KNOWN or (has_paste and look.prompt is Prompt.PLAIN)
    # After the paste, the whole line before the cursor may be our text, wrapped in any way.
    is_ours = ours and (has_paste or not look.prompt_line)
    return "" if is_proven or is_ours else "prompt"


def judge_foreground(group: int, foreground_group: int | None, members: Iterable[ProgramNames]) -> Foreground:
    """Return the kind of program that reads the terminal.

    `group` is the process group that was started, `foreground_group` the one in the foreground of the
    terminal (or None), `members` every live process in the foreground group. A group with a shell in it
    counts as a shell, because the shell may be the process that reads.
    """
    processes = tuple(members)
    # Without a living process in the group, keys would stay in the terminal for the next program that reads.
    if foreground_group is None or not processes:
        return Foreground.GONE
    if any(map(is_shell, processes)):
        return Foreground.SHELL
    return Foreground.AGENT if foreground_group == group else Foreground.OTHER
