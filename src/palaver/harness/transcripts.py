"""Which harnesses keep a transcript that can be read, and where. Pure: a table, and what an id may be."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from palaver.harness.claude_transcript import ClaudeTranscript, claude_places
from palaver.harness.codex_transcript import CodexTranscript, codex_places
from palaver.harness.conversation import Place
from palaver.harness.gemini_transcript import GeminiTranscript, gemini_places
from palaver.harness.opencode_transcript import OpencodeTranscript, opencode_places
from palaver.model.transcript import TranscriptReader


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptForm:
    """How one harness keeps what was said."""

    reader: TranscriptReader
    places: Callable[[str, Mapping[str, str]], tuple[Place, ...]]
    """Says where to look, given a session's id and an environment; the likeliest place first."""


TRANSCRIPTS: Final[Mapping[str, TranscriptForm]] = {
    "claude": TranscriptForm(reader=ClaudeTranscript(), places=claude_places),
    "codex": TranscriptForm(reader=CodexTranscript(), places=codex_places),
    "gemini": TranscriptForm(reader=GeminiTranscript(), places=gemini_places),
    "opencode": TranscriptForm(reader=OpencodeTranscript(), places=opencode_places),
}

_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def is_session_id(text: str) -> bool:
    """Tell whether a text can be the id of a session, and so may stand in the name of a file."""
    return _SESSION.fullmatch(text) is not None
