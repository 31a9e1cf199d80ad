"""Which programs take every key as a command: editors, pagers, monitors, file managers. Pure.

They fill the screen, some ask for bracketed paste, and none has a composer: a text that is typed into one
deletes lines, ends processes or runs what it names. A program is judged by all its names at once.
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
"""They hold the screen and read keys one by one, each for what it does."""


def takes_commands(process: Process) -> bool:
    """Tell whether what is typed into a program would be its commands, and nobody's message.

    A name counts up to its first dot (`vim.basic`), that of Emacs up to its first hyphen (`emacs-nox`).
    """
    names = {name.partition(".")[0] for name in names_of(process)}
    return bool(names & COMMANDED) or any(name.startswith("emacs-") for name in names)
