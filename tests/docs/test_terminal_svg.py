"""Pictures of terminals: every text is at its place, in its colour, and the file is valid XML."""

from xml.etree import ElementTree as ET

import pyte
import pytest
from tools.terminal_svg import BACKGROUND, CELL_H, CELL_W, COLOURS, Shot, Window, draw, draw_recording

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


@pytest.fixture
def recording() -> ET.Element:
    """Two shots of two windows: only the first window and the caption change."""
    first, second, other = (pyte.Screen(20, 3) for _ in range(3))
    for screen, content in ((first, b"one"), (second, b"two"), (other, b"same")):
        pyte.ByteStream(screen).feed(content)
    shots = [
        Shot(
            windows=[Window(title="a", screen=screen), Window(title="b", screen=other, x=200.0)],
            caption=f"<{number}>",
            duration_s=2.0,
        )
        for number, screen in enumerate((first, second))
    ]
    return ET.fromstring(draw_recording(shots, "a story"))


def groups(picture: ET.Element) -> dict[str, str]:
    """Return the animation of each text that is not always shown."""
    found = {}
    for group in picture.iter(f"{SVG}g"):
        for text in group.iter(f"{SVG}text"):
            found[text.text or ""] = f"{group.attrib['class']} {group.attrib['style']}"
    return found


def test_recording_shows_each_screen_in_its_time_and_the_same_one_once(recording: ET.Element) -> None:
    style = recording.findtext(f"{SVG}style") or ""

    assert groups(recording) == {
        "one": "s animation-name:s0-1",
        "two": "l animation-name:s1-2",
        "<0>": "s animation-name:s0-1",
        "<1>": "l animation-name:s1-2",
    }
    assert [one.text for one in recording.iter(f"{SVG}text")].count("same") == 1
    assert style.count("@keyframes s0-1{0.00%{visibility:visible}50.00%{visibility:hidden}}") == 1
    assert "@keyframes s1-2{0%{visibility:hidden}50.00%{visibility:visible}to{visibility:visible}}" in style


def test_recording_without_motion_shows_its_last_screens(recording: ET.Element) -> None:
    style = recording.findtext(f"{SVG}style") or ""

    assert ".s{visibility:hidden}" in style
    assert ".l{visibility" not in style
    assert "@media (prefers-reduced-motion:reduce){.s,.l{animation:none}}" in style
