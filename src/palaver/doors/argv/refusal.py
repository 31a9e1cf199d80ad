"""How a refusal looks on standard error, and the exit status it means. Pure: writes nothing."""

import json
from collections.abc import Sequence
from typing import Final

from palaver.doors.argv.style import Paint
from palaver.doors.lines_wire import error_object
from palaver.errors import PalaverError, UsageError

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


def format_refusal(argv: Sequence[str], error: PalaverError, paint: Paint) -> str:
    """Write an error as the command line asks for it: a sentence, or an object on a line."""
    if "--json" in before_the_text(argv):
        # Words of the caller may be no UTF-8; this codec writes them as escapes, and never fails.
        return json.dumps(error_object(error)) + "\n"
    return f"{paint.red('pal:')} {paint.safe(str(error), keep_lines=True)}\n"


def status_of(error: PalaverError) -> int:
    """Give the exit status of a command that ended with this error."""
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_REFUSED


def before_the_text(argv: Sequence[str]) -> Sequence[str]:
    """Give what stands before a lone `--`: behind it is text, whatever it looks like."""
    return argv[: argv.index("--")] if "--" in argv else argv
