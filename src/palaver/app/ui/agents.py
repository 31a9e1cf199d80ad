"""The screen Agents: the list, one opened agent, and actions for one or several agents."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from palaver.app.ui.app import TIMES_S, BusScreen, letter_key
from palaver.app.ui.commands import Result, pal_line
from palaver.app.ui.composer import MessageComposer, OutgoingText
from palaver.app.ui.messages import Look, MessageLines, look_of
from palaver.app.ui.rows import Lines, RowList
from palaver.app.ui.store import SORTS
from palaver.app.ui.widgets import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    PromptLine,
    TextRows,
    Window,
    fold_text,
    safe_content,
    safe_line,
)
from palaver.errors import PalaverError
from palaver.protocol.display import ago, display_width, truncate
from palaver.protocol.views import AgentPage, AgentRow, AskAgent, Changes, MessageRow, WaitingMessage

if TYPE_CHECKING:
    from textual.style import Style

    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record

# --------------------
# The columns of the list.


@dataclass(frozen=True, slots=True)
class AgentColumn:
    """A column: its least width, and its share of the columns that are left."""

    title: str
    least: int
    share: int = 0
    sort: str = ""


COLUMNS: Final = (
    AgentColumn("NAME", 16, 1, "name"),
    AgentColumn("HARNESS", 8, 0, "harness"),
    AgentColumn("STATE", 10, 0, "state"),
    AgentColumn("DOING", 14, 3),
    AgentColumn("SINCE", 5, 0, "since"),
    AgentColumn("WAITS FOR", 12, 2),
    AgentColumn("UNREAD", 6, 0, "unread"),
    AgentColumn("ROOM", 10, 1, "room"),
    AgentColumn("FOLDER", 14, 2, "folder"),
    AgentColumn("LAST MESSAGE", 14, 4, "last message"),
)

_STATE_STYLES: "Final[dict[str, Style]]" = {
    "blocked": RED,
    "active": GREEN,
    "stale": YELLOW,
    "paused": YELLOW,
}


def column_widths(width: int) -> list[int]:
    """Return the widths of the columns that fit, with a space after each. The others are left out."""
    widths: list[int] = []
    room = width
    for column in COLUMNS:
        if widths and room < column.least:  # the name is shown in the narrowest terminal too
            break
        widths.append(min(column.least, max(room, 1)))
        room -= column.least + 1
    shares = sum(column.share for column in COLUMNS[: len(widths)])
    left = max(room + 1, 0)
    for index, column in enumerate(COLUMNS[: len(widths)]):
        widths[index] += left * column.share // max(shares, 1)
    return widths


def state_word(row: AgentRow) -> str:
    """Return the state of an agent in one word: the most important thing about it."""
    if row.has_left:
        return "left"
    if row.is_paused:
        return "paused"
    if row.is_stale:
        return "stale"
    return row.state if row.is_present or row.state == "exited" else "away"


def agent_cells(row: AgentRow, now: int, name: str) -> tuple[str, ...]:
    """Return the cells of an agent, in the order of `COLUMNS`."""
    return (
        name,
        row.harness,
        state_word(row),
        row.doing,
        ago(now - row.since),
        row.waits_for,
        str(row.unread) if row.unread else "",
        ", ".join(row.rooms),
        row.folder,
        row.last,
    )


def _cell(text: str, width: int) -> str:
    shown = truncate(text, width)
    return shown + " " * (width - display_width(shown) + 1)


class AgentRows:
    """The visible agents as rows."""

    def __init__(self, app: "PalaverApp") -> None:
        self._app = app
        self._width = 0
        self._widths: list[int] = []

    @property
    def total(self) -> int:
        """Return the number of visible agents."""
        return len(self._app.store.agent_list)

    def row(self, index: int, width: int) -> Content | None:
        """Return the cells of one agent."""
        store, is_ascii = self._app.store, self._app.is_ascii
        row = store.agents[self.key(index)]
        if width != self._width:
            self._width, self._widths = width, column_widths(width)
        name = "  " * store.agent_list.depth(row.name) + row.name
        if below := store.agent_list.sub_agents(row.name):
            name += f" +{below}" if store.agent_list.is_folded(row.name) else " -"
        line, now = Content.empty(), self._app.now_ms()
        # Not strict, because a narrow terminal shows only the first columns.
        for at, (cell, wide) in enumerate(zip(agent_cells(row, now, name), self._widths, strict=False)):
            style = _STATE_STYLES.get(cell) if at == 2 else BOLD if at == 0 else None
            line += safe_content(_cell(safe_line(cell, is_ascii=is_ascii), wide), style)
        return line

    def want(self, first: int, last: int) -> None:
        """Do nothing: the store has all agents, or is loading them."""

    def key(self, index: int) -> str:
        """Return the name of an agent."""
        return self._app.store.agent_list.key(index)

    def find(self, key: str) -> int:
        """Return where an agent is."""
        return self._app.store.agent_list.find(key)


class ColumnTitles(Widget):
    """The titles of the columns. A click sorts by that column."""

    DEFAULT_CSS = "ColumnTitles { height: 1; width: 1fr; }"
    ALLOW_SELECT: ClassVar[bool] = False

    class SortPicked(Message):
        """A title was clicked."""

        def __init__(self, sort: str) -> None:
            super().__init__()
            self.sort = sort

    def __init__(self, sort: str) -> None:
        super().__init__()
        self._sort = sort

    def show_sort(self, sort: str) -> None:
        """Mark the column that sorts the list."""
        self._sort = sort
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the titles; the one that sorts has a mark."""
        line = "  "
        for column, wide in zip(COLUMNS, column_widths(self.size.width - 2), strict=False):
            is_sort = column.sort == self._sort
            line += _cell(f"{column.title[: wide - 1]}^" if is_sort else column.title, wide)
        strip = Strip(Content.styled(line, DIM).render_segments(self.visual_style))
        return strip.adjust_cell_length(self.size.width, self.visual_style.rich_style)

    def on_click(self, event: events.Click) -> None:
        """Sort by the clicked column."""
        at = 2  # as in `render_line`: the list has the cursor and the mark there
        for column, wide in zip(COLUMNS, column_widths(self.size.width - 2), strict=False):
            at += wide + 1
            if event.x < at:
                if column.sort:
                    self.post_message(self.SortPicked(column.sort))
                return


# --------------------
# Actions for one or several agents.

_LIMIT_AT_ONCE: Final = 8


def group_text(word: str, names: Sequence[str]) -> str:
    """Return the question about several agents, with every name."""
    count = f"{len(names)} agents" if len(names) > 1 else "this agent"
    return f"{word} {count}:\n\n" + "\n".join(names)


def group_report(results: Sequence[tuple[str, Result]]) -> str:
    """Return the result for each agent, failures first."""
    ordered = sorted(results, key=lambda one: (one[1].is_done, one[0]))
    return "\n".join(
        f"{'done  ' if result.is_done else 'FAILED'} {name}: {result.sentence}" for name, result in ordered
    )


class AgentActions(BusScreen):
    """Base of the two screens about agents: the actions of keys on the chosen agents."""

    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("a", "attach"),
        letter_key("m", "message"),
        letter_key("p", "act('pause')"),
        letter_key("u", "act('unpause')"),
        letter_key("x", "act('stop')"),
        letter_key("t", "tag"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._tagged: Sequence[str] = ()
        """The agents for which a tag is being typed."""

    def chosen(self) -> list[str]:
        """Return the agents that an action is for."""
        return []

    def action_attach(self) -> None:
        """Attach the terminal to the agent until the person detaches."""
        names = self.chosen()
        if len(names) != 1:
            self.say("attach works for one agent", is_error=True)
        elif not self.store.agents[names[0]].has_terminal:
            self.say(f"{names[0]} has no terminal that can be shown here", is_error=True)
        else:
            self.ui.run_in_terminal(["pal", "attach", names[0]])

    def action_message(self) -> None:
        """Write one message to the chosen agents."""
        if (names := self.chosen()) and self.ui.may_act():
            self.query_one(MessageComposer).open(OutgoingText(targets=tuple(f"@{name}" for name in names)))

    def action_act(self, word: str) -> None:
        """Pause, unpause or stop the chosen agents."""
        if (names := self.chosen()) and self.ui.may_act():
            self._start(word, names, [["pal", word, name] for name in names])

    def action_tag(self) -> None:
        """Ask for the tag of the chosen agents."""
        if (names := self.chosen()) and self.ui.may_act():
            self._tagged = names  # not again at the end: the list may change while the person types
            first = self.store.agents[names[0]].tag
            self.query_one("#tag", PromptLine).open(first, label="tag (empty removes it): ")

    def on_prompt_line_entered(self, event: PromptLine.Entered) -> None:
        """Tag the agents that were chosen when the line was opened."""
        if event.prompt.id == "tag":
            names, tag = self._tagged, event.text.strip()
            self._start(
                f"tag as {tag}" if tag else "remove the tag of",
                names,
                [["pal", "tag", name, *([tag] if tag else ["--remove"])] for name in names],
            )

    def _start(self, word: str, names: Sequence[str], commands: Sequence[Sequence[str]]) -> None:
        # A worker of the dashboard: with one of this screen, leaving it would end the commands.
        self.ui.run_worker(self._act(word, names, commands), group="act")

    async def _act(self, word: str, names: Sequence[str], commands: Sequence[Sequence[str]]) -> None:
        line = pal_line(commands[0]) + (f"  and {len(names) - 1} more" if len(names) > 1 else "")
        if not await self.ui.confirm(f"{word}?", group_text(word, names), line):
            return
        gate = asyncio.Semaphore(_LIMIT_AT_ONCE)  # each command is a process

        async def run(argv: Sequence[str]) -> Result:
            async with gate:
                return await self.ui.commands.run(argv)

        self.ui.say(f"$ {line}")
        results = await asyncio.gather(*(run(argv) for argv in commands))
        report = list(zip(names, results, strict=True))
        if len(report) == 1:
            self.ui.say(f"{line}: {results[0].sentence}", is_error=not results[0].is_done)
        elif self.can_show_window:
            self.ui.push_screen(Window(f"{word}: {len(names)} agents", group_report(report)))
        else:
            failed = [name for name, result in report if not result.is_done]
            ending = f"it failed for {', '.join(failed)}" if failed else "done"
            self.ui.say(f"{word}: {len(names)} agents: {ending}", is_error=bool(failed))
        self.acted(names)

    def acted(self, names: Sequence[str]) -> None:
        """Do what follows an action on these agents, such as clearing the selection."""


# --------------------
# The list.


class AgentsScreen(AgentActions):
    """All agents."""

    KEY = "2"
    KEYS_LINE = (
        "Enter open  Space select  n new  a attach  m message  p pause  x stop  / filter  s sort  ? keys"
    )
    KEYS = (
        ("Enter", "open the agent: its screen, queue and messages"),
        ("Space", "select the agent for a group action; * selects all shown, Esc none"),
        ("n", "launch agents"),
        ("a", "attach to the agent's terminal; detach returns here"),
        ("m", "message the agent, or all selected ones"),
        ("p, u", "pause, unpause; the same for all selected ones"),
        ("x", "stop the agent, or all selected ones"),
        ("t", "tag the agent, or all selected ones"),
        ("/", "filter while typing; Esc removes the filter"),
        ("s", "sort by the next column; a click on a title does it too"),
        ("f, F", "show or hide the sub-agents of one agent, or of all"),
        ("d", "show or hide agents that have left"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("n", "launch"),
        letter_key("slash", "filter"),
        letter_key("s", "sort"),
        letter_key("f", "fold"),
        letter_key("F", "fold_all"),
        letter_key("d", "departed"),
        letter_key("asterisk", "select_all"),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._selected: set[str] = set()

    def compose_content(self) -> ComposeResult:
        """Build the titles, the list, and the lines in which a person types."""
        yield ColumnTitles(self.store.agent_list.sort)
        rows = RowList(AgentRows(self.ui), id="agents")
        rows.marked = lambda key: key in self._selected
        yield rows
        yield self.new_composer()
        yield PromptLine("filter: ", id="filter")
        yield PromptLine("tag: ", id="tag")

    @property
    def rows(self) -> RowList:
        """The list."""
        return self.query_one("#agents", RowList)

    def opened(self) -> None:
        """Let the person move in the list; redraw the times now and then."""
        self.rows.focus()
        self.set_interval(TIMES_S, self._redraw_times)

    def changed(self, record: "Record") -> None:
        """Draw the agents again."""
        # An agent that the store has dropped must not be part of the next action.
        self._selected &= self.store.agents.keys()
        self._draw()

    def _redraw_times(self) -> None:
        if self.is_current:
            self.rows.refresh()

    def _draw(self) -> None:
        agents = self.store.agent_list
        no_match = f"no agent matches {' '.join(agents.words)}" if agents.words else ""
        self.rows.say_if_empty(
            no_match or "No agent is here. n launches one; : install claude connects a harness."
        )
        self.rows.refresh_rows()
        parts = [f"{len(self._selected)} selected: p u x t m apply to all"] if self._selected else []
        parts += [f"filter: {' '.join(agents.words)} (Esc removes it)"] if agents.words else []
        self.show_keys_line("   ".join(parts) if parts else self.KEYS_LINE)

    def chosen(self) -> list[str]:
        """Return the selected agents; without a selection the one with the cursor."""
        if self._selected:
            return sorted(self._selected)
        key = self.rows.cursor_key
        return [key] if key in self.store.agents else []

    def acted(self, names: Sequence[str]) -> None:
        """Deselect these agents. Others may have been selected for another action in the meantime."""
        self._selected.difference_update(names)
        self._draw()

    def on_row_list_marked(self, event: RowList.Marked) -> None:
        """Select or deselect an agent, and go on to the next one."""
        self._selected ^= {event.key}
        self._draw()
        self.rows.action_step(1)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Open an agent."""
        self.ui.push_screen(AgentScreen(event.key))

    def on_column_titles_sort_picked(self, event: ColumnTitles.SortPicked) -> None:
        """Sort by the clicked column."""
        self._sort(event.sort)

    def on_prompt_line_edited(self, event: PromptLine.Edited) -> None:
        """Filter while typing."""
        if event.prompt.id == "filter":
            cancelled = isinstance(event, PromptLine.Cancelled)
            self.store.agent_list.arrange(words="" if cancelled else event.text)
            self._draw()

    on_prompt_line_cancelled = on_prompt_line_edited

    def action_launch(self) -> None:
        """Open the form that launches agents."""
        if self.ui.may_act():
            from palaver.app.ui.launching import LaunchForm  # only when it is used

            self.ui.push_screen(LaunchForm())

    def action_filter(self) -> None:
        """Let the person type a filter."""
        self.query_one("#filter", PromptLine).open(" ".join(self.store.agent_list.words))

    def action_sort(self) -> None:
        """Sort by the next column."""
        sorts = list(SORTS)
        self._sort(sorts[(sorts.index(self.store.agent_list.sort) + 1) % len(sorts)])

    def _sort(self, sort: str) -> None:
        self.store.agent_list.arrange(sort=sort)
        self.query_one(ColumnTitles).show_sort(sort)
        self._draw()
        self.say(f"sorted by {sort}")

    def action_fold(self) -> None:
        """Show or hide the sub-agents of the agent with the cursor."""
        row = self.store.agents.get(self.rows.cursor_key)
        if row is None:
            return
        agents = self.store.agent_list
        name = row.name if agents.sub_agents(row.name) else row.parent
        if name:
            agents.fold(name)
            self._draw()
        else:
            self.say(f"{row.name} has no sub-agents")

    def action_fold_all(self) -> None:
        """Show or hide all sub-agents."""
        self.store.agent_list.fold_all()
        self._draw()

    def action_departed(self) -> None:
        """Show or hide agents that have left."""
        agents = self.store.agent_list
        agents.show_departed(is_wanted=not agents.has_departed)
        self._draw()
        self.say(
            "agents that have left are shown" if agents.has_departed else "agents that have left are hidden"
        )

    def action_select_all(self) -> None:
        """Select every agent in the list."""
        self._selected.update(self.store.agent_list.names())
        self._draw()

    def action_clear(self) -> None:
        """Remove the selection, then the filter."""
        if self._selected:
            self._selected.clear()
        elif self.store.agent_list.words:
            self.store.agent_list.arrange(words="")
        else:
            self.ui.action_leave_past()
        self._draw()


# --------------------
# One agent.

_PEEK_S: Final = 1.0
"""The screen of the agent is read at most this often, and only while it is shown."""
_ASK_S: Final = 0.2
"""The queue and the messages are read at most this often."""
_NARROW: Final = 110
_PARTS: Final = ("screen", "queue", "messages")


class AgentScreen(AgentActions):
    """One agent: its live screen, its queue with reasons, and its messages."""

    KEY = "2"
    KEYS_LINE = "a attach  m message  p pause  u unpause  x stop  r reply  Tab next part  Esc back  ? keys"
    KEYS = (
        ("Esc", "back to all agents"),
        ("Tab", "go to the next part: screen, queue, messages"),
        ("a", "attach to the agent's terminal; detach returns here"),
        ("m", "message the agent"),
        ("r", "reply to the message with the cursor"),
        ("p, u", "pause, unpause"),
        ("x", "stop the agent"),
        ("t", "tag the agent"),
        ("Enter", "show the whole message and why it waits"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False),
        letter_key("r", "reply"),
        Binding("tab", "part(1)", show=False, priority=True),
        Binding("shift+tab", "part(-1)", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    AgentScreen .parts { layout: horizontal; height: 1fr; width: 1fr; }
    AgentScreen .lists { width: 1fr; height: 1fr; border-left: solid ansi_default; }
    AgentScreen #screen { width: 2fr; }
    AgentScreen .title { height: 1; text-style: bold underline; }
    AgentScreen #head { height: auto; max-height: 3; }
    AgentScreen.-narrow .parts { layout: vertical; }
    AgentScreen.-narrow #screen { width: 1fr; height: 2fr; }
    AgentScreen.-narrow .lists { height: 3fr; border-left: none; border-top: solid ansi_default; }
    AgentScreen.-tiny .lists { border: none; }
    AgentScreen.-low .title { display: none; }
    AgentScreen.-low #head { max-height: 1; }
    AgentScreen.-tiny #screen, AgentScreen.-tiny .queue, AgentScreen.-tiny .messages { display: none; }
    AgentScreen.-tiny.-at-screen #screen, AgentScreen.-tiny.-at-queue .queue,
    AgentScreen.-tiny.-at-messages .messages { display: block; }
    AgentScreen.-tiny.-at-screen .lists { display: none; }
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.agent = name
        self._page: AgentPage | None = None
        self._shown_screen = ""
        self._is_asking = False
        self._is_old = False
        self._is_peeking = False
        self._part = 0

    def in_view(self, record: "Record") -> Collection[str]:
        """Return the shown agent."""
        return (f"agent/{self.agent}",)

    def compose_content(self) -> ComposeResult:
        """Build the parts."""
        from textual.containers import Container  # only for this screen

        yield Static("", id="head", markup=False)
        with Container(classes="parts"):
            yield TextRows(is_ascii=self.is_ascii, id="screen")
            with Container(classes="lists"):
                yield Static(Content("Queue"), classes="title queue", markup=False)
                yield RowList(Lines(), id="queue", classes="queue", empty="nothing waits for this agent")
                yield Static(Content("Messages"), classes="title messages", markup=False)
                yield RowList(
                    Lines(), id="messages", classes="messages", follows=True, empty="no messages yet"
                )
        yield self.new_composer()
        yield PromptLine("tag: ", id="tag")

    def opened(self) -> None:
        """Read everything, and the live screen again while it is shown."""
        self.set_interval(_PEEK_S, self._peek_again)
        self._show_part(0)
        self._peek()

    def chosen(self) -> list[str]:
        """Return this agent."""
        return [self.agent] if self.agent in self.store.agents else []

    def changed(self, record: "Record") -> None:
        """Read again what a change concerns."""
        self._draw_head()
        if self._page is None and not self._is_asking:
            self._is_asking = True
            self._ask()  # at once: the screen is empty until then
        elif not isinstance(record, Changes) or self._concerns(record):
            self._ask_soon()

    def _concerns(self, changes: Changes) -> bool:
        if any(row.name == self.agent for row in changes.agents):
            return True
        known = self._page
        if known is not None:
            seqs = {row.seq for row in known.queue} | {row.seq for row in known.messages}
            if not seqs.isdisjoint(changes.moved):
                return True
        return any(self.agent in (event.sender, *event.to) for event in changes.events)

    def _ask_soon(self) -> None:
        # Changes come in groups, such as a message and its receipts: one question is enough for a group.
        # The answer to an open question may be older than this change, so `_ask` asks once more.
        self._is_old = self._is_asking
        if not self._is_asking:
            self._is_asking = True
            self.set_timer(_ASK_S, self._ask)

    @work(group="ask")
    async def _ask(self) -> None:
        try:
            page = await self.ui.link.ask(AskAgent(name=self.agent, at=self.store.at), AgentPage)
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        finally:
            self._is_asking = False
            if self._is_old:  # something has changed during the question
                self._ask_soon()
        self._page = page
        self._draw_head()
        now, look = self.ui.now_ms(), look_of(self.ui)
        self.query_one("#queue", RowList).show(
            _EntryLines(
                [(str(row.seq), queue_line(row, now, look)) for row in page.queue], is_ascii=self.is_ascii
            ),
            self.query_one("#queue", RowList).cursor_key,
        )
        messages = self.query_one("#messages", RowList)
        source = MessageLines(look)
        source.replace(page.messages, has_older=False, has_newer=False)
        # A cursor at the end follows new messages; elsewhere the person reads, so it stays.
        messages.show(source, "" if messages.cursor >= messages.total - 1 else messages.cursor_key)

    @property
    def row(self) -> AgentRow | None:
        """The newest row of the agent."""
        known = self.store.agents.get(self.agent)
        return known if known is not None or self._page is None else self._page.row

    def _draw_head(self) -> None:
        row = self.row
        if row is None:
            text = Content(f"{self.agent}: no such agent any more")
        else:
            text = agent_head(row, self._page, self.ui.now_ms(), is_ascii=self.is_ascii)
        self.query_one("#head", Static).update(text)

    def _peek_again(self) -> None:
        # The worker is exclusive: one that starts would end a slow `pal peek` before it has a result.
        if self.is_current and not self._is_peeking and not self.store.at and not self.store.is_away:
            self._peek()

    @work(exclusive=True, group="peek")
    async def _peek(self) -> None:
        row = self.row
        if row is None or not row.has_terminal or self.store.at:
            self._show_screen(
                "This agent has no terminal that can be shown here.\n'pal transcript' may have more."
            )
            return
        self._is_peeking = True
        try:
            result = await self.ui.commands.run(["pal", "peek", self.agent])
        finally:
            self._is_peeking = False
        self._show_screen(result.out.rstrip("\n") if result.is_done else result.sentence)

    def _show_screen(self, text: str) -> None:
        if text != self._shown_screen:  # read each second, but wrapped only when it has changed
            self._shown_screen = text
            self.query_one("#screen", TextRows).show_text(text, keep=True)

    # Keys

    def on_resize(self, event: events.Resize) -> None:
        """Put the parts below each other in a narrow terminal; in a tiny one show one at a time."""
        super().on_resize(event)
        self.set_class(event.size.width < _NARROW, "-narrow")
        self.set_class(event.size.height < _TINY, "-tiny")

    def action_part(self, step: int) -> None:
        """Go to the next part."""
        if self.query_one(MessageComposer).is_open:  # Tab completes a name there
            return
        self._show_part((self._part + step) % len(_PARTS))

    def _show_part(self, part: int) -> None:
        self._part = part
        for index, name in enumerate(_PARTS):
            self.set_class(index == part, f"-at-{name}")
        self.query_one(f"#{_PARTS[part]}", RowList).focus()

    def action_back(self) -> None:
        """Return to all agents."""
        self.ui.pop_screen()

    def action_reply(self) -> None:
        """Reply to the message with the cursor."""
        message = self._message(self.query_one("#messages", RowList).cursor_key)
        if message is not None and self.ui.may_act():
            to = self.agent if message.sender == self.store.me else message.sender
            self.query_one(MessageComposer).open(
                OutgoingText(targets=(f"@{to}",), reply_to=message.seq, quote=message.text)
            )

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Show a whole message."""
        if self._page is None:
            return
        if event.rows.id == "queue":
            waiting = next((row for row in self._page.queue if str(row.seq) == event.key), None)
            if waiting is not None:
                text = queue_text(waiting, look_of(self.ui))
                self.ui.push_screen(Window(f"#{waiting.seq} from {waiting.sender}", text))
        elif (message := self._message(event.key)) is not None:
            self.ui.push_screen(Window(f"#{message.seq} from {message.sender}", message.text))

    def _message(self, key: str) -> MessageRow | None:
        messages = self._page.messages if self._page is not None else ()
        return next((row for row in messages if str(row.seq) == key), None)


_TINY: Final = 14


class _EntryLines:
    """Entries of several lines, wrapped to the width. Only for short lists."""

    def __init__(self, entries: Sequence[tuple[str, str]], *, is_ascii: bool) -> None:
        self._entries = entries
        self._is_ascii = is_ascii
        self._width = 0
        self._lines: list[tuple[str, Content]] = []
        self._wrap(80)

    def _wrap(self, width: int) -> None:
        self._width = width
        self._lines = [
            (key, line if at == 0 else Content("  ") + line)
            for key, text in self._entries
            for at, line in enumerate(fold_text(text, width - 2, is_ascii=self._is_ascii)[:_ENTRY_LINES])
        ]

    @property
    def total(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def row(self, index: int, width: int) -> Content | None:
        """Return a line."""
        return self._lines[index][1] if index < len(self._lines) else None

    def fit(self, width: int) -> None:
        """Wrap to another width."""
        if width != self._width:
            self._wrap(width)

    def want(self, first: int, last: int) -> None:
        """Do nothing: all lines are there."""

    def key(self, index: int) -> str:
        """Return the entry of a line."""
        return self._lines[index][0]

    def find(self, key: str) -> int:
        """Return the first line of an entry, or -1."""
        return next((at for at, (found, _) in enumerate(self._lines) if found == key), -1)


_ENTRY_LINES: Final = 6
"""Lines of an entry that are shown in a list; Enter shows the rest."""


def agent_head(row: AgentRow, page: AgentPage | None, now: int, *, is_ascii: bool) -> Content:
    """Return the first lines about an agent."""
    parts = [row.harness, row.role, f"tag {row.tag}" if row.tag else "", state_word(row)]
    parts += [f"for {ago(now - row.since)}", row.doing]
    parts += [f"waits for {row.waits_for}" if row.waits_for else ""]
    where = [f"room {', '.join(row.rooms)}" if row.rooms else "", row.folder]
    where += [f"{page.queue_total} waiting" if page is not None and page.queue_total else ""]
    first = safe_content(f"{row.name}  ", BOLD, is_ascii=is_ascii)
    first += safe_content("  ".join(part for part in parts if part), is_ascii=is_ascii)
    second = safe_content("  ".join(part for part in where if part), CYAN, is_ascii=is_ascii)
    return first + Content("\n") + second if second else first


def queue_line(row: WaitingMessage, now: int, look: Look) -> str:
    """Return a waiting message with the reason."""
    head = f"{look.mark(row.state)} {ago(now - row.ts)}  #{row.seq} {look.name(row.sender)}"
    return f"{head}: {row.text}\nWhy: {row.reason.text}"


def queue_text(row: WaitingMessage, look: Look) -> str:
    """Return a whole waiting message: why it waits, and what would move it."""
    return (
        f"{row.text}\n\n{look.mark(row.state)}, priority {row.priority}\n"
        f"Why: {row.reason.text} [{row.reason.code}]\nNext: {row.reason.moves}"
    )
