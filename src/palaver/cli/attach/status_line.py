"""The status line of the agent, fitted to the width. Pure; readable without colour."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from palaver.doors.argv.style import display_width, safe, truncate
from palaver.model.visible import exact

_BETWEEN: Final = " | "


@dataclass(frozen=True, slots=True)
class Standing:
    """The known state of the agent."""

    name: str
    state: str = "starting"
    detail: str = ""
    keyboard: str = "free"
    """The keyboard is `free`, `own`, or `other`."""
    queue: Mapping[str, int] = field(default_factory=dict)
    """Waiting messages by priority, and held ones; empty if unknown."""
    is_paused: bool = False
    is_away: bool = False
    """The bus does not respond now."""


def status_line(standing: Standing, mode: str, notice: str, width: int, hint: str = "") -> str:
    """Return the line, with a hint at its right end if there is room.

    On a narrow terminal the least important parts are dropped first; a notice is kept longest.
    """
    for words in _lines(standing, mode, safe(notice)):
        line = f" {_BETWEEN.join(filter(None, words))}"
        room = width - display_width(line) - display_width(hint) - 1
        if hint and not notice and room >= 2:
            return f"{line}{' ' * room}{hint} "
        if display_width(line) < width:
            return line
    return truncate(f"! {safe(notice)}" if notice else safe(standing.name), width)


def _lines(standing: Standing, mode: str, notice: str) -> Iterator[list[str]]:
    name, state = safe(standing.name), safe(standing.state)
    full = f"{state}: {exact(standing.detail)}" if standing.detail else state
    flags = _flags(standing)
    if notice:
        yield [name, full, *flags, f"! {notice}"]
        yield [name, state, f"! {notice}"]
        yield [name, f"! {notice}"]
        yield [f"! {notice}"]
        return
    counts, count = _queue(standing.queue)
    yield [name, full, *flags, counts, mode]
    yield [name, full, *flags, count, mode]
    short = mode.partition(",")[0]
    yield [name, state, *flags, count, short]
    yield [name, state, *flags, short]
    yield [name, state, short]
    yield [name, state]


def _flags(standing: Standing) -> list[str]:
    return [
        "bus away" if standing.is_away else "",
        "paused" if standing.is_paused else "",
        "keyboard elsewhere" if standing.keyboard == "other" else "",
    ]


def _queue(queue: Mapping[str, int]) -> tuple[str, str]:
    """Return the counts in full, and their sum."""
    if not queue:
        return "", ""
    waiting = {word: number for word, number in queue.items() if number}
    count = f"queue {sum(waiting.values())}"
    return (
        f"{count}: {', '.join(f'{number} {word}' for word, number in waiting.items())}" if waiting else count,
        count,
    )
