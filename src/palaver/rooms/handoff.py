"""Handoffs: notes from one owner of the stick to the next. This module only checks them. Pure.

`status` and `next_action` are required; `artifacts`, `open_questions` and `do_not` must be lists if present.
Unknown keys are kept.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from palaver.errors import BadText, InvalidHandoff
from palaver.model.text import check_text

LIMIT_HANDOFF_BYTES: Final = 32 * 1024

NEEDED: Final = ("status", "next_action")
LISTS: Final = ("artifacts", "open_questions", "do_not")

_WHOLE: Final = "content"
_LIMIT_SHOWN: Final = 40


def checked_handoff(handoff: Mapping[str, object]) -> dict[str, object]:
    """Return a handoff as it is stored; raises `InvalidHandoff` with the name of the invalid field."""
    made = _as_json(handoff)
    for field in NEEDED:
        _check_words(field, made.get(field))
    for field in LISTS:
        if field in made:
            _check_list(field, made[field])
    for field, value in made.items():
        _check_characters(_WHOLE, field)
        _check_characters(field, value)
    return made


def _as_json(handoff: Mapping[str, object]) -> dict[str, object]:
    """Return the handoff as it will be read from the log."""
    try:
        text = msgspec.json.encode(handoff)
        made = msgspec.json.decode(text, type=dict[str, object])
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidHandoff(_WHOLE, f"cannot be stored as JSON: {error}") from error
    if len(text) > LIMIT_HANDOFF_BYTES:
        raise InvalidHandoff(
            _WHOLE,
            f"has {len(text)} bytes; the limit is {LIMIT_HANDOFF_BYTES}. Name files instead of their content",
        )
    return made


def _check_words(field: str, value: object) -> None:
    if value is None:
        raise InvalidHandoff(field, "is missing; write one sentence")
    if not isinstance(value, str) or not value.strip():
        raise InvalidHandoff(field, "must be a sentence, not " + _shown(value))


def _check_list(field: str, value: object) -> None:
    fits = _is_artifact if field == "artifacts" else _is_words
    if not isinstance(value, list):
        raise InvalidHandoff(field, "must be a list, not " + _shown(value))
    for number, one in enumerate(value, 1):
        if not fits(one):
            wanted = "a text or {path, lines?, note?}" if field == "artifacts" else "a text"
            raise InvalidHandoff(field, f"must have {wanted} as item {number}, not {_shown(one)}")


def _is_words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_artifact(value: object) -> bool:
    if not isinstance(value, dict):
        return _is_words(value)
    return (
        _is_words(value.get("path"))
        and _is_lines(value.get("lines"))
        and isinstance(value.get("note", ""), str)
    )


def _is_lines(value: object) -> bool:
    """Return whether the value is missing, a number, a range as a text, or a list of those."""
    parts = value if isinstance(value, list) else [value]
    return value is None or all(isinstance(part, (int, str)) and not isinstance(part, bool) for part in parts)


def _check_characters(field: str, value: object) -> None:
    for text in _texts(value):
        try:
            check_text(text, field, LIMIT_HANDOFF_BYTES)
        except BadText as error:
            reason = f"contains the character U+{error.codepoint:04X}, which is not allowed"
            raise InvalidHandoff(field, reason) from error


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a value at any depth, including keys."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            rest += one


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _LIMIT_SHOWN else f"{text[:_LIMIT_SHOWN]}…"
