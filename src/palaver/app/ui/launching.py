"""The form that launches agents. It shows the `pal` line that it runs, and the harness's own error."""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from palaver.app.ui.commands import pal_line
from palaver.app.ui.widgets import BOLD, CYAN, DIM, LineInput, TextRows, safe_content

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp

HARNESSES: Final = ("claude", "codex", "gemini", "opencode")
ROLES: Final = ("worker", "operator", "orchestrator", "observer")
_FIELDS: Final = ("harness", "folder", "name", "tag", "role", "count")
_HINTS: Final = {
    "folder": "where it works",
    "name": "a free name",
    "tag": "no group",
    "count": "1",
}
_CHOICES: Final = frozenset({"harness", "role"})
_LABEL: Final = 10


def installed_harnesses(which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """Return the harnesses that can be started here."""
    return [name for name in HARNESSES if which(name) is not None]


def launch_argv(harness: str, *, name: str, tag: str, role: str, count: str) -> list[str]:
    """Return the command that starts agents in the background."""
    words = ["pal", harness]
    words += ["--count", count] if count not in ("", "1") else ["--detach"]
    for option, value in (("--name", name), ("--tag", tag), ("--role", "" if role == ROLES[0] else role)):
        words += [option, value] if value else []
    return words


class ChoiceLine(Static, can_focus=True):
    """One of a few words, chosen with the left and right arrow keys or a click."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", show=False),
        Binding("right,space", "turn(1)", show=False),
    ]
    DEFAULT_CSS = "ChoiceLine { width: 1fr; height: 1; }"

    def __init__(self, words: Sequence[str], id: str) -> None:
        super().__init__(markup=False, id=id)
        self._words = words
        self._at = 0

    @property
    def value(self) -> str:
        """The chosen word; empty without words."""
        return self._words[self._at] if self._words else ""

    def on_mount(self) -> None:
        """Draw the words."""
        self._draw()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Draw whether the arrow keys work here now."""
        super().watch_has_focus(_has_focus)
        self._draw()

    def on_click(self) -> None:
        """Choose the next word."""
        self.action_turn(1)

    def action_turn(self, step: int) -> None:
        """Choose the next or the previous word."""
        if self._words:
            self._at = (self._at + step) % len(self._words)
            self._draw()
            if isinstance(self.screen, LaunchForm):
                self.screen.draw_line()

    def _draw(self) -> None:
        if not self._words:
            self.update(Content("  none"))
            return
        chosen = Content.styled(f"< {self.value} >" if self.has_focus else f"  {self.value}", BOLD)
        rest = Content.styled("  " + " ".join(word for word in self._words if word != self.value), DIM)
        self.update(chosen + rest)


class LaunchForm(ModalScreen[None]):
    """Asks what to launch, launches it, and stays open with the error if that fails."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False),
        Binding("enter", "launch", show=False),
        # With priority: the next key belongs to the next field, however fast it comes.
        Binding("tab,down", "app.focus_next", show=False, priority=True),
        Binding("shift+tab,up", "app.focus_previous", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    LaunchForm { align: center middle; }
    LaunchForm > Vertical { width: 90%; max-width: 100; height: 90%; max-height: 24; padding: 0 1;
        border: round ansi_default; }
    LaunchForm.-ascii > Vertical { border: ascii ansi_default; }
    LaunchForm.-small > Vertical { width: 100%; height: 100%; border: none; padding: 0;
        overflow-y: auto; scrollbar-size-vertical: 0; }
    LaunchForm.-small TextRows { height: 4; }
    LaunchForm Horizontal { height: 1; }
    LaunchForm .label { width: 10; }
    LaunchForm Static { height: auto; }
    LaunchForm TextRows { height: 1fr; }
    """

    def __init__(self, harnesses: Sequence[str] | None = None) -> None:
        super().__init__()
        self._harnesses = installed_harnesses() if harnesses is None else harnesses
        self._is_running = False

    @property
    def ui(self) -> "PalaverApp":
        """The dashboard."""
        from palaver.app.ui.app import PalaverApp  # it imports this module's users

        assert isinstance(self.app, PalaverApp)
        return self.app

    def compose(self) -> ComposeResult:
        """Build the fields, the line and the place for an error."""
        with Vertical():
            yield Static(Content.styled("Launch agents", BOLD), markup=False)
            for field in _FIELDS:
                with Horizontal():
                    yield Static(f"{field:<{_LABEL}}", classes="label", markup=False)
                    if field in _CHOICES:
                        yield ChoiceLine(self._harnesses if field == "harness" else ROLES, id=field)
                    else:
                        yield LineInput(_HINTS[field], id=field)
            yield Static("", id="line", markup=False)
            yield TextRows(is_ascii=self.ui.is_ascii, id="report")
            yield Static(Content.styled("Enter launches  Tab next field  Esc closes", DIM), markup=False)

    def on_mount(self) -> None:
        """Start with this folder."""
        self.set_class(self.ui.is_ascii, "-ascii")
        self.query_one("#report", TextRows).can_focus = False
        with suppress(OSError):  # The folder of the dashboard may have been deleted.
            self.query_one("#folder", LineInput).value = str(Path.cwd())
        self.query_one("#harness", ChoiceLine).focus()
        if not self._harnesses:
            self._report(
                f"None of {', '.join(HARNESSES)} is installed here. 'pal run' starts any other program."
            )
        self.draw_line()

    def on_resize(self, event: events.Resize) -> None:
        """Drop the frame in a small terminal."""
        self.set_class(event.size.width < 50 or event.size.height < 14, "-small")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the line that would run."""
        event.stop()
        self.draw_line()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Launch."""
        event.stop()
        self.action_launch()

    def argv(self) -> list[str]:
        """Return the command of the form as it is now."""
        values = {
            field: self.query_one(f"#{field}", LineInput).value.strip() for field in ("name", "tag", "count")
        }
        return launch_argv(
            self.query_one("#harness", ChoiceLine).value,
            name=values["name"],
            tag=values["tag"],
            role=self.query_one("#role", ChoiceLine).value,
            count=values["count"],
        )

    def draw_line(self) -> None:
        """Show the line that would run."""
        line = f"$ {pal_line(self.argv())}" if self._harnesses else ""
        self.query_one("#line", Static).update(safe_content(line, CYAN, is_ascii=self.ui.is_ascii))

    def action_close(self) -> None:
        """Close the form."""
        self.dismiss(None)

    def action_launch(self) -> None:
        """Run the line in the folder."""
        # The functions of `os.path` accept any text; those of `Path` raise for some names.
        folder = os.path.expanduser(self.query_one("#folder", LineInput).value.strip() or ".")  # noqa: PTH111
        if self._is_running or not self._harnesses:
            return
        if not os.path.isdir(folder):  # noqa: PTH112
            self._report(f"{folder} is not a folder that you can open. Nothing was started.")
            return
        # Here, not in the worker: a second Enter can come before the worker starts.
        self._is_running = True
        # A worker of the dashboard: with one of this form, closing it would end the command.
        self.ui.run_worker(self._launch(self.argv(), folder), group="launch")

    async def _launch(self, argv: list[str], folder: str) -> None:
        self._report(f"starting in {folder} ...")
        try:
            result = await self.ui.commands.run(argv, cwd=folder)
        finally:
            self._is_running = False
        is_open = self.ui.has_screen(self)  # the person may have closed the form in the meantime
        if result.is_done:
            self.ui.say(f"{pal_line(argv)}: {' '.join(['started', *result.out.split()])}")
            if is_open:
                self.dismiss(None)
        elif not is_open:
            self.ui.say(f"{pal_line(argv)}: {result.sentence}", is_error=True)
        else:
            text = "\n".join(part.rstrip("\n") for part in (result.err, result.out) if part.strip())
            self._report(f"It failed with status {result.status}:\n{text}")

    def _report(self, text: str) -> None:
        report = self.query_one("#report", TextRows)
        report.show_text(text)
        self.call_after_refresh(report.scroll_visible, animate=False)  # in a small terminal
