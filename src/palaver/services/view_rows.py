"""Single rows of views. Pure functions of an event."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.log.search import Phrase, words_of
from palaver.protocol.envelope import Event, room_id_of
from palaver.protocol.events import MessageSent
from palaver.protocol.message import readable_text
from palaver.protocol.summary import summary
from palaver.protocol.views import EventRow

LIMIT_TEXT: Final = 300
"""Characters of an event in a list."""
_LIMIT_BEGINNING: Final = 120
"""Characters of a message that is quoted, or shown with its sender."""
LIMIT_MARKS: Final = 50
"""Recipients of one message whose states are shown in a list."""


def beginning_of(text: str, limit: int = _LIMIT_BEGINNING) -> str:
    """Return the beginning of a text, with an ellipsis if it is longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def text_of(event: Event) -> str:
    """Return the text of a message, or any other event as a sentence."""
    body = event.body
    if isinstance(body, MessageSent):  # Most events are messages.
        # A lost message has no text, so its payload needs no look.
        return body.text if body.text and not body.command else readable_text(event)
    return summary(event)


def event_row(event: Event, phrases: Sequence[Phrase] = ()) -> EventRow:
    """Return an event as a row of the log; with the phrases of a search, where they are in its text."""
    body = event.body
    text = text_of(event)
    hits: tuple[tuple[int, int], ...] = ()
    if phrases:
        text, hits = _with_hits(text, phrases)
    room, thread = (body.room, body.thread) if isinstance(body, MessageSent) else (room_id_of(event), "")
    return EventRow(
        seq=event.seq,
        ts=event.ts,
        type=event.type,
        sender=event.sender,
        to=event.to,
        text=beginning_of(text, LIMIT_TEXT),
        room=room or "",
        thread=thread or "",
        hits=hits,
    )


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The newest message of an agent: its seq, its beginning, and its first recipients."""

    seq: int
    text: str
    to: tuple[str, ...]


def last_message(event: Event) -> LastMessage:
    """Return the parts of a message that are shown with its sender."""
    to = event.body.delivered_to if isinstance(event.body, MessageSent) else event.delivered_to
    return LastMessage(event.seq, beginning_of(text_of(event)), to[:LIMIT_MARKS])


def _with_hits(text: str, phrases: Sequence[Phrase]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the part of a text with the first hit, and the positions of all hits in it."""
    found = sorted(_find_hits(text, phrases))
    skipped = 0
    # A first hit after the cut would not be shown, so the text begins shortly before it.
    if found and found[0][1] >= LIMIT_TEXT:
        # A long hit near the beginning can end after the cut: nothing before it is skipped.
        skipped = max(0, found[0][0] - _LIMIT_BEGINNING)
        text = f"…{text[skipped + 1 :]}" if skipped else text
    ends = min(len(text), LIMIT_TEXT - 1)
    shown = ((start - skipped, min(end - skipped, ends)) for start, end in found)
    return text, tuple((start, end) for start, end in shown if start < end)


def _find_hits(text: str, phrases: Sequence[Phrase]) -> Iterator[tuple[int, int]]:
    # Without accents and in lower case, as the search compares; one character for each, so that the positions
    # of the hits are also those in the text.
    plain = "".join(map(_plain, text))
    for phrase in phrases:
        words = r"\W+".join(map(re.escape, words_of(phrase.text)))
        ending = r"\w*" if phrase.is_open else r"(?!\w)"
        for hit in re.finditer(rf"(?<!\w){words}{ending}", plain):
            yield hit.span()


def _plain(character: str) -> str:
    # The cut at the end is for the rare letters whose lower case has two characters.
    return unicodedata.normalize("NFD", character)[0].lower()[:1]
