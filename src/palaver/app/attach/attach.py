"""`pal attach` in the client's own process: the attach screen, or the agent's terminal unchanged."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

from palaver.app.attach import raw
from palaver.app.attach.link import call
from palaver.app.attach.session import AttachEnd, AttachSession
from palaver.errors import BadRequest

_LOCALES: Final = ("LC_ALL", "LC_CTYPE", "LANG")
_MADE_UP: Final = ("C.UTF-8", "C.utf8")


def attach(
    home: str,
    name: str,
    environment: Mapping[str, str],
    *,
    is_plain: bool = False,
    keys_first: bool = False,
) -> int:
    """Attach this terminal until the user detaches or the agent ends. Return the exit status.

    `keys_first`: the agent has the keyboard until the user opens the bar. `is_plain`: only the agent's
    terminal, as on a terminal that cannot position its cursor. Raises the refusal if there is no such
    terminal, or the caller may not use it.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadRequest("attach requires a terminal; to print an agent's screen, use 'pal peek'")
    if is_plain or environment.get("TERM", "dumb") == "dumb":
        return raw.attach(home, name)
    is_ascii = not has_utf8(environment, is_utf8_mode=bool(sys.flags.utf8_mode))
    session = AttachSession(home, name, is_ascii=is_ascii, keys_first=keys_first)
    wire, reply, rest = call(home, name, *session.agent_size, is_drawn=True)
    agent = reply.agent or {}
    ending = asyncio.run(session.run(wire, (agent.get("cols"), agent.get("rows")), rest))
    return _report(ending, name, is_resumable=keys_first)


def has_utf8(environment: Mapping[str, str], *, is_utf8_mode: bool) -> bool:
    """Whether the locale is a UTF-8 one; the first variable that is set counts.

    `is_utf8_mode`: Python found no locale, and then wrote a UTF-8 one to its own environment.
    """
    is_made_up = is_utf8_mode and environment.get("LC_CTYPE") in _MADE_UP
    keys = [key for key in _LOCALES if environment.get(key) and not (is_made_up and key == "LC_CTYPE")]
    locale = environment[keys[0]] if keys else ""
    return locale.lower().replace("-", "").endswith("utf8")


def _report(ending: AttachEnd, name: str, *, is_resumable: bool) -> int:
    """Report how it ended, and return the exit status. `is_resumable`: a conversation can be continued."""
    if ending.signal:
        signal.signal(ending.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ending.signal)
    if ending.is_lost:
        sys.stderr.write(f"pal: lost the connection to the holder of {name}\n")
        return 1
    if ending.exit is None:
        sys.stderr.write(f"detached from {name}; 'pal attach {name}' comes back\n")
        return 0
    hint = f"; 'pal resume {name}' continues it" if is_resumable else ""
    sys.stderr.write(f"{name} has ended: {ending.exit}{hint}\n")
    return ending.exit.code
