import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.app.chat import ChatCommand, ChatText, parse_line


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hello all", ChatText("hello all")),
        ("@luna look at this", ChatText("look at this", ("luna",))),
        ("@Luna, @nova: look", ChatText("look", ("luna", "nova"))),
        ("!@luna stop", ChatText("stop", ("luna",), True)),
        ("ask @nova about it", ChatText("ask @nova about it", ("nova",))),
        ("@api-luna hi", ChatText("hi", ("api-luna",))),
        ("@luna", ChatText("@luna", ("luna",))),
        ("write to me@example.com", ChatText("write to me@example.com")),
        ("> !@nova said @kai", ChatText("> !@nova said @kai")),
        ("> !@nova\n  > @kai\n@luna look", ChatText("> !@nova\n  > @kai\n@luna look", ("luna",))),
        ("@luna > 3", ChatText("> 3", ("luna",))),
        ("!important", ChatText("!important")),
        ("//etc is a folder", ChatText("/etc is a folder")),
        ("/WHO", ChatCommand("/who")),
        ("/events all", ChatCommand("/events", "all")),
        ("   ", None),
    ],
)
def test_line_is_parsed(line: str, meant: object) -> None:
    assert parse_line(line) == meant


@given(st.text())
def test_any_line_can_be_parsed_and_its_text_is_never_empty(line: str) -> None:
    meant = parse_line(line)

    assert not isinstance(meant, ChatText) or meant.text.strip()
