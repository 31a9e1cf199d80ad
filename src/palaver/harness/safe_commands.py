"""The commands and tools of the bus that agents may use without a prompt, if a person agrees. Pure.

Each harness gets exactly this list, in its own form, in its own launch module. The list has no command that
starts, stops or changes anything other than messages, subscriptions, rooms, notes, tasks and bundles. The
daemon checks the rights of the agent at each call as always.
"""

from typing import Final

SAFE_COMMANDS: Final = (
    *("send", "recv", "inbox", "show", "list", "status", "events", "receipts", "ack", "thread"),
    *("route", "sub", "history"),
    *("room", "stick", "note", "task", "bundle"),
)
"""The first words after `pal`."""

SAFE_TOOLS: Final = (
    *("send", "route_message", "inbox", "list_agents"),
    *("join_path", "leave_room", "list_rooms", "get_room_state", "kick_member"),
    *("send_message", "wait_for_events", "get_room_events"),
    *("wait_for_turn", "heartbeat", "release_stick", "pass_stick", "takeover_stick"),
    *("add_note", "list_notes", "resolve_note"),
)
"""The tools that do the same, as the MCP server names them."""

ASKING: Final = ("claude", "codex", "gemini")
"""The harnesses that ask before each command or tool call; OpenCode does so only if its settings say so."""
