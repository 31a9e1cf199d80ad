"""Sub-agents: what they are called, and how one is asked for. Pure.

A sub-agent is an agent inside another one's session: `luna_reviewer_1`, of the type `reviewer`, in luna's. It
is known by the id that its harness has for it, and ends at the latest with its parent.
"""

import re
import unicodedata
from typing import Final

import msgspec

from palaver.errors import BadName
from palaver.model.names import LIMIT_NAME

NO_TYPE: Final = "sub"
"""The type of a sub-agent whose harness names none."""

_OTHER: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_LIMIT_DIGITS: Final = 4


class BeginSubagent(msgspec.Struct, frozen=True, kw_only=True):
    """Give a sub-agent its name, or the one that it had. Asked by the bus itself, for an agent here."""

    parent: str
    key: str
    """The id that the harness has for it: who brings it again, of the same parent, is the same one."""
    type: str = ""


def subagent_stem(parent: str, type: str) -> str:
    """Give the name of a sub-agent up to its number; a type that is too long for a name is cut.

    Raises BadName when the parent's own name leaves no room.
    """
    room = LIMIT_NAME - len(parent) - _LIMIT_DIGITS - len("__")
    plain = _without_accents(type).lower()
    word = (_OTHER.sub("_", plain).strip("_") or NO_TYPE)[: max(room, 0)].strip("_")
    if not word:
        raise BadName(
            parent, f"it leaves no room for a sub-agent: a name has at most {LIMIT_NAME} characters"
        )
    return f"{parent}_{word}"


def _without_accents(text: str) -> str:
    """Give a text in which letters stand without their accents, so that `Prüfer` is `Prufer`."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parts if not unicodedata.combining(one))


def subagent_name(stem: str, number: int) -> str:
    """Write the name of a sub-agent. The pair of `split_subagent_name`."""
    return f"{stem}_{number}"


def split_subagent_name(name: str) -> tuple[str, int]:
    """Give the stem and the number of a sub-agent's name; raises ValueError for one that has none."""
    stem, _, number = name.rpartition("_")
    if not stem or not (number.isascii() and number.isdigit()):
        raise ValueError(name)
    return stem, int(number)
