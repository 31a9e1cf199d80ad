"""Format messages for a person or an agent, and errors for standard error."""

import json
from collections.abc import Sequence
from typing import Final

from palaver.doors.cli.call import Call
from palaver.errors import PalaverError, UsageError
from palaver.protocol.display import Paint
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
from palaver.protocol.lines import error_object
from palaver.protocol.message import readable_text, reply_reference


def for_people(call: Call, event: Event) -> str:
    """Return a head and the indented text. The content is escaped, so it cannot control the terminal."""
    paint = call.paint
    marks = topic_marks(event)
    number, sender = paint.bold(f"#{event.seq}"), paint.cyan(paint.name(event.sender))
    head = f"{number} {sender} → {paint.names(event.to) or 'all'}"
    if marks:
        head += " " + paint.safe(f"[{', '.join(marks)}]")
    body = "\n".join(f"  {line}" for line in call.safe(readable_text(event), keep_lines=True).splitlines())
    return f"{head} {paint.dim(call.clock_time(event.ts))}\n{body}\n"


def topic_marks(event: Event) -> list[str]:
    """Return the intent, the thread and the answered message, for the head of a message.

    Empty for a foreign envelope, whatever it claims.
    """
    message = event.body if isinstance(event.body, MessageSent) else MessageSent()
    marks = [mark for mark in (message.intent, message.thread) if mark]
    answered = reply_reference(event)
    return [*marks, f"answers #{answered}"] if answered else marks


# --------------------
# Format errors for standard error, and map them to exit statuses. Pure.

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


def format_refusal(argv: Sequence[str], error: PalaverError, paint: Paint, advice: str = "") -> str:
    """Return an error in the form that the command line asks for: a sentence, or one line of JSON.

    `advice` is a further sentence without a full stop: the cause and the way out.
    """
    text = f"{error}. {advice}" if advice else str(error)
    if "--json" in before_the_text(argv):
        # Arguments of the caller may not be UTF-8; this codec writes them as escapes and never fails.
        return json.dumps({**error_object(error), "message": text}) + "\n"
    return f"{paint.red('pal:')} {paint.safe(text, keep_lines=True)}\n"


def status_of(error: PalaverError) -> int:
    """Return the exit status of a command that ended with this error."""
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_REFUSED


def before_the_text(argv: Sequence[str]) -> Sequence[str]:
    """Return the arguments before a lone `--`: everything after it is text."""
    return argv[: argv.index("--")] if "--" in argv else argv
