"""What runs in the client's own process: help and completion when nobody listens. Starts nothing."""

import shutil
import sys

from palaver.doors.argv.completion import complete, completion_script
from palaver.doors.argv.help import render_help
from palaver.doors.argv.parse import Parsed, parse
from palaver.doors.argv.table import TABLE
from palaver.errors import UsageError


def main() -> int:
    """Answer what needs no bus; anything else says so."""
    try:
        parsed = parse(TABLE, sys.argv[1:])
    except UsageError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 2
    answer = _answer(parsed)
    if answer is None:
        sys.stderr.write("pal: this needs the bus; 'pal up' starts it\n")
        return 1
    sys.stdout.write(answer)
    return 0


def _answer(parsed: Parsed) -> str | None:
    if parsed.is_help:
        command = parsed.command if parsed.command.path else None
        return render_help(TABLE, command, shutil.get_terminal_size().columns, sys.stdout.isatty())
    if parsed.command.path == ("completion",):
        return completion_script(parsed.positionals[0])
    if parsed.command.path == ("__complete",):
        words = parsed.positionals if parsed.after is None else parsed.after
        return "".join(f"{word}\n" for word in complete(TABLE, words, lambda kind: []))
    return None


if __name__ == "__main__":
    sys.exit(main())
