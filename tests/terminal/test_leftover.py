"""Unsent text of ours: it counts as a draft while it may be in the line."""

import pytest

from palaver.terminal.keyboard import Keyboard, Leftover, is_at_cursor

TEXT = "[pal message #42 from: luna] can you review this?"
LINE = f"> {TEXT}"


def left(*keys: bytes) -> tuple[Keyboard, Leftover]:
    """Return the state after our text was typed, a person pressed keys, and it was not sent."""
    keyboard = Keyboard()
    leftover = Leftover(keyboard)
    leftover.put(TEXT)
    for key in keys:
        keyboard.press(key, 1)
    leftover.leave(outputs=5)
    return keyboard, leftover


@pytest.mark.parametrize(
    ("before", "is_there"),
    [(LINE, True), (f"> …{TEXT[-30:]}", True), (f"{LINE}  ", True), ("> ", False), (f"{LINE}\n> ", False)],
)
def test_text_is_recognised_by_its_end_before_the_cursor(before: str, is_there: bool) -> None:
    assert is_at_cursor(before, "".join(TEXT.split())) is is_there
    assert not is_at_cursor(before, "")


def test_cleared_text_is_not_there() -> None:
    leftover = Leftover(Keyboard())
    leftover.put(TEXT)
    leftover.clear()

    assert not leftover.is_there(LINE, 9, is_silent=True)


def test_text_is_there_until_the_program_moves_on_and_is_quiet() -> None:
    keyboard, leftover = left()

    there = [
        leftover.is_there(LINE, 5, is_silent=True),
        leftover.is_there("> ", 5, is_silent=True),
        leftover.is_there("> ", 6, is_silent=False),
        leftover.is_there(LINE, 7, is_silent=True),
        leftover.is_there("> ", 8, is_silent=True),
        leftover.is_there(LINE, 9, is_silent=True),
    ]

    assert there == [True, True, True, True, False, False]
    assert not keyboard.has_draft


@pytest.mark.parametrize(
    ("keys", "is_over"),
    [
        ((b"\r",), True),
        ((b"\x03",), True),
        ((b"\x15",), True),
        ((b"\x7f" * len(TEXT),), True),
        ((b"\x7f" * (len(TEXT) - 1),), False),
        ((b"Z", b"\x7f"), False),
        ((b"Z", b"\r"), True),
        ((b"\x01", b"\x15"), False),
        ((b"\x17",), False),
        ((b"\x1b[A",), False),
    ],
)
def test_keys_of_a_person_show_whether_the_text_was_removed(keys: tuple[bytes, ...], is_over: bool) -> None:
    for keyboard, leftover in (left(*keys), left()):
        for key in () if keyboard.count else keys:
            keyboard.press(key, 2)

        is_there = leftover.is_there("> ", 6, is_silent=True) or keyboard.has_draft

        assert is_there is not is_over


def test_enter_that_did_not_send_the_text_changes_nothing() -> None:
    keyboard, leftover = left()
    keyboard.press(b"\r", 2)

    assert leftover.is_there(LINE, 6, is_silent=True)
    assert not leftover.is_there("> ", 7, is_silent=True)


def test_text_of_several_lines_is_not_removed_by_one_key() -> None:
    keyboard = Keyboard()
    keyboard.put("one\ntwo")
    keyboard.leave()

    keyboard.press(b"\x15", 1)

    assert keyboard.has_draft


def test_restored_state_still_knows_the_unsent_text() -> None:
    before, _ = left()
    after = Keyboard()
    after.take_up(before.keep())
    leftover = Leftover(after)

    leftover.take_up(outputs=5)

    assert leftover.is_there(LINE, 6, is_silent=True)
    assert not leftover.is_there("> ", 7, is_silent=True)
    assert not after.has_draft


def test_restored_state_without_unsent_text_is_empty() -> None:
    leftover = Leftover(Keyboard())

    leftover.take_up(outputs=5)

    assert not leftover.is_there(LINE, 6, is_silent=True)
