"""`pal chat`: finds the room and lets the client talk in its own process."""

from palaver.doors.argv.call import Call
from palaver.doors.argv.commands_rooms import room_of


async def chat(call: Call) -> int:
    """Open a conversation in the room that is meant."""
    room = await room_of(call, call.parsed.positionals[0] if call.parsed.positionals else "")
    state = await call.services.desk.get_room_state(call.caller, room_id=room)
    call.connection.run_here("chat", "--room", str(state["room_id"]))
    return 0
