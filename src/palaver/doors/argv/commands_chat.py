"""`pal chat`: finds the room and lets the client talk in its own process."""

from palaver.doors.argv.call import Call
from palaver.errors import RoomNotFound
from palaver.links.doorstep import Doorstep


async def chat(call: Call, doorstep: Doorstep) -> int:
    """Open a conversation in the room that is meant."""
    desk, given = call.services.desk, call.parsed.value("--room")
    path = call.absolute(call.parsed.positionals[0] if call.parsed.positionals else ".")
    room = given or await desk.room_here(call.caller, path)
    if room is None:
        raise RoomNotFound(path)
    state = await desk.get_room_state(call.caller, room_id=room)
    call.connection.run_here("chat", "--room", str(state["room_id"]))
    return 0
