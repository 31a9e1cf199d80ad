"""The commands for the bus itself. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.http.address import DEFAULT as DEFAULT_HTTP

_GROUP: Final = "The bus"

BUS_COMMANDS: Final = (
    Command(
        path=("up",),
        group=_GROUP,
        summary="Start the bus.",
        description="Other commands start the bus automatically, so you need this only after 'pal down'.",
        options=(
            Option(name="--foreground", help="Run in the foreground until Ctrl-C."),
            Option(
                name="--http",
                metavar="HOST:PORT",
                default=DEFAULT_HTTP,
                help=(
                    f"Enable HTTP access (default: {DEFAULT_HTTP}) and store this in the settings. For a "
                    "person only."
                ),
            ),
            Option(
                name="--http-remote",
                help="With --http: allow connections from other machines. They are not encrypted.",
            ),
            Option(
                name="--no-http",
                help="Disable HTTP access and store this in the settings. For a person only.",
            ),
        ),
        exclusive=(("--http", "--no-http"), ("--http-remote", "--no-http")),
        examples=(
            ("pal up", "start it in the background"),
            ("pal up --http", "also accept programs over HTTP, with tokens"),
            ("pal up --foreground", "run it here and watch its output"),
        ),
    ),
    Command(
        path=("down",),
        group=_GROUP,
        summary="Stop the bus.",
        description=(
            "Nothing is lost: messages wait in the log until the bus runs again. After this, agents do not "
            "restart the bus. 'pal up' does, and so does a person who runs any command in a terminal."
        ),
        examples=(("pal down", "stop it"),),
    ),
    Command(
        path=("status",),
        group=_GROUP,
        summary="Show the status of the bus or of one agent.",
        description=(
            "Without a name: process, version, home, open endpoints and the id of this device. With a name: "
            "the agent's state, the time of its last change, and its waiting messages."
        ),
        positionals=(
            Positional(
                name="NAME", help="The agent to show (default: the bus).", optional=True, completes="agents"
            ),
        ),
        examples=(
            ("pal status", "is the bus running, and where?"),
            ("pal status luna", "what is luna doing?"),
        ),
    ),
    Command(
        path=("doctor",),
        group=_GROUP,
        summary="Diagnose problems and suggest fixes.",
        description=(
            "Checks the home, the log, its archives, the endpoints and your profile files. For each "
            "installed harness it shows which features work with its version. A self-test starts a "
            "throw-away session with a scripted model, delivers messages to it, and says how to fix each "
            "failure; it takes about a minute per harness. The command changes nothing, except with "
            "--repair: that rebuilds a damaged log from all readable pages and archives, while the bus is "
            "stopped, and keeps the damaged files."
        ),
        options=(
            Option(
                name="--harness",
                metavar="NAME",
                many=True,
                help="Check only this harness (default: all). May be repeated.",
                choices=("claude", "codex", "opencode", "gemini"),
            ),
            Option(name="--repair", help="Rebuild a damaged log. Stop the bus first."),
            Option(name="--self-test", help="Test each harness in a throw-away session."),
        ),
        examples=(
            ("pal doctor", "check everything"),
            ("pal doctor --self-test --harness claude", "can messages reach Claude Code on this machine?"),
        ),
    ),
)
