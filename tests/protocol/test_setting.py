"""Validation of settings, and settings as lines of a file."""

import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.config import Settings
from palaver.errors import BadText, MessageTooLarge, RequestError
from palaver.protocol.settings_file import (
    LIMIT_HINTS_BYTES,
    check_settings,
    format_value,
    parse_settings,
    with_setting,
    without_setting,
)

KEYS = ("alpha", "beta", "gamma")

plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
in_file = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
values = st.one_of(plain, st.integers(0, 10**12))
comments = st.one_of(st.just(""), in_file.map(lambda text: f" # {text}"))
ends = st.sampled_from(["\n", "\r\n"])


@st.composite
def statements(draw: st.DrawFn, key: str) -> str:
    """One setting as a user may write it."""
    text = draw(in_file)
    many = text.replace("\\", "").replace('"', "")
    written = draw(
        st.sampled_from(
            [
                format_value(text),
                str(draw(st.integers(0, 99))),
                f'"""{many}\n# no comment\nbeta = 1\n{many}"""',
                f"'''\n{text.replace(chr(39), '')}\ngamma = 2'''",
            ]
        )
    )
    name = draw(st.sampled_from([key, f'"{key}"', f"  {key} "]))
    return f"{name}={draw(st.sampled_from(['', ' ', '   ']))}{written}{draw(comments)}"


@st.composite
def files(draw: st.DrawFn) -> list[str]:
    """A file as a list of its settings, comments and blank lines, each with its line end."""
    keys: list[str] = draw(st.lists(st.sampled_from(KEYS), unique=True))
    parts = [draw(statements(key)) for key in keys]
    for _ in range(draw(st.integers(0, 3))):
        extra = draw(st.sampled_from(["", "  ", f"# {draw(in_file)}", "# alpha = 1"]))
        parts.insert(draw(st.integers(0, len(parts))), extra)
    made = [part + draw(ends) for part in parts]
    if draw(st.booleans()) and made:
        made[-1] = made[-1].rstrip("\r\n")
    return made


@given(files(), st.sampled_from(KEYS), values)
@example(["\n", 'alpha=""\n', "\n"], "beta", "")
@example([], "alpha", "\x7f")
def test_value_is_read_back_and_every_other_line_is_unchanged(
    parts: list[str], key: str, value: str | int
) -> None:
    before = "".join(parts)
    index = next((at for at, part in enumerate(parts) if key in tomllib.loads(part)), len(parts))
    above, below = "".join(parts[:index]), "".join(parts[index + 1 :])

    after = with_setting(before, key, value)

    assert tomllib.loads(after) == {**tomllib.loads(before), key: value}
    assert (after[: len(above)], after[len(after) - len(below) :]) == (above, below)
    assert tomllib.loads(after[len(above) : len(after) - len(below)]) == {key: value}
    assert with_setting(after, key, value) == after


@given(values)
def test_value_is_read_back_unchanged(value: str | int) -> None:
    assert tomllib.loads(f"x = {format_value(value)}") == {"x": value}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "beta = 7\n"),
        ("alpha = 1", "alpha = 1\nbeta = 7\n"),
        ("alpha = 1\n", "alpha = 1\nbeta = 7\n"),
        ("# why\nbeta = 1  # because\n\nalpha = 2\n", "# why\nbeta = 7  # because\n\nalpha = 2\n"),
        ('beta = "a # b" # c # d', "beta = 7 # c # d"),
        ("beta = 1 \r\nalpha = 2\r\n", "beta = 7 \r\nalpha = 2\r\n"),
        ('beta = """\n# no comment\n"""  # one\nalpha = 2\n', "beta = 7  # one\nalpha = 2\n"),
        ("# beta = 1\n", "# beta = 1\nbeta = 7\n"),
    ],
)
def test_one_line_is_changed_and_its_comment_stays(before: str, after: str) -> None:
    assert with_setting(before, "beta", 7) == after


def test_invalid_toml_is_not_changed() -> None:
    with pytest.raises(ValueError, match="line 2"):
        with_setting('alpha = 1\nbeta = "open', "beta", 7)


def test_hints_may_contain_the_same_text_as_a_message() -> None:
    settings = Settings(hints="be kind\nbe brief")

    assert check_settings(settings) is settings
    with pytest.raises(BadText, match="hints"):
        check_settings(Settings(hints="\x1b[2J"))
    with pytest.raises(MessageTooLarge, match="hints"):
        check_settings(Settings(hints="x" * (LIMIT_HINTS_BYTES + 1)))


def test_file_is_parsed_as_the_bus_reads_it_at_its_start() -> None:
    assert parse_settings(b"brake_hops = 7\n", "config.toml") == Settings(brake_hops=7)


@pytest.mark.parametrize("content", [b"[", b"\xff", b"colour = 1\n", b"hints = '\xe2\x80\xae'\n"])
def test_file_that_the_bus_would_refuse_is_refused(content: bytes) -> None:
    with pytest.raises(RequestError):
        parse_settings(content, "config.toml")


def test_setting_is_removed_with_its_line_only() -> None:
    text = "# mine\nalpha = 1\nbeta = 2 # why\n"

    assert without_setting(text, "beta") == "# mine\nalpha = 1\n"
    assert without_setting(text, "gamma") == text
