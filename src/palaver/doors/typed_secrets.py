"""Find passwords that older versions stored when people typed them at a hidden prompt."""

import re
from typing import Final

from palaver.log.api import Log
from palaver.model.envelope import Event
from palaver.model.hidden import asks_secret
from palaver.model.message import MESSAGE
from palaver.model.redact import REDACTED, redact
from palaver.model.removal import removed_text
from palaver.model.subscription import DELIVERY
from palaver.model.terminal import TYPED

_PIECES: Final = (f'"action":"{TYPED}"', '"raw":"', '"evidence":')
_WORD: Final = re.compile(r"[^\s/]{6,64}")
_DIGIT: Final = re.compile(r"[0-9]")
_OTHER: Final = re.compile(r"[^0-9]")


async def find_typed_secrets(log: Log) -> list[int]:
    """Return the seqs of typed lines and raw keys that may be secrets, in order.

    A line counts if it contains a known form of secret, or is a single word with digits and other characters,
    like a password. Raw keys also count if the screen stored with them asked for a secret.
    """
    events = (await log.find_containing(_PIECES)).events
    asked = {seq for event in events for seq in _typed_at_secret_prompt(event)}
    typed = filter(_is_typed, events)
    return [event.seq for event in typed if event.seq in asked or _looks_secret(event)]


def _is_typed(event: Event) -> bool:
    payload = event.payload
    if "secret" in payload or payload.get("text") == REDACTED:
        return False
    return (event.type == "life" and payload.get("action") == TYPED) or (
        event.type == MESSAGE and bool(payload.get("raw"))
    )


def _typed_at_secret_prompt(event: Event) -> list[int]:
    """Return the raw keys that were typed into a screen whose last line asked for a secret."""
    screen, messages = event.payload.get("evidence"), event.payload.get("messages")
    if event.type != DELIVERY or not isinstance(screen, str) or not isinstance(messages, list):
        return []
    lines = screen.rstrip().splitlines()
    return messages if lines and asks_secret(lines[-1]) else []


def _looks_secret(event: Event) -> bool:
    text = removed_text(event, is_foreign=False).strip()
    is_mixed = _DIGIT.search(text) is not None and _OTHER.search(text) is not None
    return redact(text) != text or (is_mixed and _WORD.fullmatch(text) is not None)
