"""The commands for MCP and for the tokens of HTTP. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "MCP and HTTP"

DOOR_COMMANDS: Final = (
    Command(
        path=("mcp",),
        group=_GROUP,
        summary="Run an MCP server for a harness.",
        description=(
            "A harness starts this command and communicates over standard input and output. Tool calls are "
            "made by the same agent as 'pal' in that session, so no further setup is needed. The session "
            "continues when the bus restarts."
        ),
        options=(
            Option(
                name="--tools",
                metavar="GROUPS",
                help=(
                    "Tool groups, separated by commas: rooms, stick, messages, notes, agents, hooks "
                    "(default: all but hooks)."
                ),
            ),
        ),
        examples=(
            ("claude mcp add palaver -- pal mcp", "add it to Claude Code"),
            ("codex mcp add palaver -- pal mcp", "add it to Codex"),
            ("pal mcp --tools rooms,messages", "offer only some tools"),
        ),
    ),
    Command(
        path=("token",),
        group=_GROUP,
        summary="Manage tokens for agents that connect over HTTP.",
        description="Enable HTTP access first: 'pal up --http'.",
        is_group=True,
        examples=(
            ("pal token create luna", "create a token for luna"),
            ("pal token list", "list tokens"),
        ),
    ),
    Command(
        path=("token", "create"),
        group=_GROUP,
        summary="Create a token for an agent and print it once.",
        description=(
            "A program with this token acts as that agent over HTTP, with at most the rights of the token's "
            "creator. An agent can create tokens only for itself, a person for any agent. Only a hash of the "
            "token is stored."
        ),
        positionals=(
            Positional(name="NAME", help="The agent (default: you).", optional=True, completes="agents"),
        ),
        examples=(("pal token create luna", "let a program act as luna"),),
    ),
    Command(
        path=("token", "list"),
        group=_GROUP,
        summary="List tokens.",
        description="Shows the agent, creator and time of each token, but never the token itself.",
        examples=(("pal token list", "list all tokens"),),
    ),
    Command(
        path=("token", "revoke"),
        group=_GROUP,
        summary="Revoke a token immediately.",
        description="An agent can revoke its own tokens, a person any token.",
        positionals=(
            Positional(name="ID", help="An id from 'pal token list', or an agent for all its tokens."),
        ),
        examples=(
            ("pal token revoke 3f9a1c02", "revoke one token"),
            ("pal token revoke luna", "revoke all tokens of luna"),
        ),
    ),
)
