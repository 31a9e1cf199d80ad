"""Recognise programs that interpret every key as a command: editors, pagers, monitors, file managers. Pure.

They fill the screen and have no composer; some request bracketed paste. A text typed into one could delete
lines, end processes or run commands. A program is judged by all of its names.
"""

from typing import Final

from palaver.agents.terminal.shells import Process, names_of

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


def takes_commands(process: Process) -> bool:
    """Return whether a program would interpret typed text as commands.

    Names are compared up to the first dot (`vim.basic`), and Emacs up to the first hyphen (`emacs-nox`).
    """
    names = {name.partition(".")[0] for name in names_of(process)}
    return bool(names & COMMANDED) or any(name.startswith("emacs-") for name in names)
