"""`pal chat`: find the room, and let the client run the conversation in its own process."""

from palaver.doors.argv.call import Call
from palaver.doors.argv.commands_rooms import room_of


async def chat(call: Call) -> int:
    """Let the client open a conversation in the named room, or in the caller's room."""
    room = await room_of(call, call.parsed.positionals[0] if call.parsed.positionals else "")
    state = await call.services.desk.get_room_state(call.caller, room_id=room)
    call.connection.run_here("chat", "--room", str(state["room_id"]))
    return 0
