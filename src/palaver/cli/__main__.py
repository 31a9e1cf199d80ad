"""What runs in the client's own process: help and completion when nobody listens, and a person's editor.

Starts no bus.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from palaver.cli.edit import edit_settings
from palaver.doors.argv.completion import complete, completion_script
from palaver.doors.argv.help import render_help
from palaver.doors.argv.parse import Parsed, parse
from palaver.doors.argv.style import wants_colour
from palaver.doors.argv.table import TABLE
from palaver.errors import UsageError


def main() -> int:
    """Answer what needs no bus; anything else says so."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has gone ends us without a word
    try:
        parsed = parse(TABLE, sys.argv[1:])
    except UsageError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 2
    if parsed.command.path == ("config", "edit") and not parsed.is_help:
        # The client says where the bus lives, however that was found out.
        return edit_settings(Path(os.environ["PALAVER_HOME"]), os.environ)
    answer = _answer(parsed)
    if answer is None:
        sys.stderr.write("pal: this needs the bus; 'pal up' starts it\n")
        return 1
    try:
        sys.stdout.write(answer)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"pal: standard output: {error.strerror}\n")
        os._exit(1)  # what cannot be written now cannot be written at the end either
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
