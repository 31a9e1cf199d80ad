"""Which programs would run what is typed into them, or hand it on to one that does. Pure.

A program is judged by all its names at once: the file that it runs, the name that the system shows for it,
and the name that it was given. What its options mean must be sure; where it is not, it is a shell.
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
"""They run every line that they read, unless they were given a script or a command."""

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
"""They hold another program's terminal, or become another user's shell: who reads there cannot be seen."""

_FLAGS: Final = frozenset("abefhklmnprtuvxBCDEHPT")
"""Single letters that take no value and change nothing about who reads."""
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
    """One process, by all the names that it has."""

    argv: tuple[str, ...]
    name: str = ""
    """What the system shows for it."""
    program: str = ""
    """The file that it runs; empty when that cannot be seen."""
    shell: str = ""
    """The shell that this file is, whatever it is called."""


def names_of(process: Process) -> set[str]:
    """Give every name of a process: of the file that it runs, as the system shows it, and as it was given."""
    given = _base(process.argv[0]) if process.argv else ""
    return {_base(process.program), _base(process.name).partition(":")[0], given, process.shell}


def is_shell(process: Process) -> bool:
    """Tell whether what is typed into it might be run by a shell: its own lines, or behind it."""
    names = names_of(process)
    return bool(names & HANDING_ON) or "SCREEN" in names or reads_commands(process)


def reads_commands(process: Process) -> bool:
    """Tell whether it is a shell itself that would run what is typed into it."""
    names = names_of(process)
    words = list(process.argv[1:])
    shells = names & SHELLS
    if "busybox" in names and not shells and words:
        shells = {words.pop(0)} & SHELLS
    if not shells:
        return False
    # An interpreter that runs a shell: what counts begins behind the name of the shell.
    for place, word in enumerate(words):
        if _base(word) in shells and not {_base(process.program), process.shell} & SHELLS:
            words = words[place + 1 :]
            break
    return _reads_commands(words) if shells <= _POSIX else _reads_commands_elsewhere(words)


def _reads_commands(words: list[str]) -> bool:
    """Tell whether a shell of the Bourne family reads its commands from the terminal."""
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
                has_command = True  # the first word that is no option
                letters = letters.replace("c", "")
            values = sum(letter in "oO" for letter in letters)
            if not set(letters) - {"o", "O"} <= _FLAGS or values > 1:
                return True
            del words[:values]
        else:
            return not has_command and _is_terminal(word)
    return True


def _reads_commands_elsewhere(words: list[str]) -> bool:
    """Tell it of a shell whose options are its own: sure is only a script, or a command, right away."""
    if not words:
        return True
    if words[0] == "-c":
        return len(words) != 2
    return words[0].startswith(("-", "+")) or _is_terminal(words[0])


def _is_terminal(script: str) -> bool:
    """Whether a script is none: `/dev/stdin` and the like."""
    return script.startswith(_DEVICES)


def _base(path: str) -> str:
    return path.removesuffix(" (deleted)").rsplit("/", 1)[-1].lstrip("-")
