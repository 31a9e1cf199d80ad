import itertools
import os
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import ids
from palaver.errors import BadRequest
from palaver.ids import UlidSource, decode_ulid, derived_id, encode_ulid, is_ulid, system_ulid, ulid, ulid_ms

values = st.integers(0, 2**128 - 1)
times = st.integers(0, 2**48 - 2)


class _SteppingClock:
    """A clock that shows the given times, one per call, and then the last one forever."""

    def __init__(self, *times_ms: int) -> None:
        self._times_ms = list(times_ms)

    def now_ms(self) -> int:
        return self._times_ms.pop(0) if len(self._times_ms) > 1 else self._times_ms[0]

    def monotonic_s(self) -> float:
        return 0.0


def _zeros(count: int) -> bytes:
    return bytes(count)


def _ones(count: int) -> bytes:
    return b"\xff" * count


@given(values)
def test_id_survives_encoding_and_decoding(value: int) -> None:
    assert decode_ulid(encode_ulid(value)) == value
    assert is_ulid(encode_ulid(value))


@given(values, values)
def test_ids_sort_like_their_values(one: int, other: int) -> None:
    assert (encode_ulid(one) < encode_ulid(other)) == (one < other)


@given(values)
def test_small_letters_and_look_alikes_are_accepted(value: int) -> None:
    text = encode_ulid(value)

    looks_alike = text[0] + text[1:].replace("1", "I").replace("0", "o")

    assert decode_ulid(text.lower()) == decode_ulid(looks_alike) == value
    assert is_ulid(text.lower()) == text.isdigit()


@given(st.text())
def test_invalid_id_is_refused(text: str) -> None:
    assert not is_ulid(text)
    with pytest.raises(BadRequest):
        decode_ulid(text)


def test_id_is_formatted_as_specified() -> None:
    assert ulid(1469918176385, 0) == "01ARYZ6S410000000000000000"
    assert ulid_ms("01ARYZ6S41TSV4RRFFQ69G5FAV") == 1469918176385


@pytest.mark.parametrize("value", [-1, 2**128])
def test_more_than_128_bits_are_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        encode_ulid(value)


def test_more_than_80_random_bits_are_refused() -> None:
    with pytest.raises(OverflowError):
        ulid(0, 2**80)


@given(st.lists(times, min_size=1, max_size=20), st.sampled_from([_zeros, _ones]))
def test_ids_increase_whatever_the_clock_does(times_ms: list[int], random: Callable[[int], bytes]) -> None:
    source = UlidSource(_SteppingClock(*times_ms), random)

    made = [source.next() for _ in range(30)]

    assert all(before < after for before, after in pairwise(made))


@given(times, times)
def test_ids_increase_above_their_start(start_ms: int, now_ms: int) -> None:
    start = ulid(start_ms, 2**80 - 1)
    source = UlidSource(_SteppingClock(now_ms), _zeros)

    source.start_above(start)

    assert source.next() > start


def test_start_above_a_smaller_id_changes_nothing() -> None:
    source = UlidSource(_SteppingClock(5), _zeros)
    first = source.next()

    source.start_above(ulid(1, 0))

    assert source.next() > first


@pytest.mark.parametrize("foreign", ["", "evt-17", encode_ulid(2**128 - 1)])
def test_foreign_id_does_not_exhaust_the_ids(foreign: str) -> None:
    source = UlidSource(_SteppingClock(5), _zeros)

    source.start_above(foreign)

    assert source.next() == ulid(5, 0)


def test_time_of_an_id_is_that_of_the_clock() -> None:
    source = UlidSource(_SteppingClock(1_712_000_000_000), _ones)

    assert ulid_ms(source.next()) == 1_712_000_000_000


def test_ids_of_the_system_differ() -> None:
    assert len({system_ulid() for _ in range(100)}) == 100


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.text("ab")))
def test_same_cause_has_the_same_derived_id(cause: str, parts: list[str]) -> None:
    assert derived_id(cause, *parts) == derived_id(cause, *parts)
    assert is_ulid(derived_id(cause, *parts))


@given(st.lists(st.lists(st.text("ab", max_size=3), min_size=1, max_size=3), unique_by=tuple, min_size=2))
def test_different_words_have_different_derived_ids(causes: list[list[str]]) -> None:
    made = {derived_id(*words) for words in causes}

    assert len(made) == len(causes)


def test_derived_id_has_the_time_of_its_cause() -> None:
    cause = ulid(1_712_000_000_000, 7)

    assert ulid_ms(derived_id(cause, "notice")) == 1_712_000_000_000
    assert ulid_ms(derived_id("a foreign cause")) == 0


def test_id_is_drawn_again_when_another_thread_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    later = (ulid_ms(system_ulid()) + 60_000) << 80
    calls: list[int] = []

    def urandom(size: int) -> bytes:
        if not calls:
            ids._made_in[later >> 80] = itertools.count(1)
        calls.append(size)
        return bytes(size)

    monkeypatch.setattr(os, "urandom", urandom)
    made = system_ulid()
    ids._made_in.clear()

    assert decode_ulid(made) == later + 1
    assert len(calls) == 2
