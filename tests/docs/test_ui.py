"""The pages about the dashboard and the chat list exactly the keys of the code."""

import importlib
import re

import pytest
from tests.docs.pages import DOCS

from palaver.app.chat import COMMANDS
from palaver.app.ui.agents import AgentScreen
from palaver.app.ui.app import COMMON_KEYS, SCREENS
from palaver.app.ui.log import FILTERS
from palaver.app.ui.messages import MARKS
from palaver.app.ui.talk import RoomTalk

_ROW = re.compile(r"\| (.+?) \| (.+) \|")
_SECTION = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _rows(page: str, section: str) -> list[tuple[str, str]]:
    """Return the keys in the table of a section."""
    text = (DOCS / page).read_text()
    parts = _SECTION.split(text)
    body = parts[parts.index(section) + 1]
    found = [(row[1], row[2]) for line in body.splitlines() if (row := _ROW.fullmatch(line)) is not None]
    return found[found.index(("key", "effect")) + 1 :]


@pytest.mark.parametrize("key", SCREENS)
def test_page_lists_the_keys_of_each_screen(key: str) -> None:
    module, name, title = SCREENS[key]
    screen = getattr(importlib.import_module(f"palaver.app.ui.{module}"), name)

    assert _rows("ui.md", title) == list(screen.KEYS)


def test_page_lists_the_keys_of_an_agent_of_all_screens_and_of_the_chat() -> None:
    assert _rows("ui.md", "One agent") == list(AgentScreen.KEYS)
    assert _rows("ui.md", "Keys on every screen") == list(COMMON_KEYS)
    assert _rows("chat.md", "Chat") == list(RoomTalk.KEYS)


def test_pages_have_every_filter_mark_and_command() -> None:
    ui, chat = (DOCS / "ui.md").read_text(), (DOCS / "chat.md").read_text()

    assert [name for name in (*FILTERS, "since", "until") if f"`{name}`" not in ui] == []
    assert [
        mark for mark in MARKS.values() if f"`{mark.sign}`" not in ui or f"`{mark.ascii_sign}`" not in ui
    ] == []
    assert [word for word in COMMANDS if f"`{word}`" not in chat] == []
