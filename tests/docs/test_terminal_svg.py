"""Pictures of terminals: every text is at its place, in its colour, and the file is valid XML."""

from xml.etree import ElementTree as ET

import pyte
from tools.terminal_svg import BACKGROUND, CELL_H, CELL_W, COLOURS, Window, draw

SVG = "{http://www.w3.org/2000/svg}"


def drawn(content: bytes, *, x: float = 0.0) -> ET.Element:
    screen = pyte.Screen(20, 3)
    pyte.ByteStream(screen).feed(content)
    return ET.fromstring(draw([Window(title="a <b>", screen=screen, x=x)], "two & more"))


def texts(picture: ET.Element) -> dict[str, dict[str, str]]:
    return {one.text or "": one.attrib for one in picture.iter(f"{SVG}text")}


def test_texts_and_titles_are_escaped() -> None:
    picture = drawn(b"1 < 2 && 3 > 2")

    assert set(texts(picture)) == {"a <b>", "1 < 2 && 3 > 2"}
    assert picture.attrib["aria-label"] == "two & more"


def test_position_follows_row_and_column() -> None:
    first = texts(drawn(b"top"))["top"]
    second = texts(drawn(b"\r\n    low", x=100.0))["low"]

    assert float(second["x"]) - float(first["x"]) == round(100.0 + 4 * CELL_W, 1)
    assert round(float(second["y"]) - float(first["y"]), 1) == CELL_H
    assert float(second["textLength"]) == round(3 * CELL_W, 1)


def test_each_style_is_one_text() -> None:
    found = texts(drawn(b"\x1b[1;31mred\x1b[0m \x1b[3mslanted\x1b[0m \x1b[38;2;1;2;3mown"))

    assert (found["red"]["fill"], found["red"]["font-weight"]) == (COLOURS["red"], "700")
    assert found["slanted"]["font-style"] == "italic"
    assert found["own"]["fill"] == "#010203"


def test_reverse_text_has_a_background() -> None:
    picture = drawn(b"\x1b[7mbar\x1b[0m")

    assert texts(picture)["bar"]["fill"] == BACKGROUND
    widths = [float(one.attrib["width"]) for one in picture.iter(f"{SVG}rect")]
    assert round(3 * CELL_W, 1) in widths
