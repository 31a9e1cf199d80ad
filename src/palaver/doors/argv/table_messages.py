"""The commands that send, receive and manage messages. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional
from palaver.doors.argv.table_bundle import SEND_OPTIONS

DEFAULT_INBOX: Final = 20
"""How many messages `pal inbox` shows."""
DEFAULT_RECV: Final = 50
"""How many messages `pal recv` takes at once."""

_GROUP: Final = "Messages"

_MESSAGE_ID: Final = Positional(
    name="ID", help="The message: its number (42 or #42) or the end of its long id.", completes="ids"
)

MESSAGE_COMMANDS: Final = (
    Command(
        path=("send",),
        group=_GROUP,
        summary="Send a message to one, several or all agents.",
        description=(
            "The last argument is the text, the arguments before it are the recipients. Without recipients, "
            "the message goes to all present agents. Everything after -- is text, including words that start "
            "with a dash; an @name in it does not add a recipient. Without --, every @name in the text is a "
            "recipient too. If a name is unknown, nothing is sent. Routing is not privacy: every agent on "
            "this bus can read every message, in rooms and elsewhere."
        ),
        positionals=(
            Positional(
                name="TARGET",
                help=(
                    "A recipient: @luna, @api-luna, @api- (all with this tag), @workers, '@claude-*', @all, "
                    "@human, room (your room here), '#name' (that room), or a path with a slash."
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
                    "Purpose: request (wants an answer; you are notified if the agent goes idle or stops "
                    "without one), inform, or ack (answers a request)."
                ),
                choices=("request", "inform", "ack"),
            ),
            Option(name="--thread", metavar="NAME", help="The thread of the message.", completes="threads"),
            Option(
                name="--reply-to", metavar="ID", help="The message that this one answers.", completes="ids"
            ),
            Option(
                name="--priority",
                metavar="PRIORITY",
                help=(
                    "When to deliver: interrupt (at once), normal, idle-first (when the agent is idle, "
                    "before other messages) or idle (default: normal)."
                ),
                choices=("interrupt", "normal", "idle-first", "idle"),
            ),
            Option(name="--interrupt", help="Same as --priority interrupt."),
            Option(
                name="--raw",
                help=(
                    "Type exactly these keys into the agent's terminal, even into an open dialog: no header, "
                    "no Enter. Exit status 1 if they were not typed. For a person only."
                ),
            ),
            Option(
                name="--expects-reply",
                help="Remind a recipient that goes idle without answering, up to three times.",
            ),
            Option(
                name="--expires",
                metavar="TIME",
                help="Drop it if undelivered after 90s, 10m, 2h (default: never).",
            ),
            Option(
                name="--id",
                metavar="ULID",
                help="Your own id for the message. The same id again sends nothing.",
            ),
            Option(name="--file", metavar="FILE", help="Read the text from this file.", completes="files"),
            Option(name="--stdin", help="Read the text from standard input."),
            Option(
                name="--room",
                metavar="ROOM",
                help=(
                    "Send it in this room, as 'pal room list' shows it, or a path in its workspace. Targets "
                    "are members of the room (default: all)."
                ),
                completes="rooms",
            ),
            Option(name="--yes", help="Confirm a broadcast to more than five (required for agents)."),
            Option(name="--dry-run", help="Show the recipients and send nothing."),
            *SEND_OPTIONS,
        ),
        exclusive=(
            ("--priority", "--interrupt", "--raw"),
            ("--file", "--stdin"),
            ("--bundle", "--title"),
            ("--raw", "--expects-reply"),
        ),
        examples=(
            ('pal send @nova "the build is green"', "send to nova"),
            ('pal send "lunch?"', "send to all present agents"),
            ('pal send @nova @kira --intent request "can you review this?"', "ask two agents"),
            ("pal send @luna --reply-to 42 --thread pr-123 -- looks good", "reply in a thread"),
            ("git diff | pal send @nova --stdin", "send the output of a program"),
            ("pal send room -- I am done with the schema", "send to your room"),
            ("pal send @api- --dry-run -- hello", "show the recipients only"),
            ("pal send luna --raw -- y", "press y in luna's terminal"),
            (
                'pal send @nova --title "PR-123" --files src/app.tsx -- please review',
                "attach a bundle with a file",
            ),
        ),
    ),
    Command(
        path=("recv",),
        group=_GROUP,
        summary="Receive your waiting messages.",
        description=(
            "Prints your waiting messages and marks them as seen after printing. Exit status 0, also if "
            "there are no messages; 3 if --timeout ended the wait."
        ),
        options=(
            Option(name="--wait", help="Wait for a message if none is waiting."),
            Option(
                name="--follow",
                help="Keep running; print each message when your state allows it.",
            ),
            Option(
                name="--timeout",
                metavar="TIME",
                help="Wait at most this long: 30 (seconds), 5m (default: no limit).",
            ),
            Option(
                name="--from",
                metavar="NAME",
                help="Only messages from this agent. May be repeated.",
                many=True,
                completes="agents",
            ),
            Option(
                name="--thread",
                metavar="NAME",
                help="Only messages in this thread. May be repeated.",
                many=True,
                completes="threads",
            ),
            Option(
                name="--after",
                metavar="SEQ",
                help="Only messages after this seq, including seen ones. Implies --peek.",
            ),
            Option(name="--peek", help="Do not mark messages as seen."),
            Option(name="--limit", metavar="N", help=f"At most N messages (default: {DEFAULT_RECV})."),
        ),
        exclusive=(("--wait", "--follow"),),
        examples=(
            ("pal recv", "read waiting messages"),
            ("pal recv --wait --timeout 5m", "wait up to five minutes"),
            ("pal recv --follow --json", "pass messages to a program"),
            ("pal recv --peek --from nova", "read without marking as seen"),
            ("pal recv --follow --after 42", "follow from #42 without marking as seen"),
        ),
    ),
    Command(
        path=("inbox",),
        group=_GROUP,
        summary="Show your latest messages, read and unread.",
        description="Shows the newest last, with the state of each. Changes nothing.",
        options=(
            Option(name="--limit", metavar="N", help=f"At most N messages (default: {DEFAULT_INBOX})."),
        ),
        examples=(("pal inbox --limit 5", "the last five messages"),),
    ),
    Command(
        path=("show",),
        group=_GROUP,
        summary="Show one message in full.",
        positionals=(_MESSAGE_ID,),
        examples=(("pal show 42", "read message 42"), ("pal show 42 --json", "all fields of message 42")),
    ),
    Command(
        path=("receipts",),
        group=_GROUP,
        summary="Show who has received and read a message.",
        description=(
            "Shows for each recipient: queued, submitted, seen or answered, or held, refused, expired or "
            "dead; the lane (connection) that carried the message, and the evidence."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal receipts 42", "who has read message 42?"),),
    ),
    Command(
        path=("trace",),
        group=_GROUP,
        summary="Show every delivery step of a message, with times.",
        description=(
            "Shows on which lane (connection) the message was offered, why it had to wait, what was typed, "
            "and how delivery ended. The steps come from the log, the daemon and the processes that hold the "
            "recipients' terminals. Steps outside the log are kept in files of limited size, so they may be "
            "missing for old messages."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal trace 42", "why has nova not read message 42?"),),
    ),
    Command(
        path=("ack",),
        group=_GROUP,
        summary="Mark messages as seen.",
        description=(
            "For messages that you have read in another way, such as 'pal recv --peek'. A message that was "
            "not sent to you is refused."
        ),
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
        summary="Deliver a held message.",
        description=(
            "A message is held if agents write to each other too often or reply to each other in circles. "
            "Only a person can release it. 'pal pending' lists held messages."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal release 42", "deliver message 42"),),
    ),
    Command(
        path=("redeliver",),
        group=_GROUP,
        summary="Deliver an unconfirmed message again.",
        description=(
            "For a message that was submitted but never confirmed. It may arrive twice, so this never "
            "happens automatically. Only a person can do this."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal redeliver 42", "deliver it again"),),
    ),
)
