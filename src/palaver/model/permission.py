"""What an agent asks leave for, and what is answered. Pure: bound to one request by a hash of all of it."""

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
"""Nobody here answered: the harness asks its own user, or has gone."""

LIMIT_TEXT: Final = 1000


class AskPermission(msgspec.Struct, frozen=True, kw_only=True):
    """An agent asks leave to use a tool, and waits. From its hook, through the door."""

    name: str
    permission: str
    tool: str
    text: str
    digest: str
    until: int


class AnswerPermission(msgspec.Struct, frozen=True, kw_only=True):
    """Allow or deny what an agent asks leave for. The human's alone, in person."""

    name: str
    permission: str
    digest: str
    is_allowed: bool


class ClosePermission(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody has answered: it is denied as its time is over, or it was answered elsewhere."""

    name: str
    permission: str
    decision: str
    reason: str


def request_digest(session: str, tool: str, given: Mapping[str, object]) -> str:
    """Tell a request from any other: its session, its tool and every character of its input."""
    whole = json.dumps([session, tool, given], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
