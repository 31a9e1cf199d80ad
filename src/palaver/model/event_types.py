"""Every type of event that the broker writes, with the fields of its payload. Data only.

`docs/events.md` describes the same types and fields. Tests compare that page with this table, and this table
with the written events.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a payload: some required, some optional."""

    always: frozenset[str]
    sometimes: frozenset[str] = frozenset()
    has_others: bool = False
    """Whether external programs may add their own fields."""

    @property
    def all(self) -> frozenset[str]:
        """Every possible field."""
        return self.always | self.sometimes


def _fields(always: str, sometimes: str = "", *, has_others: bool = False) -> Fields:
    return Fields(
        always=frozenset(always.split()), sometimes=frozenset(sometimes.split()), has_others=has_others
    )


EVENT_TYPES: Final[Mapping[str, Fields]] = {
    "message": _fields(
        "text scope mentions sender_kind delivered_to",
        "intent thread reply_to bundle_id priority expires path dead chain hops held "
        "room delivery_hint wakes sub event agents file watch raw secret hash bare expects_reply nag",
    ),
    "delivery": _fields(
        "agent messages state", "lane grade reason unconfirmed priority author answers tips request evidence"
    ),
    "bundle": _fields("bundle_id title", "description files events transcripts extends"),
    "member_joined": _fields("room base path name", "harness"),
    "member_left": _fields("room reason", "from kick"),
    "kick": _fields("room", "reason"),
    "close": _fields("room", "reason"),
    "claim": _fields("room turn_id lease_id reason from until"),
    "takeover": _fields("room turn_id lease_id cause until", "reason"),
    "release": _fields("room turn_id", "handoff reserved_for until reason from"),
    "pass": _fields("room turn_id handoff reserved_for until"),
    "reservation_expired": _fields("room turn_id", "reserved_for until from"),
    "note_added": _fields("room note text", "turn_id"),
    "note_resolved": _fields("room note"),
    "task.create": _fields("title", "description assignee assignees", has_others=True),
    "task.update": _fields("task_id", "status title description assignee assignees", has_others=True),
    "task.complete": _fields("task_id", "summary", has_others=True),
    "agent.hello": _fields("runtime version", "agent"),
    "agent.bye": _fields("reason"),
    "agent.paused": _fields("agent"),
    "agent.unpaused": _fields("agent"),
    "status": _fields("state", "detail tool file"),
    "life": _fields("action", "name reason agent pid version text secret"),
    "permission.asked": _fields("permission tool text digest until"),
    "permission.answered": _fields("agent permission decision", "digest reason"),
    "sub.added": _fields("id owner filter", "once preset text by"),
    "sub.removed": _fields("id reason"),
    "setting.changed": _fields("key value old"),
    "redacted": _fields("event id of hash", "copies"),
}


def unlisted_fields(type: str, payload: Mapping[str, object]) -> frozenset[str]:
    """Return the fields of a payload that differ from the table: missing ones and unknown ones.

    A type that is not in the table is foreign, and may contain anything.
    """
    known = EVENT_TYPES.get(type)
    if known is None:
        return frozenset()
    unknown = frozenset() if known.has_others else frozenset(payload.keys() - known.all)
    return unknown | (known.always - payload.keys())
