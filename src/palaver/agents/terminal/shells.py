"""Recognise programs that would run typed text as commands, or forward it to such a program. Pure.

A program is judged by all of its names: its file, the name that the system shows, and its first argument. If
the meaning of its options is not certain, it counts as a shell that reads commands.
"""

from dataclasses import dataclass
from typing import Final

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
        *("machinectl", "systemd-run", "systemd-nspawn", "toolbox", "distrobox", "flatpak", "wsl"),
        *("su", "sudo", "doas", "pkexec", "runuser", "run0", "sg", "newgrp", "login", "agetty"),
        *("unshare", "nsenter", "chroot", "fakechroot", "proot", "bwrap", "firejail"),
    }
)
"""Programs that own another terminal or start another user's shell: we cannot see what reads there."""

_FLAGS: Final = frozenset("abefhklmnprtuvxBCDEHPT")
"""Single-letter options without a value that do not change where commands are read from."""
_LONG_FLAGS: Final = frozenset(
    {
        *("--login", "--norc", "--noprofile", "--posix", "--restricted", "--verbose", "--noediting"),
        *("--debugger", "--protected"),
    }
)
_LONG_WITH_VALUE: Final = frozenset({"--rcfile", "--init-file"})
_DEVICES: Final = ("/dev/", "/proc/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The names of one process."""

    argv: tuple[str, ...]
    name: str = ""
    """The name that the system shows."""
    program: str = ""
    """The path of its file; empty if it is not visible."""
    shell: str = ""
    """The name of the shell that its file is a copy of; empty if it is not a known shell."""


def names_of(process: Process) -> set[str]:
    """Return every name of a process: its file, the name that the system shows, and its first argument."""
    given = _base(process.argv[0]) if process.argv else ""
    return {_base(process.program), _base(process.name).partition(":")[0], given, process.shell}


def is_shell(process: Process) -> bool:
    """Return whether a shell might run the text that is typed into it: itself or a program it forwards to."""
    names = names_of(process)
    return bool(names & HANDING_ON) or "SCREEN" in names or reads_commands(process)


def reads_commands(process: Process) -> bool:
    """Return whether it is a shell that would run the text that is typed into it."""
    names = names_of(process)
    words = list(process.argv[1:])
    shells = names & SHELLS
    if "busybox" in names and not shells and words:
        shells = {words.pop(0)} & SHELLS
    if not shells:
        return False
    # If an interpreter runs the shell, the options of the shell start after its name.
    for place, word in enumerate(words):
        if _base(word) in shells and not {_base(process.program), process.shell} & SHELLS:
            words = words[place + 1 :]
            break
    return _reads_commands(words) if shells <= _POSIX else _reads_commands_elsewhere(words)


def _reads_commands(words: list[str]) -> bool:
    """Return whether a shell of the Bourne family reads its commands from the terminal."""
    has_command = False
    while words:
        word = words.pop(0)
        if word in ("-", "--"):
            return not words or (not has_command and _is_terminal(words[0]))
        if word in _LONG_WITH_VALUE:
            del words[:1]
        elif word.startswith("--"):
            if word not in _LONG_FLAGS:
                return True
        elif word.startswith(("-", "+")):
            letters = word[1:]
            if word[0] == "-" and "c" in letters:
                has_command = True  # the command is the first argument that is not an option
                letters = letters.replace("c", "")
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
        return len(words) != 2
    return words[0].startswith(("-", "+")) or _is_terminal(words[0])


def _is_terminal(script: str) -> bool:
    """Return whether a script name is a device such as `/dev/stdin`, not a file."""
    return script.startswith(_DEVICES)


def _base(path: str) -> str:
    return path.removesuffix(" (deleted)").rsplit("/", 1)[-1].lstrip("-")
