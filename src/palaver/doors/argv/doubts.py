"""Words of a filter that nobody has and nothing is: what is said of them on standard error. Refuses nothing.

Names and types are open, so that what is not there now may come; but mostly it is a slip of the pen.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from palaver.doors.argv.call import Call
from palaver.model.event_types import EVENT_TYPES
from palaver.model.names import RESERVED
from palaver.model.query import STORED_TYPES, Query


async def doubt_names(call: Call, names: Iterable[str]) -> None:
    """Say which of these names nobody has ever had here. A client that asks again has heard it."""
    for name in () if call.asked.resume else names:
        if not await _is_known(call, name):
            near = call.services.broker.directory.nearest(name.removeprefix("@").lower())
            hint = f"nearest: {', '.join(near)}" if near else "'pal list -v' shows who is and was there"
            call.warn(f"nobody called {name} is known here; {hint}")


async def doubt_types(call: Call, types: Iterable[str]) -> None:
    """Say which of these types no event has, where one that events do have is nearly the same."""
    known = [*EVENT_TYPES, *STORED_TYPES]
    for type_ in () if call.asked.resume else types:
        near = [] if type_ in known else get_close_matches(type_.lower(), known, n=1)
        if near and not await call.services.log.read(Query(types=(type_,), last=1)):
            call.warn(f"no event of type {type_} is in the log; nearest: {near[0]}")


async def _is_known(call: Call, name: str) -> bool:
    plain = name.removeprefix("@").lower()
    if plain in RESERVED or call.services.broker.directory.find(plain) is not None:
        return True
    return bool(await call.services.log.read(Query(senders=(name,), last=1)))
