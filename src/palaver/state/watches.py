"""Replies that agents owe, in the state: watches on requests, and reminders; and subscriptions. Pure."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from palaver.protocol.agents import INSTANCE
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import (
    BYE,
    ENDS,
    AgentState,
    DeliveryReport,
    MessageSent,
    ReminderNotice,
    State,
    StatusChanged,
    SubscriptionRemoved,
    WatchNotice,
)
from palaver.protocol.message import HUMAN, MESSAGE, REQUEST, SYSTEM
from palaver.protocol.paths import split_mailbox
from palaver.protocol.query import STORED_STATES
from palaver.protocol.subscriptions import (
    DELIVERY,
    STATUS,
    STOPPED,
    SUB_ADDED,
    SUB_REMOVED,
    Subscription,
    Watch,
    WatchDue,
    decode_due,
    decode_subscription,
    decode_watch,
    parse_watch_id,
    subscription_from,
)
from palaver.state.agents import can_step, read_agent, read_seen
from palaver.state.rows import Change, Rows, agent_key, answered_seq, deliverable, encode_row, seq_of_key

# --------------------
# Replies that are not owed any more: shared by the folds of watches and of reminders. Pure.


def owed_no_more(rows: Rows, event: Event) -> list[tuple[str, int]]:
    """Return agent and message of each reply that is not owed any more after a change of the ledger.

    No reply to a copy that ends unread is expected; a released reply is an answer.
    """
    report = body_as(event, DeliveryReport)
    if report.state not in ENDS and report.state != State.QUEUED:
        return []
    moved = [seq for seq in dict.fromkeys(report.messages) if can_step(rows, report, seq)]
    if report.state != State.QUEUED:
        return [(report.agent, seq) for seq in moved]
    # The only report that names an answer is that of a released reply, which answers from now on.
    return [(report.author, report.answers)] if moved and report.answers else []


def without(rows: Rows, tables: tuple[str, ...], agent: str, request: int) -> list[Change]:
    """Return the changes that remove the rows of one agent's reply from those tables that have one."""
    key = agent_key(agent, request)
    return [(table, key, None) for table in tables if rows.get(table, key) is not None]


# --------------------
# Iterate over rows, a page at a time: no query is open while the caller uses the rows.

PAGE: Final = 1000


def walk(rows: Rows, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield every row of a table whose key begins with `prefix`, in key order."""
    after = ""
    while page := rows.scan(table, prefix, after=after, limit=PAGE):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1][0]


def seqs_of_agents(rows: Rows, table: str, agent: str = "") -> list[tuple[str, int]]:
    """Return agent and seq of every row that has both as its key, of one agent or of all."""
    keys = (key for key, _ in walk(rows, table, f"{agent}/" if agent else ""))
    return [(key[: key.rindex("/")], seq_of_key(key)) for key in keys]


# --------------------
# The part of the fold that stores watches and subscriptions, and functions to read them. Pure.
#
#     watch          requests that a recipient has not answered: `<agent>/<seq of the request>`
#     watch_due      those for which the sender must be notified, and why
#     unanswered     those whose sender was notified, and that are still not answered
#     subscription   which events are reported to which owner, by short id
#
# A watch becomes due in the fold itself, in log order: when its agent has seen the request and then goes
# idle, or stops, or if it had left before the request was sent. A copy that expires, is refused or is dead
# ends its watch: its sender is notified of that. So neither a clock nor a restart can make a watch fire twice
# or not at all.

WATCHES: Final = "watch"
DUE: Final = "watch_due"
UNANSWERED: Final = "unanswered"
SUBSCRIPTIONS: Final = "subscription"

_WATCHED_FOR: Final = frozenset({INSTANCE, HUMAN})
_NEWEST: Final = 100
"""Open requests to one agent that are searched for those of a sender: an agent that never replies has any
number of them, and each message that could be a reply is a search."""


def watch_changes(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of an event to watches and subscriptions; `agent` is the agent that it is about.

    Raises errors that the fold skips only for unreadable events of Palaver's types.
    """
    handler = _HANDLERS.get(event.type)
    return [] if handler is None else handler(rows, event, agent)


def read_watch(rows: Rows, agent: str, request: int) -> Watch | None:
    """Return the watch on one recipient of a request, or None."""
    value = rows.get(WATCHES, agent_key(agent, request))
    return None if value is None else decode_watch(value)


def read_watches(rows: Rows) -> Iterator[Watch]:
    """Iterate over all open watches, agent by agent."""
    return (decode_watch(value) for _, value in walk(rows, WATCHES, ""))


def read_open_requests(rows: Rows, agent: str, sender: str) -> list[Watch]:
    """Return the requests of one sender that an agent has not answered, watched ones first.

    Of all open requests to the agent only the newest are read, so that a long list costs nothing.
    """
    pages = (rows.scan(one, f"{agent}/", limit=_NEWEST, reverse=True) for one in (WATCHES, UNANSWERED))
    watches = (decode_watch(value) for page in pages for _, value in page)
    return [watch for watch in watches if watch.sender == sender]


def read_seen_requests(rows: Rows, agent: str) -> list[tuple[int, int]]:
    """Return the newest watched requests that an agent has seen: the seq, and when it saw it in Unix ms."""
    newest = rows.scan(WATCHES, f"{agent}/", limit=_NEWEST, reverse=True)
    entries = ((seq_of_key(key), read_seen(rows, seq_of_key(key), agent)) for key, _ in newest)
    return [(seq, entry.seen) for seq, entry in entries if entry is not None]


def read_due(rows: Rows, agent: str, request: int) -> WatchDue | None:
    """Return why a watch fires, or None."""
    value = rows.get(DUE, agent_key(agent, request))
    return None if value is None else decode_due(value)


def due_watches(rows: Rows, agent: str = "") -> list[tuple[str, int]]:
    """Return agent and request of every watch that must fire, of one agent or of all."""
    return seqs_of_agents(rows, DUE, agent)


def read_subscription(rows: Rows, id: str) -> Subscription | None:
    """Return a subscription by its short id, or None."""
    value = rows.get(SUBSCRIPTIONS, id)
    return None if value is None else decode_subscription(value)


def read_subscriptions(rows: Rows) -> Iterator[Subscription]:
    """Iterate over all subscriptions, by id."""
    return (decode_subscription(value) for _, value in walk(rows, SUBSCRIPTIONS, ""))


def _by_message(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a message: a request is watched, and a reply or a notice ends a watch.

    A held reply has not answered anything yet.
    """
    message = body_as(event, MessageSent)
    changes: list[Change] = []
    if message.intent == REQUEST and message.sender_kind in _WATCHED_FOR:
        changes += _watched(rows, event)
    if (answered := answered_seq(event)) is not None and not message.held:
        changes += _unwatched(rows, event.sender, answered)
    if message.sender_kind == SYSTEM:
        changes += _noticed(rows, event, message)
    return changes


def _watched(rows: Rows, event: Event) -> Iterable[Change]:
    """Yield a watch per agent, except the sender and the human, who has no status to wait for.

    It is due at once if the agent has left: no later event would say so.
    """
    for name in _awaited(event):
        if name not in (event.sender, HUMAN):
            key = agent_key(name, event.seq)
            watch = Watch(agent=name, request=event.seq, sender=event.sender, ts=event.ts)
            yield WATCHES, key, encode_row(watch)
            agent = read_agent(rows, name)
            if agent is not None and agent.left:
                yield DUE, key, encode_row(WatchDue(state=STOPPED, cause=event.id))


def _awaited(event: Event) -> Iterable[str]:
    """Yield the agents whose reply is awaited. A session replies as its agent, which has a copy too."""
    return (name for name in deliverable(event).delivered_to if not split_mailbox(name)[1])


def _noticed(rows: Rows, event: Event, notice: MessageSent) -> list[Change]:
    """Return the changes of a notice of the bus: it ends its watch, or may use up its subscription."""
    if "watch" in event.odd_fields:
        raise ValueError("watch")
    if notice.watch is not None:
        return _watched_no_more(rows, notice.watch)
    known = None if notice.sub is None else read_subscription(rows, notice.sub)
    # Only the first hit ends it: a later notice must not change `spent`.
    if known is None or not known.once or known.spent:
        return []
    return [(SUBSCRIPTIONS, known.id, encode_row(msgspec.structs.replace(known, spent=event.seq)))]


def _watched_no_more(rows: Rows, notice: WatchNotice) -> list[Change]:
    """End a watch whose sender was notified. The request stays open."""
    # Kept as unanswered, so that a later message of the agent can still be taken as its reply.
    key = agent_key(notice.agent, notice.request)
    watch = rows.get(WATCHES, key)
    kept: list[Change] = [] if watch is None else [(UNANSWERED, key, watch)]
    return without(rows, (WATCHES, DUE), notice.agent, notice.request) + kept


def _unwatched(rows: Rows, agent: str, request: int) -> list[Change]:
    return without(rows, (WATCHES, DUE, UNANSWERED), agent, request)


def _by_report(rows: Rows, event: Event, agent: str) -> list[Change]:
    """End the watches of replies that are not owed any more."""
    return [change for owed in owed_no_more(rows, event) for change in _unwatched(rows, *owed)]


def _by_status(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Make the watches of an agent that goes idle due, for requests that it has seen."""
    word = body_as(event, StatusChanged).state or ""
    if STORED_STATES.get(word, word) != AgentState.IDLE:
        return []
    return _fall_due(rows, event, agent, AgentState.IDLE.value, is_seen_only=True)


def _by_bye(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Make all watches of an agent that stops due, whether it has seen the requests or not."""
    return _fall_due(rows, event, agent, STOPPED, is_seen_only=False)


def _fall_due(rows: Rows, event: Event, agent: str, state: str, *, is_seen_only: bool) -> list[Change]:
    """Mark an agent's open watches as due; one that is due already keeps its first cause."""
    due = encode_row(WatchDue(state=state, cause=event.id))
    # Only an agent that has seen a request can be done with it: one that goes idle may get it next.
    changes: list[Change] = []
    for key, _ in walk(rows, WATCHES, f"{agent}/"):
        is_owed = not is_seen_only or read_seen(rows, seq_of_key(key), agent) is not None
        if is_owed and rows.get(DUE, key) is None:
            changes.append((DUE, key, due))
    return changes


def _by_added(rows: Rows, event: Event, agent: str) -> list[Change]:
    made = subscription_from(event)
    if made is None:
        return []
    return [(SUBSCRIPTIONS, made.id, encode_row(made))]


def _by_removed(rows: Rows, event: Event, agent: str) -> list[Change]:
    gone = body_as(event, SubscriptionRemoved).id
    if gone is None:
        raise ValueError("id")
    # The ids of subscriptions have no hyphen, so an id is never both.
    if (watch := parse_watch_id(gone)) is not None:
        return _unwatched(rows, *watch)
    return [] if rows.get(SUBSCRIPTIONS, gone) is None else [(SUBSCRIPTIONS, gone, None)]


_Handler = Callable[[Rows, Event, str], list[Change]]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    MESSAGE: _by_message,
    DELIVERY: _by_report,
    STATUS: _by_status,
    BYE: _by_bye,
    SUB_ADDED: _by_added,
    SUB_REMOVED: _by_removed,
}

# --------------------
# An expected reply, as rows of the fold: the agent that owes it, and its reminders. Pure.

LIMIT_REMINDERS: Final = 3
"""The number of reminders that a recipient gets."""


class Reminder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reply that one recipient owes to the sender of a message."""

    agent: str
    request: int
    sender: str
    # The stored name, as in the rows of existing logs.
    count: int = msgspec.field(default=0, name="nags")
    """How many reminders were sent."""
    last: int = 0
    """The seq of the last reminder: the next one waits until that was seen."""


class ReminderDue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a reminder is due: the agent is idle, or it stopped."""

    state: str
    cause: str
    since: int = 0
    """When an idle agent had seen everything, in Unix ms: it has had no time for the reply yet."""


decode_reminder: Final = msgspec.json.Decoder(Reminder).decode
decode_reminder_due: Final = msgspec.json.Decoder(ReminderDue).decode

# --------------------
# The part of the fold that stores expected replies and reminders, and functions to read them. Pure.
#
#     nag       replies that a recipient owes: `<agent>/<seq of the message>`
#     nag_due   those for which a notice is due, and why
#
# A reminder becomes due in the fold itself: when its agent has seen the message and the last reminder, has
# not answered, and is idle; or, for the sender, when the agent stops. The reminder is a message that names
# its cause, and clears the due row. So neither a clock nor a restart can make one come twice or not at all.

# Stored names: with others, the rows that an existing log has would not be found.
REMINDERS: Final = "nag"
REMINDER_DUE: Final = "nag_due"

_CAN_BE_TOLD: Final = frozenset({INSTANCE, HUMAN})
_READ: Final = frozenset({State.SEEN, State.ANSWERED})


def reminder_changes(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of an event to the expected replies; `agent` is the agent that it is about."""
    handler = _REMINDER_HANDLERS.get(event.type)
    return [] if handler is None else handler(rows, event, agent)


def read_reminder(rows: Rows, agent: str, request: int) -> Reminder | None:
    """Return the reply that one recipient owes, or None."""
    value = rows.get(REMINDERS, agent_key(agent, request))
    return None if value is None else decode_reminder(value)


def read_reminder_due(rows: Rows, agent: str, request: int) -> ReminderDue | None:
    """Return why a notice is due, or None."""
    value = rows.get(REMINDER_DUE, agent_key(agent, request))
    return None if value is None else decode_reminder_due(value)


def has_reminders(rows: Rows) -> bool:
    """Return whether any agent owes a reply."""
    return bool(rows.scan(REMINDERS, "", limit=1))


def due_reminders(rows: Rows, agent: str = "") -> list[tuple[str, int]]:
    """Return agent and message of every due reminder, of one agent or of all."""
    return seqs_of_agents(rows, REMINDER_DUE, agent)


def _reminder_by_message(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a message: it may expect replies, be a reply, or be a reminder."""
    message = body_as(event, MessageSent)
    changes: list[Change] = []
    if message.expects_reply and message.sender_kind in _CAN_BE_TOLD:
        changes += _waited_for(event)
    if (answered := answered_seq(event)) is not None and not message.held:
        changes += _over(rows, event.sender, answered)
    if message.sender_kind == SYSTEM and "nag" in event.odd_fields:
        raise ValueError("nag")
    if message.sender_kind == SYSTEM and message.nag is not None:
        changes += _reminded(rows, event, message.nag)
    return changes


def _waited_for(event: Event) -> Iterable[Change]:
    """Yield a row per agent, except the sender and the human: neither is reminded."""
    for name in _awaited(event):
        if name not in (event.sender, HUMAN):
            reminder = Reminder(agent=name, request=event.seq, sender=event.sender)
            yield REMINDERS, agent_key(name, event.seq), encode_row(reminder)


def _reminded(rows: Rows, event: Event, notice: ReminderNotice) -> list[Change]:
    """Return the changes of a reminder, or of the final notice to the sender."""
    reminder = read_reminder(rows, notice.agent, notice.request)
    if reminder is None or not notice.count:
        return _over(rows, notice.agent, notice.request)
    key = agent_key(notice.agent, notice.request)
    row = encode_row(msgspec.structs.replace(reminder, count=notice.count, last=event.seq))
    return [(REMINDERS, key, row), (REMINDER_DUE, key, None)]


def _over(rows: Rows, agent: str, request: int) -> list[Change]:
    return without(rows, (REMINDERS, REMINDER_DUE), agent, request)


def _reminder_by_report(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a delivery report: ended replies, and reminders of seen messages."""
    report = body_as(event, DeliveryReport)
    if report.state == State.SEEN:
        return _by_seeing(rows, event, report)
    return [change for owed in owed_no_more(rows, event) for change in _over(rows, *owed)]


def _by_seeing(rows: Rows, event: Event, report: DeliveryReport) -> list[Change]:
    known = read_agent(rows, split_mailbox(report.agent)[0])
    if known is None or known.left or known.state != AgentState.IDLE:
        return []
    due = ReminderDue(state=AgentState.IDLE.value, cause=event.id, since=event.ts)
    # The rows are from before this report, so they do not have its messages as seen yet.
    return _due(rows, known.name, due, seen=frozenset(report.messages))


def _reminder_by_status(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a status: an idle agent is due unless a reminder still waits.

    An agent that saw the message while idle and becomes active may be working on the reply.
    """
    word = body_as(event, StatusChanged).state or ""
    if STORED_STATES.get(word, word) != AgentState.IDLE:
        dues = walk(rows, REMINDER_DUE, f"{agent}/")
        return [(REMINDER_DUE, key, None) for key, value in dues if decode_reminder_due(value).since]
    return _due(rows, agent, ReminderDue(state=AgentState.IDLE.value, cause=event.id))


def _due(rows: Rows, agent: str, due: ReminderDue, *, seen: Container[int] = ()) -> list[Change]:
    """Make every reminder due whose message and last reminder the agent has seen."""
    changes: list[Change] = []
    for key, value in walk(rows, REMINDERS, f"{agent}/"):
        reminder = decode_reminder(value)
        # Also the last reminder: otherwise reminders would collect in the mailbox of an agent that reads
        # nothing.
        parts = [seq for seq in (reminder.request, reminder.last) if seq]
        known = rows.get(REMINDER_DUE, key)
        # An idle status replaces a due row with `since`: then the agent has had time for the reply.
        is_due = known is not None and (bool(due.since) or not decode_reminder_due(known).since)
        if not is_due and all(seq in seen or read_seen(rows, seq, agent, _READ) for seq in parts):
            changes.append((REMINDER_DUE, key, encode_row(due)))
    return changes


def _reminder_by_bye(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a bye: an agent that stops will not reply, whatever it has seen."""
    due = encode_row(ReminderDue(state=STOPPED, cause=event.id))
    # This also replaces the due row of an idle agent, because now the sender is notified instead of the
    # agent.
    return [(REMINDER_DUE, key, due) for key, _ in walk(rows, REMINDERS, f"{agent}/")]


_REMINDER_HANDLERS: Final[Mapping[str, _Handler]] = {
    MESSAGE: _reminder_by_message,
    DELIVERY: _reminder_by_report,
    STATUS: _reminder_by_status,
    BYE: _reminder_by_bye,
}
