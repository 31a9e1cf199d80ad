"""The commands for the doors beside this one: MCP and the tokens of HTTP. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

_GROUP: Final = "Doors"

DOOR_COMMANDS: Final = (
    Command(
        path=("mcp",),
        group=_GROUP,
        summary="Serve the tools of the bus to a harness, as MCP.",
        description=(
            "A harness starts this as an MCP server and speaks with it over standard input and output. Its "
            "calls are made by the same agent as 'pal' in that session: nothing has to be told twice. When "
            "the bus restarts the session goes on."
        ),
        options=(
            Option(
                name="--tools",
                metavar="GROUPS",
                help="Only these groups, with commas between: rooms, stick, messages, notes, agents, hooks.",
            ),
        ),
        examples=(
            ("claude mcp add palaver -- pal mcp", "for Claude Code"),
            ("codex mcp add palaver -- pal mcp", "for Codex"),
            ("pal mcp --tools rooms,messages", "without the stick, notes and agents"),
        ),
    ),
    Command(
        path=("token",),
        group=_GROUP,
        summary="Tokens by which agents come in over HTTP.",
        is_group=True,
        examples=(
            ("pal token create luna", "make one for luna"),
            ("pal token list", "see which there are"),
        ),
    ),
    Command(
        path=("token", "create"),
        group=_GROUP,
        summary="Make a token for an agent, and print it once.",
        description=(
            "Whoever holds it is that agent over HTTP, with at most the rights of whoever made it. An agent "
            "makes tokens for itself; a person for anybody. Only its hash is kept."
        ),
        positionals=(
            Positional(
                name="NAME", help="The agent; otherwise you yourself.", optional=True, completes="agents"
            ),
        ),
        examples=(("pal token create luna", "a token with which a program is luna"),),
    ),
    Command(
        path=("token", "list"),
        group=_GROUP,
        summary="Show the tokens there are.",
        description="For whom, by whom, since when. Never the tokens themselves.",
        examples=(("pal token list", "all of them"),),
    ),
    Command(
        path=("token", "revoke"),
        group=_GROUP,
        summary="Make a token worthless, at once.",
        description="An agent may revoke its own tokens, a person every one.",
        positionals=(
            Positional(
                name="ID", help="As 'pal token list' shows it, or the name of an agent: all of its tokens."
            ),
        ),
        examples=(("pal token revoke 3f9a1c02", "this one"), ("pal token revoke luna", "all of luna's")),
    ),
)
