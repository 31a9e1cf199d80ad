"""Draw terminals as SVG, with text that can be selected, also as a recording. Pure: screens in, text out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, groupby
from typing import Final

import pyte
from pyte.screens import Char

CELL_W = 7.8
CELL_H = 17.0
FONT_SIZE = 13
PADDING = 14.0
BAR_H = 30.0
GAP = 6 * CELL_W - 2 * PADDING  # so that a window below two others can be as wide as both

BACKGROUND = "#0d1117"
FOREGROUND = "#d7dde5"
BAR = "#1c2430"
TITLE = "#9da9b8"
LIGHTS = ("#ff5f57", "#febc2e", "#28c840")
COLOURS = {
    "black": "#484f58",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#56d4dd",
    "white": "#c9d1d9",
    "brightblack": "#8b949e",
    "brightred": "#ffa198",
    "brightgreen": "#7ee787",
    "brightbrown": "#f2cc60",
    "brightblue": "#a5d6ff",
    "brightmagenta": "#e2c5ff",
    "brightcyan": "#b3f0ff",
    "brightwhite": "#ffffff",
}
FONTS = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_STYLE = f"text{{font:{FONT_SIZE}px {FONTS};white-space:pre}}.t{{font-size:12px}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One terminal, its title, and the position of its upper left corner in pixels."""

    title: str
    screen: pyte.Screen
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return self.screen.columns * CELL_W + 2 * PADDING

    @property
    def height(self) -> float:
        return self.screen.lines * CELL_H + BAR_H + 2 * PADDING


def draw(windows: Sequence[Window], description: str) -> str:
    """Return a picture of these windows; the description is for readers who do not see it."""
    width = max(one.x + one.width for one in windows)
    height = max(one.y + one.height for one in windows)
    return _document(width, height, description, _STYLE, (line for one in windows for line in _window(one)))


def _document(width: float, height: float, description: str, style: str, lines: Iterable[str]) -> str:
    """Return the whole file of a picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(description)}">',
        f"<title>{escape(description)}</title>",
        f"<style>{style}</style>",
        *lines,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """The windows of a recording at one time, how long they are shown, and a sentence about them."""

    windows: Sequence[Window]
    caption: str
    duration_s: float


def draw_recording(shots: Sequence[Shot], description: str) -> str:
    """Return an animated picture: the same windows again and again, with other screens.

    It is CSS only, because scripts do not run in an image of a page. A reader who wants no motion sees the
    last shot.
    """
    windows = shots[0].windows
    width = max(one.x + one.width for one in windows)
    bottom = max(one.y + one.height for one in windows)
    height = bottom + CAPTION_H
    total_s = sum(shot.duration_s for shot in shots)
    screens = [[_rows(shot.windows[at]) for shot in shots] for at in range(len(windows))]
    captions = [[_caption(shot.caption, bottom, width)] for shot in shots]
    starts = [100 * one / total_s for one in accumulate((shot.duration_s for shot in shots), initial=0.0)]
    layers = [layer for one in (*screens, captions) for layer in _layers(one, starts)]
    style = (
        f"{_STYLE}.c{{font-size:15px}}"
        f".s,.l{{animation:{total_s:g}s step-end infinite}}.s{{visibility:hidden}}"
        "@media (prefers-reduced-motion:reduce){.s,.l{animation:none}}"
    )
    style += "".join(dict.fromkeys(layer.rule for layer in layers))
    frames = [line for window in windows for line in _frame(window)]
    return _document(
        width, height, description, style, [*frames, *(line for one in layers for line in one.lines)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """Something that is shown for a part of a recording, and the rule for it."""

    lines: Sequence[str]
    rule: str = ""


def _layers(contents: Sequence[Sequence[str]], starts: Sequence[float]) -> Iterator[_Layer]:
    """Yield each content once for the shots in a row that have it. `starts` are percentages."""
    at = 0
    for content, same in groupby(contents):
        end = at + len(list(same))
        is_last = end == len(contents)
        if at == 0 and is_last:
            yield _Layer(lines=content)  # The same in all shots, so it needs no animation.
        else:
            name, kind = f"s{at}-{end}", "l" if is_last else "s"
            group = f'<g class="{kind}" style="animation-name:{name}">'
            rule = _keyframes(name, starts[at], None if is_last else starts[end])
            yield _Layer(lines=[group, *content, "</g>"], rule=rule)
        at = end


CAPTION_H: Final = 34.0


def _caption(text: str, top: float, width: float) -> str:
    # A grey that can be read on a light and on a dark page.
    return (
        f'<text class="c" x="{width / 2:.1f}" y="{top + 23:.1f}" text-anchor="middle" '
        f'fill="#768390">{escape(text)}</text>'
    )


def _keyframes(name: str, begins: float, ends: float | None) -> str:
    """Return the rule that shows something from one percentage of the recording to another."""
    steps = "" if begins == 0 else "0%{visibility:hidden}"
    steps += f"{begins:.2f}%{{visibility:visible}}"
    steps += f"{ends:.2f}%{{visibility:hidden}}" if ends is not None else "to{visibility:visible}"
    return f"@keyframes {name}{{{steps}}}"


def _window(window: Window) -> list[str]:
    return _frame(window) + _rows(window)


def _rows(window: Window) -> list[str]:
    return [line for row in range(window.screen.lines) for line in _row(window, row)]


def _frame(window: Window) -> list[str]:
    x, y, width = window.x, window.y, window.width
    lights = [
        f'<circle cx="{x + 18 + 18 * at:.1f}" cy="{y + BAR_H / 2:.1f}" r="5.5" fill="{colour}"/>'
        for at, colour in enumerate(LIGHTS)
    ]
    return [
        f'<rect x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width - 1:.1f}" height="{window.height - 1:.1f}" '
        f'rx="9" fill="{BACKGROUND}" stroke="#30363d"/>',
        f'<path d="M{x + 1:.1f} {y + BAR_H:.1f}v-20a9 9 0 0 1 9 -9h{width - 20:.1f}a9 9 0 0 1 9 9v20z" '
        f'fill="{BAR}"/>',
        *lights,
        f'<text class="t" x="{x + width / 2:.1f}" y="{y + BAR_H / 2 + 4:.1f}" text-anchor="middle" '
        f'fill="{TITLE}">{escape(window.title)}</text>',
    ]


def _row(window: Window, row: int) -> list[str]:
    """Return the backgrounds and texts of one row: one element for each run of equal cells."""
    cells = [window.screen.buffer[row][column] for column in range(window.screen.columns)]
    left = window.x + PADDING
    top = window.y + BAR_H + PADDING + row * CELL_H
    backs: list[str] = []
    texts: list[str] = []
    column = 0
    for style, run in groupby(cells, key=_style):
        text = "".join(cell.data for cell in run)
        size = len(text)
        x = left + column * CELL_W
        column += size
        fill, back, extra = style
        if back != BACKGROUND:
            backs.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{size * CELL_W:.1f}" height="{CELL_H:.1f}" '
                f'fill="{back}"/>'
            )
        shown = text.strip()
        if not shown:
            continue
        start = x + (size - len(text.lstrip())) * CELL_W
        # The length is fixed, so that another font on the reader's machine does not move anything.
        texts.append(
            f'<text x="{start:.1f}" y="{top + CELL_H * 0.76:.1f}" fill="{fill}"{extra} '
            f'textLength="{len(shown) * CELL_W:.1f}" lengthAdjust="spacingAndGlyphs">{escape(shown)}</text>'
        )
    return backs + texts


def _style(cell: Char) -> tuple[str, str, str]:
    fill, back = _colour(cell.fg, FOREGROUND), _colour(cell.bg, BACKGROUND)
    if cell.reverse:
        fill, back = back, fill
    extra = (' font-weight="700"' if cell.bold else "") + (' font-style="italic"' if cell.italics else "")
    return fill, back, extra


def _colour(name: str, usual: str) -> str:
    if name == "default":
        return usual
    return COLOURS.get(name) or f"#{name}"
