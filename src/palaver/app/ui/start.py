"""Start the dashboard: `pal ui`, `pal` alone at a terminal, and `pal chat` at a terminal.

It loads no table of commands. Garbage collection is off until the first screen is drawn.
"""

import gc
import os
import signal
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp

_FRAMES: Final = "30"
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def main(home: str, words: list[str], environ: MutableMapping[str, str]) -> int:
    """Run the dashboard, or with `__chat --room ROOM` the chat of a room. Return the exit status."""
    room = words[-1] if words[:1] == ["__chat"] else ""
    if "--plain" in words or not _has_screen(environ):
        return _run_in_lines(home, room, environ)
    gc.disable()
    environ["TEXTUAL_FPS"] = _FRAMES
    environ["TEXTUAL_ANIMATIONS"] = "none"
    if environ.get("NO_COLOR") == "":
        del environ["NO_COLOR"]  # an empty value asks for nothing; Textual would take it for a wish
    from palaver.app.attach.attach import has_utf8
    from palaver.app.ui.app import PalaverApp
    from palaver.app.ui.commands import PalCommand
    from palaver.client.view_link import ViewLink

    is_ascii = not has_utf8(environ, is_utf8_mode=bool(sys.flags.utf8_mode))
    link, commands = ViewLink(home), PalCommand(home, environ)
    return run(PalaverApp(link, commands, is_ascii=is_ascii, room=room, drawn=_collect_garbage))


def _run_in_lines(home: str, room: str, environ: MutableMapping[str, str]) -> int:
    if room:
        from palaver.app.chat import chat  # only without a screen

        return chat(home, room, environ)
    from palaver.app.ui.plain import run_plain  # only for this form

    return run_plain(home, environ)


def run(app: "PalaverApp") -> int:
    """Run an app on this terminal, and restore the terminal however it ends."""
    ended: list[int] = []

    def end(number: int, _: object) -> None:
        ended.append(number)
        app.exit(128 + number)

    for number in _ENDING:
        signal.signal(number, end)
    errors = _draw_on_the_terminal()
    try:
        status = app.run()
    finally:
        if errors is not None:
            os.dup2(errors, 2)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    if ended:
        os.kill(os.getpid(), ended[0])
    return app.return_code or status or 0


def _has_screen(environ: Mapping[str, str]) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and environ.get("TERM", "dumb") != "dumb"


def _draw_on_the_terminal() -> int | None:
    """Textual draws on standard error. If that is not the terminal, put standard output there for now."""
    if sys.stderr is not None and sys.stderr.isatty():
        return None
    with suppress(OSError):
        errors = os.dup(2)
        os.dup2(1, 2)
        return errors
    return None


def _collect_garbage() -> None:
    gc.freeze()  # what the start has loaded stays
    gc.enable()
