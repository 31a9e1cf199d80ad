"""The requests about envelopes, paths, sessions and automatic turns."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from palaver.broker.agents import leave_bus
from palaver.broker.context import SYSTEM_CALLER, Context, Sent, Written
from palaver.broker.ledger import report, step_order
from palaver.broker.messages import checked_content, notify, send_with_id, store
from palaver.broker.rooms import leave_all_rooms
from palaver.broker.tasks import ask_telling, members_of
from palaver.domain.rights import (
    can,
    chain_of_batch,
    check_foreign_type,
    reaches_others,
    require,
    require_mailbox,
    require_person,
    require_turns_of,
)
from palaver.domain.routing import Resolved, resolve, resolve_exactly
from palaver.domain.turns import check_auto_run, failed_reason, held_notice
from palaver.errors import (
    BadRequest,
    IdTaken,
    NotFound,
    NotYou,
    RequestError,
    UnknownRecipient,
    WhoAreYou,
    cut_name,
)
from palaver.ids import derived_id
from palaver.log.api import Commit, Decide, Order
from palaver.protocol.address import Path, check_path, format_address
from palaver.protocol.agents import INSTANCE, Agent, Caller, Standing, check_name, full_name, split_name
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import (
    AUTO_TURN,
    AUTO_TURN_ERROR,
    AUTO_TURN_RESULT,
    BYE,
    DEAD_CLEARED,
    HELLO,
    LIFE,
    MIGRATED,
    PATH_SUBSCRIBED,
    PATH_UNSUBSCRIBED,
    SESSION_CREATED,
    SESSION_REMOVED,
    SETTING,
    TURN_SKIPPED,
    AgentState,
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    DeadLettersCleared,
    DeliveryReport,
    EventBody,
    Grade,
    LifeChanged,
    MessageSent,
    PathSubscribed,
    PathUnsubscribed,
    SessionCreated,
    SessionRemoved,
    SettingChanged,
    State,
    TurnSkipped,
)
from palaver.protocol.message import EXTERNAL, HUMAN, MESSAGE, PATH, build_payload
from palaver.protocol.paths import (
    LIMIT_SESSIONS,
    LIMIT_SUBSCRIPTIONS,
    MAIN,
    REMOVED,
    TAKEN_BEFORE,
    ClearDeadLetters,
    Content,
    CreateSession,
    Migrate,
    MigratedAutoRun,
    MigratedMessage,
    MigratedSession,
    MigratedSubscription,
    MigrationResult,
    RemoveSession,
    SubscribePath,
    UnsubscribePath,
    check_session,
    is_migrated_sender,
    mailbox_of,
    split_mailbox,
)
from palaver.protocol.query import STORED_TYPES
from palaver.protocol.requests import LEFT, Put, ReportDelivery, Send
from palaver.protocol.tasks import task_request_from
from palaver.protocol.text import LIMIT_BODY_BYTES, check_line, check_text
from palaver.protocol.turns import (
    AUTO_RUN,
    TRIES,
    TURN_LANE,
    BatchMessage,
    FailTurn,
    FinishTurn,
    SetAutoRun,
    SkipTurn,
    StartTurn,
    batch_of_start,
    is_harness_session,
)
from palaver.state.agents import can_step, find_mail, read_agent, read_mail
from palaver.state.paths import (
    count_path_subscriptions,
    has_most_sessions,
    is_subscribed,
    read_agent_session,
)
from palaver.state.rows import Rows
from palaver.state.turns import read_auto_run, read_turn

# --------------------
# Foreign envelopes: stored unchanged and routed without reading them, except for types that are requests.
#
# Recipients follow the exact rules of the wire (`resolve_exactly`), so that sender, bus and reader agree on
# them. The sender's `ts` is stored in addition to the time of the log.

_LIMIT_TYPE_BYTES: Final = 256
_LIMIT_ID_BYTES: Final = 256


async def put(context: Context, caller: Caller, request: Put, key: bytes | None) -> Sent:
    """Store an envelope under its own id. Refuses Palaver's own types and foreign sender names."""
    envelope = request.envelope
    if envelope.sender != caller.name:
        raise NotYou(envelope.sender, caller.name)
    check_foreign_type(envelope.type)
    check_line(envelope.type, "the type", _LIMIT_TYPE_BYTES)
    check_line(envelope.id, "the id", _LIMIT_ID_BYTES)
    # These types have an effect in Palaver. They take the way of the request, so that its rights and checks
    # apply: an envelope must never write the bus's own facts.
    if STORED_TYPES.get(envelope.type, envelope.type) == MESSAGE:
        return await send_with_id(context, caller, _send_from(envelope, request), key)
    if envelope.type == BYE:
        return await _bye(context, caller, envelope, key)
    if (asked := task_request_from(envelope)) is not None:
        recipients = _recipients(context, caller, request)
        return await ask_telling(context, caller, asked, recipients, key, sent_ts=envelope.ts)
    if envelope.type == HELLO:
        payload, resolved = _hello(caller, envelope), Resolved(to=envelope.to)
    else:
        payload, resolved = envelope.payload, _recipients(context, caller, request)
    draft = replace(
        envelope,
        id=envelope.id or context.ids.next(),  # a command line may leave it out
        payload=payload,
        to=resolved.to,
        # The time of the log, so that the times of all events come from one clock.
        ts=context.clock.now_ms(),
        sent_ts=envelope.ts,
        by=caller.by,
        delivered_to=resolved.recipients,
    )
    return await store(context, draft, resolved, key)


def _recipients(context: Context, caller: Caller, request: Put) -> Resolved:
    """Return the recipients of an envelope: of its `to`, else those of the channel it was written in."""
    to = request.envelope.to
    if to or not request.at:
        return resolve_exactly(to, context.directory, sender=caller.name, is_present=context.is_present)
    return resolve(
        (request.at,),
        context.directory,
        sender=caller.name,
        is_present=context.is_present,
        rooms=lambda name: members_of(context, caller, name),
    )


def _hello(caller: Caller, envelope: Draft) -> dict[str, object]:
    """Return the runtime and version in a hello. The identity of the agent was decided when it joined."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent can send a hello; join first with 'pal join'")
    asked = _fields(envelope)
    runtime, version = _word(asked.runtime), _word(asked.version)
    check_text(runtime, "the runtime", 256)
    check_text(version, "the version", 256)
    return {"runtime": runtime, "version": version}


async def _bye(context: Context, caller: Caller, envelope: Draft, key: bytes | None) -> Sent:
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent can leave, and you have not joined; 'pal list' shows the agents")
    reason = _word(_fields(envelope).reason) or LEFT
    # As in `agents.leave`: an agent that only ends may come back to its rooms.
    if reason == LEFT:
        await leave_all_rooms(context, caller)
    written = await leave_bus(
        context, caller.name, reason, key, by=caller.by, id=envelope.id, sent_ts=envelope.ts
    )
    if written.event is None:
        raise WhoAreYou(f"{caller.name} has already left")
    # The log knows the sender and the id already: the stored event is returned, and no bye was written.
    if written.event.type != BYE:
        raise IdTaken(envelope.id, written.event.seq)
    return Sent(event=written.event, to=(), delivered_to=())


def _send_from(envelope: Draft, request: Put) -> Send:
    asked = _fields(envelope)
    to = envelope.to or ((request.at,) if request.at else ())
    if not isinstance(asked.text, str):
        raise BadRequest("a message envelope needs its text in payload.text")
    return Send(
        text=asked.text,
        to=to,
        intent=_word(asked.intent),
        thread=_word(asked.thread),
        reply_to=_word(asked.reply_to),
        bundle_id=_word(asked.bundle_id),
        priority=_word(asked.priority),
        id=envelope.id,
        sent_ts=envelope.ts,
        is_exact=bool(envelope.to) or not request.at,
        channel=request.channel,
    )


class _EnvelopeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The payload fields of an envelope that is a request. External programs may write numbers as texts."""

    text: object = None
    intent: object = None
    thread: object = None
    reply_to: object = None
    bundle_id: object = None
    priority: object = None
    runtime: object = None
    version: object = None
    reason: object = None


def _fields(envelope: Draft) -> _EnvelopeRequest:
    return msgspec.convert(envelope.payload, _EnvelopeRequest)


def _word(value: object) -> str:
    return str(value or "")


# --------------------
# Path subscriptions, sessions and dead letters: rights, limits, and the events that change them.
#
# All subscriptions and sessions of an agent are decided on one key, so that the limit holds and a repeat
# writes nothing. The last part stores what another path broker had stored.

_LIMIT_TITLE_BYTES: Final = 1024
_AT_ONCE: Final = 200


async def subscribe(context: Context, caller: Caller, request: SubscribePath, key: bytes | None) -> Written:
    """Write a path subscription, unless there is one already or it is the agent's own path."""
    _check_owner(context, caller, request.agent)
    pattern = check_path(request.pattern)
    own = _own_paths(context, request.agent)
    if not request.session and pattern in own:
        return Written(event=None)
    # A pattern that matches paths of other agents would read their messages.
    if reaches_others(pattern, own):
        require(caller, Standing.OPERATOR, "sub add for the paths of other agents")
    if request.session:
        check_session(request.session)
    mailbox = mailbox_of(request.agent, request.session)
    body = PathSubscribed(agent=request.agent, pattern=pattern, session=request.session)
    draft = _draft(context, caller, PATH_SUBSCRIBED, body)

    def decide(rows: Rows) -> Draft | None:
        if is_subscribed(rows, mailbox, pattern):
            return None
        _check_count(rows, request.agent)
        if request.session and read_agent_session(rows, request.agent, request.session) is None:
            _check_sessions(rows, request.agent)
        return draft

    return await _commit(context, request.agent, decide, key)


def _check_count(rows: Rows, agent: str) -> None:
    if count_path_subscriptions(rows, agent) >= LIMIT_SUBSCRIPTIONS:
        raise BadRequest(
            f"an agent has at most {LIMIT_SUBSCRIPTIONS} path subscriptions, with those of its sessions; "
            "remove one with 'pal sub rm PATTERN'"
        )


def _check_sessions(rows: Rows, agent: str) -> None:
    # The mail of an agent is collected from all of its sessions, on the event loop.
    if has_most_sessions(rows, agent):
        raise BadRequest(
            f"an agent has at most {LIMIT_SESSIONS} sessions besides {MAIN}; "
            f"remove one with 'pal session rm {agent} SESSION'"
        )


async def unsubscribe(
    context: Context, caller: Caller, request: UnsubscribePath, key: bytes | None
) -> Written:
    """Write the end of a path subscription, if there is one."""
    _check_owner(context, caller, request.agent)
    pattern = check_path(request.pattern)
    if not request.session and pattern in _own_paths(context, request.agent):
        # On the wire, and fixed by the test vectors for the WebSocket and for routing.
        raise BadRequest("Cannot unsubscribe from auto-subscription")
    mailbox = mailbox_of(request.agent, request.session)
    body = PathUnsubscribed(agent=request.agent, pattern=pattern, session=request.session)
    draft = _draft(context, caller, PATH_UNSUBSCRIBED, body)
    return await _commit(
        context, request.agent, lambda rows: draft if is_subscribed(rows, mailbox, pattern) else None, key
    )


async def create_session(
    context: Context, caller: Caller, request: CreateSession, key: bytes | None
) -> Written:
    """Write a new session, or the changed title or harness session of an existing one."""
    _check_owner(context, caller, request.agent, allows_operator=True)
    check_session(request.session)
    for what, text in (("title", request.title), ("harness session", request.harness_session)):
        check_text(text or "", f"the {what}", _LIMIT_TITLE_BYTES)
    # The id becomes an argument of the harness: an id that begins with a dash would be read as an option.
    if request.harness_session and not is_harness_session(request.harness_session):
        raise BadRequest(
            f"{cut_name(request.harness_session)!r} cannot be the id of a harness session: use letters, "
            "digits and the characters _ . : -, and begin with a letter or digit"
        )
    now, id_ = context.clock.now_ms(), context.ids.next()

    def decide(rows: Rows) -> Draft | None:
        known = read_agent_session(rows, request.agent, request.session)
        if known is None:
            if request.only_existing:
                return None
            _check_sessions(rows, request.agent)
        title = request.title if request.title is not None else known.title if known else ""
        old_harness = (known.harness_session or "") if known else ""
        harness = request.harness_session if request.harness_session is not None else old_harness
        if known is not None and (title, harness) == (known.title, old_harness):
            return None
        body = SessionCreated(
            agent=request.agent, session=request.session, title=title, harness_session=harness
        )
        return _draft(context, caller, SESSION_CREATED, body, id_=id_, now=now)

    return await _commit(context, request.agent, decide, key)


async def remove_session(
    context: Context, caller: Caller, request: RemoveSession, key: bytes | None
) -> Written:
    """Write the end of a session. Its waiting messages become dead: no reader can take them any more."""
    _check_owner(context, caller, request.agent, allows_operator=True)
    if request.session == MAIN:
        raise BadRequest("the session main is the default session of its agent, and cannot be removed")
    body = SessionRemoved(agent=request.agent, session=request.session)
    draft = _draft(context, caller, SESSION_REMOVED, body)

    def decide(rows: Rows) -> Draft:
        if read_agent_session(rows, request.agent, request.session) is None:
            raise NotFound(
                f"session {cut_name(request.session)} of {request.agent}",
                f"'pal session list {request.agent}' shows them",
            )
        return draft

    written = await _commit(context, request.agent, decide, key)
    # After the event, so that no message is routed to the session meanwhile. Also for a repeat of the
    # request, because the daemon may have ended in between.
    await _end_mail(context, caller, mailbox_of(request.agent, request.session))
    return written


async def _end_mail(context: Context, caller: Caller, mailbox: str) -> None:
    """End the waiting messages. Delivery ends one that a lane carries if it comes back."""
    # Each report removes its messages from the rows, so the next page begins at the front again.
    while seqs := list(islice(_waiting(context.log.rows, mailbox), _AT_ONCE)):
        dead = DeliveryReport(agent=mailbox, messages=tuple(seqs), state=State.DEAD, reason=REMOVED)
        # Without a request key: the key of the request belongs to the event that ended the session.
        await report(context, caller, ReportDelivery(report=dead), None)


def _waiting(rows: Rows, mailbox: str) -> Iterator[int]:
    return (mail.seq for mail in read_mail(rows, mailbox) if mail.state in (State.QUEUED, State.HELD))


async def clear_dead_letters(
    context: Context, caller: Caller, request: ClearDeadLetters, key: bytes | None
) -> Written:
    """Write that the list of dead letters is empty from now on."""
    # A letter that is stored meanwhile has a higher seq, and stays in the list.
    body = DeadLettersCleared(up_to=context.log.last())
    draft = _draft(context, caller, DEAD_CLEARED, body)
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


def _check_owner(context: Context, caller: Caller, agent: str, *, allows_operator: bool = False) -> None:
    """Refuse a caller that is not the agent; an operator may manage the sessions of others."""
    if caller.name == agent:
        require_mailbox(caller)
    elif not (allows_operator and can(caller.standing, Standing.OPERATOR)):
        raise NotYou(agent, caller.name)
    if agent != HUMAN and context.directory.get(agent) is None:
        raise UnknownRecipient({agent: context.directory.nearest(agent)})


def _own_paths(context: Context, agent: str) -> tuple[str, ...]:
    """Return the paths to which an agent is subscribed automatically; none for the person."""
    return () if agent == HUMAN else context.directory.paths_of(agent)


async def _commit(context: Context, agent: str, decide: Decide, key: bytes | None) -> Written:
    return Written(event=(await context.log.commit(f"paths/{agent}", decide, request_key=key)).event)


def _draft(
    context: Context, caller: Caller, type: str, body: EventBody, *, id_: str = "", now: int = 0
) -> Draft:
    return Draft(
        type=type,
        sender=caller.name,
        payload=msgspec.to_builtins(body),
        id=id_ or context.ids.next(),
        ts=now or context.clock.now_ms(),
        by=caller.by,
    )


# --------------------
# Import the data of another path broker. Its agents, sessions and subscriptions become events with ids that
# are made from their names, and a message keeps its id: a repeat is the same event, also after a crash.


async def migrate(context: Context, caller: Caller, request: Migrate, key: bytes | None) -> MigrationResult:
    """Store everything that is not here yet, and change nothing that is.

    A part that cannot be stored is named in the result, and the others are stored. Nothing reacts to the
    events.
    """
    require_person(caller, "import messages")
    writer = _Migration(context, caller, context.clock.now_ms(), [])
    # In this order, because each part is refused if the agent that it names is not here.
    agents = await writer.count([(f"agent/{name}", writer.agent(name)) for name in request.agents])
    sessions = await writer.count([(f"paths/{one.agent}", writer.session(one)) for one in request.sessions])
    subscriptions = await writer.count(
        [(f"paths/{one.agent}", writer.subscription(one)) for one in request.subscriptions]
    )
    commits = await writer.write([(None, writer.message(one)) for one in request.messages])
    stored = [(one, commit) for one, commit in zip(request.messages, commits, strict=True) if commit]
    new = [one for one, commit in stored if not commit.is_repeat]
    dead = sum(not one.mailboxes for one in new)
    known = [(one, commit.event) for one, commit in stored if commit.is_repeat and commit.event]
    same = [(one, event) for one, event in known if _is_same(one, event)]
    # After the messages: those that waited in the other path broker start no automatic turn.
    auto_runs = await writer.count([order for one in request.auto_runs for order in writer.auto_run(one)])
    return MigrationResult(
        auto_runs=auto_runs,
        agents=agents,
        sessions=sessions,
        subscriptions=subscriptions,
        messages=len(new) - dead,
        dead=dead,
        known=len(same),
        taken=await _take_since(context, caller, same),
        different=tuple(one.id for one, event in known if not _is_same(one, event)),
        refused=tuple(writer.refused),
    )


@dataclass(frozen=True, slots=True)
class _Migration:
    """The decisions of one request.

    Each is made inside its commit, and returns None if nothing is missing.
    """

    context: Context
    caller: Caller
    now: int
    refused: list[str]

    async def count(self, orders: Sequence[Order]) -> int:
        """Write these, and return how many were new."""
        commits = await self.write(orders)
        return sum(one is not None and one.event is not None and not one.is_repeat for one in commits)

    async def write(self, orders: Sequence[Order]) -> list[Commit | None]:
        """Write these together; None for one that is refused."""
        found: list[Commit | None] = []
        for outcome in await self.context.log.commit_all(orders) if orders else ():
            # Only refusals concern one part. An error of the log ends the import, and a repeat continues it.
            if isinstance(outcome, RequestError):
                self.refused.append(str(outcome))
                found.append(None)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                found.append(outcome)
        return found

    def auto_run(self, one: MigratedAutoRun) -> list[Order]:
        """Return the commit of a configuration of automatic turns; none if it is refused."""
        request = SetAutoRun(agent=one.agent, session=one.session, value=one.value)
        try:
            return [auto_run_order(self.context, self.caller, request, only_new=True)]
        except BadRequest as error:
            self.refused.append(f"autoRun of {mailbox_of(one.agent, one.session)}: {error}")
            return []

    def agent(self, name: str) -> Decide:
        """Return the decision about an agent: it exists from then on, and is not running."""

        def decide(rows: Rows) -> Draft | None:
            if read_agent(rows, name) is not None:
                return None
            parts = split_name(name)
            check_name(parts.base, parts.tag)
            if full_name(parts.base, parts.tag) != name:
                raise BadRequest(f"{cut_name(name)!r} cannot be the name of a local agent")
            agent = Agent(
                name=name,
                base=parts.base,
                tag=parts.tag,
                device=self.context.log.device,
                state=AgentState.EXITED,
                detail=MIGRATED,
                since=self.now,
                joined=self.now,
                left=True,
            )
            return self._draft(LIFE, LifeChanged(action=MIGRATED, agent=agent), name, (), sender=name)

        return decide

    def session(self, session: MigratedSession) -> Decide:
        """Return the decision about a session."""

        def decide(rows: Rows) -> Draft | None:
            _check_agent(rows, session.agent)
            check_session(session.session)
            check_text(session.title, "the title", _LIMIT_TITLE_BYTES)
            known = read_agent_session(rows, session.agent, session.session)
            # The session main exists with its agent; only one without a title can get that of the source.
            if known is not None and (session.session != MAIN or known.title or not session.title):
                return None
            body = SessionCreated(
                agent=session.agent,
                session=session.session,
                title=session.title,
                created=session.created,
                used=session.used,
            )
            return self._draft(
                SESSION_CREATED, body, mailbox_of(session.agent, session.session), ("session",)
            )

        return decide

    def subscription(self, one: MigratedSubscription) -> Decide:
        """Return the decision about a path subscription. The agent's own path needs none."""
        mailbox = mailbox_of(one.agent, one.session)
        # Here and not in the decision, which may run in the writer's thread: the directory belongs to the
        # event loop.
        own = _own_paths(self.context, one.agent)

        def decide(rows: Rows) -> Draft | None:
            _check_agent(rows, one.agent)
            pattern = check_path(one.pattern)
            if one.session:
                check_session(one.session)
            elif pattern in own:
                return None
            if is_subscribed(rows, mailbox, pattern):
                return None
            _check_count(rows, one.agent)
            body = PathSubscribed(agent=one.agent, pattern=pattern, session=one.session, added=one.added)
            return self._draft(PATH_SUBSCRIBED, body, mailbox, ("path", pattern))

        return decide

    def message(self, message: MigratedMessage) -> Decide:
        """Return the decision about a message: one event with all its copies, or a dead letter."""

        def decide(rows: Rows) -> Draft:
            check_text(message.id, "the id", _LIMIT_ID_BYTES)
            if not is_migrated_sender(message.sender):
                raise BadRequest(
                    f"{cut_name(message.sender)!r} cannot be the sender of an imported message: it must be a "
                    "name or path of up to 128 characters, and not human, pal or system"
                )
            path = check_path(message.path)
            for mailbox in message.mailboxes:
                agent, session = split_mailbox(mailbox)
                _check_agent(rows, agent)
                if session:
                    check_session(session)
            payload = build_payload(
                text="",
                scope=PATH,
                sender_kind=EXTERNAL if read_agent(rows, message.sender) is None else INSTANCE,
                delivered_to=message.mailboxes,
                path=path,
                content=checked_content(
                    Content(
                        command=message.command,
                        payload=message.payload,
                        source=message.source,
                        external_id=message.external_id,
                    )
                ),
            )
            # It wakes no agent: it may be old, and many are imported at once. `migrated` lists the mailboxes
            # that have taken it already.
            payload |= {"wakes": [], "migrated": [one for one in message.mailboxes if one in message.taken]}
            if message.handled:
                payload["handled"] = {agent: list(found) for agent, found in message.handled.items()}
            if not message.mailboxes:
                payload["dead"] = [path]
            return Draft(
                type=MESSAGE,
                sender=message.sender,
                payload=payload,
                to=(format_address(Path(path=path)),),
                # Id and time of the source: by these a repeat is recognized, see `_is_same`.
                id=message.id,
                ts=message.ts,
            )

        return decide

    def _draft(
        self, type: str, body: EventBody, cause: str, parts: Sequence[str], *, sender: str = ""
    ) -> Draft:
        return Draft(
            type=type,
            sender=sender or self.caller.name,
            payload=msgspec.to_builtins(body),
            id=derived_id(cause, MIGRATED, *parts),
            ts=self.now,
            by=self.caller.name if sender else None,
        )


def _check_agent(rows: Rows, name: str) -> None:
    if read_agent(rows, name) is None:
        raise BadRequest(f"{cut_name(name)!r} is not an agent of this bus")


def _is_same(message: MigratedMessage, event: Event) -> bool:
    """Whether a stored event is this message: of the same time, and for the same mailboxes."""
    if not isinstance(event.body, MessageSent) or event.ts != message.ts:
        return False
    return set(event.body.delivered_to) == set(message.mailboxes)


async def _take_since(
    context: Context, caller: Caller, known: Sequence[tuple[MigratedMessage, Event]]
) -> int:
    """Write that copies which wait here have been taken in the other path broker since; return how many."""
    waiting: defaultdict[str, list[int]] = defaultdict(list)
    for message, event in known:
        for mailbox in message.taken:
            seen = _seen(mailbox, (event.seq,))
            if can_step(context.log.rows, seen, event.seq):
                waiting[mailbox].append(event.seq)
    for mailbox, seqs in waiting.items():
        await report(context, caller, ReportDelivery(report=_seen(mailbox, tuple(seqs))), None)
    return sum(map(len, waiting.values()))


def _seen(mailbox: str, seqs: tuple[int, ...]) -> DeliveryReport:
    return DeliveryReport(
        agent=mailbox, messages=seqs, state=State.SEEN, grade=Grade.HANDED, reason=TAKEN_BEFORE
    )


# --------------------
# Automatic turns: their configuration, start, end and skipping. One decision at a time for each session.
#
# The events of a turn and those of its messages are written together: a message is `submitted` when its turn
# starts, and `seen` when the result is stored.


async def set_auto_run(context: Context, caller: Caller, request: SetAutoRun, key: bytes | None) -> Written:
    """Write the configuration of an agent or session, unless it is the present one."""
    agent = context.directory.get(request.agent)
    if agent is None:
        raise UnknownRecipient({request.agent: context.directory.nearest(request.agent)})
    require_turns_of(caller, agent)
    if request.session:
        check_session(request.session)
    commit = await context.log.commit(*auto_run_order(context, caller, request), request_key=key)
    return Written(event=commit.event)


def auto_run_order(context: Context, caller: Caller, request: SetAutoRun, *, only_new: bool = False) -> Order:
    """Return the commit of a configuration. With `only_new`, one that is here already stays as it is."""
    check_auto_run(request.value)
    id_, now = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        session = request.session
        if session not in ("", MAIN) and read_agent_session(rows, request.agent, session) is None:
            raise NotFound(
                f"session {cut_name(session)} of {request.agent}",
                f"create it with 'pal session create {request.agent} {session}'",
            )
        old = read_auto_run(rows, request.agent, session)
        # With the type, because `True == 1` in Python.
        if (old == request.value and type(old) is type(request.value)) or (only_new and old is not None):
            return None
        body = SettingChanged(
            key=AUTO_RUN, value=request.value, old=old, agent=request.agent, session=session
        )
        payload = {**msgspec.to_builtins(body), "key": AUTO_RUN, "value": request.value, "old": old}
        return Draft(type=SETTING, sender=caller.name, payload=payload, id=id_, ts=now, by=caller.by)

    return f"auto_run/{request.agent}", decide


async def start_turn(context: Context, caller: Caller, request: StartTurn, key: bytes | None) -> Written:
    """Write the start of a turn, unless one runs already or none of its messages waits any more."""
    if request.text:
        check_text(request.text, "the text", LIMIT_BODY_BYTES)
    id_, now = request.id or context.ids.next(), context.clock.now_ms()
    # Read here, because a decision may run in the writer's thread and sees only rows.
    events = {one.seq: context.log.event(one.seq) for one in request.batch}

    def decide(rows: Rows) -> Draft | None:
        known = read_turn(rows, request.agent, request.session)
        batch = tuple(
            one
            for one in request.batch
            # A turn that a person starts also takes messages that were read already.
            if events[one.seq] is not None and (request.started_by or _is_waiting(rows, one))
        )
        if known.active or not (batch or request.started_by):
            return None
        chain = chain_of_batch(event for one in batch if (event := events[one.seq]) is not None)
        seqs = {one.seq for one in batch}
        # Messages of the failed batch may have been read meanwhile, so a part of it counts as the same batch.
        is_again = bool(known.failed_ms and seqs) and seqs <= {one.seq for one in known.batch}
        body = AutoTurnStarted(
            agent=request.agent,
            session=request.session,
            messages=tuple(one.seq for one in batch),
            mailboxes=tuple(one.mailbox for one in batch),
            attempt=known.attempt + 1 if is_again else 1,
            triage=request.triage,
            text=request.text,
            started_by=request.started_by,
            chain="" if chain is None else chain.id,
            hops=0 if chain is None else chain.hops,
        )
        return _turn_draft(AUTO_TURN, request.agent, body, id_, now)

    # The decision of each step runs after that of the start, in the same transaction: without a start the
    # messages stay where they are.
    def is_started(rows: Rows) -> bool:
        return bool(read_turn(rows, request.agent, request.session).active)

    steps = _steps(context, caller, request.batch, State.SUBMITTED, is_started)
    return await _write(context, request.agent, request.session, decide, steps)


async def finish_turn(context: Context, caller: Caller, request: FinishTurn, key: bytes | None) -> Written:
    """Write the result of a running turn; its messages are seen. A repeat writes nothing."""
    started, batch = _started(context, request.turn)
    id_, now = context.ids.next(), context.clock.now_ms()
    result = AutoTurnResult(
        agent=started.agent, session=started.session, turn=request.turn, text=request.text
    )

    def decide(rows: Rows) -> Draft | None:
        # By the seq of the turn: a late report must not end the turn that runs now.
        is_running = read_turn(rows, started.agent, started.session).active == request.turn
        return _turn_draft(AUTO_TURN_RESULT, started.agent, result, id_, now) if is_running else None

    steps = _steps(context, caller, batch, State.SEEN, _is_ended(started), grade=Grade.HANDED)
    return await _write(context, started.agent, started.session, decide, steps)


async def fail_turn(context: Context, caller: Caller, request: FailTurn, key: bytes | None) -> Written:
    """Write that a running turn failed. Its messages are queued again; after the last try they are held."""
    started, batch = _started(context, request.turn)
    is_held = started.attempt >= TRIES
    id_, now = context.ids.next(), context.clock.now_ms()
    error = AutoTurnError(
        agent=started.agent,
        session=started.session,
        turn=request.turn,
        error=request.error,
        attempt=started.attempt,
        held=is_held,
    )
    reason = failed_reason(request.turn, request.error)

    def decide(rows: Rows) -> Draft | None:
        is_running = read_turn(rows, started.agent, started.session).active == request.turn
        return _turn_draft(AUTO_TURN_ERROR, started.agent, error, id_, now) if is_running else None

    is_ended = _is_ended(started)
    steps = _steps(context, caller, batch, State.QUEUED, is_ended, reason="the automatic turn failed")
    # After the step to `queued`, because a submitted message cannot become held directly.
    if is_held:
        steps += _steps(context, caller, batch, State.HELD, is_ended, reason=reason, is_kept=True)
    written = await _write(context, started.agent, started.session, decide, steps)
    # After the commit, and only if this request wrote it: a repeat must not notify again.
    if is_held and written.event is not None:
        for one in batch:
            event = context.log.event(one.seq)
            if event is not None and (notice := held_notice(event, one.mailbox, reason)) is not None:
                await notify(context, SYSTEM_CALLER, notice, None)
    return written


async def skip_turn(context: Context, caller: Caller, request: SkipTurn, key: bytes | None) -> Written:
    """Write that a batch starts no turn. Its messages stay in their mailbox."""
    id_, now = context.ids.next(), context.clock.now_ms()
    body = TurnSkipped(
        agent=request.agent,
        session=request.session,
        messages=tuple(one.seq for one in request.batch),
        reason=request.reason,
        output=request.output,
    )

    def decide(rows: Rows) -> Draft | None:
        is_running = bool(read_turn(rows, request.agent, request.session).active)
        return None if is_running else _turn_draft(TURN_SKIPPED, request.agent, body, id_, now)

    return await _write(context, request.agent, request.session, decide, [])


def _started(context: Context, turn: int) -> tuple[AutoTurnStarted, tuple[BatchMessage, ...]]:
    event = context.log.event(turn)
    if event is None or not isinstance(event.body, AutoTurnStarted):
        raise NotFound(f"automatic turn #{turn}")
    return event.body, batch_of_start(event.body)


def _is_waiting(rows: Rows, message: BatchMessage) -> bool:
    found = find_mail(rows, message.mailbox, message.seq)
    return found is not None and found[1].state == State.QUEUED


def _is_ended(started: AutoTurnStarted) -> Callable[[Rows], bool]:
    return lambda rows: not read_turn(rows, started.agent, started.session).active


_FROM: Final = {State.SUBMITTED: State.QUEUED, State.HELD: State.QUEUED}
"""The state in which a message must be for a step; submitted for every other step."""


def _steps(
    context: Context,
    caller: Caller,
    batch: Sequence[BatchMessage],
    state: State,
    is_due: Callable[[Rows], bool],
    *,
    grade: str = "",
    reason: str = "",
    is_kept: bool = False,
) -> list[Order]:
    """Return one commit for each mailbox, which moves its messages if the turn has started or ended.

    `is_kept`: a person must release them, so no lane holds them.
    """
    orders: list[Order] = []
    # One commit for each mailbox, because an event of the ledger names one recipient.
    for mailbox in dict.fromkeys(one.mailbox for one in batch):
        step = DeliveryReport(
            agent=mailbox,
            messages=tuple(one.seq for one in batch if one.mailbox == mailbox),
            state=state,
            lane="" if is_kept else TURN_LANE,
            grade=grade,
            reason=reason,
        )
        on, decide = step_order(context, caller, step, only_from=_FROM.get(state, State.SUBMITTED))
        orders.append((on, _if_due(is_due, decide)))
    return orders


def _if_due(
    is_due: Callable[[Rows], bool], decide: Callable[[Rows], Draft | None]
) -> Callable[[Rows], Draft | None]:
    return lambda rows: decide(rows) if is_due(rows) else None


async def _write(
    context: Context,
    agent: str,
    session: str,
    decide: Callable[[Rows], Draft | None],
    steps: Sequence[Order],
) -> Written:
    """Write an event of a turn together with the steps of its messages."""
    # Together: after a crash, a running turn whose messages still wait would let another lane deliver them.
    first, *others = await context.log.commit_all([(f"turn/{mailbox_of(agent, session)}", decide), *steps])
    # Raised, because a result without an event would mean that the step was not due.
    for one in (first, *others):
        if isinstance(one, Exception):
            raise one
    assert not isinstance(first, Exception)  # raised above
    return Written(event=first.event)


def _turn_draft(type: str, agent: str, body: EventBody, id_: str, now: int) -> Draft:
    return Draft(type=type, sender=agent, payload=msgspec.to_builtins(body), id=id_, ts=now)
