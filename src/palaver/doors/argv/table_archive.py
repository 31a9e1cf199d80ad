"""The commands that take events out of the log, or a copy of them. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_log import LOG_COMMANDS

FORMATS: Final = ("jsonl", "markdown")
"""The forms of an export; the first is the default."""

_GROUP: Final = "The log"
_NOT_FILTERS: Final = frozenset({"--last", "--all", "--archived", "--wait", "--follow", "--consumer"})
_FILTERS: Final = tuple(
    option
    for command in LOG_COMMANDS
    if command.path == ("events",)
    for option in command.options
    if option.name not in _NOT_FILTERS
)

ARCHIVE_COMMANDS: Final = (
    Command(
        path=("archive",),
        group=_GROUP,
        summary="Move old events out of the log into a file.",
        description=(
            "Events stay in the log until they are archived. Archived events keep their numbers and "
            "receipts, unread messages are still delivered, 'pal show' opens them, and 'pal events' reads "
            "them with --archived. Needs an operator or a person."
        ),
        options=(
            Option(
                name="--before",
                metavar="WHEN",
                help="Events before this number (4200), time (2026-03-01) or age (90d).",
            ),
        ),
        examples=(
            ("pal archive --before 90d", "events older than ninety days"),
            ("pal archive --before 2026-03-01", "events before March"),
            ("pal archive --before 4200", "events before #4200"),
        ),
    ),
    Command(
        path=("backup",),
        group=_GROUP,
        summary="Copy the log into a file while the bus runs.",
        description=(
            "Writes one tar file with a consistent copy of the log, its large contents, its archives, the "
            "settings, your profiles, the cursors of consumers and the other files that cannot be made "
            "again. The file is compressed if its name ends in .gz or .tgz. Nothing is redacted. It is "
            "written whole or not at all, and only you can read it."
        ),
        positionals=(Positional(name="FILE", help="The file to write."),),
        options=(Option(name="--yes", help="Replace a file that is there already."),),
        examples=(
            ("pal backup palaver.tar", "a copy of everything"),
            ("pal backup palaver.tgz --yes", "compressed, over an older one"),
        ),
    ),
    Command(
        path=("export",),
        group=_GROUP,
        summary="Write events out, with secrets taken out of them.",
        description=(
            "Writes all that passes the filters, archived or not, to standard output. Keys and tokens of the "
            "common vendors, private keys, and what stands behind names such as password or API_KEY become "
            "[redacted]. That is done by what they look like: read what you hand to others."
        ),
        options=(
            *_FILTERS,
            Option(
                name="--format",
                metavar="FORM",
                help="One JSON object a line, or a page to read; otherwise jsonl.",
                choices=FORMATS,
            ),
            Option(name="--no-redact", help="Leave secrets in. For a person only."),
        ),
        examples=(
            ("pal export --thread pr-123 --format markdown", "a conversation to read"),
            ("pal export --since 7d", "the last week, for a program"),
        ),
    ),
    Command(
        path=("redact",),
        group=_GROUP,
        summary="Remove the text of a message for good.",
        description=(
            "Removes it from the log, the search index, archives, later exports and the files of messages; "
            "readers see [redacted]. An event of type redacted says who did it, when, and a salted hash of "
            "the text. Copies that agents or backups have stay; folders that a repair has kept are named. "
            "Needs a person."
        ),
        positionals=(
            Positional(name="ID", help="A message: its number or the end of its long id.", completes="ids"),
        ),
        examples=(("pal redact 42", "message 42 held a password"),),
    ),
)
