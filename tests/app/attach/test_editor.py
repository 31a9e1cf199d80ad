import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.app.attach.editor import Editor, Key, Pressed, input_line, wrap
from palaver.protocol import display
from palaver.protocol.display import display_width

_WIDTHS = st.integers(4, 120)

_TEXT = st.text(st.characters(blacklist_categories=("Cc", "Cs")))


def _typed(*data: bytes) -> tuple[Editor, list[Pressed]]:
    editor = Editor()
    pressed = [one for some in data for one in editor.feed(some)]
    return editor, pressed


@given(_TEXT, st.integers(1, 5))
def test_text_typed_in_pieces_of_any_size_is_complete(text: str, size: int) -> None:
    data = text.encode()

    editor, pressed = _typed(*(data[at : at + size] for at in range(0, len(data), size)))

    assert editor.text == text
    assert editor.cursor == len(text)
    assert not pressed


@given(st.lists(st.binary(max_size=8)))
def test_cursor_stays_in_the_line_whatever_is_typed(pieces: list[bytes]) -> None:
    editor, _ = _typed(*pieces)

    assert 0 <= editor.cursor <= len(editor.text)


def test_enter_submits_the_line_and_starts_a_new_one() -> None:
    editor, pressed = _typed(b"hello\r")

    assert pressed == [Pressed(Key.SUBMIT, "hello")]
    assert editor.text == ""


def test_paste_of_several_lines_submits_nothing() -> None:
    editor, pressed = _typed(b"\x1b[200~one\r\ntwo\x03\r", b"three\x1b[201~", b"!")

    assert not pressed
    assert editor.text == "one\ntwo\x03\nthree!"


def test_half_key_waits_for_its_other_half() -> None:
    editor, _ = _typed(b"ac\x1b", b"[", b"Db")

    assert editor.text == "abc"


def test_lone_escape_before_text_is_ignored() -> None:
    editor, _ = _typed(b"\x1b\x01x")

    assert editor.text == "x"


def test_keys_move_and_delete_as_in_a_shell() -> None:
    steps = {
        b"ab\x1b[D\x7f": "b",
        b"ab\x1b[H\x1b[3~": "b",
        b"ab\x01\x04": "b",
        b"one two\x17": "one ",
        b"one two\x15": "",
        b"abc\x1b[D\x1b[D\x0b": "a",
        b"ab\x02\x06c": "abc",
        b"ab\x1b[H\x1b[Fc": "abc",
        b"\x7fa": "a",
    }

    texts = {data: _typed(data)[0].text for data in steps}

    assert texts == steps


def test_earlier_lines_can_be_recalled_and_the_draft_is_kept() -> None:
    editor, _ = _typed(b"one\rtwo\rdra\x1b[A\x1b[A")
    first = editor.text
    list(editor.feed(b"\x1b[A\x1b[B"))
    second = editor.text
    list(editor.feed(b"\x1b[B\x1b[B"))

    assert (first, second, editor.text) == ("one", "two", "dra")


def test_repeated_line_is_remembered_once() -> None:
    editor, _ = _typed(b"one\rone\r\x1b[A\x1b[A")

    assert editor.text == "one"


def test_ctrl_c_cancels_the_line_and_ctrl_d_quits_only_an_empty_one() -> None:
    _, pressed = _typed(b"draft\x03\x04\x0c")

    assert pressed == [Pressed(Key.CANCEL, "draft"), Pressed(Key.QUIT), Pressed(Key.REDRAW)]


def test_restored_line_has_the_cursor_at_its_end() -> None:
    editor, _ = _typed()

    editor.put("hello")

    assert (editor.text, editor.cursor) == ("hello", 5)


def test_other_keys_are_reported_and_change_nothing() -> None:
    editor = Editor()

    pressed = list(editor.feed(b"hi\t\x1b[Z\x1c\x1b[5~"))

    assert [one.key for one in pressed] == [Key.NEXT, Key.PREVIOUS, Key.MENU, Key.PAGE_UP]
    assert editor.text == "hi"


def test_unread_keys_can_be_taken_back() -> None:
    editor = Editor()
    keys = editor.feed(b"hi\x1cd")

    assert next(keys).key is Key.MENU
    assert editor.take_rest() == b"d"
    assert list(keys) == []


def test_lone_escape_is_dropped_when_nothing_follows() -> None:
    editor = Editor()
    list(editor.feed(b"a\x1b"))
    assert editor.has_half

    editor.settle()
    list(editor.feed(b"b"))

    assert editor.text == "ab"


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs"))), _WIDTHS, st.integers(0, 8))
def test_wrapped_lines_fit_and_lose_no_word(text: str, width: int, indent: int) -> None:
    lines = wrap(text, width, indent)

    assert all(display_width(line) <= max(width, 2) for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.text(max_size=60), st.data(), _WIDTHS)
def test_input_fits_and_contains_the_cursor(text: str, data: st.DataObject, width: int) -> None:
    cursor = data.draw(st.integers(0, len(text)))

    line, column = input_line("shop-x4kd> ", text, cursor, width)

    assert display_width(line) <= width + 1
    assert 0 < column <= width


def test_each_character_of_a_long_input_is_measured_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    width_of = display._char_width

    def measure(char: str) -> int:
        measured.append(char)
        return width_of(char)

    monkeypatch.setattr(display, "_char_width", measure)
    text = "x" * 1000 + "界"

    line, column = input_line("> ", text, len(text), 40)

    assert (line, column) == ("> " + "x" * 35 + "界", 39)
    assert len(measured) <= 3 * len(text)
