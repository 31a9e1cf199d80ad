"""What is said to the server of OpenCode 1.18 and what it says: paths, bodies, events, messages. Pure.

Only what is used is read; all else is passed over, so a newer OpenCode may say more. A permission is given
for this once, or not: there is no word in here that would give it for good.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.harness.hook_news import as_list, as_map, text_in

HEALTH: Final = "/global/health"
EVENTS: Final = "/event"
SESSIONS: Final = "/session"
STATUSES: Final = "/session/status"
PERMISSIONS: Final = "/permission"
QUESTIONS: Final = "/question"
SELECT: Final = "/tui/select-session"
NOT_FOUND: Final = 404

_KEY: Final = "palaver"
"""Under this word of its own a text of ours carries its key."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a session answers: as which of its agents, with which model. What is empty it chooses itself."""

    agent: str = ""
    provider: str = ""
    model: str = ""
    variant: str = ""


AS_IT_LIKES: Final = Manner()


@dataclass(frozen=True, slots=True)
class Said:
    """One event of the server."""

    type: str
    about: Mapping[str, object]


def prompt_path(session: str) -> str:
    """Where a text is put to a session, without waiting for what comes of it."""
    return f"{SESSIONS}/{quote(session, safe='')}/prompt_async"


def session_path(session: str) -> str:
    """Where a session is."""
    return f"{SESSIONS}/{quote(session, safe='')}"


def messages_path(session: str, limit: int) -> str:
    """Where the last messages of a session are."""
    return f"{SESSIONS}/{quote(session, safe='')}/message?limit={limit}"


def reply_path(request: str) -> str:
    """Where one request for a permission is answered."""
    return f"{PERMISSIONS}/{quote(request, safe='')}/reply"


def reply_body(*, is_allowed: bool) -> bytes:
    """Write a person's answer to one request: this once, or no."""
    if is_allowed:
        return _encode({"reply": "once"})
    return _encode({"reply": "reject", "message": "A person said no."})


def prompt_body(text: str, key: str, manner: Manner) -> bytes:
    """Write a text for a session. It is answered in the manner of the session, never in a freer one."""
    body: dict[str, object] = {"parts": [{"type": "text", "text": text, "metadata": {_KEY: key}}]}
    if manner.agent:
        body["agent"] = manner.agent
    if manner.provider and manner.model:
        body["model"] = {"providerID": manner.provider, "modelID": manner.model}
    if manner.variant:
        body["variant"] = manner.variant
    return _encode(body)


def session_body(manner: Manner) -> bytes:
    """Write what a new session is to be like."""
    return _encode({"agent": manner.agent} if manner.agent else {})


def select_body(session: str) -> bytes:
    """Write which session the terminal is to show."""
    return _encode({"sessionID": session})


def json_from_bytes(data: bytes) -> object:
    """Read an answer; None for what is no JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def said_from_bytes(data: bytes) -> Said | None:
    """Read one event; None for what is none."""
    found = as_map(json_from_bytes(data))
    kind = found.get("type")
    return Said(kind, as_map(found.get("properties"))) if isinstance(kind, str) else None


def said_in_messages(found: object) -> Iterator[Said]:
    """Give the messages of a session as the events that told of them."""
    for message in as_list(found):
        info = as_map(message.get("info"))
        session = info.get("sessionID")
        yield Said("message.updated", {"sessionID": session, "info": info})
        for part in as_list(message.get("parts")):
            yield Said("message.part.updated", {"sessionID": session, "part": part})


def key_of(part: Mapping[str, object]) -> str:
    """Give the key of a text of ours; nothing for any other part."""
    return text_in(as_map(part.get("metadata")), _KEY)


def manner_of(info: Mapping[str, object]) -> Manner:
    """Read how a message was answered, or is to be, or how a session answers."""
    model = as_map(info.get("model"))
    variant = text_in(model, "variant") or text_in(info, "variant")
    return Manner(
        agent=text_in(info, "agent"),
        provider=text_in(model, "providerID"),
        model=text_in(model, "modelID", "id"),
        variant="" if variant == "default" else variant,
    )
