"""The screen Now: everything that waits for the person, oldest first, with what can be done about it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content

from palaver.app.ui.app import TIMES_S, BusScreen, letter_key
from palaver.app.ui.commands import pal_line
from palaver.app.ui.composer import MessageComposer, OutgoingText
from palaver.app.ui.rows import RowList
from palaver.app.ui.widgets import BOLD, DIM, RED, YELLOW, Question, TextRows, Window, safe_content, safe_line
from palaver.errors import PalaverError
from palaver.protocol.display import ago, display_width, truncate
from palaver.protocol.events import State
from palaver.protocol.text import exact
from palaver.protocol.views import (
    Action,
    AskLedger,
    AskPermission,
    Attention,
    AttentionKind,
    LedgerPage,
    MessageRow,
    PermissionPage,
)

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record

_HINT: Final = """\
No agent has joined yet.

  pal claude --name luna
      starts Claude Code as the agent luna; codex, gemini and opencode work the same way
  n on the screen Agents (2)
      does the same with a form
  pal install claude
      connects a harness that you start yourself
  ?
      shows the keys of each screen, here and everywhere
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
        return attention_line(entry, self._app.now_ms(), width, is_ascii=self._app.is_ascii)

    def want(self, first: int, last: int) -> None:
        """Do nothing: all entries are there."""

    def key(self, index: int) -> str:
        """Return the key of an entry."""
        return self._app.store.attention_list.key(index)

    def find(self, key: str) -> int:
        """Return where an entry is."""
        return self._app.store.attention_list.find(key)


def attention_line(entry: Attention, now: int, width: int, *, is_ascii: bool = False) -> Content:
    """Return an entry as one line of at most `width` columns."""
    wide = 16 if width >= _WIDE_NAME else 8
    kind = Content.styled(f"{entry.kind:<11} ", RED if entry.kind in _URGENT else YELLOW)
    age = Content.styled(f"{ago(now - entry.since):>4} ", DIM)
    name = safe_line(truncate(entry.who, wide), is_ascii=is_ascii)
    who = safe_content(f"{name}{' ' * (wide - display_width(name))} ", BOLD)
    what = safe_content(entry.what, is_ascii=is_ascii)
    space = Content(" ")
    is_short = width < _WIDE_AGE
    line = kind.rstrip() + space + who.rstrip() + space + what if is_short else kind + age + who + what
    return line.truncate(width, ellipsis=True)


_WIDE_AGE: Final = 30
"""A line with fewer columns has no age, and no columns."""
_WIDE_NAME: Final = 60
"""A line with fewer columns has a shorter name, so that the text has room."""


_KEYS_OF: Final = {
    "approve": "a",
    "deny": "x",
    "reply": "r",
    "release": "l",
    "redeliver": "d",
    "attach": "t",
    "takeover": "o",
    "kick": "K",
    "clear": "c",
    "show": "Enter",
}
"""The key of each action that an entry can have."""
_OVER: Final = "This request has ended meanwhile: "


class EntryWindow(Window):
    """One entry, with the keys of its actions."""

    def __init__(self, title: str, text: str, entry: Attention) -> None:
        super().__init__(title, text)
        self._entry = entry

    def on_key(self, event: events.Key) -> None:
        """Close the window and do what the key does."""
        if event.character is not None and event.character in _KEYS_OF.values():
            event.stop()
            self.dismiss(False)  # first: the action may open a question or the composer
            screen = next(one for one in self.app.screen_stack if isinstance(one, NowScreen))
            screen.act_on(self._entry, event.character)


class NowScreen(BusScreen):
    """The open entries that need the person."""

    KEY = "1"
    KEYS_LINE = "Enter open  a approve  x deny  r reply  l release  ? keys  : command  q quit"
    KEYS = (
        ("Enter", "open the entry: the whole request, message or agent"),
        ("a", "approve a permission request, after showing all of it"),
        ("x", "deny a permission request, after showing all of it"),
        ("r", "reply to the agent"),
        ("l", "release a held message"),
        ("d", "deliver an unconfirmed message again"),
        ("t", "attach to the agent's terminal; detach returns here"),
        ("o, K", "take over a stick, or remove its owner from the room"),
        ("c", "clear the dead letters"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("a", "answer('approve')"),
        letter_key("x", "answer('deny')"),
        letter_key("r", "reply"),
        letter_key("t", "attach"),
        *(
            letter_key(_KEYS_OF[word], f"act('{word}')")
            for word in ("release", "redeliver", "takeover", "kick", "clear")
        ),
    ]
    DEFAULT_CSS = """
    NowScreen #detail { height: auto; max-height: 50%; min-height: 1; margin: 1 0 0 0; padding: 0 0 0 2; }
    NowScreen.-low #detail { display: none; }
    NowScreen.-hint #entries { display: none; }
    NowScreen.-hint #detail { display: block; height: 1fr; max-height: 100%; margin: 0; padding: 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._asked: tuple[Attention, Question] | None = None
        self._replied: Attention | None = None

    def compose_content(self) -> ComposeResult:
        """Build the list, the entry below it, and the composer."""
        yield RowList(AttentionRows(self.ui), id="entries")
        yield TextRows(is_ascii=self.is_ascii, id="detail")
        yield self.new_composer()

    def opened(self) -> None:
        """Let the person move in the list; redraw the times now and then."""
        self.query_one("#detail", TextRows).can_focus = False
        self.rows.focus()
        self.set_interval(TIMES_S, self._redraw_times)

    @property
    def rows(self) -> RowList:
        """The list."""
        return self.query_one("#entries", RowList)

    @property
    def entry(self) -> Attention | None:
        """The entry with the cursor."""
        return self.store.attention.get(self.rows.cursor_key)

    def changed(self, record: "Record") -> None:
        """Draw the entries again, and say in an open question that its entry has ended."""
        self.rows.say_if_empty("" if self.store.is_empty or not self.store.has_snapshot else _QUIET)
        self.rows.refresh_rows()
        self._show_detail()
        if self._asked is not None and self._has_ended(self._asked[0]):
            asked, self._asked = self._asked, None
            self._warn(*asked)

    def in_view(self, record: "Record") -> Collection[str]:
        """Return the entries in the visible part of the list."""
        rows, keys = self.rows, self.store.attention_list
        return [keys.key(at) for at in range(rows.top, min(len(keys), rows.top + rows.size.height))]

    def on_row_list_cursor_moved(self, event: RowList.CursorMoved) -> None:
        """Show the entry with the cursor."""
        self._show_detail()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open the entry: the whole request, message or agent."""
        if (entry := self.store.attention.get(event.key)) is not None:  # it may have ended since the key
            self._open(entry)

    def _redraw_times(self) -> None:
        if self.is_current:
            self.rows.refresh()

    def _show_detail(self) -> None:
        detail, entry = self.query_one("#detail", TextRows), self.entry
        self.set_class(self.store.is_empty and not self.store.attention, "-hint")
        text = detail_text(entry) if entry is not None else _HINT if self.store.is_empty else ""
        if detail.text != text:  # showing it again would scroll it back to its start
            detail.show_text(text)

    # Actions
    #
    # Only the newest one opens a window: the worker of an earlier one is ended while it still reads.

    @work(group="read", exclusive=True)
    async def _open(self, entry: Attention) -> None:
        if entry.kind in (AttentionKind.BLOCKED, AttentionKind.STALE):
            from palaver.app.ui.agents import AgentScreen  # only when it is used

            self.ui.push_screen(AgentScreen(entry.who))
            return
        try:
            text = await self._whole(entry)
        except PalaverError as error:
            text = f"{entry.what}\n\n{error}"
        if self.can_show_window:
            keys = detail_text(entry, is_short=True)
            self.ui.push_screen(EntryWindow(f"{entry.kind}: {entry.who}", f"{text}\n\n{keys}", entry))

    def act_on(self, entry: Attention, press: str) -> None:
        """Do what a key does, for an entry that was shown in a window."""
        at = self.store.attention_list.find(entry.key)
        if at < 0:
            self._say_ending(entry)
            return
        self.rows.move_to(at)
        if press in "ax":
            self.action_answer("approve" if press == "a" else "deny")
        elif press == "r":
            self.action_reply()
        elif press == "t":
            self.action_attach()
        else:
            self.action_act(next(word for word, one in _KEYS_OF.items() if one == press))

    async def _whole(self, entry: Attention) -> str:
        """Return everything about an entry. A message to the person counts as read then."""
        link, at = self.ui.link, self.store.at
        if entry.kind == AttentionKind.PERMISSION:
            return permission_text(await link.ask(AskPermission(id=entry.id, at=at), PermissionPage))
        if not entry.seq:
            return entry.what
        if entry.kind == AttentionKind.REQUEST and not at:
            await link.acknowledge([entry.seq])  # before its state is read, which says so then
        page = await link.ask(AskLedger(message=str(entry.seq), at=at), LedgerPage)
        return self._message_text(page.message)

    def _message_text(self, row: MessageRow) -> str:
        from palaver.app.ui.messages import look_of, message_text  # only when it is used

        # Why it waits is what the entry itself says.
        settled = tuple(mark for mark in row.marks if mark.reason is None)
        return message_text(msgspec.structs.replace(row, marks=settled), look_of(self.ui))

    def action_answer(self, word: str) -> None:
        """Approve or deny the permission request with the cursor."""
        entry = self.entry
        if entry is None or entry.kind != AttentionKind.PERMISSION:
            self.say("this entry is not a permission request", is_error=True)
        elif self.ui.may_act():
            self._answer(entry, word)

    @work(group="read", exclusive=True)
    async def _answer(self, entry: Attention, word: str) -> None:
        """Show the whole request; approve or deny exactly the shown one."""
        try:
            page = await self.ui.ask(AskPermission(id=entry.id), PermissionPage)
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        # No request ever gets this id again, so the command can only be about the shown one.
        argv = ["pal", word, page.id]
        title = f"{word} this request of {page.agent}?"
        self._ask_and_run(entry, title, permission_text(page), argv)

    def action_reply(self) -> None:
        """Write to the agent of the entry."""
        entry = self.entry
        if entry is None or not self.ui.may_act():
            return
        self._replied = entry
        self.query_one(MessageComposer).open(
            OutgoingText(targets=(f"@{entry.who}",), reply_to=entry.seq, quote=entry.what)
        )

    async def objection(self) -> str:
        """Refuse a reply to a request that has ended since the person began to write."""
        entry = self._replied
        if entry is None or entry.kind != AttentionKind.REQUEST or not self._has_ended(entry):
            return ""
        return f"{await self._ending(entry)}; Esc closes, and Talk (3) sends another message"

    def _has_ended(self, entry: Attention) -> bool:
        return entry.key not in self.store.attention and not self.store.is_away

    async def _ending(self, entry: Attention) -> str:
        """Return what happened to an entry that is no longer in the list."""
        try:
            if entry.kind == AttentionKind.PERMISSION:
                await self.ui.link.ask(AskPermission(id=entry.id), PermissionPage)
            elif entry.seq:
                page = await self.ui.link.ask(AskLedger(message=str(entry.seq)), LedgerPage)
                return ending_text(entry, page)
        except PalaverError as error:
            return str(error).removeprefix(f"there is no permission request {entry.id}: ")
        return "this entry has ended meanwhile"

    @work(group="warn")
    async def _warn(self, entry: Attention, question: Question) -> None:
        question.warn(f"{_OVER}{await self._ending(entry)}.")

    @work(group="ended")
    async def _say_ending(self, entry: Attention) -> None:
        self.say(await self._ending(entry), is_error=True)

    def action_attach(self) -> None:
        """Attach the terminal to the agent of the entry."""
        if (action := self._action("attach")) is not None and self.ui.may_act():
            self.ui.run_in_terminal(action.command)

    def action_act(self, word: str) -> None:
        """Do something about the entry, after a question."""
        entry, action = self.entry, self._action(word)
        if entry is not None and action is not None and self.ui.may_act():
            self._act(entry, action)

    def _action(self, word: str) -> Action | None:
        entry = self.entry
        found = next((one for one in entry.actions if one.word == word), None) if entry is not None else None
        if found is None:
            self.say(f"{word} is not possible for this entry", is_error=True)
        return found

    @work(group="read", exclusive=True)
    async def _act(self, entry: Attention, action: Action) -> None:
        try:
            text = await self._whole(entry)
        except PalaverError:
            text = entry.what
        self._ask_and_run(entry, f"{action.word}?", f"{text}\n\n{entry.why}", action.command)

    @work(group="act")
    async def _ask_and_run(self, entry: Attention, title: str, text: str, argv: Sequence[str]) -> None:
        if not self.can_show_window:
            return
        question = Question(title, text, pal_line(argv))
        self._asked = (entry, question)
        try:
            is_agreed: bool = await self.ui.push_screen_wait(question)
        finally:
            self._asked = None
        if not is_agreed:
            return
        result = await self.ui.run_pal(argv)
        # Another view may have settled it after the question. Its outcome explains the refusal.
        if not result.is_done and entry.seq and self._has_ended(entry):
            why = f"{result.sentence.partition(';')[0]}: {await self._ending(entry)}"
            self.ui.say(f"{pal_line(argv[:3])}: {why}", is_error=True)


def detail_text(entry: Attention, *, is_short: bool = False) -> str:
    """Return everything that the entry itself says; with `is_short`, for an opened one, the rest."""
    lines = [] if is_short else [entry.what, ""]
    lines.append(entry.why)
    has_others = entry.to and entry.kind != AttentionKind.REQUEST
    lines += [f"to {', '.join(entry.to)}"] if has_others and not is_short else []
    lines += [
        f"{_KEYS_OF.get(action.word, ':'):<6} {action.word:<9} $ {pal_line(action.command)}"
        for action in entry.actions
        if not (is_short and action.word == "show")
    ]
    return "\n".join(lines)


def ending_text(entry: Attention, page: LedgerPage) -> str:
    """Return how an entry about a message has ended, as the steps of the message say it."""
    steps = [step for step in page.steps if step.name]
    if entry.kind == AttentionKind.REQUEST:
        answers = [step for step in steps if step.state == State.ANSWERED]
        if answers:
            return f"#{entry.seq} was answered meanwhile by {answers[-1].by} with #{answers[-1].seq}"
    if entry.kind == AttentionKind.HELD and steps and steps[0].state == State.QUEUED:
        return f"#{entry.seq} was released meanwhile by {steps[0].by}"
    state = f"; it is {steps[-1].state} now" if steps else ""
    return f"#{entry.seq} has ended meanwhile{state}"


def permission_text(page: PermissionPage) -> str:
    """Return a whole permission request: every character that an approval allows is visible."""
    head = f"{page.agent} asks: {exact(page.text)}"
    whole = "\n".join(map(exact, page.input.split("\n")))
    return "\n\n".join((head, whole, f"request {page.id}, digest {page.digest}"))
