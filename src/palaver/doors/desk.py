"""The one implementation of rooms, the stick and notes for every door.

Parameters and results are those of the room tools, as plain objects; a refused request raises an error. A
door may change the wire but never the meaning. Paths must be absolute; the door completes relative ones.
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
    """All room tools. Rooms are stored in the log; waiting callers are recorded in attendance."""

    async def list_agents(self, caller: Caller) -> Answer:
        """Return `agents`, present ones first."""
        self.attendance.saw(caller.name)
        return {"agents": await self.show_agents()}

    async def inbox(self, caller: Caller, *, limit: int = 50) -> Answer:
        """Return `messages`: the newest for the caller, each with its `state`. None is marked as read.

        To mark a message as read, the caller passes a cursor at or after it to `wait_for_events`.
        """
        if caller.kind == EXTERNAL:
            raise WhoAreYou("you have no mailbox: call join_path, or take a name with 'pal join'")
        self.attendance.saw(caller.name)
        messages = await self.show_inbox(caller.name, max(1, min(limit, LIMIT_EVENTS)))
        seqs = (int(str(message["seq"])) for message in messages)
        self.attendance.shown.add(
            caller.name, INBOX, (seq for seq in seqs if self._is_open(caller.name, seq))
        )
        return {"messages": messages}

    def _is_open(self, name: str, seq: int) -> bool:
        """Return whether a message is unread and the inbox shows its text."""
        found = find_mail(self.log.rows, name, seq)
        return found is not None and not found[1].is_kept_back and not found[1].raw
