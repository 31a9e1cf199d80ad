"""The desk: the one meaning of rooms, the stick and notes for every door.

Parameters and results are those of the room tools, as plain objects; a refusal is raised. A door may change
the wire and never the meaning. Paths are absolute: a relative one is the door's to complete.
"""

from palaver.doors.desk_parts import LIMIT_EVENTS, LIMIT_WAIT_MS, Answer
from palaver.doors.desk_rooms import RoomTools
from palaver.doors.desk_stick import StickTools
from palaver.doors.desk_talk import TalkTools
from palaver.errors import WhoAreYou
from palaver.model.agent import Caller
from palaver.model.message import EXTERNAL

__all__ = ["LIMIT_WAIT_MS", "Answer", "Desk"]


class Desk(RoomTools, StickTools, TalkTools):
    """Serves every room tool. Rooms are in the log, and who waits is in attendance."""

    async def list_agents(self, caller: Caller) -> Answer:
        """Give `agents`, those present first."""
        self.attendance.saw(caller.name)
        return {"agents": self.show_agents()}

    async def inbox(self, caller: Caller, *, limit: int = 50) -> Answer:
        """Give `messages`: the newest for the caller, each with its `state`. Reading marks nothing."""
        if caller.kind == EXTERNAL:
            raise WhoAreYou("you have no mail of your own: take a name with 'pal join'")
        self.attendance.saw(caller.name)
        return {"messages": await self.show_inbox(caller.name, max(1, min(limit, LIMIT_EVENTS)))}
