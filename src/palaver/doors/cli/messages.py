"""The commands that send, receive and show messages."""

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from palaver.broker.context import SYSTEM_CALLER, Sent, Written
from palaver.domain.rights import can, require_own_mail
from palaver.domain.routing import Directory, is_recipient
from palaver.doors.cli.bundles import SEND_OPTIONS, let_client_take, with_bundle
from palaver.doors.cli.call import EXIT_NOTHING, Call, for_people, named_room, room_of, wait_lines
from palaver.doors.cli.events import warn_unknown_names
from palaver.doors.cli.spec import Command, Option, Positional
from palaver.doors.cli.terminals import wait_for_holder
from palaver.errors import BadRequest, NotPerson, UsageError
from palaver.home import older_trace, trace_path
from palaver.identity.presence import BY_COMMANDS
from palaver.protocol.agent_text import format_injection, injection_line, tips_for
from palaver.protocol.agents import INSTANCE, Standing
from palaver.protocol.bundles import bundle_hint, locate_file
from palaver.protocol.display import Column, Safe, ago, format_time
from palaver.protocol.envelope import Event, body_as, common_fields, encode_event
from palaver.protocol.events import (
    AGENT_TYPES,
    ENDS,
    AgentBye,
    DeliveryReport,
    ForeignBody,
    Grade,
    LifeChanged,
    MessageSent,
    Seq,
    State,
    StatusChanged,
)
from palaver.protocol.lanes import MailboxReader
from palaver.protocol.message import flat, handlers_of, is_raw, readable_text, reply_reference
from palaver.protocol.paths import mailbox_of, readable_mailbox, split_mailbox
from palaver.protocol.query import Passes, Query
from palaver.protocol.requests import Acknowledge, Redeliver, Release, Send
from palaver.protocol.text import LIMIT_BODY_BYTES, LIMIT_INJECTION
from palaver.protocol.views import AttentionKind
from palaver.services.agents import hide_keys
from palaver.services.view_pages import encode_receipts
from palaver.services.view_reader import let_others_run
from palaver.services.views import (
    attention_view,
    files_view,
    inbox_view,
    message_view,
    open_mail,
    receipts_of,
    receipts_view,
    sent_lines,
    sent_view,
)
from palaver.state.agents import count_handled, read_entry, read_tips, read_unread
from palaver.state.fold import agent_of
from palaver.state.rows import LedgerEntry, answered_seq

# --------------------
# Rows of the commands that send, receive and manage messages.

DEFAULT_INBOX: Final = 20
"""How many messages `pal inbox` shows."""
DEFAULT_RECV: Final = 50
"""How many messages `pal recv` takes at once."""

_GROUP: Final = "Messages"

_MESSAGE_ID: Final = Positional(
    name="ID", help="Message number (42 or #42), or the end of its long id.", completes="ids"
)

_SESSION: Final = Option(
    name="--session",
    metavar="ID",
    help="Use the mailbox of this session (default: your own).",
    completes="sessions",
)

MESSAGE_COMMANDS: Final = (
    Command(
        path=("send",),
        group=_GROUP,
        summary="Send a message to one, several or all agents.",
        description=(
            "The last argument is the text, the arguments before it are the recipients. Without "
            "recipients, the message goes with --reply-to to the author of that message, and with --thread "
            "to the participants of that thread; otherwise it is refused: @all sends it to all present "
            "agents. Only a script, which has no name, may leave out @all. A name without a text is refused. "
            "Everything after -- is text, including words that start with a dash; an @name in it does not "
            "add a recipient. Without --, every @name in the text is a recipient too, and the text '-' is "
            "read from standard input. If a name is unknown, nothing is sent. Routing is not privacy: every "
            "agent on this bus can read every message, in rooms and elsewhere."
        ),
        notes=(
            (
                "A target is a name (@luna, @api-luna), a group (@api- for all with this tag, @workers, "
                "'@claude-*', @all), @human, room (your room here), '#name' (that room) or a path with a "
                "slash. --room takes a room as 'pal room list' shows it, or a path in its workspace; targets "
                "are then members of the room."
            ),
            (
                "A request wants an answer: you are notified if its recipient goes idle or stops without "
                "one. An ack answers a request. Participants of a thread are all that wrote in it or "
                "received a message in it."
            ),
            (
                "An interrupt is delivered at once, idle-first when the agent is idle and before other "
                "messages, idle when the agent is idle."
            ),
            (
                "With --file or --stdin all arguments are targets. Under a harness, the file must be in the "
                "working directory. A message with the --id of an earlier one is not sent: the earlier one "
                "is returned."
            ),
            (
                "--raw types exactly these keys, without a header and Enter, even into an open dialog. It "
                "waits until they are typed, and exits with status 1 if they were not."
            ),
            "Options about the contents of a bundle are explained at 'pal bundle create'.",
        ),
        positionals=(
            Positional(
                name="TARGET",
                help="Recipient: @luna, @api-, @all, room, '#name' or a path.",
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
                help="Purpose: request, inform or ack (default: none).",
                choices=("request", "inform", "ack"),
            ),
            Option(
                name="--thread",
                metavar="NAME",
                help="Thread of the message, at most 64 characters.",
                completes="threads",
            ),
            Option(
                name="--reply-to", metavar="ID", help="The message that this one answers.", completes="ids"
            ),
            Option(
                name="--priority",
                metavar="PRIORITY",
                help="interrupt, normal, idle-first or idle (default: normal).",
                choices=("interrupt", "normal", "idle-first", "idle"),
            ),
            Option(name="--interrupt", help="Same as --priority interrupt."),
            Option(
                name="--raw",
                help="Type these keys into the terminal. For a person only.",
            ),
            Option(
                name="--expects-reply",
                help="Remind an idle recipient to answer, up to three times.",
            ),
            Option(
                name="--expires",
                metavar="TIME",
                help="Drop it if undelivered after 90s, 10m, 2h (default: never).",
            ),
            Option(
                name="--id",
                metavar="ULID",
                help="Your own id; a repeat returns the first message.",
            ),
            Option(
                name="--file",
                metavar="FILE",
                help="Read the text from this file.",
                completes="files",
            ),
            Option(
                name="--stdin",
                help="Read the text from standard input, as the text '-' does.",
            ),
            Option(
                name="--room",
                metavar="ROOM",
                help="Send it in this room (default: to all its members).",
                completes="rooms",
            ),
            Option(name="--yes", help="Confirm a broadcast to over five (required for agents)."),
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
            ('pal send @all "lunch?"', "send to all present agents"),
            ('pal send @nova @kira --intent request "can you review this?"', "ask two agents"),
            ("pal send @luna --reply-to 42 --thread pr-123 -- looks good", "reply in a thread"),
            ("pal send --thread pr-123 -- merged", "send to the participants of a thread"),
            ("git diff | pal send @nova -", "send the output of a program"),
            ("pal send room -- I am done with the schema", "send to your room"),
            ("pal send @api- --dry-run -- hello", "show the recipients only"),
            ("pal send luna --raw -- y", "press y in luna's terminal"),
            (
                'pal send @nova --title "PR-123" --files src/app.tsx -- please review',
                "attach a bundle with a file",
            ),
        ),
        see=(
            ("messages", "messages.md"),
            ("addresses", "addresses.md"),
            ("rooms", "rooms.md"),
            ("raw keys", "terminals.md#raw-keys"),
            ("waiting for an answer", "terminals.md#waiting-for-an-answer"),
            ("bundles", "bundles.md"),
        ),
    ),
    Command(
        path=("recv",),
        group=_GROUP,
        summary="Receive your waiting messages.",
        description=(
            "Prints your waiting messages and marks them as seen after printing: if the reader ends "
            "before, they are still unread. Only you can take your messages. With --follow, SIGTERM and "
            "SIGHUP end the command cleanly."
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
                help="Longest wait: 30 (seconds) or 5m (default: no limit).",
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
                help="Messages after this seq, also seen ones. Implies --peek.",
            ),
            Option(name="--peek", help="Do not mark messages as seen."),
            Option(name="--limit", metavar="N", help=f"At most N messages (default: {DEFAULT_RECV})."),
            _SESSION,
        ),
        exclusive=(("--wait", "--follow"),),
        examples=(
            ("pal recv", "read waiting messages"),
            ("pal recv --wait --timeout 5m", "wait up to five minutes"),
            ("pal recv --follow --json", "pass messages to a program"),
            ("pal recv --peek --from nova", "read without marking as seen"),
            ("pal recv --follow --after 42", "follow from #42 without marking as seen"),
            ("pal recv --session slack-monitor", "read what one of your sessions received by paths"),
        ),
        statuses=(
            (0, "Done, also if there were no messages."),
            (3, "The time of --timeout is over, and no message came."),
        ),
        see=(
            ("priorities", "delivery.md#priorities"),
            ("the receive contract", "receive-contract.md"),
            ("sessions", "paths.md#sessions"),
        ),
    ),
    Command(
        path=("inbox",),
        group=_GROUP,
        summary="Show your latest messages, read and unread.",
        description="Shows the newest last, with the state of each. Changes nothing.",
        options=(
            Option(name="--limit", metavar="N", help=f"At most N messages (default: {DEFAULT_INBOX})."),
            _SESSION,
        ),
        examples=(("pal inbox --limit 5", "the last five messages"),),
    ),
    Command(
        path=("show",),
        group=_GROUP,
        summary="Show one message in full.",
        description=(
            "A person at a terminal sees the text itself. For all other readers it is escaped as in the "
            "form for agents. Also names the files of the message: a message to an agent in a terminal is "
            "written to a file too."
        ),
        positionals=(_MESSAGE_ID,),
        examples=(("pal show 42", "read message 42"), ("pal show 42 --json", "all fields of message 42")),
        json="all fields of the message, with the exact text, and 'files': its files by recipient.",
        see=(("form for agents", "messages.md#form-for-agents"),),
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
        see=(("receipts", "receipts.md"),),
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
        json=(
            "one object for each step: 'ts', 'source' ('log', 'delivery' or 'holder'), 'agent', 'step', "
            "'lane', 'detail', and 'seq' for a step from the log."
        ),
        see=(("every step of one message", "receipts.md#every-step-of-one-message"),),
    ),
    Command(
        path=("ack",),
        group=_GROUP,
        summary="Mark messages as seen.",
        description=(
            "For messages that you have read in another way, such as 'pal recv --peek'. Messages that are "
            "already seen stay seen. If one of the messages was not sent to you, the command is refused "
            "and nothing is marked."
        ),
        positionals=(
            Positional(
                name="ID", help="A message: its number or the end of its long id.", many=True, completes="ids"
            ),
        ),
        options=(_SESSION,),
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
        see=(("brakes", "delivery.md#brakes"),),
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


# --------------------
# Function of `pal send`: read recipients and text from the command line, and send the message.


_BUNDLE_NAMES: Final = frozenset(option.name for option in SEND_OPTIONS)


async def send(call: Call) -> int:
    """Store a message for its recipients, and report them."""
    parsed = call.parsed
    if parsed.has("--title") and not parsed.has("--dry-run") and let_client_take(call):
        return 0  # the client reads the transcripts first, and then repeats the command
    targets, text, has_mentions = await _read(call)
    expires_s = parsed.duration_s("--expires")
    request = Send(
        text=text,
        to=tuple(targets),
        has_mentions=has_mentions,
        intent=parsed.value("--intent") or "",
        thread=_thread_name(call),
        reply_to=parsed.reference("--reply-to"),
        priority="interrupt" if parsed.has("--interrupt") else parsed.value("--priority") or "",
        expires_in_ms=_milliseconds(expires_s),
        # Ids are stored in capitals, and a caller may write them in any case.
        id=parsed.reference("--id").upper(),
        bundle_id=parsed.reference("--bundle"),
        is_confirmed=parsed.has("--yes"),
        is_dry_run=parsed.has("--dry-run"),
        expects_reply=parsed.has("--expects-reply"),
        room=await _room(call, targets),
    )
    if parsed.has("--raw"):
        request = _as_keys(call, request)
        await wait_for_holder(call, request.recipient)  # only the holder knows whether the prompt hides keys
        request = await hide_keys(call.services.agents.holds, request)
    # Last, because it stores an event: every other error must be found before.
    if parsed.has_any(_BUNDLE_NAMES):
        request = await with_bundle(call, request)
    sent = await call.submit(request)
    assert isinstance(sent, Sent)
    if request.raw and sent.event is not None and is_raw(sent.event):  # --id may name an earlier text
        return await say_outcome(call, sent)
    if call.is_json:
        await call.say_json(sent_view(sent))
    else:
        await call.say(call.safe("\n".join(sent_lines(sent, call.now_ms)), keep_lines=True))
        await _hint_unanswered(call, request, sent)
    return 0


async def _hint_unanswered(call: Call, request: Send, sent: Sent) -> None:
    """Tell a person that a recipient waits for an answer, which this message is not.

    The message is not taken as the answer: the person may just add something, and the request stays open.
    """
    if not call.caller.is_person or request.reply_to or sent.event is None:
        return
    newest = {
        entry.who: entry.seq
        for entry in await attention_view(call.services)
        if entry.kind == AttentionKind.REQUEST and entry.who in sent.delivered_to
    }
    for name, seq in list(newest.items())[:_LIMIT_HINTS]:
        call.warn(
            f"{name} waits for an answer to #{seq}; this message is not a reply to it. "
            f"Reply with: pal send --reply-to {seq} -- TEXT"
        )


_LIMIT_HINTS: Final = 3
"""Recipients of one message that a hint names."""


async def _room(call: Call, targets: Sequence[str]) -> str:
    """Return the room of the message: the one that --room names, or for the recipient `room` the caller's.

    Return an empty string if the message is not for a room. Raises RoomNotFound if the caller has no room.
    """
    named = call.parsed.value("--room")
    has_room = any(target.startswith("#") for target in targets)
    if named is None and not has_room and any(_is_here(target) for target in targets):
        return await room_of(call)
    if named == "":
        raise UsageError("--room requires a room: its name, or a path in its workspace")
    return "" if named is None else await named_room(call, named)


def _thread_name(call: Call) -> str:
    name = call.parsed.value("--thread")
    if name == "":
        raise UsageError("--thread requires a name; leave it out for a message without a thread")
    return name or ""


def _is_here(target: str) -> bool:
    return target.lower().removeprefix("@") == "room"


def _as_keys(call: Call, request: Send) -> Send:
    """Return the request with the text as raw keys, for exactly one agent."""
    if len(request.to) != 1:
        raise UsageError("raw keys go into one terminal: pal send NAME --raw -- KEYS")
    return structs.replace(
        request,
        raw=request.text.encode("utf-8", "surrogateescape"),
        text="",
        to=(),
        recipient=call.agent(request.to[0]).name,
        has_mentions=False,
    )


def _milliseconds(expires_s: float | None) -> int:
    if expires_s is None:
        return 0
    # Less than a millisecond would be stored as 0, and 0 means that the message never expires.
    if expires_s < 0.001:
        raise UsageError("--expires requires a time above 0")
    return int(expires_s * 1000)


async def _read(call: Call) -> tuple[list[str], str, bool]:
    """Return the recipients, the text, and whether `@words` in the text are also recipients."""
    parsed = call.parsed
    words = list(parsed.positionals)
    path = parsed.value("--file")
    # After `--`, a dash is a text like any other.
    is_dash = parsed.after is None and words[-1:] == ["-"] and path is None
    if is_dash:
        words.pop()
    if path is not None or parsed.has("--stdin") or is_dash:
        if parsed.after:
            raise UsageError("the text comes from --file or --stdin: leave out the text after --")
        # Keys may be any bytes: `_as_keys` turns the surrogates back into them. A text must be UTF-8.
        errors = "surrogateescape" if parsed.has("--raw") else "strict"
        return words, await read_content(call, path, errors), False
    if parsed.after is not None:
        if not parsed.after:
            raise UsageError(f"there is no text after --{_about_input(call, words)}")
        return words, " ".join(parsed.after), False
    if not words:
        raise UsageError(f"there is no text: pal send [TARGET...] [--] TEXT{_about_input(call, words)}")
    *targets, text = words
    _check_targets(call, targets, text)
    # A text that is only a recipient is nearly always a message whose text was forgotten: otherwise the name
    # itself would be sent.
    is_recipient_only = text.startswith("@") and " " not in text.strip()
    if is_recipient_only or (not targets and is_recipient(call.services.broker.directory, text.strip())):
        to = [*targets, text if is_recipient_only else f"@{text.strip()}"]
        command = f"pal send {shlex.join(to)} -- TEXT{_about_input(call, to)}"
        raise UsageError(f"{text!r} is a recipient without a text: {command}")
    return targets, text, True


def _about_input(call: Call, targets: Sequence[str]) -> str:
    """Return how to send standard input, unless that is a terminal."""
    if call.asked.stdin_is_terminal:
        return ""
    return f". Standard input is read only with --stdin: {shlex.join(('pal', 'send', *targets, '--stdin'))}"


def _check_targets(call: Call, targets: Sequence[str], text: str) -> None:
    """Refuse a text of several arguments: `pal send @nova hello there`."""
    directory = call.services.broker.directory
    unknown = [at for at, word in enumerate(targets) if not _can_be_target(directory, word)]
    if not unknown or unknown[0] == 0:  # The broker refuses a wrong first name.
        return
    at = unknown[0]
    near = ", ".join(directory.nearest(targets[at].lower()))
    hint = f" (did you mean {near}?)" if near else ""
    raise UsageError(
        f"no such agent: {targets[at]}{hint}. If it belongs to the text, put -- before the text: "
        f"{shlex.join(('pal', 'send', *targets[:at], '--', *targets[at:], text))}"
    )


def _can_be_target(directory: Directory, word: str) -> bool:
    return word[:1] in ("@", "#") or "/" in word or _is_here(word) or is_recipient(directory, word)


async def read_content(
    call: Call, path: str | None, errors: str = "strict", *, limit_bytes: int = LIMIT_BODY_BYTES
) -> str:
    """Let the client read a file, or standard input, with its own rights."""
    if path is None:
        content = await call.connection.read_stdin(limit_bytes)
    else:
        content = await call.connection.read_file(_checked_path(call, path), limit_bytes)
    try:
        return content.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise BadRequest(f"{path or 'standard input'} is not UTF-8; nothing was sent") from None


def _checked_path(call: Call, path: str) -> str:
    """Return the file to read; under a harness it must be in the working directory or below.

    A harness that runs a command without a prompt does not check the files that its options name. It checks
    the files of redirections.
    """
    if not call.caller.harness and call.marked is None:
        return path
    try:
        return locate_file(path, cwd=call.asked.cwd, is_human=False, real=os.path.realpath).real
    except NotPerson:
        raise NotPerson(
            f"{path} is outside the working directory, and an agent under a harness cannot name it with "
            f"--file; use standard input: pal {' '.join(call.parsed.command.path)} … --stdin < {path}"
        ) from None


# --------------------
# `pal send --raw`: wait for the outcome of the keys, and show it to their sender.
#
# Keys are typed, refused or expired within seconds. The ledger is not polled: new events in the log cause the
# next read.

_TYPED: Final = frozenset({State.SEEN, State.ANSWERED})
_KNOWN: Final = _TYPED | ENDS | {State.HELD}
_WORDS: Final[Mapping[str, str]] = {State.REFUSED: "was refused", State.EXPIRED: "expired"}
_GRACE_S: Final = 10.0
"""Seconds after the expiry of the keys in which a terminal that has received them may still report."""


async def say_outcome(call: Call, sent: Sent) -> int:
    """Wait for the outcome of raw keys and show it. Return 0 if they were typed, else 1."""
    assert sent.event is not None  # A dry run types nothing, and does not come here.
    (name,) = sent.delivered_to
    entry = await _wait(call, sent.event, name)
    is_typed = entry.state in _TYPED
    if call.is_json:
        await call.say_json(msgspec.to_builtins(sent_view(sent)) | _view(entry))
    elif is_typed:
        seq = sent.event.seq
        await call.say(
            f"#{seq} was typed before, into {name}" if sent.is_repeat else f"typed #{seq} into {name}"
        )
    else:
        call.warn(_raw_sentence(sent.event.seq, name, entry))
    return 0 if is_typed else 1


def _raw_sentence(seq: int, name: str, entry: LedgerEntry) -> str:
    """Return why the keys were not typed, or that it is unknown whether they were."""
    if entry.state == State.SUBMITTED:
        return (
            f"#{seq} was passed to the terminal of {name} but never confirmed: it may or may not have been "
            f"typed. 'pal peek {name}' shows its screen"
        )
    why = f" ({entry.reason})" if entry.reason else ""
    return f"nothing was typed into {name}: #{seq} {_WORDS.get(entry.state, f'is {entry.state}')}{why}"


async def _wait(call: Call, event: Event, name: str) -> LedgerEntry:
    """Return the final ledger entry of the keys; after the time limit the present one."""
    queries, news = call.services.queries, asyncio.Event()
    # Before the ledger is read for the first time: an outcome that is stored in between must end the wait.
    stop = queries.subscribe(lambda _: news.set())
    try:
        async with asyncio.timeout(_limit_s(call, event)):
            with call.connection.waiting():
                while not _is_known(entry := read_entry(queries.rows, event.seq, name)):
                    await news.wait()
                    news.clear()
    except TimeoutError:
        entry = read_entry(queries.rows, event.seq, name)
    finally:
        stop()
    return entry or LedgerEntry(state=State.QUEUED, ts=event.ts)


def _is_known(entry: LedgerEntry | None) -> bool:
    """Return whether the outcome is final. A submitted and unconfirmed entry stays unconfirmed."""
    return entry is not None and (entry.state in _KNOWN or entry.unconfirmed)


def _limit_s(call: Call, event: Event) -> float:
    expires = event.body.expires if isinstance(event.body, MessageSent) else 0
    left_ms = expires - call.now_ms()
    return max(0, left_ms) / 1000 + _GRACE_S


def _view(entry: LedgerEntry) -> dict[str, object]:
    view: dict[str, object] = {"state": entry.state}
    if entry.reason:
        view["reason"] = entry.reason
    if entry.unconfirmed:
        view["unconfirmed"] = True
    return view


# --------------------
# Function of `pal recv`: read the caller's mailbox. Messages are stored as seen after they are flushed.

_tokens: Final = msgspec.json.Decoder(list[Seq])
_encode_mail: Final = msgspec.json.Encoder().encode


async def recv(call: Call) -> int:
    """Show the waiting messages, or wait for some; with --follow continue until the client ends."""
    name = own_mailbox(call)
    limit = call.parsed.number("--limit", least=1) or DEFAULT_RECV
    await warn_unknown_names(call, call.parsed.values("--from"))
    if call.parsed.has("--peek") or call.parsed.has("--after"):
        return await peek(call, name, limit)
    require_own_mail(call.caller)  # Above this line nothing is taken from a mailbox.
    # The client has written the messages of its first request: without --follow its command is done.
    # Before the reader is opened, which would hand these messages out once more.
    if await _has_resumed(call) and not call.parsed.has("--follow"):
        return 0
    is_pushed = call.parsed.has("--follow")
    reader = call.services.delivery.take(name, passes=mail_filter(call), is_pushed=is_pushed)
    try:
        return await _take(call, reader, limit)
    finally:
        reader.close()


def own_mailbox(call: Call) -> str:
    """Return the mailbox that a command is about: the caller's, or with --session that of its session.

    Raises WhoAreYou for a script, and NotFound for an unknown session.
    """
    if (session := call.parsed.value("--session")) is not None:
        call.services.paths.session(call.owner, session)
    return _mailbox(call)


def _mailbox(call: Call) -> str:
    return mailbox_of(call.owner, call.parsed.value("--session") or "")


async def _take(call: Call, reader: MailboxReader, limit: int) -> int:
    timeout_s = call.parsed.duration_s("--timeout")
    if call.parsed.has("--follow"):
        return await _follow(call, reader, limit, timeout_s)
    if call.parsed.has("--wait") or timeout_s is not None:
        events = await _next(call, reader, limit, _deadline(timeout_s))
    else:
        events = reader.poll(limit)
        if not events and call.is_terminal and not call.is_json:
            await call.say(call.paint.dim("no messages are waiting for you"))
    if events is None:
        return EXIT_NOTHING
    await _hand_out(call, reader, events)
    return 0


async def _follow(call: Call, reader: MailboxReader, limit: int, timeout_s: float | None) -> int:
    """Show messages as they arrive.

    After SIGTERM or SIGHUP, flush the shown messages, store them as seen and print the cursor.
    """
    deadline, status = _deadline(timeout_s), EXIT_NOTHING
    shown = FlushedMail(call.services.queries.last())
    with call.connection.ending_gently(shown.seq):
        while events := await _next(call, reader, limit, deadline):
            for batch in batches(events):
                await _hand_out_singly(call, reader, batch, shown)
            status = 0
    if not call.connection.is_asked_to_end:
        return status
    call.say_cursor(shown.seq)
    return 0


class FlushedMail:
    """The messages that a follower has flushed: all of the present batch, and the newest seq of all."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.seqs: list[int] = []

    def add(self, seq: int) -> None:
        # Messages come by priority, so a seq may be lower than the one before.
        self.seq = max(self.seq, seq)
        self.seqs.append(seq)


async def _hand_out_singly(
    call: Call, reader: MailboxReader, batch: Sequence[Event], shown: FlushedMail
) -> None:
    """Show messages one by one, each in a separate write, and store the flushed ones as seen.

    If the client disconnects in the middle, the flushed messages are seen and the rest stay unread.
    """
    output, connection = call.connection.output, call.connection
    shown.seqs = []
    # Read once: the tips of this batch are stored at its end, and must not be repeated until then.
    shown_tips = read_shown_tips(call)
    try:
        for count, event in enumerate(batch, 1):
            # The client keeps only the last token that it has written, so each one names all messages of the
            # batch so far.
            token = _encode_mail([one.seq for one in batch[:count]])
            await show_mail(
                call, [event], token, shown_tips=shown_tips, flushed=partial(shown.add, event.seq)
            )
        await output.flushed()
    except asyncio.CancelledError:
        if connection.is_asked_to_end and not connection.is_lost:
            await output.flushed()  # The client still writes out what it received before the signal.
        raise
    finally:
        if shown.seqs:
            await _write_down(call, reader, [event for event in batch if event.seq in shown.seqs])


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


async def _next(call: Call, reader: MailboxReader, limit: int, deadline: float | None) -> list[Event] | None:
    """Wait for messages; return None if the deadline passes first."""
    try:
        async with asyncio.timeout_at(deadline):
            with call.connection.waiting():
                return await reader.wait(limit)
    except TimeoutError:
        return None


async def _hand_out(call: Call, reader: MailboxReader, events: Sequence[Event]) -> None:
    """Show messages batch by batch; store each batch as seen after the client has flushed it."""
    rest = 0 if reader.has_all else count_rest(call, events)
    for batch in batches(events):
        seqs = tuple(event.seq for event in batch)
        # Only the last batch says how many are left: the other batches are followed by more.
        await show_mail(call, batch, _encode_mail(seqs), rest=rest if batch[-1] is events[-1] else 0)
        await call.connection.output.flushed()
        await _write_down(call, reader, batch)


async def _write_down(call: Call, reader: MailboxReader, events: Sequence[Event]) -> None:
    """Store messages as seen, even if the client disconnects now. Until then no other reader takes them."""
    # The end of the client cancels this command. The write must end before the reader is closed: a closed
    # reader gives its messages back, and another one would take messages that were flushed already.
    seqs = [event.seq for event in events]
    seen = asyncio.ensure_future(_seen(call, seqs, events))
    try:
        await asyncio.shield(seen)
    finally:
        # `wait`, because a second cancellation of a plain await would cancel the write.
        await asyncio.wait([seen])
    reader.settled(seqs)


async def _seen(call: Call, seqs: Sequence[int], events: Sequence[Event]) -> None:
    """Store messages as seen; `events` are those of them that the log still has."""
    tips = tuple(tips_for_agent(call, events))
    session = call.parsed.value("--session") or ""
    request = Acknowledge(messages=tuple(seqs), session=session, lane="recv", grade=Grade.FLUSHED, tips=tips)
    # Without the key of the command: with it, a second batch would get the outcome of the first, and stay
    # unread.
    await call.services.broker.submit(call.caller, request)


async def _has_resumed(call: Call) -> bool:
    """Store as seen the messages that a reconnected client had written out; they are not shown again.

    Return whether the client brought a valid token.
    """
    if call.asked.resume is None:
        return False
    try:
        seqs = _tokens.decode(call.asked.resume)
    except msgspec.DecodeError:  # A token of another form, such as the count of writes, names no message.
        return False
    found = (call.services.queries.event(seq) for seq in seqs)
    await _seen(call, seqs, [event for event in found if event is not None])
    return True


# --------------------
# `pal recv --peek` and `--after`: show the caller's messages, once or continuously, and mark nothing.

_LONGEST_TOKEN: Final = 15
"""Digits of a token that is a seq. A longer one is not from here."""
_PAGE: Final = 1000


async def peek(call: Call, name: str, limit: int) -> int:
    """Show messages without marking them: the open ones, or with --after all messages after a seq."""
    parsed = call.parsed
    after, timeout_s = parsed.number("--after"), parsed.duration_s("--timeout")
    if parsed.has("--follow"):
        return await _follow_peek(call, name, after, timeout_s)
    events: Sequence[Event] | None
    # Before the look, in which a message that arrives meanwhile may be missed: the wait begins after it.
    last = call.services.queries.last()
    if after is None:
        # Not a reader of the mailbox: that would withhold the messages from other readers for a time.
        events = await open_mail(call.services, name, limit, mail_filter(call))
    else:
        events = await _read_all(call, _query_after(call, name, after, limit))
    if not events and (parsed.has("--wait") or timeout_s is not None):
        seq = last if after is None else after
        events = await call.first(_query_after(call, name, seq, limit), timeout_s)
        if events is None:
            return EXIT_NOTHING
    events = events[:limit]
    rest = count_rest(call, events) if after is None else 0
    for batch in batches(events):
        await show_mail(call, batch, rest=rest if batch[-1] is events[-1] else 0)
    _note_shown(call, events)
    return 0


async def _follow_peek(call: Call, name: str, after: int | None, timeout_s: float | None) -> int:
    """Show the messages after a seq as they arrive. After SIGTERM or SIGHUP, print the cursor.

    A client that reconnects continues after the last message that it had written out.
    """
    if after is None:
        raise UsageError("--follow --peek requires --after SEQ; without --peek, messages are marked as seen")
    # The later of both: a client that repeats its request still has the --after of its start.
    shown = _Written(max(after, _resumed(call)))
    status = EXIT_NOTHING
    with call.connection.ending_gently(shown.seq):
        query = _query_after(call, name, shown.seq, _PAGE)
        async with aclosing(
            call.services.queries.follow(query, after=shown.seq, with_archives=True)
        ) as found:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        with call.connection.waiting():
                            events = await anext(found)
                        for event in events:
                            token = str(event.seq).encode()
                            await show_mail(call, [event], token, flushed=partial(shown.move, event.seq))
                        status = 0
            except TimeoutError:
                pass
    await call.connection.output.flushed()
    if call.connection.is_asked_to_end:
        call.say_cursor(shown.seq)
        return 0
    return status


class _Written:
    """The seq up to which everything was written out."""

    def __init__(self, seq: int) -> None:
        self.seq = seq

    def move(self, seq: int) -> None:
        self.seq = seq


def _resumed(call: Call) -> int:
    """Return the seq up to which a reconnected client had written everything; 0 for a new client."""
    token = call.asked.resume
    return int(token) if token is not None and token.isdigit() and len(token) <= _LONGEST_TOKEN else 0


async def _read_all(call: Call, query: Query) -> list[Event]:
    """Return the messages after a seq, archived or not, up to the limit."""
    found: list[Event] = []
    async with aclosing(call.services.queries.pages(query)) as some:
        async for page in some:
            found += page
            if len(found) >= query.limit:
                break
    return found[: query.limit]


def _query_after(call: Call, name: str, seq: int, limit: int) -> Query:
    senders, threads = tuple(call.parsed.values("--from")), tuple(call.parsed.values("--thread"))
    return Query(targets=(name,), senders=senders, threads=threads, after=seq, limit=limit)


# --------------------
# Functions of `pal inbox`, `show`, `receipts`, `ack`, `release` and `redeliver`.

_SHOWN_FILES: Final = 5


async def inbox(call: Call) -> int:
    """Show the newest messages to the caller, read or not."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_INBOX
    mailbox = own_mailbox(call)
    found = await inbox_view(call.services, mailbox, limit)
    _note_shown(call, [event for event, _ in found])
    if call.is_json:
        for event, state in found:
            await call.say_json(msgspec.structs.replace(message_view(event, mailbox), state=state))
        return 0
    if not found:
        await call.say("no messages yet")
        return 0
    columns = [
        Column(title="ID", is_right=True),
        Column(title="FROM", least=8),
        Column(title="STATE"),
        Column(title="AGE", is_right=True),
        Column(title="TEXT", least=12),
    ]
    now = call.now_ms()
    rows = []
    for event, state in found:
        text = readable_text(event, handled_by=handlers_of(event, mailbox))
        rows.append([f"#{event.seq}", call.paint.name(event.sender), state, ago(now - event.ts), text])
    await call.say_table(columns, rows)
    return 0


async def show(call: Call) -> int:
    """Show one message or event in full."""
    event = await call.services.queries.fetch_event(call.parsed.positionals[0])
    _note_shown(call, [event])
    # Events of other types, such as tasks, may have recipients too.
    is_mail = event.type == "message" or bool(event.delivered_to)
    files = await files_view(call.services, event)
    if call.is_json:
        if is_mail:
            await call.say_json(msgspec.structs.replace(message_view(event), files=files or None))
        else:
            await call.write(encode_event(event) + b"\n")
        return 0
    paint = call.paint
    kind, sender = paint.safe(f"{event.type} from"), paint.name(event.sender)
    lines = [f"#{event.seq} {kind} {sender}, {call.clock_time(event.ts)}, {paint.safe(event.id)}"]
    if event.to:
        lines.append(f"to {paint.names(event.to)}")
    lines += [paint.safe(f"{label} {value}") for label, value in _labels(event) if value]
    if event.imported:
        lines.append(paint.safe(f"imported; it was #{event.imported} in the log of {event.device}"))
    if is_mail:
        lines += await _receipt_lines(call, event)
    lines += _file_lines(call, files)
    await call.say_lines([*lines, "", await _whole_text(call, event)])
    return 0


async def _whole_text(call: Call, event: Event) -> Safe:
    def text() -> Safe:
        return call.safe(readable_text(event, is_whole=True), keep_lines=True)

    # A payload may have megabytes: encoding and escaping it would block the event loop.
    return text() if event.has_small_payload else await asyncio.to_thread(text)


def _note_shown(call: Call, events: Sequence[Event]) -> None:
    """Remember that the caller knows messages which stay unread: a message back can be their answer."""
    if call.caller.kind == INSTANCE:
        seqs = [event.seq for event in events]
        call.services.callers.member_presence.shown.add(call.caller.name, BY_COMMANDS, seqs)


async def receipts(call: Call) -> int:
    """Show the delivery state of a message, one line per recipient."""
    event = call.services.queries.message(call.parsed.positionals[0])
    if call.is_json:
        await call.write(await encode_receipts(await receipts_view(call.services, event)) + b"\n")
        return 0
    lines = await _receipt_lines(call, event)
    if event.imported:
        lines = [f"#{event.seq} was imported: it is not delivered here, and has no receipts"]
    await call.say_lines(lines or [f"#{event.seq} had no recipients"])
    return 0


async def _receipt_lines(call: Call, event: Event) -> list[str]:
    """Return a line for each recipient, and below it why the message waits there."""
    rows, reasons = [], []
    for at, receipt in enumerate(await receipts_of(call.services, event, with_reasons=True)):
        await let_others_run(at)
        entry = receipt.entry
        reasons.append(wait_lines(call, receipt.wait))
        state = f"{entry.state} (unconfirmed)" if entry.unconfirmed else entry.state
        if entry.implied:
            state = f"{entry.state} (by #{entry.answer}, without --reply-to)"
        reason = entry.reason if receipt.wait is None else ""  # It is in the lines below.
        evidence = [word for word in (entry.lane, entry.grade, reason) if word]
        if entry.answer and not entry.implied:
            evidence.append(f"answered in #{entry.answer}")
        if entry.by:
            evidence.append(f"by {entry.by}")
        if handlers := handlers_of(event, receipt.name):
            evidence.append(f"handled by {', '.join(handlers)}")
        rows.append([receipt.readable_name, state, call.clock_time(entry.ts), ", ".join(evidence)])
    columns = [Column(least=8), Column(), Column(), Column()]
    table = await call.lay_out(columns, rows) if rows else []
    return [line for head, below in zip(table, reasons, strict=True) for line in (head, *below)]


def _file_lines(call: Call, files: Mapping[str, str]) -> list[str]:
    """Return the files of a message, at most `_SHOWN_FILES` of them."""
    paint = call.paint
    shown = list(files.items())[:_SHOWN_FILES]
    lines: list[str] = [
        paint.safe(f"file {path}" if len(files) == 1 else f"file of {name} {path}") for name, path in shown
    ]
    more = len(files) - len(shown)
    return [*lines, f"(+{more} more files; --json shows all)"] if more else lines


def _labels(event: Event) -> Sequence[tuple[str, object]]:
    """Return the names and values that are shown above the text of an event."""
    common = common_fields(event)
    return (
        ("intent", common.intent),
        ("thread", common.thread),
        ("reply to", reply_reference(event) if event.imported else common.reply_to),
        ("priority", common.priority),
        ("path", common.path),
        *_origin(event),
        ("bundle id", common.bundle_id),
    )


def _origin(event: Event) -> Sequence[tuple[str, object]]:
    """Return where a routed message comes from."""
    message = event.body
    if not isinstance(message, MessageSent):
        return ()
    return ("source", message.source), ("external id", message.external_id)


async def ack(call: Call) -> int:
    """Mark messages to the caller as seen. Messages to other recipients are refused."""
    name, session = split_mailbox(own_mailbox(call))
    events = [call.services.queries.message(reference) for reference in call.parsed.positionals]
    seqs = tuple(event.seq for event in events)
    request = Acknowledge(messages=seqs, session=session, lane="ack", grade=Grade.ACKED, must_be_own=True)
    written = await call.submit(request)
    assert isinstance(written, Written)
    moved = body_as(written.event, DeliveryReport).messages if written.event is not None else ()
    if call.is_json:
        view: dict[str, object] = {"name": name, "state": State.SEEN, "messages": moved}
        await call.say_json(view | ({"session": session} if session else {}))
    elif not moved:
        call.warn("nothing to mark: these are already seen")
    return 0


async def release(call: Call) -> int:
    """Queue a held message for delivery."""
    reference = call.parsed.positionals[0]
    await call.submit(Release(message=reference))
    return await _say_queued(call, reference, "is queued now")


async def redeliver(call: Call) -> int:
    """Queue a message again for the recipients that may not have it."""
    reference = call.parsed.positionals[0]
    await call.submit(Redeliver(message=reference))
    return await _say_queued(call, reference, "is queued again")


async def _say_queued(call: Call, reference: str, words: str) -> int:
    event = call.services.queries.message(reference)
    if call.is_json:
        await call.write(await encode_receipts(await receipts_view(call.services, event)) + b"\n")
    else:
        await call.say(f"#{event.seq} {words}")
    return 0


# --------------------
# Function of `pal trace`: show every step of one message, from the log, delivery and the holders.

_TRACE_PAGE: Final = 1000
_LIMIT_EVENTS: Final = 20_000
"""How many events after the message are searched: no index leads from a message to all of its steps."""
_OPEN: Final = frozenset({State.QUEUED, State.SUBMITTED, State.HELD})


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a message: its time, source, recipient, lane and reason."""

    ts: int
    source: str
    agent: str
    step: str
    lane: str = ""
    detail: str = ""
    seq: int = 0
    """The seq of the event, for a step from the log."""


class _TraceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a trace file."""

    ts: int
    agent: str
    step: str
    seqs: tuple[int, ...] = ()
    lane: str = ""
    detail: str = ""


_line: Final = msgspec.json.Decoder(_TraceLine).decode


async def trace(call: Call) -> int:
    """Show the steps of a message in the order of time, then the present state of the lanes."""
    event = call.services.queries.message(call.parsed.positionals[0])
    receipts = await receipts_of(call.services, event)
    names = [one.name for one in receipts]
    # Steps of lanes and states of agents count only while the message was open: later ones are not about it.
    is_over = not any(one.entry.state in _OPEN for one in receipts)
    steps = await _from_log(call, event, names, is_over=is_over)
    # The lines of a lane name no message, so only their time says whether they are about this one.
    end = max(step.ts for step in steps) if is_over else call.now_ms()
    files = [("delivery", trace_path(call.services.daemon.home))]
    files += [("holder", trace_path(call.services.daemon.home, name)) for name in _holders(call, names)]
    # In a thread: each file may have tens of thousands of lines.
    steps += await asyncio.to_thread(_from_files, files, event, frozenset(names), end)
    steps.sort(key=lambda step: step.ts)
    if call.is_json:
        for step in steps:
            await call.say_json(step)
        return 0
    rows = [[_time(call, step.ts), step.source, readable_mailbox(step.agent), _what(step)] for step in steps]
    rows += [["now", "delivery", readable_mailbox(name), _lanes(call, event, name)] for name in names]
    columns = [Column(), Column(), Column(least=8), Column()]
    await call.say_table(columns, rows)
    return 0


def _lanes(call: Call, event: Event, name: str) -> str:
    """Return the present state of the lanes of a recipient. They never carry a handled copy."""
    if handlers := handlers_of(event, name):
        return f"only for pull: handled by {', '.join(handlers)}"
    levels = call.services.delivery.levels(name)
    lanes = ", ".join(f"{lane} {_gate(level.is_open, level.reason)}" for lane, level in levels)
    return f"lanes: {lanes}" if lanes else "no lane is open"


async def _from_log(call: Call, message: Event, names: Sequence[str], *, is_over: bool) -> list[TraceStep]:
    to = ", ".join(map(readable_mailbox, names)) or "no agent"
    sent = f"{flat(message).priority}, from {message.sender} to {to}"
    steps = [TraceStep(ts=message.ts, source="log", agent="", step="sent", detail=sent, seq=message.seq)]
    states: list[TraceStep] = []
    agents = {split_mailbox(name)[0] for name in names}
    seq, seen = message.seq, 0
    while seen < _LIMIT_EVENTS and (
        page := await call.services.queries.read(Query(after=seq, limit=_TRACE_PAGE))
    ):
        for event in page:
            found = _step_of(event, message)
            if found is not None:
                steps.append(found)
            elif event.type in AGENT_TYPES and agent_of(event) in agents:
                states.append(_state(event))
        seq, seen = page[-1].seq, seen + len(page)
    last = max(step.seq for step in steps)
    return steps + [state for state in states if not is_over or state.seq < last]


def _step_of(event: Event, message: Event) -> TraceStep | None:
    """Return the step that an event means for a message; None if it is not about the message."""
    if event.type == "delivery":
        report = body_as(event, DeliveryReport)
        if message.seq not in report.messages:
            return None
        words = [report.grade, report.reason, "unconfirmed" if report.unconfirmed else ""]
        return TraceStep(
            ts=event.ts,
            source="log",
            agent=report.agent,
            step=report.state,
            lane=report.lane,
            detail=", ".join(filter(None, words)),
            seq=event.seq,
        )
    if not isinstance(event.body, MessageSent):
        return None
    if answered_seq(event) == message.seq:
        return TraceStep(
            ts=event.ts,
            source="log",
            agent=event.sender,
            step="answered",
            detail=f"#{event.seq}",
            seq=event.seq,
        )
    text = event.body.text
    # Notices name a message only in their text. `\b`, because #42 is not #421.
    if event.sender == SYSTEM_CALLER.name and re.search(rf"#{message.seq}\b", text):
        to = ", ".join(event.delivered_to)
        return TraceStep(ts=event.ts, source="log", agent=to, step="notice", detail=text, seq=event.seq)
    return None


def _state(event: Event) -> TraceStep:
    words: tuple[str | None, ...] = ()
    match event.body:
        case LifeChanged(action=action, reason=reason):
            words = (action, reason)
        case StatusChanged(state=state, detail=detail):
            words = (state, detail)
        case AgentBye(reason=reason):
            words = (reason,)
    return TraceStep(
        ts=event.ts,
        source="log",
        agent=agent_of(event),
        step=event.type,
        detail=", ".join(filter(None, words)),
        seq=event.seq,
    )


def _holders(call: Call, names: Sequence[str]) -> list[str]:
    """Return the agents whose holders may know a message: its recipients, and the parents of sub-agents."""
    found = dict.fromkeys(split_mailbox(name)[0] for name in names)
    for name in tuple(found):
        agent = call.services.broker.directory.get(name)
        if agent is not None and agent.parent:
            found[agent.parent] = None
    return list(found)


def _from_files(
    files: Sequence[tuple[str, Path]], message: Event, names: frozenset[str], end: int
) -> list[TraceStep]:
    """Read the steps of a message, and the steps of its recipients' lanes from its time until `end`."""
    return [
        TraceStep(
            ts=line.ts, source=source, agent=line.agent, step=line.step, lane=line.lane, detail=line.detail
        )
        for source, path in files
        for line in chain(_lines(older_trace(path)), _lines(path))
        if message.seq in line.seqs
        or (not line.seqs and line.agent in names and message.ts <= line.ts <= end)
    ]


def _lines(path: Path) -> Iterator[_TraceLine]:
    try:
        content = path.read_bytes()
    # Trace files are only a help, and old ones are removed: a missing one must not fail the command.
    except OSError:
        return
    for line in content.splitlines():
        try:
            yield _line(line)
        except msgspec.DecodeError:  # a partial line, after a full disk or a crash
            continue


def _what(step: TraceStep) -> str:
    lane = f" ({step.lane})" if step.lane else ""
    return f"{step.step}{lane}: {step.detail}" if step.detail else f"{step.step}{lane}"


def _gate(is_open: bool, reason: str) -> str:
    return "open" if is_open else f"closed ({reason})" if reason else "closed"


def _time(call: Call, ts_ms: int) -> str:
    return format_time(ts_ms, call.zone, f"%Y-%m-%d %H:%M:%S.{ts_ms % 1000:03d}")


# --------------------
# Rendering: write messages batch by batch, as JSON, for people, or fenced for an agent.
#
# Does not mark messages as seen: the calling command does that.

_LIMIT_TEXT: Final = 1024 * 1024
"""Characters of text in a batch, except for a single longer message. A batch is one write."""

JSON: Final = "json"
PAGE: Final = "page"
FENCE: Final = "fence"

_encode: Final = msgspec.json.Encoder().encode


def tips_for_agent(
    call: Call, events: Sequence[Event], shown_tips: Collection[str] | None = None
) -> dict[str, str]:
    """Return the tips for an agent with these messages, without those in `shown_tips`.

    None stands for those that are stored as shown. A tip is repeated until it is stored. An
    observer gets no tips: it may not send.
    """
    is_observer = not can(call.caller.standing, Standing.GUEST)
    if form_of(call) != FENCE or call.caller.kind != INSTANCE or is_observer:
        return {}
    tips = tips_for(events, () if shown_tips is None else shown_tips)
    if tips and shown_tips is None:  # Most messages have no tip, and then nothing has to be read.
        stored = read_shown_tips(call)
        # Again here, because `tips_for` was called without the stored names.
        return {name: sentence for name, sentence in tips.items() if name not in stored}
    return tips


def read_shown_tips(call: Call) -> set[str]:
    """Return the tips that are stored as shown."""
    return set(read_tips(call.services.queries.rows, call.owner))


def form_of(call: Call) -> str:
    """Return the form of the output: JSON, a page for people, or fenced for an agent."""
    if call.is_json or (call.parsed.has("--follow") and call.is_json_stream):
        return JSON
    return PAGE if call.is_terminal else FENCE


def batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Split messages into batches, each for one write."""
    batch: list[Event] = []
    size = 0
    for event in events:
        length = len(readable_text(event))
        if batch and (size + length > _LIMIT_TEXT or len(batch) == LIMIT_INJECTION):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += length
    if batch:
        yield batch


def count_rest(call: Call, events: Sequence[Event]) -> int:
    """Return how many messages remain to be fetched after those that are shown.

    0 with --follow, which fetches them itself.
    """
    if call.parsed.has("--follow"):
        return 0
    rows, mailbox = call.services.queries.rows, _mailbox(call)
    return max(0, read_unread(rows, mailbox) + count_handled(rows, mailbox) - len(events))


async def show_mail(
    call: Call,
    events: Sequence[Event],
    token: bytes = b"",
    *,
    rest: int = 0,
    shown_tips: set[str] | None = None,
    flushed: Callable[[], None] | None = None,
) -> None:
    """Write one batch in one piece: if the client is cut off before it has written all, no message counts.

    The tips in the batch are added to `shown_tips`.
    """
    form = form_of(call)
    mailbox = _mailbox(call)
    write: Callable[[Sequence[Event]], bytes] = partial(_to_json_lines, mailbox)
    if form == PAGE:
        write = partial(_to_page, call, mailbox)
    elif form == FENCE:
        tips = tips_for_agent(call, events, shown_tips)
        write = partial(_to_fence, call, mailbox, rest, tuple(tips.values()))
        if shown_tips is not None:
            shown_tips.update(tips)
    # Encoding or escaping a payload of megabytes would block the event loop.
    is_quick = all(event.has_small_payload for event in events)
    data = write(events) if is_quick else await asyncio.to_thread(write, events)
    await call.write(data, token, flushed=flushed)


def _to_json_lines(mailbox: str, events: Sequence[Event]) -> bytes:
    return b"".join(_encode(message_view(event, mailbox)) + b"\n" for event in events)


def _to_page(call: Call, mailbox: str, events: Sequence[Event]) -> bytes:
    page = "".join(for_people(call, event, mailbox) for event in events)
    return page.encode("utf-8", "backslashreplace")


def _to_fence(call: Call, mailbox: str, rest: int, tips: Iterable[str], events: Sequence[Event]) -> bytes:
    """Return the text for an agent: the messages, how many more wait, general hints, and tips."""
    services = call.services
    bundled = [event for event in events if _has_bundle(event)]
    fence = format_injection(
        [injection_line(event, mailbox, services.queries.device) for event in events],
        rest=rest,
        hints=services.broker.directory.hints_for(call.owner, services.daemon.settings.now.hints),
        tips=(bundle_hint(bundled) if bundled else "", *tips),
    )
    return f"{fence}\n".encode()


def _has_bundle(event: Event) -> bool:
    return isinstance(event.body, MessageSent | ForeignBody) and bool(event.body.bundle_id)


def mail_filter(call: Call) -> Passes | None:
    """Return the filter by sender and thread; None lets everything through."""
    senders = {name.removeprefix("@").lower() for name in call.parsed.values("--from")}
    threads = set(call.parsed.values("--thread"))
    if not senders and not threads:
        return None
    return lambda event: (
        (not senders or event.sender.lower() in senders) and (not threads or _thread(event) in threads)
    )


def _thread(event: Event) -> str | None:
    return event.body.thread if isinstance(event.body, MessageSent) else None
