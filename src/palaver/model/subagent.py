"""Sub-agents: their names, and the request that starts one. Pure.

A sub-agent is an agent inside another one's session: `luna_reviewer_1`, of the type `reviewer`, in luna's. It
is identified by its harness's id, and ends at the latest with its parent.
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
    """Assign a sub-agent its name, or the one that it had. A request of the bus itself, for a local agent."""

    parent: str
    key: str
    """The harness's id of it: the same id of the same parent is the same sub-agent."""
    type: str = ""


def subagent_stem(parent: str, type: str) -> str:
    """Return the name of a sub-agent up to its number; a type that is too long for a name is cut.

    Raises BadName if the parent's own name leaves no space.
    """
    room = LIMIT_NAME - len(parent) - _LIMIT_DIGITS - len("__")
    plain = _without_accents(type).lower()
    word = (_OTHER.sub("_", plain).strip("_") or NO_TYPE)[: max(room, 0)].strip("_")
    if not word:
        raise BadName(parent, f"it is too long for a sub-agent: a name has at most {LIMIT_NAME} characters")
    return f"{parent}_{word}"


def _without_accents(text: str) -> str:
    """Return a text without accents: `Prüfer` becomes `Prufer`."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parts if not unicodedata.combining(one))


def subagent_name(stem: str, number: int) -> str:
    """Format the name of a sub-agent. The pair of `split_subagent_name`."""
    return f"{stem}_{number}"


def split_subagent_name(name: str) -> tuple[str, int]:
    """Return the stem and the number of a sub-agent's name; raise ValueError for one without a number."""
    stem, _, number = name.rpartition("_")
    if not stem or not (number.isascii() and number.isdigit()):
        raise ValueError(name)
    return stem, int(number)
