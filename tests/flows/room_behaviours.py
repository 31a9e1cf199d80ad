"""Behaviour that all doors share in rooms, by id, like `behaviours.py` for messages."""

from collections.abc import Mapping
from typing import Final

ROOM_BEHAVIOURS: Final[Mapping[str, str]] = {
    # Rooms
    "room-join": "Who joins a path is in its room, and whoever joins it next is in the same one.",
    "room-join-again": "Joining again changes nothing and is no event.",
    "room-above": "A path inside a room's belongs to that room, until somebody opens one there.",
    "room-nowhere": "There is no room at the root of the file system.",
    "room-unknown": "A room that does not exist is refused, whatever is asked of it.",
    "room-leave": "Who leaves is a member no more, and the room and its history stay.",
    "room-kick": "Nobody removes itself, a stranger, or a member that is there.",
    # The stick
    "stick-one-owner": "The stick is given to one; who asks next is told who has it.",
    "stick-release": "A release gives the stick to one who waits, with the hand-over whole.",
    "stick-pass": "A pass reserves the stick for one member, and nobody else gets it.",
    "stick-wakes": "Who waits for its turn is woken by it.",
    "stick-order-of-refusals": "Another turn is refused before another lease, and both before who holds it.",
    "stick-hand-over": "A hand-over that lacks something is refused by the field, and the turn goes on.",
    "stick-heartbeat": "The holder's heartbeat renews its lease and writes nothing.",
    "stick-takeover": "A holder that is there and in time is not taken over from.",
    "stick-members": "Who is no member has no turn.",
    # Messages
    "room-message-member": "A message to a member is that one's mail, and it is said in the room.",
    "room-message-several": "A message to several members is mail of each of them, once.",
    "room-message-all": "A message to the room is mail of everybody in it but its sender.",
    "room-message-self": "A message to oneself is one's own mail.",
    "room-message-harness": "The word of a harness means the one member that runs it; of two, nobody.",
    "room-message-interrupt": "An interrupt is one on the ledger too, and moves no stick.",
    "room-message-unknown": "A message to somebody who is no member is refused, and nobody gets it.",
    "room-message-size": "A body of 4,096 bytes is kept whole; an empty one and one byte more are refused.",
    "room-message-outsider": "Who is no member says nothing in a room.",
    # Events
    "events-history": "The history of a room is read in order, page by page, and the cursor goes along.",
    "events-wait": "A wait for events ends with the first that matches, or empty at its limit.",
    "events-self": "What concerns oneself is what others said to one or to all, and who came and went.",
    "events-filters": "Events are chosen by type, by sender and by whom they are for.",
    "events-acknowledge": "The cursor that is brought back marks one's own messages up to it as read.",
    "events-change-nothing": "Waiting for events gives nobody a place in line.",
    # Notes
    "notes": "A note lasts, is read page by page, and is told of in the room.",
    "note-size": "A note of 16 KiB is kept whole; one byte more is refused.",
    "note-resolve": "A note that is resolved is not shown any more, unless one asks for it.",
    # All doors at once
    "mixed-turn": "A stick goes round through every door, each holder with the hand-over of the last.",
    "mixed-talk": "What is said through one door is heard through all the others.",
    "mixed-self": "A message that one sends to oneself at one door is read at another.",
    "mcp-only": "An agent with only tools recovers from refusals by the tools that their texts name.",
}
