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
        description=("Other commands start the bus by themselves, so this is needed only after 'pal down'."),
        options=(
            Option(name="--foreground", help="Run here, until Ctrl-C, instead of in the background."),
            Option(
                name="--http",
                metavar="HOST:PORT",
                default=DEFAULT_HTTP,
                help=f"Open the HTTP door, at {DEFAULT_HTTP} unless you say where; kept in the settings. "
                "For a person only.",
            ),
            Option(
                name="--http-remote",
                help="With --http: let other machines reach it. Nothing that goes there is encrypted.",
            ),
            Option(name="--no-http", help="Shut the HTTP door, and keep it shut. For a person only."),
        ),
        exclusive=(("--http", "--no-http"), ("--http-remote", "--no-http")),
        examples=(
            ("pal up", "start it in the background"),
            ("pal up --http", "and let programs in over HTTP, with tokens"),
            ("pal up --foreground", "run it here and watch what it says"),
        ),
    ),
    Command(
        path=("down",),
        group=_GROUP,
        summary="Stop the bus.",
        description=(
            "Nothing is lost: messages wait in the log until the bus runs again. Agents do not start it "
            "again after this; 'pal up' does, and so does a person who uses any command at a terminal."
        ),
        examples=(("pal down", "stop it"),),
    ),
    Command(
        path=("status",),
        group=_GROUP,
        summary="Show the bus, or one agent.",
        description=(
            "Without a name: process, version, home, open doors and the id of this device. With a name: "
            "that agent's state, since when, and what is waiting for it."
        ),
        positionals=(Positional(name="NAME", help="The agent to show.", optional=True, completes="agents"),),
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
            "Checks the home, the log, its archives, the doors and your profile files, and says for each "
            "harness that it finds what is known to work with its version. A self-test starts a throw-away "
            "session with a scripted model, delivers messages to it, and says how to fix each failure. It "
            "takes about a minute for each harness. Changes nothing, unless --repair is given: that "
            "rebuilds a damaged log from the pages and archives that can be read, while the bus is stopped, "
            "and keeps the damaged files."
        ),
        options=(
            Option(
                name="--harness",
                metavar="NAME",
                many=True,
                help="Look at this harness only.",
                choices=("claude", "codex", "opencode", "gemini"),
            ),
            Option(name="--repair", help="Rebuild a damaged log. Stop the bus first."),
            Option(name="--self-test", help="Try out each harness in a throw-away session."),
        ),
        examples=(
            ("pal doctor", "check everything"),
            ("pal doctor --self-test --harness claude", "can messages reach Claude Code on this machine?"),
        ),
    ),
)
