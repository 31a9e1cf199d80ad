"""Format errors for standard error, and map them to exit statuses. Pure."""

import json
from collections.abc import Sequence
from typing import Final

from palaver.doors.argv.style import Paint
from palaver.doors.lines_wire import error_object
from palaver.errors import PalaverError, UsageError

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


def format_refusal(argv: Sequence[str], error: PalaverError, paint: Paint) -> str:
    """Return an error in the form that the command line asks for: a sentence, or one line of JSON."""
    if "--json" in before_the_text(argv):
        # Arguments of the caller may not be UTF-8; this codec writes them as escapes and never fails.
        return json.dumps(error_object(error)) + "\n"
    return f"{paint.red('pal:')} {paint.safe(str(error), keep_lines=True)}\n"


def status_of(error: PalaverError) -> int:
    """Return the exit status of a command that ended with this error."""
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_REFUSED


def before_the_text(argv: Sequence[str]) -> Sequence[str]:
    """Return the arguments before a lone `--`: everything after it is text."""
    return argv[: argv.index("--")] if "--" in argv else argv
