"""Messages by path: route, receive, history, subscriptions, sessions and dead letters. Shared by all doors.

A caller writes and takes only in its own name. Every caller may read: routing is not privacy.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from palaver.broker.broker import Broker
from palaver.broker.context import Outcome, Sent, Written
from palaver.domain.rights import require_mailbox, require_own_mail
from palaver.errors import BadRequest, NotFound, NotYou, cut_name
from palaver.log.api import EventKind
from palaver.protocol.address import check_path
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event, encode_event
from palaver.protocol.events import DeliveryReport, Grade, MessageSent, State
from palaver.protocol.lanes import Delivering
from palaver.protocol.message import HUMAN, MESSAGE
from palaver.protocol.paths import (
    AUTO_SUBSCRIBED,
    ClearDeadLetters,
    Content,
    CreateSession,
    DeadLetter,
    Delivered,
    Migrate,
    MigrationResult,
    PathSubscription,
    RemoveSession,
    RoutedMessage,
    Session,
    SubscribePath,
    SubscriptionResult,
    UnsubscribePath,
    dead_letter,
    mailbox_of,
    route_result,
    routed_message,
)
from palaver.protocol.query import Query
from palaver.protocol.requests import Acknowledge, Send
from palaver.protocol.text import LIMIT_FRAME_BYTES
from palaver.services.queries import Queries
from palaver.state.agents import read_entry
from palaver.state.paths import (
    read_agent_session,
    read_agent_sessions,
    read_cleared,
    read_path_subscriptions,
)
from palaver.state.rows import deliverable

DELIVERY: Final = "delivery"
RELEASED: Final = "released by "
"""Begin of the reason for which a message that a brake held is queued."""

LIMIT_MESSAGES: Final = 1000
DEFAULT_MESSAGES: Final = 100
_LIMIT_BYTES: Final = LIMIT_FRAME_BYTES // 2
"""Bytes of the messages that are returned together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """How many messages a reader wants, and from which time. Times are Unix ms, both ends included."""

    limit: int = DEFAULT_MESSAGES
    since: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.limit <= LIMIT_MESSAGES:
            raise BadRequest(f"limit must be between 0 and {LIMIT_MESSAGES}, not {self.limit}")

    def has(self, event: Event) -> bool:
        """Return whether an event is from the time of the range."""
        return (self.since is None or event.ts >= self.since) and (
            self.until is None or event.ts <= self.until
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMail:
    """A message that has just come to mailboxes."""

    seq: int
    """Of the event that brought it there: the message itself, or its release."""
    event: Event
    mailboxes: tuple[str, ...]
    """Sessions first."""


HearDelivery: TypeAlias = Callable[[NewMail], None]
"""Receives new mail. Must not raise and must not wait."""

ALL: Final = Range()


class PathService:
    """The use cases of paths. `services.paths` in every door."""

    def __init__(self, broker: Broker, queries: Queries, delivery: Delivering) -> None:
        self._broker = broker
        self._queries = queries
        self._delivery = delivery

    # Writing

    async def route(
        self,
        caller: Caller,
        path: str,
        content: Content,
        *,
        id: str = "",
        is_confirmed: bool = True,
        key: bytes | None = None,
    ) -> Delivered:
        """Send a message to a path. Without a subscriber it is a dead letter, which is not an error.

        With `is_confirmed` false, an agent under a harness cannot reach many agents by a path with wildcards.
        """
        request = path_request(path, content, id=id, is_confirmed=is_confirmed)
        sent = await self._broker.submit(caller, request, key=key)
        assert isinstance(sent, Sent)
        assert sent.event is not None  # it is not a dry run
        return Delivered(
            message=routed_message(sent.event),
            result=route_result(sent.event.id, sent.delivered_to),
            seq=sent.event.seq,
            is_repeat=sent.is_repeat,
        )

    async def subscribe(
        self, caller: Caller, agent: str, pattern: str, *, session: str = ""
    ) -> SubscriptionResult:
        """Subscribe an agent or one of its sessions to a pattern. A repeat changes nothing."""
        checked = as_pattern(pattern)
        request = SubscribePath(agent=agent, pattern=checked, session=session)
        await self._broker.submit(caller, request)
        is_own = not session and agent != HUMAN and checked in self._broker.directory.paths_of(agent)
        return self._subscribed(agent, session, checked, AUTO_SUBSCRIBED if is_own else "")

    async def unsubscribe(
        self, caller: Caller, agent: str, pattern: str, *, session: str = ""
    ) -> SubscriptionResult:
        """End a path subscription. A missing one is not an error."""
        checked = as_pattern(pattern)
        await self._broker.submit(caller, UnsubscribePath(agent=agent, pattern=checked, session=session))
        return self._subscribed(agent, session, checked)

    def _subscribed(self, agent: str, session: str, pattern: str, note: str = "") -> SubscriptionResult:
        found = self.subscriptions(agent, session=session)
        return SubscriptionResult(pattern=pattern, subscriptions=found, note=note)

    async def create_session(self, caller: Caller, request: CreateSession) -> Session:
        """Create a session, or change an existing one."""
        await self._broker.submit(caller, request)
        return self.session(request.agent, request.session)

    async def remove_session(
        self, caller: Caller, agent: str, session: str, *, key: bytes | None = None
    ) -> None:
        """Remove a session and its subscriptions. Raises NotFound."""
        await self._broker.submit(caller, RemoveSession(agent=agent, session=session), key=key)

    async def clear_dead_letters(self, caller: Caller, *, key: bytes | None = None) -> None:
        """Empty the list of dead letters. The messages stay in the log."""
        await self._broker.submit(caller, ClearDeadLetters(), key=key)

    async def migrate(self, caller: Caller, request: Migrate) -> MigrationResult:
        """Store a part of the data of another path broker; see `Migrate`. Only for a person."""
        done = await self._broker.submit(caller, request)
        assert isinstance(done, MigrationResult)
        return done

    # Taking

    async def receive(
        self,
        caller: Caller,
        agent: str,
        *,
        session: str = "",
        wanted: Range = ALL,
        key: bytes | None = None,
    ) -> list[RoutedMessage]:
        """Take the waiting messages of a mailbox, each once, in the order of `pal recv`.

        The same key again returns the messages that it took before. Fewer are taken if they do not fit into
        one frame.
        """
        self._check_own(caller, agent)
        mailbox = mailbox_of(agent, session)
        # The reader claims the messages that it hands out, so that no lane delivers them too.
        reader = self._delivery.take(mailbox, passes=wanted.has)
        try:
            waiting = _fitting(reader.poll(wanted.limit)) if wanted.limit else []
            events = await self._take(caller, session, waiting, key)
        finally:
            reader.close()
        return [routed_message(event, mailbox, State.SEEN) for event in events]

    async def _take(
        self, caller: Caller, session: str, waiting: Sequence[Event], key: bytes | None
    ) -> list[Event]:
        """Mark messages as seen, and return those that the written event names: with a known key, its own."""
        request = Acknowledge(
            messages=tuple(event.seq for event in waiting),
            session=session,
            lane="receive",
            grade=Grade.HANDED,
        )
        written: Outcome | None = None
        if waiting:
            written = await self._broker.submit(caller, request, key=key)
        # Nothing waits, but a repeated request must return the messages that its first call took.
        elif key is not None:
            written = await self._broker.outcome(Acknowledge, key)
        event = written.event if isinstance(written, Written) else None
        report = None if event is None else event.body
        # The key may be that of a request for another mailbox, whose messages must not be returned.
        if not isinstance(report, DeliveryReport) or report.agent != mailbox_of(caller.name, session):
            return []
        known = {one.seq: one for one in waiting}
        found = [known.get(seq) or await self._queries.fetch(seq) for seq in report.messages]
        return [one for one in found if one is not None]

    async def acknowledge(self, caller: Caller, agent: str, ids: Sequence[str], *, session: str = "") -> None:
        """Mark messages of a mailbox as seen, by their ids. Raises NotFound, and then marks none."""
        self._check_own(caller, agent)
        mailbox = mailbox_of(agent, session)
        # All ids are resolved before the request, so that one wrong id marks no message.
        seqs = tuple(self._seq_in(mailbox, id_) for id_ in ids)
        if seqs:
            request = Acknowledge(messages=seqs, session=session, lane="ack", grade=Grade.ACKED)
            await self._broker.submit(caller, request)

    def _seq_in(self, mailbox: str, id_: str) -> int:
        for event in self._queries.with_id(id_):
            if event.id == id_ and mailbox in _mailboxes_of(event):
                return event.seq
        raise NotFound(f"message {cut_name(id_)} in the mailbox {mailbox}", "nothing was acknowledged")

    def _check_own(self, caller: Caller, agent: str) -> None:
        require_mailbox(caller)
        if caller.name != agent:
            raise NotYou(agent, caller.name)
        require_own_mail(caller)

    # Reading

    async def history(
        self, agent: str, *, session: str = "", wanted: Range = ALL, with_seq: bool = False
    ) -> list[RoutedMessage]:
        """Return the messages that a mailbox has received, read and unread, the newest first."""
        mailbox = mailbox_of(agent, session)
        events = await self._newest(Query(targets=(mailbox,)), wanted)
        return [self._copy(event, mailbox, with_seq=with_seq) for event in events]

    async def dead_letters(self, wanted: Range = ALL) -> list[DeadLetter]:
        """Return the dead letters since the list was cleared, the newest first."""
        query = Query(types=(MESSAGE,), is_dead=True, after=read_cleared(self._queries.rows))
        return [dead_letter(event) for event in await self._newest(query, wanted)]

    async def _newest(self, query: Query, wanted: Range) -> list[Event]:
        if not wanted.limit:
            return []
        bounded = replace(query, since=wanted.since, until=wanted.until, last=wanted.limit)
        return _fitting((await self._queries.read(bounded))[::-1])

    def _copy(self, event: Event, mailbox: str, *, with_seq: bool = False) -> RoutedMessage:
        return routed_message(event, mailbox, self._state(event, mailbox), with_seq=with_seq)

    def _state(self, event: Event, mailbox: str) -> str:
        entry = read_entry(self._queries.rows, event.seq, mailbox)
        return State.QUEUED if entry is None else entry.state

    def subscriptions(self, agent: str, *, session: str = "") -> tuple[PathSubscription, ...]:
        """Return the path subscriptions of an agent or session, without the automatic one."""
        return read_path_subscriptions(self._queries.rows, mailbox_of(agent, session))

    def sessions(self, agent: str) -> tuple[Session, ...]:
        """Return the sessions of an agent, `main` first. Raises NotFound for an unknown agent."""
        self._check_agent(agent)
        return read_agent_sessions(self._queries.rows, agent)

    def session(self, agent: str, session: str) -> Session:
        """Return one session. Raises NotFound."""
        self._check_agent(agent)
        found = read_agent_session(self._queries.rows, agent, session)
        if found is None:
            raise NotFound(
                f"session {cut_name(session)} of {agent}", f"'pal session list {agent}' shows them"
            )
        return found

    def _check_agent(self, agent: str) -> None:
        if agent != HUMAN and self._broker.directory.get(agent) is None:
            raise NotFound(f"agent {cut_name(agent)}", "'pal list' shows the agents")

    # Following

    def watch(self, hear: HearDelivery) -> Callable[[], None]:
        """Call `hear` with each new message, once it is stored. Return a function that stops this.

        A message that a brake holds follows when it is released. `hear` must not raise and must not wait.
        """

        def hear_all(events: Sequence[Event]) -> None:
            for event in events:
                for mail in self._new_mail(event):
                    hear(mail)

        return self._queries.subscribe(hear_all, {MESSAGE, DELIVERY, EventKind.DELIVERED})

    def _new_mail(self, event: Event) -> Iterator[NewMail]:
        """Yield the messages that an event brings to mailboxes."""
        if not isinstance(report := event.body, DeliveryReport):
            if not _held_by(event):
                yield NewMail(seq=event.seq, event=event, mailboxes=_mailboxes_of(event))
        elif report.state == State.QUEUED and report.reason.startswith(RELEASED):
            for seq in report.messages:
                # Only one that a brake held when it was sent: all others were reported then.
                message = self._queries.event(seq)
                if message is not None and _held_by(message):
                    yield NewMail(seq=event.seq, event=message, mailboxes=(report.agent,))

    async def mail_after(self, mailbox: str, after: int) -> AsyncGenerator[tuple[int, RoutedMessage], None]:
        """Yield the messages of a mailbox after a seq that are stored by now, each with its seq, in order.

        Messages that a brake holds are left out.
        """
        async with aclosing(self._queries.pages(Query(targets=(mailbox,), after=after))) as pages:
            async for page in pages:
                for event in page:
                    # The log ignores the case of names, and ids of sessions may differ in nothing else.
                    is_own = mailbox in _mailboxes_of(event)
                    if is_own and not (_held_by(event) and self._state(event, mailbox) == State.HELD):
                        yield event.seq, self._copy(event, mailbox, with_seq=False)


def _fitting(events: Sequence[Event]) -> list[Event]:
    """Return as many events, from the first, as one frame can hold, and at least one."""
    size_bytes = 0
    for count, event in enumerate(events):
        size_bytes += len(encode_event(event))
        # Also a first event above the limit is returned; otherwise it would block the mailbox.
        if count and size_bytes > _LIMIT_BYTES:
            return list(events[:count])
    return list(events)


def path_request(path: str, content: Content, *, id: str = "", is_confirmed: bool = True) -> Send:
    """Return the request of `route`, for a door that submits several together. Raises BadRequest."""
    return Send(text="", to=(as_path(path),), content=content, id=id, is_confirmed=is_confirmed)


def as_path(path: str) -> str:
    """Return the canonical spelling of a path, in a form that is read as a path. Raises BadRequest."""
    if not path.strip("/"):
        raise BadRequest("path is required")
    # With the slash, so that no path is read as an address of another kind, such as a plain name.
    return f"/{check_path(path)}"


def as_pattern(pattern: str) -> str:
    """Return the canonical spelling of a pattern. Raises BadRequest."""
    if not pattern.strip("/"):
        raise BadRequest("pattern is required")
    return check_path(pattern)


def _mailboxes_of(event: Event) -> tuple[str, ...]:
    """Return the mailboxes that an event was stored for, each once; none for an event that cannot be read."""
    try:
        return deliverable(event).delivered_to
    except (ValueError, BadRequest):
        return ()


def _held_by(event: Event) -> str:
    """Return why a brake held a message when it was sent; empty if none did."""
    return event.body.held if isinstance(event.body, MessageSent) else ""
