"""Search entries for a regular expression, with a time limit: some expressions never end."""

import re
import signal
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Final

import msgspec

from palaver.errors import BadRequest, UsageError
from palaver.model.transcript import Entry, Level

LIMIT_S: Final = 2.0
"""Seconds that one entry may be searched."""

_encode: Final = msgspec.json.Encoder().encode


class _TooSlowError(Exception):
    """The time limit was reached."""


class Search:
    """One expression. It is case-sensitive only if it has a capital letter.

    Works only in the main thread: the regex engine checks for signals while it searches, and the alarm ends
    it.
    """

    def __init__(self, expression: str, level: Level, limit_s: float = LIMIT_S) -> None:
        """Raises `UsageError` for an invalid regular expression."""
        has_capital = any(letter.isupper() for letter in re.sub(r"\\.", "", expression))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a possible other meaning in a later Python
                self._pattern = re.compile(expression, 0 if has_capital else re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{expression!r} is not a regular expression: {error}") from None
        self._level = level
        self._limit_s = limit_s

    def is_in(self, entry: Entry, number: int) -> bool:
        """Whether the expression matches the part of an entry that the level shows."""
        before = signal.signal(signal.SIGALRM, _on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)
        try:
            return any(self._pattern.search(text) for text in _texts(entry, self._level))
        except _TooSlowError:
            raise BadRequest(
                f"looking for {self._pattern.pattern!r} in entry {number} takes too long; write it without "
                "nested repetitions, or exclude that entry with a range"
            ) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise _TooSlowError


def _texts(entry: Entry, level: Level) -> Iterator[str]:
    yield entry.text
    for tool in entry.tools if level is not Level.NORMAL else ():
        yield tool.name
        yield tool.input if isinstance(tool.input, str) else _encode(tool.input).decode()
        yield tool.output or ""
