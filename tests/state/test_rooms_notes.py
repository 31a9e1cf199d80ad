"""A note is trimmed, limited in size, and resolved once."""

import pytest
from tests.domain.room_parts import event

from palaver.errors import BadText, BodyTooLarge, InvalidBody
from palaver.protocol.events import NoteAdded
from palaver.state.rooms import checked_note, note_from, page_size, resolved

LIMIT = 16 * 1024


def test_blanks_around_a_note_are_removed() -> None:
    assert checked_note("  hi  \n", LIMIT) == "hi"


@pytest.mark.parametrize("text", ["x" * LIMIT, "é" * (LIMIT // 2), " " + "x" * LIMIT + " "])
def test_note_may_be_as_long_as_its_limit(text: str) -> None:
    assert checked_note(text, LIMIT) == text.strip()


@pytest.mark.parametrize("text", ["x" * (LIMIT + 1), "é" * (LIMIT // 2) + "x"])
def test_longer_note_is_refused_and_not_cut(text: str) -> None:
    with pytest.raises(BodyTooLarge) as error:
        checked_note(text, LIMIT)

    assert (error.value.size_bytes, error.value.limit_bytes) == (LIMIT + 1, LIMIT)


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_blank_note_is_refused(text: str) -> None:
    with pytest.raises(InvalidBody):
        checked_note(text, LIMIT)


def test_note_with_control_characters_is_refused() -> None:
    with pytest.raises(BadText):
        checked_note("a\x1b[2Jb", LIMIT)


def test_note_is_resolved_only_once() -> None:
    note = note_from(event("note_added", "ann"), NoteAdded(room="r", note="N", text="hi", turn_id=0))

    done = resolved(note, event("note_resolved", "bob", ts=7))

    assert (note.is_open, note.turn_id) == (True, 0)
    assert (done.is_open, done.resolved_by, done.resolved_ms) == (False, "bob", 7)
    with pytest.raises(ValueError, match="settled"):
        resolved(done, event("note_resolved", "cat"))


@pytest.mark.parametrize(("limit", "size"), [(-1, 1), (0, 1), (1, 1), (200, 200), (201, 200)])
def test_page_size_is_one_to_two_hundred(limit: int, size: int) -> None:
    assert page_size(limit) == size
