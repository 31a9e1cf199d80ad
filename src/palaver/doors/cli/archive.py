"""The commands that archive, back up, export, import and redact events."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from palaver.broker.context import Archived, Imported, Redacted
from palaver.domain.rights import is_foreign_type, require, require_person
from palaver.doors.cli.call import Call
from palaver.doors.cli.events import LOG_COMMANDS, query_from, time_from
from palaver.doors.cli.spec import Command, Option, Positional, format_argv
from palaver.errors import UsageError
from palaver.home import remove_message
from palaver.protocol.agents import Standing
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.redaction import can_remove, removed_text
from palaver.protocol.requests import Archive, Import, Redact
from palaver.protocol.summary import begin_page
from palaver.services.agents import secret_hash
from palaver.services.queries import ExportFile, ExportFormat
from palaver.services.views import repair_folders

# --------------------
# Rows of the commands that archive, back up, export, import and redact events.

FORMATS: Final = ("jsonl", "markdown")
"""The formats of an export; the first is the default."""

_GROUP: Final = "The log"
_NOT_FILTERS: Final = frozenset({"--last", "--all", "--archived", "--wait", "--follow", "--consumer"})
_FILTERS: Final = tuple(
    replace(option, help="After this seq.") if option.name == "--after" else option
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
            "Archived events keep their numbers and receipts, and unread messages are still delivered. "
            "Read archived events with 'pal show' or 'pal events --archived'. Prints how many events were "
            "moved; 0 is not an error. For an operator or a person."
        ),
        options=(
            Option(
                name="--before",
                metavar="WHEN",
                help="A number, time or age: 4200, 2026-03-01 or 90d. Required.",
            ),
        ),
        examples=(
            ("pal archive --before 90d", "events older than 90 days"),
            ("pal archive --before 2026-03-01", "events before March"),
            ("pal archive --before 4200", "events before #4200"),
        ),
        see=(("archive and export", "archive.md"),),
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
        json="'file' and 'bytes'.",
        see=(("backup and how to restore it", "log.md#backup"),),
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
        see=(
            ("exporting", "archive.md#exporting"),
            ("secrets", "archive.md#secrets"),
        ),
    ),
    Command(
        path=("import",),
        group=_GROUP,
        summary="Store exported events as history.",
        description=(
            "Reads a file that 'pal export' wrote here or on another machine, and appends its events. They "
            "keep their ids, senders, times and texts, and get new numbers. An event that is here already is "
            "skipped, so an import that was interrupted can be repeated. The whole file is checked first: "
            "with one bad line nothing is imported. Imported events can be read and searched, and nothing "
            "else: no message is delivered, no agent, task or room appears, no watch or subscription fires. "
            "Only a person can do this."
        ),
        positionals=(Positional(name="FILE", help="A file that 'pal export' wrote.", completes="files"),),
        examples=(
            ("pal import log.jsonl", "a file from 'pal export --no-redact > log.jsonl'"),
            ("pal import ./messages", "a file that is called messages"),
        ),
        statuses=(
            (0, "All events of the file are in the log."),
            (1, "The command was refused, or some events were skipped because their ids belong to others."),
        ),
        json=(
            "'imported' (how many were stored), 'known' (how many were here already) and 'different' (the "
            "numbers that the skipped events have in the file: another event here has their sender and id)."
        ),
        see=(("importing", "archive.md#importing"),),
    ),
    Command(
        path=("import", "messages"),
        group=_GROUP,
        summary="Take over agents and messages of another path broker.",
        description=(
            "Reads the files of a path broker that keeps its messages in DIR/.messages and its agents in "
            "files jvAgent.json below DIR. Afterwards its agents, sessions and subscriptions exist here, "
            "and its messages are in 'pal history'; those that were pending wait for 'pal recv', and "
            "unmatched ones are dead letters. No agent is started or woken, and nothing that is here already "
            "is changed, so the command can be repeated and continues after an interruption. Lines that "
            "cannot be read are skipped and counted. Only a person can do this."
        ),
        positionals=(
            Positional(name="DIR", help="The project folder of the path broker.", completes="directories"),
        ),
        options=(Option(name="--dry-run", help="Read everything, say what was found, store nothing."),),
        examples=(
            ("pal import messages ~/project", "take over everything"),
            ("pal import messages ~/project --dry-run", "see what would be skipped or renamed"),
        ),
        statuses=(
            (0, "Everything that can be read is here now."),
            (
                1,
                "The command was refused, a file could not be read, or messages were left out because others "
                "here have their sender and id.",
            ),
        ),
        json=(
            "'agents', 'sessions', 'subscriptions', 'messages' and 'dead' (how many are new), 'known' "
            "(messages that were here already), 'taken' (waiting copies that are now marked as seen, because "
            "they were received in the other broker after the last import), 'untimed', 'auto_runs', "
            "'skipped' and 'first_skipped' ('file', 'line', 'reason'), 'unreadable', 'renamed' ('kind', "
            "'from', 'to'), 'ignored' (unknown fields), "
            "'different' and 'first_different' (ids that belong to other messages here), 'dry_run'."
        ),
        see=(("taking over its files", "paths.md#taking-over-its-files"),),
    ),
    Command(
        path=("redact",),
        group=_GROUP,
        summary="Remove the text of a message permanently.",
        description=(
            "Removes it from the log, the search index, archives, later exports and message files; "
            "readers see [redacted]. Works for the text of raw keys, of a line typed in the input bar, of "
            "a note, a task, a bundle or an event of another program too. An event of type redacted "
            "records who did it and when, with a salted hash of the text. Copies in files of 'pal backup' "
            "and in agents' sessions remain. Folders that 'pal doctor --repair' has kept are listed, not "
            "changed. Only a person can do this."
        ),
        positionals=(
            Positional(name="ID", help="A message: its number or the end of its long id.", completes="ids"),
        ),
        examples=(("pal redact 42", "message 42 contained a password"),),
        statuses=(
            (0, "The text is removed."),
            (1, "The text could not be removed everywhere yet, or the command was refused."),
        ),
        json=(
            "'redacted', 'event' (the number of the record; null if the event was redacted before), "
            "'copies', 'files', 'also_in' (other events with the same text), 'kept' (folders), "
            "'unsearched' (archive files that cannot be read completely) and 'unredacted' (events whose "
            "text could not be removed yet)."
        ),
        see=(("removing a text", "archive.md#removing-a-text"),),
    ),
)


# --------------------
# Functions of `pal archive`, `backup`, `export`, `import` and `redact`.

_SEQ: Final = re.compile(r"#?([0-9]{1,15})", re.ASCII)
_PAGE: Final = 1000
_SHOWN: Final = 10
"""How many seqs a warning names."""


async def archive(call: Call) -> int:
    """Move the events before a seq or a time into an archive file."""
    before = min(await _first_kept_seq(call), call.services.queries.last() + 1)
    moved = await call.submit(Archive(before=before))
    assert isinstance(moved, Archived)
    if call.is_json:
        path = None if moved.path is None else str(moved.path)
        view = {"archived": moved.count, "last": moved.last, "file": path}
        await call.say_json({**view, "unredacted": sorted(moved.unredacted)})
    elif moved.path is not None:
        await call.say(f"archived {_events(moved.count)}, up to #{moved.last}, in {moved.path}")
    elif moved.count:
        await call.say(f"finished archiving: {_events(moved.count)}, up to #{moved.last}")
    else:
        await call.say(f"archived 0 events: the log has none before #{before}")
    _warn_unredacted(call, moved.unredacted)
    return 0


async def backup(call: Call) -> int:
    """Let the client copy the log, with its own rights and without using the daemon's event loop."""
    call.connection.run_here(*format_argv(call.parsed))
    return 0


async def export(call: Call) -> int:
    """Write the events that pass the filters page by page, archived ones too unless --sql is given."""
    is_redacted = not call.parsed.has("--no-redact")
    if not is_redacted:
        require(call.caller, Standing.HUMAN, "export --no-redact")
    query = await query_from(call, limit=_PAGE)
    manner = ExportFormat(
        is_markdown=(call.parsed.value("--format") or FORMATS[0]) == "markdown",
        is_redacted=is_redacted,
        is_for_person=call.paint.is_for_person,
        time_zone=call.asked.environment.get("TZ", ""),
    )
    if manner.is_markdown:
        note = "Secrets are redacted." if is_redacted else "Secrets are not redacted."
        await call.write(begin_page(f"Palaver log of {call.services.queries.device}", note).encode())
    if query.sql and query.after < call.services.queries.archived():
        call.warn("--sql reads only the log; the archive is left out")
    async with (
        aclosing(call.services.queries.pages(query, with_archives=not query.sql)) as found,
        call.services.queries.exports.start(manner) as process,
    ):
        async for events in found:
            async with aclosing(process.write(events)) as written:
                # One write per event: a client that reconnects continues after the last event that it has.
                async for output in written:
                    await call.write(output)
    return 0


async def import_events(call: Call) -> int:
    """Store the events of an export: first check every line, then store them page by page."""
    # Before the file is opened: its errors are for a person only.
    require(call.caller, Standing.HUMAN, "import")
    export_file = ExportFile(Path(call.absolute(call.parsed.positionals[0])))
    count = known = 0
    different: list[int] = []
    with closing(export_file):
        # Read twice, so that a wrong line at the end is found before the first event is stored: the events of
        # an import cannot be removed again.
        async with aclosing(export_file.pages("nothing was imported")) as pages:
            async for _ in pages:
                pass
        effect = "the file has changed meanwhile, and the lines before this one are imported"
        async with aclosing(export_file.pages(effect)) as pages:
            async for events in pages:
                # Without the key of the command: each page is a request, and a repeat finds its events.
                done = await call.services.broker.submit(call.caller, Import(events=events))
                assert isinstance(done, Imported)
                count, known = count + done.count, known + done.known
                different += [event.seq for event in done.different]
    if call.is_json:
        await call.say_json({"imported": count, "known": known, "different": different})
    else:
        await call.say(f"imported {_events(count)}; {known} {'was' if known == 1 else 'were'} here already")
    if different:
        call.warn(f"not imported, because another event here has the same sender and id: {_seqs(different)}")
    return 1 if different else 0


async def import_messages(call: Call) -> int:
    """Let the client read the files of another path broker, with its own rights, and send their content."""
    require_person(call.caller, "import messages")
    call.connection.run_here(*format_argv(call.parsed))
    return 0


async def redact(call: Call) -> int:
    """Remove the text of one event and its files, and report where else the same text is stored.

    Return 1 if the text could not be removed yet.
    """
    require(call.caller, Standing.HUMAN, "redact")
    event = await call.services.queries.fetch_event(call.parsed.positionals[0])
    is_foreign = is_foreign_type(event.type)
    text = removed_text(event, is_foreign=is_foreign) if can_remove(event, is_foreign=is_foreign) else ""
    # In a thread, because this hash is slow on purpose: it must not help to guess the text.
    digest = await asyncio.to_thread(secret_hash, text.encode("utf-8", "replace"))
    # By its seq: the given reference may be the end of an id, and several events may have that end by now.
    request = Redact(event=str(event.seq), hash=digest)
    done = await call.submit(request)
    assert isinstance(done, Redacted)
    # In a thread: a folder may have many files.
    files = await asyncio.to_thread(_remove_files, call.services.daemon.home, (event, *done.copies))
    kept = await asyncio.to_thread(repair_folders, call.services.daemon.home)
    is_left = event.seq in done.unredacted
    if call.is_json:
        await call.say_json(
            {
                "redacted": event.seq,
                "event": None if done.event is None else done.event.seq,
                "copies": [copy.seq for copy in done.copies],
                "files": files,
                "also_in": [quote.seq for quote in done.quotes],
                "kept": [str(folder) for folder in kept],
                "unsearched": list(done.unsearched),
                "unredacted": sorted(done.unredacted),
            }
        )
        return int(is_left)
    also = f", with {_events(len(done.copies))} that quoted it" if done.copies else ""
    if done.event is None and not is_left:
        await call.say(f"already redacted: #{event.seq}")
    elif done.event is not None and not is_left:
        await call.say(f"removed the text of #{event.seq}{also}; recorded as #{done.event.seq}")
    if done.quotes:
        others = _seqs([quote.seq for quote in done.quotes])
        call.warn(f"the same text is also in {others}: 'pal redact' removes each of them")
    for path in done.unsearched:
        call.warn(f"{path} cannot be read completely, so it may still contain the same text")
    _warn_unredacted(call, done.unredacted)
    for folder in kept:
        call.warn(f"{folder} contains the log from before a repair, maybe with the text: remove the folder")
    return int(is_left)


def _warn_unredacted(call: Call, left: Mapping[int, str]) -> None:
    if call.is_json:
        return
    for seq in sorted(left)[:_SHOWN]:
        call.warn(
            f"the text of #{seq} is not removed yet: {left[seq]}. "
            "It is tried again at each start, 'pal redact' and 'pal archive'"
        )
    if len(left) > _SHOWN:
        call.warn(f"the texts of {len(left) - _SHOWN} more events are not removed yet")


def _remove_files(home: Path, events: Sequence[Event]) -> int:
    """Remove the files that terminal agents received for these messages; return the number of files."""
    return sum(remove_message(str(home), event.id) for event in events)


def _seqs(seqs: Sequence[int]) -> str:
    rest = f" and {len(seqs) - _SHOWN} more" if len(seqs) > _SHOWN else ""
    return ", ".join(f"#{seq}" for seq in seqs[:_SHOWN]) + rest


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


async def _first_kept_seq(call: Call) -> int:
    given = call.parsed.value("--before")
    if given is None:
        raise UsageError("pal archive requires --before: pal archive --before 90d, a date or a number")
    # Before times are tried: there a plain number would be an age in seconds.
    if found := _SEQ.fullmatch(given):
        return int(found[1])
    since_ms = time_from(call, "--before")
    assert since_ms is not None  # the option has a value, see above
    return await _first_since(call, since_ms)


async def _first_since(call: Call, since_ms: int) -> int:
    """Return the first seq that is not older than a time; the seq after the last one if all are older."""
    found = await call.services.queries.read(Query(since=since_ms, limit=1))
    return found[0].seq if found else call.services.queries.last() + 1
