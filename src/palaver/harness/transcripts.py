"""The harnesses with a readable transcript, and where it is. Pure: a table, and a check of session ids."""

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
    """How one harness stores its conversations."""

    reader: TranscriptReader
    places: Callable[[str, Mapping[str, str]], tuple[Place, ...]]
    """Returns where to look for a session id with an environment, most likely first."""


TRANSCRIPTS: Final[Mapping[str, TranscriptForm]] = {
    "claude": TranscriptForm(reader=ClaudeTranscript(), places=claude_places),
    "codex": TranscriptForm(reader=CodexTranscript(), places=codex_places),
    "gemini": TranscriptForm(reader=GeminiTranscript(), places=gemini_places),
    "opencode": TranscriptForm(reader=OpencodeTranscript(), places=opencode_places),
}

_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


def is_session_id(text: str) -> bool:
    """Whether a text can be a session id, and so is safe in a file name."""
    return _SESSION.fullmatch(text) is not None
