"""`pal archive` and `pal export`: events leave the log, or a copy of them goes out. No event is written."""

import re
from contextlib import aclosing
from datetime import datetime
from typing import Final

from palaver.doors.argv.call import Call
from palaver.doors.argv.filters import moment_from, query_from
from palaver.doors.argv.style import safe
from palaver.doors.argv.table_archive import FORMATS
from palaver.errors import UsageError
from palaver.log.api import Archived
from palaver.log.pages import pages
from palaver.model.agent import Standing
from palaver.model.envelope import Event, encode_event
from palaver.model.markdown import MarkdownPage
from palaver.model.query import Query
from palaver.model.redact import redact_event
from palaver.model.request import Archive
from palaver.routing.policy import require

_PLACE: Final = re.compile(r"#?([0-9]{1,15})", re.ASCII)
_PAGE: Final = 1000


async def archive(call: Call) -> int:
    """Move what lies before a place or a time into a file."""
    before = min(await _place(call), call.services.log.last() + 1)
    moved = await call.services.broker.submit(call.caller, Archive(before=before), key=call.asked.key)
    assert isinstance(moved, Archived)
    if call.is_json:
        path = None if moved.path is None else str(moved.path)
        await call.say_json({"archived": moved.count, "last": moved.last, "file": path})
    elif moved.path is not None:
        await call.say(f"archived {_events(moved.count)}, up to #{moved.last}, in {moved.path}")
    elif moved.count:
        await call.say(f"finished archiving: {_events(moved.count)}, up to #{moved.last}")
    else:
        await call.say(f"archived 0 events: the log has none before #{before}")
    return 0


async def export(call: Call) -> int:
    """Write all that passes the filters, archived or not, page by page."""
    is_redacted = not call.parsed.has("--no-redact")
    if not is_redacted:
        require(call.caller, Standing.HUMAN, "export --no-redact")
    query = await query_from(call, limit=_PAGE)
    page = None
    if (call.parsed.value("--format") or FORMATS[0]) == "markdown":
        page = MarkdownPage(lambda ts: _time(call, ts))
        note = "Secrets are redacted." if is_redacted else "Secrets are not redacted."
        await call.write(page.begin(f"Palaver log of {call.services.log.device}", note).encode())
    if query.sql and query.after < call.services.log.archived():
        call.warn("--sql looks only at what is in the log; the archive is left out")
    # One write for each event: a client that lost the daemon goes on behind those that it has.
    async with aclosing(pages(call.services.log, query, with_archives=not query.sql)) as found:
        async for events in found:
            for event in events:
                shown = redact_event(event) if is_redacted else event
                await call.write(_line(shown) if page is None else _markdown(call, page, shown))
    return 0


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def _line(event: Event) -> bytes:
    return encode_event(event) + b"\n"


def _markdown(call: Call, page: MarkdownPage, event: Event) -> bytes:
    text = page.add(event)
    return (safe(text, keep_lines=True) if call.is_terminal else text).encode("utf-8", "backslashreplace")


def _time(call: Call, ts_ms: int) -> str:
    """A moment in full: the page is read on another day, and perhaps somewhere else."""
    return (
        datetime.fromtimestamp(ts_ms / 1000, call.zone).astimezone(call.zone).strftime("%Y-%m-%d %H:%M:%S %z")
    )


async def _place(call: Call) -> int:
    given = call.parsed.value("--before")
    if given is None:
        raise UsageError("say what is to be archived: pal archive --before 90d, a date, or a place")
    if found := _PLACE.fullmatch(given):
        return int(found[1])
    moment = moment_from(call, "--before")
    assert moment is not None  # It was given.
    return await _first_since(call, moment)


async def _first_since(call: Call, moment: int) -> int:
    """The first place that is not older than a moment; the one behind the last when all are."""
    found = await call.services.log.read(Query(since=moment, limit=1))
    return found[0].seq if found else call.services.log.last() + 1
