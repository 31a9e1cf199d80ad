"""Notices about the stick for agents that do not wait for it. Pure: events in, requests out.

An agent that waits for its turn gets the stick there. Others are active or idle and would not notice.
"""

from collections.abc import Callable
from typing import Final

from palaver.model.concern import from_agent
from palaver.model.envelope import Event
from palaver.model.request import Notify
from palaver.rooms.payloads import KICK, PASS, RELEASE, RESERVATION_EXPIRED, TAKEOVER

RESERVING: Final = (PASS, RELEASE, RESERVATION_EXPIRED)
"""Events that reserve the stick for a member, or for none."""


def stick_notice(event: Event, is_waiting: Callable[[str], bool]) -> Notify | None:
    """Return the notice of a room event for the affected agent; None if it waits or no agent is affected."""
    room = event.payload.get("room")
    if event.type in RESERVING:
        whom = event.payload.get("reserved_for")
        if not isinstance(whom, str) or not whom or is_waiting(whom):
            return None
        how = "passes you" if event.type == PASS else "has released"
        giver = from_agent(event) or "the bus"
        text = (
            f"{giver} {how} the stick of #{room}, and it is reserved for you: take it with "
            f"'pal stick claim --room {room}' or wait_for_turn; the handoff is included"
        )
        return _notify(event, whom, text)
    if event.type == TAKEOVER and event.to:
        why = event.payload.get("reason") or event.payload.get("cause")
        text = (
            f"{event.sender} has taken over the stick of #{room} from you ({why}): stop changing files there"
        )
        return _notify(event, event.to[0], text)
    if event.type == KICK and event.to:
        why = event.payload.get("reason")
        text = f"{event.sender} has removed you from #{room}" + (f": {why}" if why else "")
        return _notify(event, event.to[0], text)
    return None


def _notify(event: Event, whom: str, text: str) -> Notify:
    return Notify(to=whom, text=text, cause=event.id, kind="stick")
