"""Looking for a regular expression in entries, with a limit of time: some of them never end."""

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
"""How long one entry may be searched."""

_encode: Final = msgspec.json.Encoder().encode


class _TooSlowError(Exception):
    """The time is over."""


class Search:
    """One expression. Capital letters count only when it has one itself.

    Works in the main thread alone: the engine looks for signals while it tries, and the alarm ends it.
    """

    def __init__(self, expression: str, level: Level, limit_s: float = LIMIT_S) -> None:
        """Raises `UsageError` for what is no regular expression."""
        has_capital = any(letter.isupper() for letter in re.sub(r"\\.", "", expression))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what a later Python might make of it
                self._pattern = re.compile(expression, 0 if has_capital else re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{expression!r} is no regular expression: {error}") from None
        self._level = level
        self._limit_s = limit_s

    def is_in(self, entry: Entry, number: int) -> bool:
        """Tell whether the expression is found in what the level shows of an entry."""
        before = signal.signal(signal.SIGALRM, _on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)
        try:
            return any(self._pattern.search(text) for text in _texts(entry, self._level))
        except _TooSlowError:
            raise BadRequest(
                f"looking for {self._pattern.pattern!r} in entry {number} takes too long: write it without "
                "repetitions inside repetitions, or leave that entry out with a range"
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
