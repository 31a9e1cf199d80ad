"""The commands that archive, back up, export and redact events. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_log import LOG_COMMANDS

FORMATS: Final = ("jsonl", "markdown")
"""The formats of an export; the first is the default."""

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
        summary="Move old events from the log to an archive file.",
        description=(
            "Archived events keep their numbers and receipts, and unread messages are still delivered. Read "
            "archived events with 'pal show' or 'pal events --archived'. For an operator or a person."
        ),
        options=(
            Option(
                name="--before",
                metavar="WHEN",
                help="Archive events before this number (4200), time (2026-03-01) or age (90d). Required.",
            ),
        ),
        examples=(
            ("pal archive --before 90d", "events older than 90 days"),
            ("pal archive --before 2026-03-01", "events before March"),
            ("pal archive --before 4200", "events before #4200"),
        ),
    ),
    Command(
        path=("backup",),
        group=_GROUP,
        summary="Back up the bus to a file while it runs.",
        description=(
            "Writes one tar file with a consistent copy of the log, its large contents and archives, the "
            "settings, your profiles, the cursors of consumers and all other files that cannot be recreated. "
            "The file is compressed if its name ends in .gz or .tgz. Nothing is redacted. Only you can read "
            "the file. After an error there is no partial file."
        ),
        positionals=(Positional(name="FILE", help="The file to write."),),
        options=(Option(name="--yes", help="Replace an existing file."),),
        examples=(
            ("pal backup palaver.tar", "back up everything"),
            ("pal backup palaver.tgz --yes", "compressed, replacing an older file"),
        ),
    ),
    Command(
        path=("export",),
        group=_GROUP,
        summary="Print events for others, with secrets removed.",
        description=(
            "Writes all matching events, archived or not, to standard output. Keys and tokens of common "
            "vendors, private keys, and values of names such as password or API_KEY become [redacted]. "
            "Secrets are recognized by their form, so check the output before you share it."
        ),
        options=(
            *_FILTERS,
            Option(
                name="--format",
                metavar="FORM",
                help="jsonl (one object per line) or markdown (default: jsonl).",
                choices=FORMATS,
            ),
            Option(name="--no-redact", help="Keep secrets. For a person only."),
        ),
        examples=(
            ("pal export --thread pr-123 --format markdown", "a conversation as a page"),
            ("pal export --since 7d", "the last week, for a program"),
        ),
    ),
    Command(
        path=("redact",),
        group=_GROUP,
        summary="Remove the text of a message permanently.",
        description=(
            "Removes it from the log, the search index, archives, later exports and message files; readers "
            "see [redacted]. An event of type redacted records who did it and when, with a salted hash of "
            "the text. Copies in backups and in agents' sessions remain. Folders that 'pal doctor --repair' "
            "has kept are listed, not changed. Only a person can do this."
        ),
        positionals=(
            Positional(name="ID", help="A message: its number or the end of its long id.", completes="ids"),
        ),
        examples=(("pal redact 42", "message 42 contained a password"),),
    ),
)
