"""Starting a harness as an agent: judged here, and done by the client. Its hooks have a door of their own."""

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
    """Say nothing to a client that asks for a hook as for a command: it is older than the door of hooks."""
    return 0
