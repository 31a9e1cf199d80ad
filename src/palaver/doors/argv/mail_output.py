"""Mail as a command writes it out: batch by batch, as JSON, for people, or fenced for an agent.

Marks nothing: what was seen is for whoever shows it to say.
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
"""A batch ends before its texts grow past this: it goes out in one piece."""

JSON: Final = "json"
PAGE: Final = "page"
FENCE: Final = "fence"

_encode: Final = msgspec.json.Encoder().encode


def tips_for_agent(call: Call, events: Sequence[Event], told: Collection[str]) -> dict[str, str]:
    """Give what an agent is told with these messages, once: the same again until they are written down."""
    if form_of(call) != FENCE or call.caller.kind != INSTANCE:
        return {}
    return tips_for(events, frozenset(told))


def told_tips(call: Call) -> set[str]:
    """The tips that were written down as told."""
    return set(read_tips(call.services.log.rows, call.owner))


def form_of(call: Call) -> str:
    """Say how mail is written: as JSON, as a page for people, or fenced for an agent."""
    if call.is_json or (call.parsed.has("--follow") and call.is_json_stream):
        return JSON
    return PAGE if call.is_terminal else FENCE


def batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Divide messages into what goes out in one piece."""
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
    """How much mail waits behind what is being shown."""
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
    """One frame for one batch: a client that is cut off has written all of it, or none of it counts.

    The tips that go along are added to `told`.
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
    # A payload of megabytes takes too long to encode or to escape for the event loop.
    is_quick = all(is_small(event.payload) for event in events)
    data = write(events) if is_quick else await asyncio.to_thread(write, events)
    await call.write(data, token, flushed=flushed)


def _to_json_lines(events: Sequence[Event]) -> bytes:
    return b"".join(_encode(message_view(event)) + b"\n" for event in events)


def _to_page(call: Call, events: Sequence[Event]) -> bytes:
    return "".join(for_people(call, event) for event in events).encode("utf-8", "backslashreplace")


def _to_fence(call: Call, rest: int, tips: Iterable[str], events: Sequence[Event]) -> bytes:
    """Return what an agent reads: the messages, how many more wait, hints for all and tips for this one."""
    services, name = call.services, call.owner
    fence = format_injection(
        [injection_line(event, name, services.log.device) for event in events],
        rest=rest,
        hints=services.settings.hints,
        tips=(bundle_hint(events), *tips),
    )
    return f"{fence}\n".encode()


def mail_filter(call: Call) -> Passes | None:
    """Read the filters by sender and thread; None lets everything through."""
    senders = {name.removeprefix("@").lower() for name in call.parsed.values("--from")}
    threads = set(call.parsed.values("--thread"))
    if not senders and not threads:
        return None
    return lambda event: (
        (not senders or event.sender.lower() in senders)
        and (not threads or message_fields(event).get("thread") in threads)
    )
