"""The broker: the table of requests with the standing each one needs, and the path from request to event.

Only the broker decides and writes. It delivers nothing: others read the log.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.broker import (
    agents,
    archive,
    bundles,
    ledger,
    messages,
    paths,
    permissions,
    rooms,
    subscriptions,
    tasks,
)
from palaver.broker.context import Context, Outcome, Sent, Written
from palaver.clock import Clock
from palaver.domain.rights import Brakes, require
from palaver.domain.routing import Directory
from palaver.domain.stick import MemberPresence, Policy, Unattended
from palaver.errors import NotAllowed, RequestError
from palaver.ids import UlidSource
from palaver.log.api import Log
from palaver.protocol.agents import BeginSubagent, Caller, Standing
from palaver.protocol.bundles import CreateBundle
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    AGENT_TYPES,
    PATH_TYPES,
    AnswerPermission,
    ClosePermission,
    OpenPermission,
    PathSubscribed,
    PathUnsubscribed,
    SessionRemoved,
    SettingChanged,
)
from palaver.protocol.message import SYSTEM
from palaver.protocol.paths import (
    MAIN,
    ClearDeadLetters,
    CreateSession,
    Migrate,
    RemoveSession,
    SubscribePath,
    UnsubscribePath,
    mailbox_of,
    split_mailbox,
)
from palaver.protocol.requests import (
    Acknowledge,
    AddNote,
    Archive,
    ChangeSetting,
    Claim,
    CloseRoom,
    DaemonStarted,
    ExpireReservation,
    FireReminder,
    Gone,
    HandOn,
    Import,
    Join,
    JoinRoom,
    KickMember,
    Leave,
    LeaveRoom,
    Notify,
    PassStick,
    Pause,
    Put,
    Redact,
    Redeliver,
    Register,
    RelayLine,
    Release,
    ReleaseStick,
    ReportDelivery,
    Request,
    ResolveNote,
    RetireMember,
    Send,
    SetStatus,
    SetTopic,
    SetVerbosity,
    TagAgent,
    TakeOver,
    TellKick,
    Typed,
    Unpause,
)
from palaver.protocol.subscriptions import FireSubscription, FireWatch, Retire, Subscribe, Unsubscribe
from palaver.protocol.tasks import CompleteTask, CreateTask, UpdateTask
from palaver.protocol.turns import AUTO_RUN, FailTurn, FinishTurn, SetAutoRun, SkipTurn, StartTurn
from palaver.state.agents import read_agent, read_agents
from palaver.state.fold import agent_of
from palaver.state.paths import read_all_path_subscriptions
from palaver.state.turns import is_turn_on, read_auto_runs


def _written_by(context: Context, event: Event) -> Written:
    return Written(event=event)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: the verb for users, the standing it needs, and its handler."""

    verb: str
    needs: Standing
    handler: Callable[..., Awaitable[Outcome]]
    outcome_of: Callable[[Context, Event], Outcome | None] = _written_by
    """Returns the outcome of a request from the event it wrote earlier; None if that outcome has expired."""
    is_internal: bool = False
    """Only the bus itself can make it, whatever the standing of the caller."""
    is_for_guests: bool = False
    """Callers that may only read and write messages can make it, too."""


TABLE: Final[Mapping[type, Row]] = {
    Send: Row("send", Standing.GUEST, messages.send, messages.sent_by, is_for_guests=True),
    RelayLine: Row("relay", Standing.EXTERNAL, messages.relay, messages.sent_by, is_for_guests=True),
    Put: Row("put", Standing.GUEST, paths.put, messages.sent_by, is_for_guests=True),
    CreateBundle: Row("bundle create", Standing.GUEST, bundles.create, is_for_guests=True),
    CreateTask: Row("task create", Standing.GUEST, tasks.ask, messages.sent_by, is_for_guests=True),
    UpdateTask: Row("task update", Standing.GUEST, tasks.ask, messages.sent_by, is_for_guests=True),
    CompleteTask: Row("task complete", Standing.GUEST, tasks.ask, messages.sent_by, is_for_guests=True),
    JoinRoom: Row("room join", Standing.OBSERVER, rooms.join_room, rooms.seated_by, is_for_guests=True),
    LeaveRoom: Row("room leave", Standing.OBSERVER, rooms.leave_room),
    KickMember: Row("room kick", Standing.WORKER, rooms.kick_member),
    CloseRoom: Row("room close", Standing.OPERATOR, rooms.close_room),
    Claim: Row("stick claim", Standing.OBSERVER, rooms.claim, rooms.turn_by),
    ReleaseStick: Row("stick release", Standing.OBSERVER, rooms.release),
    PassStick: Row("stick pass", Standing.OBSERVER, rooms.pass_on),
    TakeOver: Row("stick takeover", Standing.OBSERVER, rooms.take_over, rooms.turn_by),
    AddNote: Row("note add", Standing.GUEST, rooms.add_note, is_for_guests=True),
    ResolveNote: Row("note resolve", Standing.GUEST, rooms.resolve_note, is_for_guests=True),
    HandOn: Row("hand on", Standing.HUMAN, rooms.hand_on, is_internal=True),
    ExpireReservation: Row("expire", Standing.HUMAN, rooms.expire, is_internal=True),
    RetireMember: Row("retire member", Standing.HUMAN, rooms.retire_member, is_internal=True),
    TellKick: Row("tell kick", Standing.HUMAN, rooms.tell_kick, is_internal=True),
    Join: Row("join", Standing.OBSERVER, agents.join, agents.joined_by, is_for_guests=True),
    Register: Row("join --remote", Standing.HUMAN, agents.register, agents.joined_by),
    Leave: Row("leave", Standing.OBSERVER, agents.leave),
    BeginSubagent: Row("begin", Standing.HUMAN, agents.begin_subagent, agents.joined_by, is_internal=True),
    SetStatus: Row("status set", Standing.OBSERVER, agents.set_status),
    Acknowledge: Row("ack", Standing.OBSERVER, ledger.acknowledge, is_for_guests=True),
    Redeliver: Row("redeliver", Standing.HUMAN, ledger.redeliver),
    Release: Row("release", Standing.HUMAN, ledger.release),
    ChangeSetting: Row("config set", Standing.HUMAN, permissions.change_setting),
    SetVerbosity: Row("irc verbosity", Standing.OPERATOR, permissions.set_verbosity),
    SetTopic: Row("irc topic", Standing.GUEST, permissions.set_topic, is_for_guests=True),
    TagAgent: Row("tag", Standing.OBSERVER, permissions.tag_agent),
    Redact: Row("redact", Standing.HUMAN, archive.redact, archive.redacted_by),
    Archive: Row("archive", Standing.OPERATOR, archive.archive),
    Import: Row("import", Standing.HUMAN, archive.import_events),
    Subscribe: Row("events sub", Standing.OBSERVER, subscriptions.subscribe),
    Unsubscribe: Row("events unsub", Standing.OBSERVER, subscriptions.unsubscribe),
    ReportDelivery: Row("report", Standing.HUMAN, ledger.report, is_internal=True),
    Notify: Row("notify", Standing.HUMAN, messages.notify, is_internal=True),
    Gone: Row("gone", Standing.HUMAN, agents.gone, is_internal=True),
    DaemonStarted: Row("started", Standing.HUMAN, agents.started, is_internal=True),
    FireSubscription: Row("hit", Standing.HUMAN, subscriptions.fire_subscription, is_internal=True),
    FireWatch: Row("watch", Standing.HUMAN, messages.fire_watch, is_internal=True),
    Pause: Row("pause", Standing.OPERATOR, permissions.pause),
    Unpause: Row("unpause", Standing.OPERATOR, permissions.unpause),
    Typed: Row("typed", Standing.HUMAN, permissions.record_typed, is_internal=True),
    AnswerPermission: Row("approve", Standing.HUMAN, permissions.answer),
    OpenPermission: Row("permission", Standing.HUMAN, permissions.ask, is_internal=True),
    ClosePermission: Row("close permission", Standing.HUMAN, permissions.close, is_internal=True),
    FireReminder: Row("nag", Standing.HUMAN, subscriptions.fire_reminder, is_internal=True),
    SubscribePath: Row("sub add", Standing.OBSERVER, paths.subscribe),
    UnsubscribePath: Row("sub rm", Standing.OBSERVER, paths.unsubscribe),
    CreateSession: Row("session create", Standing.OBSERVER, paths.create_session),
    RemoveSession: Row("session rm", Standing.OBSERVER, paths.remove_session),
    ClearDeadLetters: Row("dead --clear", Standing.WORKER, paths.clear_dead_letters),
    SetAutoRun: Row("turn set", Standing.WORKER, paths.set_auto_run),
    StartTurn: Row("start turn", Standing.HUMAN, paths.start_turn, is_internal=True),
    FinishTurn: Row("finish turn", Standing.HUMAN, paths.finish_turn, is_internal=True),
    FailTurn: Row("fail turn", Standing.HUMAN, paths.fail_turn, is_internal=True),
    SkipTurn: Row("skip turn", Standing.HUMAN, paths.skip_turn, is_internal=True),
    Migrate: Row("import messages", Standing.HUMAN, paths.migrate),
    Retire: Row("retire", Standing.HUMAN, subscriptions.retire, is_internal=True),
}


def _admit(caller: Caller, row: Row) -> None:
    """Refuse a request above the standing of the caller, and one that is not for guests."""
    require(caller, row.needs, row.verb)
    if caller.is_guest and not row.is_for_guests:
        raise NotAllowed(row.verb, caller.standing.word, Standing.WORKER.word)


class Broker:
    """Takes requests from the doors and the reactors. Requests may run concurrently."""

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        ids: UlidSource,
        is_present: Callable[[str], bool],
        draw: Callable[[], int],
        brakes: Brakes | None = None,
        member_presence: MemberPresence | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`draw` returns a random number, for names that the caller did not choose.

        Without brakes no message is held. Without `member_presence` no member counts as waiting.
        """
        self._log = log
        self.directory = Directory()
        self._context = Context(
            log=log,
            directory=self.directory,
            clock=clock,
            ids=ids,
            is_present=is_present,
            draw=draw,
            brakes=brakes or Brakes(limit_hops=0, limit_a_minute=0),
            member_presence=member_presence or Unattended(is_present),
            policy=policy or Policy(),
        )
        # Before the subscription, and without an await: no event is missed between the two.
        for agent in read_agents(log.rows):
            self.directory.put(agent)
        for mailbox, pattern in read_all_path_subscriptions(log.rows):
            self.directory.subscribe(mailbox, pattern)
        for name in {split_mailbox(key)[0] for key, _ in read_auto_runs(log.rows)}:
            self.directory.set_auto_run(name, is_on=is_turn_on(log.rows, name, MAIN))
        self._unsubscribe = log.subscribe(self._follow, AGENT_TYPES | PATH_TYPES)

    async def submit(self, caller: Caller, request: Request, *, key: bytes | None = None) -> Outcome:
        """Decide a request and write its events.

        On return the event is durable. The same request key returns the same outcome, written once. A refusal
        is raised and nothing was written, except for `RateLimited`: that message is stored and held.
        """
        row = TABLE[type(request)]
        # By kind, because a person has the same standing as the bus.
        if row.is_internal and caller.kind != SYSTEM:
            raise NotAllowed(row.verb, caller.standing.word, "the bus itself")
        _admit(caller, row)
        try:
            return await row.handler(self._context, caller, request, key)
        # Not for `Unavailable`: it says nothing about the request, and the caller repeats it with its key.
        except RequestError:
            # The request may be a repeat whose first attempt has succeeded: it must not be refused because
            # the state has changed since. For example, a member that has left a room cannot leave it again.
            outcome = None if key is None else await self.outcome(type(request), key)
            if outcome is None:
                raise
            return outcome

    async def submit_sends(self, requests: Sequence[tuple[Caller, Send]]) -> list[Sent | Exception]:
        """Decide several messages of one connection and write them together, in order.

        Return the outcome of each, or the exception that `submit` would raise for it. On return all written
        events are durable. None of the messages may be a dry run.
        """
        row = TABLE[Send]
        return await messages.send_all(self._context, requests, admit=lambda caller: _admit(caller, row))

    async def submit_status(self, caller: Caller, request: SetStatus, *, only_if: agents.OnlyIf) -> Written:
        """Write a status only if the condition holds for the agent as it is stored then.

        A decision on the directory would miss statuses that are being written. The condition is called after
        all statuses that were submitted before. It must be pure: it may be called again, and in another
        thread. The agent must not have left.
        """
        _admit(caller, TABLE[SetStatus])
        return await agents.set_status(self._context, caller, request, None, only_if=only_if)

    async def outcome(self, kind: type[Request], key: bytes) -> Outcome | None:
        """Return the outcome of a request if this key has written an event before; else None."""
        # A commit, not a read: an earlier attempt with this key may be stored and not readable yet.
        event = (await self._log.commit(None, lambda rows: None, request_key=key)).event
        return None if event is None else TABLE[kind].outcome_of(self._context, event)

    async def finish_redactions(self, forget: archive.Forget) -> dict[int, str]:
        """Finish redactions that a crash interrupted: see `archive.finish`.

        After any other end there is nothing to do.
        """
        return await archive.finish(self._context, forget)

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        """Update the directory from the state. Runs before the commit that wrote the events returns."""
        for event in events:
            match event.body:
                case PathSubscribed(agent=name, session=session, pattern=pattern):
                    self.directory.subscribe(mailbox_of(name, session), pattern)
                case PathUnsubscribed(agent=name, session=session, pattern=pattern):
                    self.directory.unsubscribe(mailbox_of(name, session), pattern)
                case SessionRemoved(agent=name, session=session):
                    self.directory.remove_session(mailbox_of(name, session))
                case SettingChanged(key=key, agent=str(name)) if key == AUTO_RUN:
                    self.directory.set_auto_run(name, is_on=is_turn_on(self._log.rows, name, MAIN))
            # From the rows, not from the event: several events about an agent may have been folded by now.
            is_news = event.type in AGENT_TYPES
            if is_news and (agent := read_agent(self._log.rows, agent_of(event))) is not None:
                self.directory.put(agent)
