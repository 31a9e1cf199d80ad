"""Short summaries of events, for lists and notices. Pure and total: no payload makes it fail."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from palaver.protocol.bundles import BUNDLE
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    BODIES,
    AgentBye,
    AgentHello,
    AgentPaused,
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    Closed,
    DeadLettersCleared,
    DeliveryReport,
    Filter,
    ForeignBody,
    Freed,
    Granted,
    Kicked,
    LifeChanged,
    MemberJoined,
    MemberLeft,
    MessageSent,
    NoteAdded,
    NoteResolved,
    PathSubscribed,
    PathUnsubscribed,
    PermissionAnswered,
    PermissionAsked,
    Released,
    RoomBody,
    SessionCreated,
    SessionRemoved,
    SettingChanged,
    StatusChanged,
    SubscriptionAdded,
    SubscriptionRemoved,
    TakenOver,
    TaskCompleted,
    TaskCreated,
    TaskUpdated,
    TextRemoved,
    TurnSkipped,
    Unreadable,
)
from palaver.protocol.message import MESSAGE, is_lost, readable_text, reply_reference, work_text
from palaver.protocol.paths import mailbox_of, readable_mailbox, split_mailbox


def summary(event: Event) -> str:
    """Return a summary of an event without its type, sender and seq, which are shown next to it.

    It says so if the content cannot be read completely: it is damaged, or a newer version wrote it.
    """
    if event.type not in BODIES or event.type == BUNDLE or is_lost(event):
        text = readable_text(event)
        return text if event.type == BUNDLE else text.removeprefix(event.type).lstrip()
    if isinstance(event.body, Unreadable):
        return (
            "(the content cannot be read: it is damaged, or a newer version of Palaver wrote it; "
            f"'pal show {event.seq} --json' prints it)"
        )
    summary = _typed(event)
    # A message is complete with its text.
    odd = sorted(event.odd_fields & {"text"} if event.type == MESSAGE else event.odd_fields)
    return f"{summary} (cannot be read: {', '.join(odd)})".lstrip() if odd else summary


def _typed(event: Event) -> str:
    """Return a summary of an event that has a struct."""
    match event.body:
        case StatusChanged() as status:
            return _with(status.state, status.detail, status.tool, status.file and f"in {status.file}")
        case AgentHello() as hello:
            return _with("joined", hello.runtime, hello.version)
        case AgentBye() as bye:
            return _with("left", bye.reason)
        case LifeChanged() as life:
            return _with(life.action, life.reason, life.version, life.text)
        case AgentPaused() as paused:
            return _with(paused.agent)
        case PermissionAsked() as asked:
            return _with(asked.permission, asked.tool, asked.text)
        case PermissionAnswered() as answered:
            for_whom = answered.agent and f"for {answered.agent}"
            return _with(answered.permission, answered.decision, for_whom, answered.reason)
        case DeliveryReport() as report:
            summary = f"{report.state} {', '.join(f'#{seq}' for seq in report.messages)}"
            session = split_mailbox(report.agent)[1]
            return _with(summary, session and f"session {session}", report.lane, report.grade, report.reason)
        case RoomBody() as body:
            return _in_room(event, body)
        case TaskCreated() | TaskUpdated() | TaskCompleted():
            return work_text(event, is_whole=False)
        case SubscriptionAdded() as added:
            summary = f"{added.id} for {added.owner}"
            return _with(
                summary,
                added.preset,
                *_filters(added.filter),
                added.once and "once",
                added.send and "sends a text",
            )
        case SubscriptionRemoved() as removed:
            return _with(removed.id, removed.reason)
        case PathSubscribed() | PathUnsubscribed() as path:
            return _with(path.pattern, f"for {readable_mailbox(mailbox_of(path.agent, path.session))}")
        case SessionCreated() as made:
            whose = f"of {made.agent}"
            return _with(made.session, whose, made.title, made.harness_session)
        case SessionRemoved() as gone:
            return _with(gone.session, f"of {gone.agent}")
        case DeadLettersCleared() as cleared:
            return f"up to #{cleared.up_to}"
        case TextRemoved() as removed:
            return f"the text of #{removed.event}"
        case AutoTurnStarted() as turn:
            again = turn.attempt > 1 and f"try {turn.attempt}"
            by = turn.started_by and f"started by {turn.started_by}"
            return _with(f"session {turn.session}: {_counted_messages(turn.messages)}", again, by)
        case AutoTurnResult() as turn:
            return f"session {turn.session}, turn #{turn.turn}: {turn.text or '(no text)'}"
        case AutoTurnError() as turn:
            held = turn.held and "its messages are held"
            return _with(f"session {turn.session}, turn #{turn.turn}: {turn.error}", held)
        case TurnSkipped() as turn:
            return f"session {turn.session}: {_counted_messages(turn.messages)}, by the {turn.reason}"
        case SettingChanged() as setting:
            was = setting.old not in (None, "") and f"was {setting.old}"
            whose = mailbox_of(setting.agent, setting.session) if setting.agent else setting.channel
            whose = whose and f"{whose}: "
            return _with(f"{whose}{setting.key} = {setting.value}", was)
    return readable_text(event)


def _counted_messages(seqs: Sequence[int]) -> str:
    """Return the number of some messages, and the first ones."""
    if not seqs:
        return "no messages"
    named = ", ".join(f"#{seq}" for seq in seqs[:5])
    return f"{len(seqs)} message{'s' if len(seqs) > 1 else ''} ({named}{', …' if len(seqs) > 5 else ''})"


def _filters(wanted: Filter | None) -> list[str]:
    """Return each filter as its name and words."""
    fields: dict[str, list[str]] = {} if wanted is None else msgspec.to_builtins(wanted)
    return [f"{name} {' '.join(words)}" for name, words in fields.items()]


def _in_room(event: Event, body: RoomBody) -> str:
    """Return a summary of an event of a room; of the stick with turn, recipient, reason, and status."""
    match body:
        case MemberJoined(path=path):
            return _with(body.room, path)
        case MemberLeft(member=member, reason=reason):
            return _with(body.room, member, reason)
        case Kicked(reason=reason) | Closed(reason=reason):
            return _with(body.room, reason)
        case NoteAdded() | NoteResolved():
            return work_text(event)
        case Granted(turn_id=turn, reason=reason):
            return _with(body.room, f"turn {turn}", reason)
        case TakenOver(turn_id=turn, cause=cause, reason=reason):
            return _with(body.room, f"turn {turn}", cause, reason)
        case Released(sender=giver, reason=reason):
            return _freed(event, body, held=giver and f"held by {giver}", reason=reason)
    assert isinstance(body, Freed)  # the last kind
    return _freed(event, body)


def _freed(event: Event, freed: Freed, *, held: str | None = None, reason: str = "") -> str:
    if handoff := work_text(event, is_whole=False):
        return _with(handoff, held, reason)
    whose = freed.reserved_for and f"for {freed.reserved_for}"
    return _with(freed.room, f"turn {freed.turn_id}", held, whose, reason)


def _with(word: object, *details: object) -> str:
    first = str(word) if word else "?"
    summary = ", ".join(str(detail) for detail in details if detail)
    return f"{first} ({summary})" if summary else first


# --------------------
# The log as a page of Markdown: a heading for each thread and each event. Pure.
#
#     ## Thread pr-123
#
#     ### #42 luna → nova, request, 2026-03-01 09:00:03
#
#     ```text
#     can you review this?
#     ```
#
# Bodies, names and types are shown literally and never become markup: a body is in a fence that is longer
# than any in it, and in a heading every special character is escaped.

_SHORTEST_FENCE: Final = 3
_BACKTICKS: Final = re.compile(r"`+")
_SIGNS: Final = re.compile(r"[\\`*_{}\[\]<>&#|~!^$]")
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")

_encode: Final = msgspec.json.Encoder().encode


def begin_page(title: str, note: str) -> str:
    """Return the head of a page."""
    return f"# {escape_inline(title)}\n\n{escape_inline(note)}\n"


class MarkdownPage:
    """Formats events one after another, and remembers the current thread."""

    def __init__(self, format_time: Callable[[int], str]) -> None:
        """`format_time` formats a time in Unix milliseconds for the reader."""
        self._format_time = format_time
        self._thread: str | None = None
        self._seen: set[str] = set()

    def add(self, event: Event) -> str:
        """Return the next part of the page: a heading if the thread changes, and the event."""
        return f"{self._thread_heading(event)}\n### {self._heading(event)}\n{_body(event)}"

    def _thread_heading(self, event: Event) -> str:
        name = _topic(event).thread or ""
        if name == self._thread:
            return ""
        is_first = name not in self._seen
        self._thread = name
        self._seen.add(name)
        if not name:
            return "" if is_first and len(self._seen) == 1 else "\n## No thread\n"
        return f"\n## Thread {escape_inline(name)}{'' if is_first else ' (continued)'}\n"

    def _heading(self, event: Event) -> str:
        to = f" → {', '.join(event.to)}" if event.to else ""
        topic = _topic(event)
        kind = topic.intent if event.type == MESSAGE else event.type
        answered = reply_reference(event) if event.imported else topic.reply_to
        answers = f"answers #{answered}" if answered else ""
        parts = (f"{event.sender}{to}", kind, answers, self._format_time(event.ts))
        # The seq is ours; everything else came from a caller.
        return f"#{event.seq} {', '.join(escape_inline(part) for part in parts if part)}"


def escape_inline(text: str) -> str:
    """Return a text on one line in which Markdown finds no markup."""
    # Line ends are replaced too: a heading ends with its line, and the rest could be markup of its own.
    return _SIGNS.sub(r"\\\g<0>", _BREAKS.sub(" ", text).strip())


def fenced(text: str, language: str = "text") -> str:
    """Put a text into a fence that nothing in it can close."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(_SHORTEST_FENCE, longest + 1)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{fence}{language}\n{text}{end}{fence}\n"


def _body(event: Event) -> str:
    message = event.body
    if isinstance(message, MessageSent) and not message.command and not is_lost(event):
        return f"\n{fenced(message.text)}" if message.text else ""
    if not event.payload:
        return ""
    return f"\n{fenced(msgspec.json.format(_encode(event.payload), indent=2).decode(), 'json')}"


def _topic(event: Event) -> MessageSent | ForeignBody:
    """Return the fields by which a message or a foreign event belongs to others."""
    return event.body if isinstance(event.body, MessageSent | ForeignBody) else ForeignBody()
