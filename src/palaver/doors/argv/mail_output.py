"""Write messages to the client, batch by batch: as JSON, for people, or fenced for an agent.

Does not mark messages as seen: the calling command does that.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from palaver.delivery.taker import Passes
from palaver.doors.argv.call import Call
from palaver.doors.argv.message_page import for_people, injection_line
from palaver.doors.views import message_view
from palaver.log.records import is_small
from palaver.log.state import read_tips, read_unread
from palaver.model.bundle import bundle_hint
from palaver.model.envelope import Event
from palaver.model.forms import format_injection
from palaver.model.message import INSTANCE, message_fields, readable_text
from palaver.model.text import LIMIT_INJECTION
from palaver.model.tips import tips_for

_LIMIT_TEXT: Final = 1024 * 1024
"""Characters of text in a batch, except for a single longer message. A batch is one write."""

JSON: Final = "json"
PAGE: Final = "page"
FENCE: Final = "fence"

_encode: Final = msgspec.json.Encoder().encode


def tips_for_agent(call: Call, events: Sequence[Event], told: Collection[str]) -> dict[str, str]:
    """Return the tips for an agent with these messages. A tip is repeated until it is stored as shown."""
    if form_of(call) != FENCE or call.caller.kind != INSTANCE:
        return {}
    return tips_for(events, frozenset(told))


def told_tips(call: Call) -> set[str]:
    """Return the tips that are stored as shown."""
    return set(read_tips(call.services.log.rows, call.owner))


def form_of(call: Call) -> str:
    """Return the form of the output: JSON, a page for people, or fenced for an agent."""
    if call.is_json or (call.parsed.has("--follow") and call.is_json_stream):
        return JSON
    return PAGE if call.is_terminal else FENCE


def batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Split messages into batches, each for one write."""
    batch: list[Event] = []
    size = 0
    for event in events:
        length = len(readable_text(event))
        if batch and (size + length > _LIMIT_TEXT or len(batch) == LIMIT_INJECTION):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += length
    if batch:
        yield batch


def count_rest(call: Call, events: Sequence[Event]) -> int:
    """Return how many unread messages remain after those that are shown; 0 with --follow."""
    if call.parsed.has("--follow"):
        return 0
    return max(0, read_unread(call.services.log.rows, call.owner) - len(events))


async def show(
    call: Call,
    events: Sequence[Event],
    token: bytes = b"",
    *,
    rest: int = 0,
    told: set[str] | None = None,
    flushed: Callable[[], None] | None = None,
) -> None:
    """Write one batch in one piece: if the client is cut off before it has written all, no message counts.

    The tips in the batch are added to `told`.
    """
    form = form_of(call)
    write: Callable[[Sequence[Event]], bytes] = _to_json_lines
    if form == PAGE:
        write = partial(_to_page, call)
    elif form == FENCE:
        tips = tips_for_agent(call, events, told_tips(call) if told is None else told)
        write = partial(_to_fence, call, rest, tuple(tips.values()))
        if told is not None:
            told.update(tips)
    # Encoding or escaping a payload of megabytes would block the event loop.
    is_quick = all(is_small(event.payload) for event in events)
    data = write(events) if is_quick else await asyncio.to_thread(write, events)
    await call.write(data, token, flushed=flushed)


def _to_json_lines(events: Sequence[Event]) -> bytes:
    return b"".join(_encode(message_view(event)) + b"\n" for event in events)


def _to_page(call: Call, events: Sequence[Event]) -> bytes:
    return "".join(for_people(call, event) for event in events).encode("utf-8", "backslashreplace")


def _to_fence(call: Call, rest: int, tips: Iterable[str], events: Sequence[Event]) -> bytes:
    """Return the text for an agent: the messages, how many more wait, general hints, and tips."""
    services, name = call.services, call.owner
    fence = format_injection(
        [injection_line(event, name, services.log.device) for event in events],
        rest=rest,
        hints=services.settings.hints,
        tips=(bundle_hint(events), *tips),
    )
    return f"{fence}\n".encode()


def mail_filter(call: Call) -> Passes | None:
    """Return the filter by sender and thread; None lets everything through."""
    senders = {name.removeprefix("@").lower() for name in call.parsed.values("--from")}
    threads = set(call.parsed.values("--thread"))
    if not senders and not threads:
        return None
    return lambda event: (
        (not senders or event.sender.lower() in senders)
        and (not threads or message_fields(event).get("thread") in threads)
    )
