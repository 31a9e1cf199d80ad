"""Warn about unknown names and event types in filters, on standard error. Refuses nothing.

An unknown name or type may appear later, so it is allowed; but most often it is a typing error.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from palaver.doors.argv.call import Call
from palaver.model.event_types import EVENT_TYPES
from palaver.model.names import RESERVED
from palaver.model.query import STORED_TYPES, Query


async def doubt_names(call: Call, names: Iterable[str]) -> None:
    """Warn about names that no agent has ever had here. A client that reconnects gets no second warning."""
    for name in () if call.asked.resume else names:
        if not await _is_known(call, name):
            near = call.services.broker.directory.nearest(name.removeprefix("@").lower())
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "'pal list -v' shows present and past agents"
            )
            call.warn(f"unknown agent: {name}; {hint}")


async def doubt_types(call: Call, types: Iterable[str]) -> None:
    """Warn about types that no event has, if a known type is similar."""
    known = [*EVENT_TYPES, *STORED_TYPES]
    for type_ in () if call.asked.resume else types:
        near = [] if type_ in known else get_close_matches(type_.lower(), known, n=1)
        if near and not await call.services.log.read(Query(types=(type_,), last=1)):
            call.warn(f"the log has no event of type {type_}; did you mean {near[0]}?")


async def _is_known(call: Call, name: str) -> bool:
    plain = name.removeprefix("@").lower()
    if plain in RESERVED or call.services.broker.directory.find(plain) is not None:
        return True
    return bool(await call.services.log.read(Query(senders=(name,), last=1)))
