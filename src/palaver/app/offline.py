"""Commands that run in the client's own process: help, completion, install, repair, edit.

Starts no daemon.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from palaver.app.edit import edit_settings
from palaver.app.install import install, uninstall
from palaver.doors.cli.completion import complete, completion_script
from palaver.doors.cli.help import render_help
from palaver.doors.cli.parser import Parsed, parse
from palaver.doors.cli.render import format_refusal, status_of
from palaver.doors.cli.run import TABLE
from palaver.errors import PalaverError, UsageError
from palaver.harness.hooks import harness_of
from palaver.protocol.display import paint_for, wants_colour

_INSTALLING = {("install",): install, ("uninstall",): uninstall}


def main() -> int:
    """Run a command that needs no bus; any other command is refused."""
    if sys.argv[1:2] in (["__transcript"], ["__excerpts"]):
        from palaver.app import transcript  # not needed for help and completion

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if sys.argv[1] == "__transcript":
            return transcript.read_transcript(sys.argv[2], os.environ)
        return transcript.take_excerpts(sys.argv[2], sys.argv[3:], os.environ)
    if sys.argv[1:2] == ["__doctor"]:
        from palaver.app.doctor import doctor  # not needed for help and completion

        return doctor.main(sys.argv[2:])
    if sys.argv[1:2] == ["__check"]:
        return _check(sys.argv[2:])
    try:
        parsed = parse(TABLE, sys.argv[1:])
    except UsageError as error:
        return _refuse(sys.argv[1:], error)
    if parsed.command.path == ("config", "edit") and not parsed.is_help:
        # The client sets the home of the bus, however it was found.
        return edit_settings(Path(os.environ["PALAVER_HOME"]), os.environ)
    if parsed.command.path == ("doctor",) and parsed.has("--repair") and not parsed.is_help:
        from palaver.daemon.repair import repair_home  # not needed for help and completion

        return repair_home(Path(os.environ["PALAVER_HOME"]), is_json=parsed.form == "json")
    if parsed.command.path == ("backup",) and not parsed.is_help:
        from palaver.daemon.repair import backup_home  # as above

        return backup_home(
            Path(os.environ["PALAVER_HOME"]),
            Path(parsed.positionals[0]).absolute(),
            is_json=parsed.form == "json",
            may_replace=parsed.has("--yes"),
        )
    if parsed.command.path in _INSTALLING and not parsed.is_help:
        return _INSTALLING[parsed.command.path](parsed, os.environ)
    if parsed.command.path == ("chat",) and not parsed.is_help:
        from palaver.app.chat.chat import chat  # not needed for help and completion

        return chat(os.environ["PALAVER_HOME"], parsed.value("--room") or "", os.environ)
    answer = _answer(parsed)
    if answer is None:
        sys.stderr.write("pal: the bus is not running; start it with 'pal up'\n")
        return 1
    try:
        sys.stdout.write(answer)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"pal: standard output: {error.strerror}\n")
        os._exit(1)  # a later write would fail too
    return 0


def _check(words: list[str]) -> int:
    """Check the arguments of `up` or `down` for the client, before it does anything."""
    from palaver.doors.cli.bus import wanted_settings  # not needed for help and completion

    try:
        wanted_settings(parse(TABLE, words))
    except PalaverError as error:
        return _refuse(words, error)
    return 0


def _refuse(words: list[str], error: PalaverError) -> int:
    paint = paint_for(os.environ, is_terminal=sys.stderr.isatty(), harness=harness_of(os.environ))
    sys.stderr.write(format_refusal(words, error, paint))
    return status_of(error)


def _answer(parsed: Parsed) -> str | None:
    if parsed.is_help:
        command = parsed.command if parsed.command.path else None
        colour = sys.stdout.isatty() and wants_colour(os.environ)
        return render_help(TABLE, command, shutil.get_terminal_size().columns, colour)
    if parsed.command.path == ("completion",):
        return completion_script(parsed.positionals[0])
    if parsed.command.path == ("__complete",):
        words = parsed.positionals if parsed.after is None else parsed.after
        return "".join(f"{word}\n" for word in complete(TABLE, words, lambda kind: []))
    return None
