"""The protocol of the OpenCode 1.18 server: paths, bodies, events, messages. Pure.

Only the fields in use are read and all others ignored, because a newer OpenCode may send more. A permission
is granted once or rejected; nothing here can grant it permanently.
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
"""The metadata field that carries the key of a text from us."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The agent, model and variant that a session uses. OpenCode chooses empty ones itself."""

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
    """The path for sending a text to a session without waiting for the reply."""
    return f"{SESSIONS}/{quote(session, safe='')}/prompt_async"


def session_path(session: str) -> str:
    """The path of a session."""
    return f"{SESSIONS}/{quote(session, safe='')}"


def messages_path(session: str, limit: int) -> str:
    """The path of the last messages of a session."""
    return f"{SESSIONS}/{quote(session, safe='')}/message?limit={limit}"


def reply_path(request: str) -> str:
    """The path for the decision on one permission request."""
    return f"{PERMISSIONS}/{quote(request, safe='')}/reply"


def reply_body(*, is_allowed: bool) -> bytes:
    """Encode the user's decision on one request: allow once, or reject."""
    if is_allowed:
        return _encode({"reply": "once"})
    return _encode({"reply": "reject", "message": "A person said no."})


def prompt_body(text: str, key: str, manner: Manner) -> bytes:
    """Encode a text for a session. It keeps the agent and model of the session, and so its permissions."""
    body: dict[str, object] = {"parts": [{"type": "text", "text": text, "metadata": {_KEY: key}}]}
    if manner.agent:
        body["agent"] = manner.agent
    if manner.provider and manner.model:
        body["model"] = {"providerID": manner.provider, "modelID": manner.model}
    if manner.variant:
        body["variant"] = manner.variant
    return _encode(body)


def session_body(manner: Manner) -> bytes:
    """Encode the settings of a new session."""
    return _encode({"agent": manner.agent} if manner.agent else {})


def select_body(session: str) -> bytes:
    """Encode the session that the terminal UI must show."""
    return _encode({"sessionID": session})


def json_from_bytes(data: bytes) -> object:
    """Decode a response; None if it is not JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def said_from_bytes(data: bytes) -> Said | None:
    """Decode one event; None if it is malformed."""
    found = as_map(json_from_bytes(data))
    kind = found.get("type")
    return Said(kind, as_map(found.get("properties"))) if isinstance(kind, str) else None


def said_in_messages(found: object) -> Iterator[Said]:
    """Yield the messages of a session as the events that would report them."""
    for message in as_list(found):
        info = as_map(message.get("info"))
        session = info.get("sessionID")
        yield Said("message.updated", {"sessionID": session, "info": info})
        for part in as_list(message.get("parts")):
            yield Said("message.part.updated", {"sessionID": session, "part": part})


def key_of(part: Mapping[str, object]) -> str:
    """Return the key of a text from us; empty for any other part."""
    return text_in(as_map(part.get("metadata")), _KEY)


def manner_of(info: Mapping[str, object]) -> Manner:
    """Return the agent, model and variant of a message or a session."""
    model = as_map(info.get("model"))
    variant = text_in(model, "variant") or text_in(info, "variant")
    return Manner(
        agent=text_in(info, "agent"),
        provider=text_in(model, "providerID"),
        model=text_in(model, "modelID", "id"),
        variant="" if variant == "default" else variant,
    )
