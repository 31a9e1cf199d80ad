import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.cli.chat.words import Command, Said, parse_line


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hello all", Said("hello all")),
        ("@luna look at this", Said("look at this", ("luna",))),
        ("@Luna, @nova: look", Said("look", ("luna", "nova"))),
        ("!@luna stop", Said("stop", ("luna",), True)),
        ("ask @nova about it", Said("ask @nova about it", ("nova",))),
        ("@api-luna hi", Said("hi", ("api-luna",))),
        ("@luna", Said("@luna", ("luna",))),
        ("write to me@example.com", Said("write to me@example.com")),
        ("!important", Said("!important")),
        ("//etc is a folder", Said("/etc is a folder")),
        ("/WHO", Command("/who")),
        ("/events all", Command("/events", "all")),
        ("   ", None),
    ],
)
def test_line_is_parsed(line: str, meant: object) -> None:
    assert parse_line(line) == meant


@given(st.text())
def test_any_line_can_be_parsed_and_its_text_is_never_empty(line: str) -> None:
    meant = parse_line(line)

    assert not isinstance(meant, Said) or meant.text.strip()
