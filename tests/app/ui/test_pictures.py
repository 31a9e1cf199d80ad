"""Pictures of the dashboard: each is compared with the one that is kept.

`make pictures` keeps new ones; look at each of them before you commit it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension  # type: ignore[import-untyped]  # it has no types
from tests.app.ui.fake_bus import screen_text, settle
from tests.app.ui.fake_link import FakeCommands
from tests.app.ui.pictured_bus import NOW, EmptyLink, PicturedBus
from textual.pilot import Pilot

from palaver.app.ui.app import PalaverApp

SVGImageExtension.file_extension = "svg"  # newer versions of syrupy have this name for it

Compare = Callable[..., bool]
Step = tuple[tuple[str, ...], str]
"""Keys, and a text that the screen shows after them."""

_USUAL = (80, 24)
_WIDE = (132, 34)
_SMALL = (40, 12)
_TINY = (20, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a person does before a picture is taken."""

    first: str = "1"
    steps: tuple[Step, ...]
    size: tuple[int, int] = _USUAL
    is_ascii: bool = False
    has_colour: bool = True
    is_empty: bool = False


def after(*steps: tuple[str, str], first: str = "1", **fields: object) -> Picture:
    """Return a picture; the keys of a step are separated by blanks."""
    return Picture(first=first, steps=tuple((tuple(keys.split()), text) for keys, text in steps), **fields)  # type: ignore[arg-type]


_NOW = ("", "please rebase on main")
_AGENTS = ("", "mira +1")
_MIRA = ("j j enter", "Do you want to proceed?")
_TALK = ("", "From release-2.")
_ROOMS = ("", "3 of 3 here")
_LOG = ("", "luna asks")
_PAST = ("", "luna asks")
_THEN = ("t 3 0 enter", "past #30")

PICTURES = {
    "now": after(_NOW, ("j", "has no reply yet")),
    "now-no-colour": after(_NOW, has_colour=False),
    "now-ascii": after(_NOW, is_ascii=True),
    "now-small": after(_NOW, size=_SMALL),
    "now-tiny": after(("", "held"), size=_TINY, is_ascii=True),
    "now-wide": after(_NOW, size=_WIDE),
    "hint": after(("", "pal install"), is_empty=True),
    "hint-small": after(("", "pal"), is_empty=True, size=_SMALL, is_ascii=True),
    "request": after(_NOW, ("j enter", "Esc closes")),
    "reply": after(_NOW, ("j r M a i n", "Main")),
    "release": after(_NOW, ("l", "y yes")),
    "question": after(_NOW, ("j j a", "y yes")),
    "question-ascii": after(_NOW, ("j j a", "y yes"), is_ascii=True, has_colour=False),
    "question-small": after(_NOW, ("j j a", "y yes"), size=_SMALL),
    "keys": after(_NOW, ("question_mark", "Esc closes")),
    "keys-small": after(_NOW, ("question_mark", "Esc closes"), size=_SMALL),
    "agents": after(_AGENTS, first="2"),
    "agents-wide": after(_AGENTS, first="2", size=_WIDE),
    "agents-no-colour": after(_AGENTS, first="2", has_colour=False, is_ascii=True),
    "group": after(_AGENTS, ("space j j space x", "y yes"), first="2"),
    "launch": after(_AGENTS, ("n", "Enter launches"), first="2"),
    "agent": after(_AGENTS, _MIRA, first="2"),
    "agent-wide": after(_AGENTS, _MIRA, first="2", size=_WIDE),
    "agent-ascii": after(_AGENTS, _MIRA, first="2", is_ascii=True, has_colour=False),
    "agent-small": after(("", "mira +1"), _MIRA, first="2", size=_SMALL),
    "talk": after(_TALK, first="3"),
    "talk-ascii": after(_TALK, first="3", is_ascii=True, has_colour=False),
    "talk-wide": after(_TALK, first="3", size=_WIDE),
    "talk-small": after(("", "kilo"), ("enter", "release-2"), first="3", size=_SMALL),
    "talk-reply": after(_TALK, ("enter r D o n e", "Done"), first="3"),
    "ledger": after(_TALK, ("enter enter", "stored by you"), first="3"),
    "ledger-ascii": after(_TALK, ("enter enter", "stored by you"), first="3", is_ascii=True),
    "rooms": after(_ROOMS, ("j", "CI has no libpq"), first="4"),
    "rooms-small": after(_ROOMS, first="4", size=_SMALL, is_ascii=True),
    "log": after(_LOG, first="5"),
    "log-search": after(_LOG, ("slash p a r s e r enter", "parser"), first="5"),
    "log-small": after(("", "luna"), first="5", size=_SMALL, is_ascii=True),
    "past": after(_PAST, _THEN, first="6"),
    "past-agents": after(_PAST, _THEN, ("2", "[2 Agents]"), first="6"),
    "past-ascii": after(_PAST, _THEN, ("1", "[1 Now]"), first="6", is_ascii=True, has_colour=False),
}


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Use UTC, a known folder and known harnesses, and no settings of this terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for harness in ("claude", "codex"):
        (tmp_path / harness).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir("/")
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def dashboard(picture: Picture) -> PalaverApp:
    """Return the dashboard of a picture."""
    bus = PicturedBus()
    bus.link.push(bus.now())
    return PalaverApp(
        EmptyLink() if picture.is_empty else bus.link,
        FakeCommands() if picture.is_empty else bus.commands,
        is_ascii=picture.is_ascii,
        first=picture.first,
        clock=lambda: NOW,
    )


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = PICTURES[name]
    if not picture.has_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    app = dashboard(picture)

    async def play(pilot: Pilot[int]) -> None:
        for keys, text in picture.steps:
            await pilot.press(*keys)
            await settle(pilot, lambda text=text: text in screen_text(app))  # type: ignore[misc]

    assert snap_compare(app, run_before=play, terminal_size=picture.size), (
        "the report is in build/pictures.html; 'make pictures' keeps the new picture"
    )
