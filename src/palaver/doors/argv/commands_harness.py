"""`pal claude`, `codex`, `opencode` and `gemini`: check the request, and let the client start the harness.

Hooks have a separate door, `doors/hooks`.
"""

from palaver.doors.argv.call import Call
from palaver.doors.argv.commands_terminals import launch


async def claude(call: Call) -> int:
    """Let the client start Claude Code."""
    return launch(call, "claude", tuple(call.parsed.after or ()))


async def codex(call: Call) -> int:
    """Let the client start Codex."""
    return launch(call, "codex", tuple(call.parsed.after or ()))


async def opencode(call: Call) -> int:
    """Let the client start OpenCode."""
    return launch(call, "opencode", tuple(call.parsed.after or ()))


async def gemini(call: Call) -> int:
    """Let the client start Gemini CLI."""
    return launch(call, "gemini", tuple(call.parsed.after or ()))


async def hook(call: Call) -> int:
    """Do nothing for a client that sends a hook as a command: it is older than the door for hooks."""
    return 0
