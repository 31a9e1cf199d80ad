"""The screen Now: everything that waits for the person, oldest first, with what can be done about it."""

from typing import TYPE_CHECKING, ClassVar, Final

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from palaver.app.ui.app import BusScreen
from palaver.app.ui.commands import pal_line
from palaver.app.ui.rows import Rows
from palaver.app.ui.widgets import (
    BOLD,
    DIM,
    RED,
    YELLOW,
    Composer,
    OutgoingText,
    TextRows,
    now_ms,
    safe_content,
)
from palaver.errors import PalaverError
from palaver.protocol.display import ago, truncate
from palaver.protocol.views import AskPermission, Attention, AttentionKind, PermissionPage

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.app.ui.store import Record

_HINT: Final = """\
No agent has joined yet.

  pal claude --name luna     starts Claude Code as the agent luna (also codex, gemini, opencode)
  n on the screen Agents     does the same with a form
  pal install claude         connects a harness that you start yourself
  ?                          shows the keys of each screen, here and everywhere
"""
_QUIET: Final = "Nothing waits for you."
_URGENT: Final = frozenset({AttentionKind.PERMISSION, AttentionKind.BLOCKED})


class AttentionRows:
    """The open entries, oldest first."""

    def __init__(self, app: "PalaverApp") -> None:
        self._app = app

    @property
    def total(self) -> int:
        """Return the number of entries."""
        return len(self._app.store.attention_list)

    def row(self, index: int, width: int) -> Content | None:
        """Return the kind, age, agent and text of an entry."""
        entry = self._app.store.attention[self.key(index)]
        return attention_line(entry, now_ms(), is_ascii=self._app.is_ascii)

    def want(self, first: int, last: int) -> None:
        """Do nothing: all entries are there."""

    def key(self, index: int) -> str:
        """Return the key of an entry."""
        return self._app.store.attention_list.key(index)

    def find(self, key: str) -> int:
        """Return where an entry is."""
        return self._app.store.attention_list.find(key)


def attention_line(entry: Attention, now: int, *, is_ascii: bool = False) -> Content:
    """Return an entry as one line."""
    kind = Content.styled(f"{entry.kind:<11} ", RED if entry.kind in _URGENT else YELLOW)
    age = Content.styled(f"{ago(now - entry.since):>4} ", DIM)
    who = safe_content(f"{truncate(entry.who, 16):<16} ", BOLD, is_ascii=is_ascii)
    return kind + age + who + safe_content(entry.what, is_ascii=is_ascii)


class NowScreen(BusScreen):
    """What waits for the person."""

    KEY = "1"
    KEYS_LINE = "Enter open  a approve  x deny  r reply  l release  ? keys  : command  q quit"
    KEYS = (
        ("Enter", "show the entry, and do its first action"),
        ("a", "approve a permission request, after showing all of it"),
        ("x", "deny a permission request, after showing all of it"),
        ("r", "reply to the agent"),
        ("l", "release a held message"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer('approve')", show=False),
        Binding("x", "answer('deny')", show=False),
        Binding("r", "reply", show=False),
        Binding("l", "release", show=False),
    ]
    DEFAULT_CSS = """
    NowScreen #detail { height: auto; max-height: 40%; min-height: 3; }
    NowScreen.-low #detail { display: none; }
    """

    def compose_content(self) -> ComposeResult:
        """Build the list, the entry below it, and the composer."""
        yield Rows(AttentionRows(self.ui), id="entries")
        yield TextRows(is_ascii=self.is_ascii, id="detail")
        yield Composer(self.store.names)

    def opened(self) -> None:
        """Let the person move in the list."""
        self.query_one("#entries", Rows).focus()

    @property
    def entry(self) -> Attention | None:
        """The entry with the cursor."""
        return self.store.attention.get(self.query_one("#entries", Rows).cursor_key)

    def changed(self, record: "Record") -> None:
        """Draw the entries again."""
        rows = self.query_one("#entries", Rows)
        rows.say_if_empty("" if self.store.is_empty or not self.store.has_snapshot else _QUIET)
        rows.refresh_rows()
        self._show_detail()

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the entry with the cursor."""
        self._show_detail()

    def _show_detail(self) -> None:
        detail, entry = self.query_one("#detail", TextRows), self.entry
        text = detail_text(entry) if entry is not None else _HINT if self.store.is_empty else ""
        if detail.text != text:
            detail.show_text(text)

    # Actions

    def action_answer(self, word: str) -> None:
        """Approve or deny the permission request with the cursor."""
        entry = self.entry
        if entry is None or entry.kind != AttentionKind.PERMISSION:
            self.say("this entry is not a permission request", is_error=True)
        elif self.ui.may_act():
            self._answer(entry, word)

    @work(group="answer")
    async def _answer(self, entry: Attention, word: str) -> None:
        try:
            page = await self.ui.link.ask(AskPermission(id=entry.id), PermissionPage)
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        argv = ["pal", word, page.id]
        if await self.ui.confirm(f"{word} this request of {page.agent}?", permission_text(page), argv):
            await self.ui.run_pal(argv)

    def action_reply(self) -> None:
        """Write to the agent of the entry."""
        entry = self.entry
        if entry is None or not self.ui.may_act():
            return
        self.query_one(Composer).open(
            OutgoingText(targets=(f"@{entry.who}",), reply_to=entry.seq, quote=entry.what)
        )

    def action_release(self) -> None:
        """Release the held message with the cursor."""
        self._act("release")

    @work(group="act")
    async def _act(self, word: str) -> None:
        entry = self.entry
        action = next((one for one in entry.actions if one.word == word), None) if entry is not None else None
        if entry is None or action is None:
            self.say(f"there is nothing to {word} here", is_error=True)
        elif await self.ui.confirm(f"{word}: {entry.who}", detail_text(entry), action.command):
            await self.ui.run_pal(action.command)


def detail_text(entry: Attention) -> str:
    """Return everything about an entry."""
    lines = [f"{entry.kind} of {entry.who}", entry.what, "", entry.why]
    lines += [f"{action.word}: {pal_line(action.command)}" for action in entry.actions]
    return "\n".join(lines)


def permission_text(page: PermissionPage) -> str:
    """Return a whole permission request."""
    head = f"{page.agent} asks to use {page.tool}"
    return "\n\n".join((head, page.text, page.input, f"request {page.id}, digest {page.digest}"))
