"""The commands that send, take and look after messages. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_bundle import SEND_OPTIONS

DEFAULT_INBOX: Final = 20
"""How many messages `pal inbox` shows."""
DEFAULT_RECV: Final = 50
"""How many messages `pal recv` takes at once."""

_GROUP: Final = "Messages"

_MESSAGE_ID: Final = Positional(
    name="ID", help="The message: its number, 42 or #42, or the end of its long id.", completes="ids"
)

MESSAGE_COMMANDS: Final = (
    Command(
        path=("send",),
        group=_GROUP,
        summary="Write to one, several or all.",
        description=(
            "The last argument is the text, those before it are the recipients. A text alone goes to all "
            "agents that are present. After -- everything is text, also words that begin with a dash, and "
            "@names in it are just text; without -- every @name in the text gets the message too. If a "
            "name is not known, nothing is sent. Routing is not privacy: every agent here can read every "
            "message, in rooms and elsewhere."
        ),
        positionals=(
            Positional(
                name="TARGET",
                help=(
                    "@luna, @api-luna, @api- (all with that tag), @workers, '@claude-*', @all, @human, "
                    "room (all in the room you are in), '#name' (all in that one), or a path with a slash."
                ),
                many=True,
                optional=True,
                completes="targets",
            ),
        ),
        rest="TEXT",
        options=(
            Option(
                name="--intent",
                metavar="INTENT",
                help=(
                    "What you want: request (an answer; you are notified when the agent goes idle or stops "
                    "without one), inform, or ack (answers a request)."
                ),
                choices=("request", "inform", "ack"),
            ),
            Option(
                name="--thread", metavar="NAME", help="The conversation it belongs to.", completes="threads"
            ),
            Option(name="--reply-to", metavar="ID", help="The message that this answers.", completes="ids"),
            Option(
                name="--priority",
                metavar="PRIORITY",
                help=(
                    "interrupt: at once; normal; idle-first: when the agent is idle, before other mail; "
                    "idle: when it is idle."
                ),
                choices=("interrupt", "normal", "idle-first", "idle"),
            ),
            Option(name="--interrupt", help="The same as --priority interrupt."),
            Option(
                name="--raw",
                help=(
                    "Type exactly these bytes into the agent's terminal, and nothing else: no header, no "
                    "Enter. For a person only, also while a dialog is open there. Exit status 1 says that "
                    "they were not typed."
                ),
            ),
            Option(
                name="--expects-reply",
                help="Remind a recipient that goes idle without answering, up to three times.",
            ),
            Option(
                name="--expires", metavar="TIME", help="Drop it if it still waits after this: 90s, 10m, 2h."
            ),
            Option(
                name="--id",
                metavar="ULID",
                help="Your own id for it. The same id again sends nothing.",
            ),
            Option(name="--file", metavar="FILE", help="Take the text from this file.", completes="files"),
            Option(name="--stdin", help="Take the text from standard input."),
            Option(
                name="--room",
                metavar="ROOM",
                help=(
                    "Say it in this room, named as 'pal room list' does or by a path in its workspace: "
                    "targets are its members, and without one all of them."
                ),
                completes="rooms",
            ),
            Option(name="--yes", help="Agents need this for a broadcast to more than five."),
            Option(name="--dry-run", help="Only show who would get it."),
            *SEND_OPTIONS,
        ),
        exclusive=(
            ("--priority", "--interrupt", "--raw"),
            ("--file", "--stdin"),
            ("--bundle", "--title"),
            ("--raw", "--expects-reply"),
        ),
        examples=(
            ('pal send @nova "the build is green"', "write to nova"),
            ('pal send "lunch?"', "write to everybody present"),
            ('pal send @nova @kira --intent request "can you review this?"', "ask two of them"),
            ("pal send @luna --reply-to 42 --thread pr-123 -- looks good", "answer in a thread"),
            ("git diff | pal send @nova --stdin", "send what a program says"),
            ("pal send room -- I am done with the schema", "to all in the room you are in"),
            ("pal send @api- --dry-run -- hello", "see who that would reach"),
            ("pal send luna --raw -- y", "press y in luna's terminal"),
            ('pal send @nova --title "PR-123" --files src/app.tsx -- please review', "with a bundle"),
        ),
    ),
    Command(
        path=("recv",),
        group=_GROUP,
        summary="Take your messages.",
        description=(
            "Shows what waits for you and marks it as seen once it has been written out. Exit status 0 when "
            "there is nothing, and 3 when it waited in vain."
        ),
        options=(
            Option(name="--wait", help="Wait for a message if there is none."),
            Option(
                name="--follow",
                help="Go on for ever, each message as it comes, and as your state lets it pass.",
            ),
            Option(name="--timeout", metavar="TIME", help="Wait no longer than this: 30 (seconds), 5m."),
            Option(
                name="--from",
                metavar="NAME",
                help="Only messages from this agent.",
                many=True,
                completes="agents",
            ),
            Option(
                name="--thread",
                metavar="NAME",
                help="Only messages in this thread.",
                many=True,
                completes="threads",
            ),
            Option(
                name="--after",
                metavar="SEQ",
                help="Only messages after this place in the log, also ones you have seen. Implies --peek.",
            ),
            Option(name="--peek", help="Look without marking anything as seen."),
            Option(name="--limit", metavar="N", help=f"At most so many; otherwise {DEFAULT_RECV}."),
        ),
        exclusive=(("--wait", "--follow"),),
        examples=(
            ("pal recv", "what is there for me?"),
            ("pal recv --wait --timeout 5m", "wait up to five minutes"),
            ("pal recv --follow --json", "feed a program"),
            ("pal recv --peek --from nova", "look, and leave it unread"),
            ("pal recv --follow --after 42", "look on from there, and take nothing"),
        ),
    ),
    Command(
        path=("inbox",),
        group=_GROUP,
        summary="Show your latest messages, read or not.",
        description="Newest last, with the state of each. Changes nothing.",
        options=(Option(name="--limit", metavar="N", help=f"At most so many; otherwise {DEFAULT_INBOX}."),),
        examples=(("pal inbox --limit 5", "the last five"),),
    ),
    Command(
        path=("show",),
        group=_GROUP,
        summary="Show one message in full.",
        positionals=(_MESSAGE_ID,),
        examples=(("pal show 42", "message 42"), ("pal show 42 --json", "all its fields")),
    ),
    Command(
        path=("receipts",),
        group=_GROUP,
        summary="Show what became of a message.",
        description=(
            "For each recipient: queued, submitted, seen or answered, or held, refused, expired or dead; "
            "by which lane it went and what proves it."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal receipts 42", "who has read message 42?"),),
    ),
    Command(
        path=("trace",),
        group=_GROUP,
        summary="Show every step of one message, with times.",
        description=(
            "Shows the steps from the log, from delivery and from the holders of its recipients: on which "
            "lane it was offered, which gate was closed and why, what was typed, and how it ended. Steps in "
            "the daemon and in holders are kept in files of limited size in the home, also after a crash."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal trace 42", "why has nova not read message 42?"),),
    ),
    Command(
        path=("ack",),
        group=_GROUP,
        summary="Mark messages to you as seen.",
        description="What you have seen already stays so. What was not sent to you is refused.",
        positionals=(
            Positional(
                name="ID", help="A message: its number or the end of its long id.", many=True, completes="ids"
            ),
        ),
        examples=(("pal ack 42 43", "I have read both"),),
    ),
    Command(
        path=("release",),
        group=_GROUP,
        summary="Let a held message through.",
        description=(
            "A message is held when agents write to each other too often, or answer each other in circles. "
            "Only a person lets it through."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal release 42", "deliver it after all"),),
    ),
    Command(
        path=("redeliver",),
        group=_GROUP,
        summary="Deliver a message once more.",
        description=(
            "For a message that was handed over and never confirmed. It may then arrive twice, so "
            "nothing does this by itself."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal redeliver 42", "hand it over again"),),
    ),
)
