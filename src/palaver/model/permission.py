"""Permission requests of agents and their decisions. Pure: a hash of the whole request identifies it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

import msgspec

ASKED: Final = "permission.asked"
ANSWERED: Final = "permission.answered"

ALLOW: Final = "allow"
DENY: Final = "deny"
NOTHING: Final = "none"
"""Not decided here: the harness asks its own user, or has exited."""

LIMIT_TEXT: Final = 1000


class AskPermission(msgspec.Struct, frozen=True, kw_only=True):
    """An agent requests permission to use a tool, and waits. From its hook, through the door."""

    name: str
    permission: str
    tool: str
    text: str
    digest: str
    until: int


class AnswerPermission(msgspec.Struct, frozen=True, kw_only=True):
    """Allow or deny a permission request. Only for the human in person."""

    name: str
    permission: str
    digest: str
    is_allowed: bool


class ClosePermission(msgspec.Struct, frozen=True, kw_only=True):
    """Close a request without a decision: denied at its time limit, or decided elsewhere."""

    name: str
    permission: str
    decision: str
    reason: str


def request_digest(session: str, tool: str, given: Mapping[str, object]) -> str:
    """Return a hash that identifies a request: its session, its tool and its complete input."""
    whole = json.dumps([session, tool, given], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
