"""Profile of Gemini CLI in a terminal, as version 0.61 draws it. Pure.

Its title shows ready, working or action required. It has no OSC 7501.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from palaver.harness.gemini_screen import read_composer, read_dialog, read_limit
from palaver.harness.profile import Interrupt, Press, Profile, TitleRule
from palaver.model.delivery import AgentState

_RESUMING: Final = ("-r", "--resume")
_LOADING_MS: Final = 2_500
"""Milliseconds. It draws its composer up to about a second before it has loaded a session that it resumes."""

PROFILE: Final = Profile(
    name="gemini",
    starts_twice=True,
    read_composer=read_composer,
    read_dialog=read_dialog,
    read_limit=read_limit,
    busy=(
        re.compile("^ [\u2800-\u28ff] [^\n]*\\(esc to cancel\\b", re.MULTILINE),
        re.compile(r"^responding [^\n]*\(esc to cancel\b", re.MULTILINE),
    ),
    compacting=(re.compile("^ ?(?:[\u2800-\u28ff]|responding) [^\n]*Compressing\\b", re.MULTILINE),),
    titles=(
        TitleRule(pattern=re.compile(r"^✋"), state=AgentState.BLOCKED, reason="permission"),
        TitleRule(pattern=re.compile(r"^✦|^⏲"), state=AgentState.ACTIVE),
        TitleRule(pattern=re.compile(r"^◇"), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted Text: \d+ (?:lines|chars)(?: #\d+)?\]"),
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(Press(keys=b"\x03", wait_ms=500), Press(keys=b"\x03", wait_ms=5_000)),
)


def profile_of_start(command: Sequence[str]) -> Profile:
    """Return the profile for this command: a resumed session takes some time to load."""
    if any(word.startswith(_RESUMING) for word in command):
        return replace(PROFILE, composer_wait_ms=_LOADING_MS)
    return PROFILE
