"""What runs in the client's own process: help when nobody listens, and verbs the daemon hands back."""

import shutil
import sys

from palaver.doors.argv.help import render_help
from palaver.doors.argv.parse import parse
from palaver.doors.argv.table import TABLE
from palaver.errors import UsageError


def main() -> int:
    """Show help for the command line given; anything else needs the bus."""
    try:
        parsed = parse(TABLE, sys.argv[1:])
    except UsageError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 2
    if not parsed.is_help:
        sys.stderr.write("pal: this needs the bus; 'pal up' starts it\n")
        return 1
    command = parsed.command if parsed.command.path else None
    width = shutil.get_terminal_size().columns
    sys.stdout.write(render_help(TABLE, command, width, sys.stdout.isatty()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
