"""The dashboard: one store, one link to the bus, and the screens. Screens are imported on first use."""

import asyncio
import importlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

import msgspec
from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, TextArea

from palaver.app.notices import BELL, Notices
from palaver.app.ui.commands import Result, needs_terminal, pal_line
from palaver.app.ui.composer import Destination, MessageComposer
from palaver.app.ui.store import Store
from palaver.app.ui.widgets import (
    AsciiOnly,
    CommandLine,
    KeysHelp,
    PromptLine,
    Question,
    ScreenNames,
    StatusLine,
    TopLine,
    Window,
    command_words,
    now_ms,
    safe_line,
)
from palaver.errors import PalaverError
from palaver.protocol.display import need_words
from palaver.protocol.lines import NoticeReply
from palaver.protocol.views import (
    LIMIT_PAGE,
    AgentsPage,
    AnyAsk,
    AskAgents,
    AskAttention,
    AskPast,
    AttentionPage,
    Changes,
    Snapshot,
    ViewValue,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from palaver.client.view_link import Record

T = TypeVar("T", bound=ViewValue)


class BusLink(Protocol):
    """The link to the bus: `ViewLink`, or the one of the tests."""

    def records(self) -> "AsyncGenerator[Record, None]":
        """Yield a snapshot first, then changes; `BusAway` and a new snapshot if the bus was away."""

    async def ask(
        self, question: AnyAsk, answer: type[T], progress: Callable[[int], None] | None = None
    ) -> T:
        """Return one page. `progress` gets the seq that a question about the past has reached."""

    async def acknowledge(self, seqs: Iterable[int]) -> None:
        """Mark messages to the person as seen."""

    async def notice(self, key: str, *, is_in_view: bool) -> NoticeReply:
        """Return whether this view tells the person of something."""

    async def close(self) -> None:
        """End all connections."""


class CommandRunner(Protocol):
    """Runs `pal` commands: `PalCommand`, or the one of the tests."""

    async def run(self, argv: Sequence[str], stdin: str | None = None, cwd: str | None = None) -> Result:
        """Run a command and return its result."""

    def run_in_terminal(self, argv: Sequence[str], cwd: str | None = None) -> int:
        """Run a command on the terminal itself and return its status."""


SCREENS: Final = {
    "1": ("now", "NowScreen", "Now"),
    "2": ("agents", "AgentsScreen", "Agents"),
    "3": ("talk", "TalkScreen", "Talk"),
    "4": ("rooms", "RoomsScreen", "Rooms"),
    "5": ("log", "LogScreen", "Log"),
    "6": ("log", "PastScreen", "Past"),
}
"""The module, class and name of each screen, by its key."""

TIMES_S: Final = 5.0
"""Seconds between two drawings of times such as `12s`."""
_LOW: Final = 8
"""A terminal with fewer lines has no line with the names of the screens."""

_LONG_S: Final = 90.0
"""A time above this many seconds is shown in minutes."""

_THEME: Final = "ansi-dark"
"""The theme with the colours of the terminal itself, which may be dark or light."""

COMMON_KEYS: Final = (
    ("1 to 6", "Now, Agents, Talk, Rooms, Log, Past"),
    ("arrows, j, k", "move; PageUp, PageDown, Home, End too"),
    ("Tab", "go to the next part of the screen"),
    (":", "run any pal command"),
    ("?", "these keys"),
    ("Esc", "back, or close"),
    ("q", "quit"),
)


def letter_key(keys: str, action: str) -> Binding:
    """Bind letters so that the next key already meets what the first one opens, however fast it comes.

    While the person types a text, these keys belong to the text.
    """
    return Binding(keys, action, show=False, priority=True)


_LETTERS: Final = frozenset({"slash", "asterisk", "question_mark", "colon", "space"})


def _letter_actions(classes: Sequence[type]) -> frozenset[str]:
    """Return the actions of all letter keys of these classes."""
    bindings = (
        one for cls in classes for one in cls.__dict__.get("BINDINGS", ()) if isinstance(one, Binding)
    )
    return frozenset(
        binding.action.partition("(")[0]
        for binding in bindings
        if binding.priority and any(len(key) == 1 or key in _LETTERS for key in binding.key.split(","))
    )


class BusScreen(Screen[None]):
    """Base of all screens: top line, names of the screens, the content, the command line, the last line."""

    KEY: ClassVar[str] = ""
    """The key of the screen in `SCREENS`."""
    NAME: ClassVar[str] = ""
    """The name of a screen that is not in `SCREENS`."""
    KEYS_LINE: ClassVar[str] = "? keys  : command  q quit"
    """The keys in the last line."""
    KEYS: ClassVar[Sequence[tuple[str, str]]] = ()
    """The keys of the screen and their meanings, for `?`."""

    DEFAULT_CSS = """
    BusScreen { layout: vertical; }
    BusScreen.-low ScreenNames { display: none; }
    BusScreen > .content { width: 1fr; height: 1fr; }
    BusScreen.-low MessageComposer { padding: 0; }
    BusScreen.-low MessageComposer > Static, BusScreen.-low MessageArea { max-height: 1; }
    BusScreen.-past { border: heavy ansi_yellow; border-title-style: bold; }
    BusScreen.-past.-ascii { border: ascii ansi_yellow; }
    BusScreen.-past.-low { border: none; }
    """

    is_ready = False
    """Whether all parts of the screen are there."""
    _letter_actions: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        """Note which actions belong to letter keys."""
        super().__init_subclass__()
        cls._letter_actions = _letter_actions(cls.__mro__)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave letter keys to the text that the person types."""
        return not (action in self._letter_actions and self.ui.is_typing)

    @property
    def ui(self) -> "PalaverApp":
        """The dashboard."""
        app = self.app
        assert isinstance(app, PalaverApp)
        return app

    @property
    def screen_name(self) -> str:
        """The name of the screen."""
        return SCREENS[self.KEY][2] if self.KEY in SCREENS else self.NAME

    @property
    def store(self) -> Store:
        """The bus as it is known here."""
        return self.ui.store

    @property
    def is_ascii(self) -> bool:
        """Whether the terminal has only ASCII."""
        return self.ui.is_ascii

    @property
    def can_show_window(self) -> bool:
        """Whether a result may open a window here: the person has not gone elsewhere and types no text.

        Otherwise the next keys, which are meant for something else, would act in the window.
        """
        return self.is_active and not self.ui.is_typing

    def compose(self) -> ComposeResult:
        """Build the parts of every screen around the content."""
        yield TopLine(lambda: self.ui.store)
        yield ScreenNames([(key, name) for key, (_, _, name) in SCREENS.items()], self.KEY)
        with Vertical(classes="content"):
            yield from self.compose_content()
        yield StatusLine(self.KEYS_LINE)
        yield CommandLine()

    def compose_content(self) -> ComposeResult:
        """Build the content. Each screen has its own."""
        yield from ()

    def new_composer(self) -> MessageComposer:
        """Return a composer for messages to all agents."""

        # Not the methods of the store: a screen that is built in the past would always ask that store.
        def names() -> list[str]:
            return self.store.names()

        def asked(name: str) -> int:
            return self.store.request_of(name)

        return MessageComposer(names, asked, self.ui.unsent)

    def opened(self) -> None:
        """Set up the content, once all parts are there. Each screen has its own."""

    def changed(self, record: "Record") -> None:
        """Draw what a record has changed. Called for each while shown, and once when shown again."""

    def in_view(self, record: "Record") -> Collection[str]:
        """Return the keys of the entries that the person sees here, and `agent/NAME` for a shown agent.

        The record was drawn already. There are no notices about these entries.
        """
        return ()

    def on_mount(self) -> None:
        """Set up the content."""
        self.is_ready = True
        self.opened()

    def open_conversation(self, key: str, seq: int = 0) -> None:
        """Show a conversation at one message. Only the screen Talk has conversations."""

    def take(self, record: "Record") -> None:
        """Draw the top line and the content again."""
        self.query_one(TopLine).refresh_counts()
        self.draw_frame()
        self.changed(record)

    def draw_frame(self) -> None:
        """Draw a frame around a screen that shows the past."""
        self.set_class(self.is_ascii, "-ascii")
        self.set_class(bool(self.store.at), "-past")
        title = self.ui.past_title
        if title != self.border_title:
            self.border_title = title

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence in the last line, unless another screen is shown."""
        if self.ui.bus_screen is self:  # otherwise it would look new when this one is shown again
            self.query_one(StatusLine).say(safe_line(text, is_ascii=self.is_ascii), is_error=is_error)

    def show_keys_line(self, text: str) -> None:
        """Show other keys in the last line."""
        self.query_one(StatusLine).set_keys(safe_line(text, is_ascii=self.is_ascii))

    def keys_of_screen(self) -> Sequence[tuple[str, str]]:
        """Return the keys for `?`."""
        return self.KEYS

    def on_resize(self, event: events.Resize) -> None:
        """Leave out the names of the screens in a low terminal."""
        self.set_class(event.size.height < _LOW, "-low")
        if self.is_ready:
            self.query_one(TopLine).refresh()

    def on_screen_suspend(self) -> None:
        """Forget the sentence in the last line: it would look new when this screen is shown again."""
        if self.is_ready:
            self.query_one(StatusLine).show_keys()

    def on_screen_resume(self) -> None:
        """Show what has changed while another screen was shown."""
        if self.is_ready and self.ui.last_record is not None:
            self.take(self.ui.last_record)

    def on_key(self) -> None:
        """Show the keys again after a sentence."""
        self.query_one(StatusLine).show_keys()

    def on_screen_names_picked(self, event: ScreenNames.Picked) -> None:
        """Open the clicked screen."""
        self.ui.action_open_screen(event.key)

    def on_prompt_line_entered(self, event: PromptLine.Entered) -> None:
        """Run the typed command."""
        if isinstance(event.prompt, CommandLine):
            event.stop()
            self.ui.run_typed(event.text)

    def on_message_composer_ready(self, event: MessageComposer.Ready) -> None:
        """Send a message, and keep its text if that is refused."""
        event.stop()
        self.ui.send_composed(self, event.composer, event.argv)

    async def objection(self) -> str:
        """Return why the written message must not be sent any more; empty if it may be sent."""
        return ""


class PastReading:
    """How far the way to a seq of the past is, as a sentence. Pure: the time is handed in."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._first: tuple[int, float] | None = None

    def sentence(self, seq: int, now_s: float) -> str:
        """Return the sentence for a reached seq. The time that is left is known from the second one on."""
        line = f"reading the bus at #{self._at}: {min(seq, self._at):,} of {self._at:,} events"
        if self._first is None or seq < self._first[0]:
            self._first = (seq, now_s)
        first, began_s = self._first
        if first < seq < self._at and now_s > began_s:
            left_s = (self._at - seq) * (now_s - began_s) / (seq - first)
            line += f", about {_length_of(left_s)} left"
        return f"{line}; Esc stops"


def _length_of(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < _LONG_S else f"{round(seconds / 60)} min"


class TerminalDriver(LinuxDriver):
    """The terminal of the person. Bytes that are not UTF-8 are dropped; they do not end the dashboard."""

    def __init__(
        self,
        app: "App[object]",
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Let the dashboard send its signals here too."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        if isinstance(app, PalaverApp):  # public names of Textual give no access to the driver
            app.terminal = self

    def run_input_thread(self) -> None:
        """Read keys until the end."""
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            except OSError:  # the terminal was closed: the hangup signal ends the dashboard
                return


class PalaverApp(App[int]):
    """The dashboard of one bus."""

    TITLE = "pal ui"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(letter_key(key, f"open_screen('{key}')") for key in SCREENS),
        letter_key("question_mark", "keys"),
        letter_key("colon", "command"),
        letter_key("q", "leave"),
        Binding("left", "step_past(-1)", "Step back", show=False),
        Binding("right", "step_past(1)", "Step forward", show=False),
        Binding("left_square_bracket", "step_past(-100)", "Step far back", show=False),
        Binding("right_square_bracket", "step_past(100)", "Step far forward", show=False),
        Binding("escape", "leave_past", "Back to now", show=False),
        Binding("ctrl+q,ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        link: BusLink,
        commands: CommandRunner,
        *,
        is_ascii: bool = False,
        first: str = "1",
        room: str = "",
        drawn: Callable[[], None] = lambda: None,
        driver: type[Driver] | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """`first` is the key of the first screen. With `room` there is only the chat of that room.

        `drawn` is called once the first screen shows the bus. `clock` returns Unix milliseconds.
        """
        # Without `ansi_color` Textual replaces the colours of the terminal by fixed ones.
        super().__init__(driver_class=driver or TerminalDriver, ansi_color=True)
        self.theme = _THEME
        self.link = link
        self.commands = commands
        self.clock = clock
        self.is_ascii = is_ascii
        self.present = Store()
        self.past: Store | None = None
        """The bus at a seq, while the person looks at the past."""
        self.last_record: Record | None = None
        self._first = first
        self._room = room
        self._drawn: Callable[[], None] | None = drawn
        self._screens: dict[str, BusScreen] = {}
        self._past_target = 0
        self.unsent: dict[Destination, str] = {}
        """The texts that were not sent yet. They outlive their screens."""
        self.terminal: Driver | None = None
        """The terminal of the person, once it is used."""
        self.notices = Notices(link, self._signal, self._complain)

    @property
    def store(self) -> Store:
        """The bus as the screens show it: now, or in the past."""
        return self.present if self.past is None else self.past

    def now_ms(self) -> int:
        """Return the time of the shown bus in Unix milliseconds."""
        return self.past.now if self.past is not None else self.clock()

    def on_mount(self) -> None:
        """Open the first screen and follow the bus."""
        self.action_open_screen(self._first)
        self._follow()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Add the filter for terminals without UTF-8."""
        filters = super().get_line_filters()
        return [*filters, AsciiOnly()] if self.is_ascii else filters

    # Screens

    @property
    def bus_screen(self) -> BusScreen | None:
        """The shown screen, below any window."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, BusScreen)), None)

    def action_open_screen(self, key: str) -> None:
        """Show one of the screens."""
        self.open_screen(key)

    def open_screen(self, key: str) -> BusScreen | None:
        """Show one of the screens and return it; None in a chat, which has one screen."""
        if self._room:
            if self.bus_screen is None:
                self.push_screen(importlib.import_module("palaver.app.ui.talk").RoomTalk(self._room))
            return None
        if key not in self._screens:
            module, name, _ = SCREENS[key]
            # Installed below, because Textual removes any other screen as soon as it is not shown.
            self._screens[key] = getattr(importlib.import_module(f"palaver.app.ui.{module}"), name)()
            self.install_screen(self._screens[key], f"screen-{key}")
        screen = self._screens[key]
        while len(self.screen_stack) > 2:  # one opened agent, above the list of agents
            self.pop_screen()
        if self.screen is screen:
            return screen
        if len(self.screen_stack) > 1:  # the first one is the empty screen of Textual itself
            self.switch_screen(screen)
        else:
            self.push_screen(screen)
        return screen

    def has_screen(self, screen: Screen[None]) -> bool:
        """Return whether a screen is still part of the dashboard. Some are removed when they are left."""
        return screen in self.screen_stack or screen in self._screens.values()

    def open_talk(self, key: str, seq: int = 0) -> None:
        """Show a conversation on the screen Talk, at one message."""
        if (screen := self.open_screen("3")) is not None:
            # A screen that was just opened has no parts before its first drawing.
            screen.call_after_refresh(screen.open_conversation, key, seq)

    def action_keys(self) -> None:
        """Show the keys of the screen."""
        if (screen := self.bus_screen) is not None:
            self.push_screen(
                KeysHelp(f"Keys of {screen.screen_name}", (*screen.keys_of_screen(), *COMMON_KEYS))
            )

    def action_command(self) -> None:
        """Open the command line."""
        if (screen := self.bus_screen) is not None and self.screen is screen:
            screen.query_one(CommandLine).open()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave letter keys to a text that the person types, and to a window."""
        if action in _APP_LETTERS:
            return not self.is_typing and not isinstance(self.screen, ModalScreen)
        return True

    @property
    def is_typing(self) -> bool:
        """Whether the person types a text."""
        return isinstance(self.focused, Input | TextArea)

    def action_leave(self) -> None:
        """End the dashboard, after a question if there are unsent texts. Nothing else ends."""
        screens = dict.fromkeys((*self.screen_stack, *self._screens.values()))
        composers = [one for screen in screens for one in screen.query(MessageComposer)]
        # Composers share their texts, and the screen of an agent may be removed already.
        texts = dict.fromkeys([*self.unsent.values(), *(text for one in composers for text in one.unsent)])
        if unsent := [text.strip("\n") for text in texts if text.strip()]:
            self._ask_to_leave("\n\n".join(unsent))
        else:
            self.exit(0)

    @work(exclusive=True, group="leave")
    async def _ask_to_leave(self, unsent: str) -> None:
        if await self.confirm("Quit and lose the unsent texts?", unsent, "quit"):
            self.exit(0)

    async def action_quit(self) -> None:
        """End the dashboard from anywhere."""
        self.exit(0)

    # The bus

    @work(exclusive=True, group="follow", exit_on_error=True)
    async def _follow(self) -> None:
        try:
            async for record in self.link.records():
                self.take(record)
                # After the drawing, because the drawn list decides whether an entry is in view.
                self.notices.record(record, self._in_view(record))
        finally:
            await self.notices.close()

    def _in_view(self, record: "Record") -> Collection[str]:
        """Return what the person sees now: nothing in the past, or while another window has the focus."""
        screen = self.bus_screen
        if screen is None or not screen.is_ready or self.past is not None or not self.app_focus:
            return ()
        return screen.in_view(record)

    def _signal(self, text: str) -> None:
        """Send a bell or another sequence to the terminal."""
        if text == BELL:
            self.bell()
        elif self.terminal is not None:
            self.terminal.write(text)
            self.terminal.flush()

    def _complain(self, sentence: str) -> None:
        if (screen := self.bus_screen) is not None and screen.is_ready:
            screen.say(sentence, is_error=True)

    def take(self, record: "Record") -> None:
        """Apply a record and draw what it has changed. Screens that show the past stay as they are."""
        self.present.apply(record)
        if self.past is None:
            self._show(record)
        elif (screen := self.bus_screen) is not None and screen.is_ready:
            screen.draw_frame()
        if isinstance(record, Snapshot) and self._drawn is not None:
            # After the drawing: garbage collection is off until then, so that the start is fast.
            self.call_after_refresh(self._drawn)
            self._drawn = None

    def _show(self, record: "Record") -> None:
        """Have the shown screen draw a record that its store has applied."""
        self.last_record = record
        for screen in self.screen_stack:
            if isinstance(screen, BusScreen) and screen.is_ready:
                screen.take(record)
        if isinstance(record, Snapshot):
            if record.agents_total > len(record.agents):
                self._load_agents(record.agents[-1].name if record.agents else "")
            if record.counts.attention > len(record.attention):
                self._load_attention()

    async def ask(self, question: AnyAsk, answer: type[T]) -> T:
        """Return one page of the shown bus: now, or in the past."""
        return await self.link.ask(msgspec.structs.replace(question, at=self.store.at), answer)

    # The past

    @property
    def past_title(self) -> str:
        """The title of the frame; empty now."""
        if self.past is None:
            return ""
        then = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.past.now / 1000))
        needs = need_words(self.present.counts.attention)
        waiting = f"  now {needs}" if needs else ""
        return f"past #{self.past.at}  {then}  Left, Right step  Esc now{waiting}"

    @work(exclusive=True, group="past")
    async def show_past(self, seq: int) -> None:
        """Show the bus on every screen as it was at a seq."""
        self._past_target = max(1, min(seq, self.present.seq))
        self.say(f"reading the bus at #{self._past_target}; Esc stops")
        reading = PastReading(self._past_target)

        def progress(reached: int) -> None:
            self.say(reading.sentence(reached, time.monotonic()))

        try:
            snapshot = await self.link.ask(AskPast(at=self._past_target), Snapshot, progress)
        except PalaverError as error:
            # Steps and Escape go by the target, so it must name the shown seq again.
            self._past_target = self.store.at
            self.say(str(error), is_error=True)
            return
        # A new store: that of the present goes on with the changes that still arrive.
        store = Store()
        store.apply(snapshot)
        store.at = self._past_target
        self.past = store
        self.say(f"this is the bus at #{store.at}")
        self._show(snapshot)

    def action_step_past(self, count: int) -> None:
        """Go some events back or forward in the past."""
        if self.past is not None:
            # From the target, not from the shown seq: a held key goes on while a snapshot is being read.
            self.show_past(self._past_target + count)

    def action_leave_past(self) -> None:
        """Show the bus of now again, also while the past is still being read."""
        is_reading = self._past_target != self.store.at
        if is_reading:
            self.workers.cancel_group(self, "past")
            self._stop_reading()
        if is_reading or self.past is not None:
            self.past, self._past_target = None, 0
            self.say("this is the bus now")
            self._show(self.present.as_snapshot())

    @work(exclusive=True, group="past")
    async def _stop_reading(self) -> None:
        """Tell the daemon that nothing of the past is wanted any more: a question about now replaces it."""
        # Without a bus nothing is being read.
        with suppress(PalaverError):
            await self.link.ask(AskPast(), Snapshot)

    @work(exclusive=True, group="attention")
    async def _load_attention(self) -> None:
        """Read the entries that the snapshot left out."""
        store = self.store
        try:
            page = await self.ask(AskAttention(), AttentionPage)
        except PalaverError:
            return  # The bus is away: the next snapshot starts it again.
        store.add_attention(page)
        self._draw_again()

    def _draw_again(self) -> None:
        if (screen := self.bus_screen) is not None and screen.is_ready:
            screen.take(Changes(after=self.store.seq, seq=self.store.seq))

    @work(exclusive=True, group="agents")
    async def _load_agents(self, after: str) -> None:
        """Read the agents that the snapshot left out, page by page."""
        while True:
            try:
                store = self.store
                page = await self.ask(AskAgents(after=after, limit=LIMIT_PAGE), AgentsPage)
            except PalaverError:
                return  # The bus is away: the next snapshot starts it again.
            if store is not self.store:  # the person has gone to the past, or back, during the question
                return
            store.add_agents(page)
            self._draw_again()
            if not page.has_more or not page.rows:
                return
            after = page.rows[-1].name
            await asyncio.sleep(0)  # keys come first, however many pages there are

    # Commands

    def may_act(self) -> bool:
        """Return whether something can be changed here, and say why not."""
        if self.store.at and (screen := self.bus_screen) is not None:
            screen.say(f"this is the bus at #{self.store.at}; nothing can be changed there", is_error=True)
        return not self.store.at

    async def run_pal(self, argv: Sequence[str], cwd: str | None = None) -> Result:
        """Run a `pal` command, showing its line, and show its result in the last line."""
        if not self.may_act():
            return Result(1, "", "nothing can be changed in the past")
        self.say(f"$ {pal_line(argv)}")
        result = await self.commands.run(argv, cwd=cwd)
        hint = f"; {result.hint}" if result.hint else ""
        self.say(f"{pal_line(argv[:3])}: {result.sentence}{hint}", is_error=not result.is_done)
        return result

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence in the last line of the shown screen."""
        if (screen := self.bus_screen) is not None and screen.is_ready:
            screen.say(text, is_error=is_error)

    async def confirm(self, title: str, text: str, argv: Sequence[str] | str) -> bool:
        """Ask yes or no, after showing the whole text and the command. Call it from a worker."""
        line = argv if isinstance(argv, str) else pal_line(argv)
        is_agreed: bool = await self.push_screen_wait(Question(title, text, line))
        return is_agreed

    def run_typed(self, text: str) -> None:
        """Run a command that the person typed after `:`."""
        if not text.strip():
            return
        try:
            argv = command_words(text)
        except ValueError as error:
            self.say(f"{error}", is_error=True)
            return
        if argv[1:2] == ["ui"] or len(argv) == 1:
            self.say("this is pal ui already")
        elif not self.may_act():
            return
        elif needs_terminal(argv):
            self.run_in_terminal(argv)
        else:
            self.show_output(argv)

    @work(group="typed")
    async def show_output(self, argv: Sequence[str]) -> None:
        """Run a command and show its whole output in a window. Escape ends the command."""
        window = Window(pal_line(argv), "running; Esc ends it")
        running = asyncio.ensure_future(self.commands.run(argv))

        def end(_: bool | None) -> None:
            running.cancel()

        self.push_screen(window, end)
        try:
            result = await running
        except asyncio.CancelledError:  # of the command, by `end`
            self.say(f"ended: {pal_line(argv)}")
            return
        if window.is_attached:
            status = "" if result.is_done else f"\nexit status {result.status}"
            window.show_text((result.out + result.err).rstrip("\n") + status or "done, without output")

    def run_in_terminal(self, argv: Sequence[str], cwd: str | None = None) -> None:
        """Let a command use the terminal, wait for its end, and draw the screen again.

        Nothing else runs in the meantime, because this thread waits for the command. Changes of the bus are
        drawn afterwards.
        """
        if not self.may_act():
            return
        with self.suspend():
            status = self.commands.run_in_terminal(argv, cwd)
        self.refresh()
        if status:
            self.say(f"{pal_line(argv)} ended with status {status}", is_error=True)

    @work(group="send")
    async def send_composed(self, screen: BusScreen, composer: MessageComposer, argv: Sequence[str]) -> None:
        """Send a message from a composer of a screen."""
        composer.is_sending = True
        try:
            if why := await screen.objection():
                self.say(why, is_error=True)  # the person may have closed the composer in the meantime
            else:
                result = await self.run_pal(argv)
                why = "" if result.is_done else result.sentence
        finally:
            composer.is_sending = False  # also if this is cancelled: otherwise Enter would do nothing there
        if why:
            composer.keep(why)
        else:
            composer.sent()


_APP_LETTERS: Final = _letter_actions((PalaverApp,))
