"""`pal install` and `pal uninstall`: let the client write the files, with its own rights. Opens no file."""

from palaver.doors.argv.call import Call
from palaver.doors.argv.parse import format_argv
from palaver.errors import UsageError


async def install(call: Call) -> int:
    """Let the client run the command in its own process."""
    if call.parsed.positionals[0] != "skill" and len(call.parsed.positionals) > 1:
        raise UsageError("only the skill takes a folder; a harness decides itself where its settings are")
    call.connection.run_here(*format_argv(call.parsed))
    return 0
