"""The desk: the one meaning of rooms, the stick and notes for every door.

Parameters and results are those of the room tools, as plain objects; a refusal is raised. A door may change
the wire and never the meaning. Paths are absolute: a relative one is the door's to complete.
"""

from palaver.doors.desk_parts import LIMIT_EVENTS, LIMIT_WAIT_MS, Answer
from palaver.doors.desk_rooms import RoomTools
from palaver.doors.desk_stick import StickTools
from palaver.doors.desk_talk import TalkTools
from palaver.errors import WhoAreYou
from palaver.links.shown import INBOX
from palaver.log.state import find_mail
from palaver.model.agent import Caller
from palaver.model.message import EXTERNAL

__all__ = ["LIMIT_WAIT_MS", "Answer", "Desk"]


class Desk(RoomTools, StickTools, TalkTools):
    """Serves every room tool. Rooms are in the log, and who waits is in attendance."""

    async def list_agents(self, caller: Caller) -> Answer:
        """Give `agents`, those present first."""
        self.attendance.saw(caller.name)
        return {"agents": await self.show_agents()}

    async def inbox(self, caller: Caller, *, limit: int = 50) -> Answer:
        """Give `messages`: the newest for the caller, each with its `state`. Reading marks nothing.

        A cursor at or behind one of them, brought to `wait_for_events`, says that it was read.
        """
        if caller.kind == EXTERNAL:
            raise WhoAreYou("you have no mail of your own: call join_path, or take a name with 'pal join'")
        self.attendance.saw(caller.name)
        messages = await self.show_inbox(caller.name, max(1, min(limit, LIMIT_EVENTS)))
        seqs = (int(str(message["seq"])) for message in messages)
        self.attendance.shown.add(
            caller.name, INBOX, (seq for seq in seqs if self._is_open(caller.name, seq))
        )
        return {"messages": messages}

    def _is_open(self, name: str, seq: int) -> bool:
        """Tell whether a message is unread mail of which an inbox shows what it says."""
        found = find_mail(self.log.rows, name, seq)
        return found is not None and not found[1].is_kept_back and not found[1].raw
