"""`pal thread`: show threads. Changes nothing."""

from contextlib import aclosing
from difflib import get_close_matches
from typing import Final

from palaver.doors.argv.call import Call
from palaver.doors.argv.message_page import for_people
from palaver.doors.argv.style import Column, ago, lay_out
from palaver.doors.argv.table_threads import DEFAULT_THREADS
from palaver.doors.views import message_view
from palaver.errors import NotFound
from palaver.log.fold_threads import read_thread, read_threads
from palaver.log.pages import pages
from palaver.model.envelope import Event
from palaver.model.query import Query

_PAGE: Final = 500
_LOOKED_AT: Final = 500
"""How many of the latest threads are searched for a similar name."""


async def list_threads(call: Call) -> int:
    """Show the threads with the latest messages, newest first."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_THREADS
    threads = read_threads(call.services.log.rows, limit)
    if call.is_json:
        for thread in threads:
            view = {
                "thread": thread.name,
                "messages": thread.count,
                "first": thread.first,
                "last": thread.last,
            }
            await call.say_json({**view, "ts": thread.ts, "names": list(thread.names)})
        return 0
    if not threads:
        await call.say("no threads yet; 'pal send --thread NAME' begins one")
        return 0
    now = call.services.clock.now_ms()
    columns = [
        Column(title="THREAD", least=8, paint=call.paint.bold),
        Column(title="MESSAGES", is_right=True),
        Column(title="LAST", is_right=True),
        Column(title="WHO", least=8),
    ]
    rows = [
        [thread.name, str(thread.count), ago(now - thread.ts), call.paint.names(thread.names)]
        for thread in threads
    ]
    await call.say_lines(lay_out(columns, rows, width=call.width, paint=call.paint))
    return 0


async def show_thread(call: Call) -> int:
    """Show the messages of a thread in their order; with --last only the newest ones."""
    name = call.parsed.positionals[0]
    if read_thread(call.services.log.rows, name) is None:
        near = get_close_matches(name, [one.name for one in read_threads(call.services.log.rows, _LOOKED_AT)])
        hint = f"nearest: {', '.join(near)}" if near else "'pal thread list' shows them"
        raise NotFound(f"thread {name}", hint)
    last = call.parsed.number("--last", least=1)
    query = Query(types=("message",), threads=(name,), last=last, limit=_PAGE)
    if last is not None:
        for event in await call.services.log.read(query):
            await _show(call, event)
        return 0
    async with aclosing(pages(call.services.log, query)) as found:
        async for page in found:
            for event in page:
                await _show(call, event)
    return 0


async def _show(call: Call, event: Event) -> None:
    if call.is_json:
        await call.say_json(message_view(event))
    else:
        await call.say(for_people(call, event))
