"""Every type of event that the broker writes today, with the fields of its payload. Data only.

`docs/events.md` describes the same types and fields. Tests compare that page with this table, and this table
with what is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What a payload holds: some of it always, some of it where it applies."""

    always: frozenset[str]
    sometimes: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """Every field there can be."""
        return self.always | self.sometimes


def _fields(always: str, sometimes: str = "") -> Fields:
    return Fields(always=frozenset(always.split()), sometimes=frozenset(sometimes.split()))


EVENT_TYPES: Final[Mapping[str, Fields]] = {
    "message": _fields(
        "text scope mentions sender_kind delivered_to",
        "intent thread reply_to bundle_id priority expires path dead chain hops held "
        "sub event agents file watch",
    ),
    "delivery": _fields("agent messages state", "lane grade reason unconfirmed priority author answers tips"),
    "bundle": _fields("bundle_id title", "description files events transcripts extends"),
    "agent.hello": _fields("runtime version", "agent"),
    "agent.bye": _fields("reason"),
    "status": _fields("state", "detail tool file"),
    "life": _fields("action", "name reason agent pid version"),
    "sub.added": _fields("id owner filter", "once preset text by"),
    "sub.removed": _fields("id reason"),
    "setting.changed": _fields("key value old"),
}


def unlisted_fields(type: str, payload: Mapping[str, object]) -> frozenset[str]:
    """Give the fields of a payload that differ from the table: missing ones, and ones that it has not.

    A type that is not in the table is somebody else's, and may hold what it likes.
    """
    known = EVENT_TYPES.get(type)
    if known is None:
        return frozenset()
    return frozenset(payload.keys() - known.all) | (known.always - payload.keys())
