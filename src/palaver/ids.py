"""Ids: ULIDs that sort by creation time, short ids, and generated names of agents.

Pure except for `system_ulid`, for external programs without a clock object. Does not know the log.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from palaver.clock import Clock
from palaver.errors import BadRequest

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Two characters at once: a table of 1,024 pairs halves the steps, and every stored event needs an id.
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_SHIFTS: Final = tuple(range(120, -1, -10))
# 26 characters of 5 bits have 130 bits, so the first one of a 128-bit id is at most 7.
_ULID: Final = re.compile(f"[0-7][{_ALPHABET}]{{25}}")
_TO_BASE_32: Final = str.maketrans(
    _ALPHABET + _ALPHABET.lower() + "IiLlOo", ("0123456789abcdefghijklmnopqrstuv" * 2)[:64] + "111100"
)
_READABLE: Final = re.compile(f"[0-7][{_ALPHABET}{_ALPHABET[10:].lower()}IiLlOo]{{25}}")

_RANDOM_BITS: Final = 80
_RANDOM_BYTES: Final = 10
_LAST_MS: Final = (1 << 48) - 1
"""The largest time that a ULID can contain, in the year 10889."""


def encode_ulid(value: int) -> str:
    """Encode 128 bits in Crockford's base 32."""
    if value < 0 or value >> 128:
        raise OverflowError("a ULID has 128 bits")
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in _SHIFTS])


def decode_ulid(text: str) -> int:
    """Decode the result of `encode_ulid`; lower case and the look-alikes I, L and O are accepted."""
    if not _READABLE.fullmatch(text):
        raise BadRequest(f"{text!r} is not a ULID")
    return int(text.translate(_TO_BASE_32), 32)


def is_ulid(text: str) -> bool:
    """Return whether a text is a ULID as `encode_ulid` writes it, in capitals."""
    return _ULID.fullmatch(text) is not None


def ulid(ts_ms: int, randomness: int) -> str:
    """Return the id of a time and 80 bits."""
    if randomness >> _RANDOM_BITS:
        raise OverflowError("the random part of a ULID has 80 bits")
    return encode_ulid(ts_ms << _RANDOM_BITS | randomness)


def ulid_ms(text: str) -> int:
    """Return the creation time of a ULID."""
    return decode_ulid(text) >> _RANDOM_BITS


class UlidSource:
    """Ids that increase strictly, also within a millisecond and if the clock steps back.

    For one thread: two simultaneous callers could get the same id.
    """

    def __init__(self, clock: Clock, random: Callable[[int], bytes]) -> None:
        """Take a clock and a function that returns the given number of random bytes."""
        self._clock = clock
        self._random = random
        self._last = -1

    def start_above(self, ulid_text: str) -> None:
        """Make every later id larger than this one.

        A text that is not a ULID, or that leaves no larger ids, is ignored: a foreign id must not exhaust the
        ids.
        """
        if is_ulid(ulid_text):
            value = decode_ulid(ulid_text)
            # Callers may choose ids, and one in the last millisecond would leave `next` almost no larger
            # ones.
            if value >> _RANDOM_BITS < _LAST_MS:
                self._last = max(self._last, value)

    def next(self) -> str:
        """Return the next id, larger than all before it."""
        ts_ms = self._clock.now_ms()
        if ts_ms > self._last >> _RANDOM_BITS:
            self._last = ts_ms << _RANDOM_BITS | int.from_bytes(self._random(_RANDOM_BYTES), "big")
        else:
            # After the last id of a millisecond the carry goes into the time, and the order holds.
            self._last += 1
        return encode_ulid(self._last)


_made_in: Final[dict[int, Iterator[int]]] = {}
"""For the newest millisecond in which `system_ulid` made ids, the random parts of the next ones."""
os.register_at_fork(after_in_child=_made_in.clear)  # otherwise parent and child would make the same ids


def system_ulid() -> str:
    """Return an id from the machine's clock and random source. Thread-safe; per thread, ids increase."""
    # Each operation on the dictionary is atomic in the interpreter, so no lock is needed.
    while True:
        # Never earlier than the newest id: the clock may have stepped back.
        ts_ms = max(time.time_ns() // 1_000_000, max(list(_made_in), default=0))
        # One bit less than available, so that counting up never overflows.
        first = int.from_bytes(os.urandom(_RANDOM_BYTES), "big") >> 1
        made = ulid(ts_ms, next(_made_in.setdefault(ts_ms, count(first))))
        # A copy of the keys, because another thread may change the dictionary while they are compared.
        newest = max(list(_made_in))
        # Otherwise the dictionary would grow by one entry for each millisecond with an id.
        for older in [one for one in list(_made_in) if one < newest]:
            _made_in.pop(older, None)
        # Another thread that is in a later millisecond may have removed the counter of this one before
        # `setdefault`. Then `first` began a second counter, whose ids may be below those of the first: try
        # again.
        if newest == ts_ms:
            return made


def derived_id(cause: str, *parts: str) -> str:
    """Return the id that follows from a cause and some words, so that a repeat is the same event.

    The log stores a sender's id only once, so an event with such an id can be submitted again after a crash.
    It contains the time of its cause, or 0 if the cause is not a ULID.
    """
    # The ids are stored, and a repeat must have the same one: nothing in this computation can change.
    digest = hashlib.sha256()
    for part in (cause, *parts):
        data = part.encode()
        # The length comes first, so that ("ab", "c") and ("a", "bc") have different ids.
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    ts_ms = ulid_ms(cause) if is_ulid(cause) else 0
    return ulid(ts_ms, int.from_bytes(digest.digest()[:_RANDOM_BYTES], "big"))
