"""`pal install` and `pal uninstall`: the client writes files, with its own rights. Opens nothing itself."""

from palaver.doors.argv.call import Call
from palaver.doors.argv.parse import format_argv
from palaver.links.doorstep import Doorstep


async def install(call: Call, doorstep: Doorstep) -> int:
    """Let the client do it in its own process."""
    call.connection.run_here(*format_argv(call.parsed))
    return 0
