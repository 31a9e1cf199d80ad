"""The screen Past: choose a seq or a time, and every screen shows the bus as it was then."""

from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from palaver.app.ui.app import BusScreen, letter_key
from palaver.app.ui.log import EventRows, Jump, UnclearLine, parse_jump, seq_of
from palaver.app.ui.rows import RowList
from palaver.app.ui.widgets import PromptLine

if TYPE_CHECKING:
    from palaver.client.view_link import Record

_NOW = (
    "This is the bus now. Press t and type a seq or a time, or Enter on an event, to see the bus as it was."
)
_THEN = (
    "This is the bus as it was. Left and Right step one event, 1 to 5 show the screens, Esc returns to now."
)


class PastScreen(BusScreen):
    """The whole log, from which a moment is chosen. It shows later events too, so that one can go forward."""

    KEY = "6"
    AUTO_FOCUS = "#events"
    KEYS_LINE = "t go to  Enter see the bus then  Left, Right step  Esc now  ? keys  q quit"
    KEYS = (
        ("t", "type a seq (#412) or a time (10m, 09:30, 2026-03-01T09:00)"),
        ("Enter", "see the bus as it was after this event"),
        ("Left, Right", "on every screen: one event back, one forward"),
        ("[, ]", "on every screen: 100 events back, 100 forward"),
        ("Esc", "on every screen: back to now"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("t", "go"),
        Binding("escape", "stop", show=False),
    ]
    DEFAULT_CSS = """
    PastScreen #past-hint { height: auto; width: 1fr; text-style: bold; }
    PastScreen.-low #past-hint { display: none; }
    """

    def compose_content(self) -> ComposeResult:
        """Build the list of events and the line for a time."""
        yield Static("", markup=False, id="past-hint")
        yield EventRows(is_present=True, id="events")
        yield PromptLine("see the bus at (seq or time): ", id="when")

    @property
    def event_rows(self) -> EventRows:
        """The list."""
        return self.query_one("#events", EventRows)

    def opened(self) -> None:
        """Show the log of now."""
        self.event_rows.show_whole()

    def changed(self, record: "Record") -> None:
        """Mark the chosen event."""
        self.query_one("#past-hint", Static).update(Content(_THEN if self.store.at else _NOW))
        self.event_rows.grow()
        if self.store.at and self.event_rows.cursor_key != str(self.store.at):
            self.event_rows.go_to(self.store.at)

    def action_go(self) -> None:
        """Type a seq or a time."""
        self.query_one("#when", PromptLine).open()

    def action_stop(self) -> None:
        """Return to now, also while the seq of a time is still being read."""
        self.workers.cancel_group(self, "go")
        self.ui.action_leave_past()

    def on_prompt_line_entered(self, event: PromptLine.Entered) -> None:
        """Go to the typed moment."""
        if event.prompt.id == "when":
            event.stop()
            try:
                self._go(parse_jump(event.text, self.ui.now_ms()))
            except UnclearLine as error:
                self.say(str(error), is_error=True)

    @work(group="go", exclusive=True)
    async def _go(self, jump: Jump) -> None:
        if seq := await seq_of(self.ui, jump, self.ui.present.seq):
            self.ui.show_past(seq)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Show the bus as it was after an event."""
        event.stop()
        self.ui.show_past(int(event.key))
