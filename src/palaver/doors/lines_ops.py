"""What a program can ask over lines of JSON, put to the broker, the log and delivery. Knows no bytes."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, assert_never

import msgspec

from palaver.broker.lookup import find_message
from palaver.broker.outcome import Joined, Sent
from palaver.delivery.lane import Ability, Answer, Lane, LaneKind, Offer
from palaver.delivery.taker import Taker
from palaver.doors import lines_wire as wire
from palaver.doors.services import Services
from palaver.doors.views import agents_view, caller_view, message_view, receipts_view
from palaver.errors import BadRequest, NotFound, PalaverError, WhoAreYou
from palaver.links.link import Link
from palaver.log.follow import follow
from palaver.model.agent import Caller, standing_of_role
from palaver.model.delivery import Grade
from palaver.model.envelope import Envelope, Event, encode_event
from palaver.model.message import INSTANCE
from palaver.model.query import Query
from palaver.model.request import Acknowledge, Join, Leave, Put, Send, SetStatus
from palaver.model.text import LIMIT_INJECTION

Reply = Callable[[bytes], None]


class Session:
    """One connection's names, listeners, followers and lanes; all of them end with the link."""

    def __init__(self, services: Services, link: Link, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._link = link
        self._tasks = tasks
        self._listeners: dict[str, tuple[Taker, asyncio.Task[None]]] = {}
        self._lanes: dict[int, Lane] = {}
        self._numbers = count(1)
        self._work: set[asyncio.Task[None]] = set()
        self._callers: dict[str, Caller] = {}
        link.on_close(self._end)

    async def serve(self, op: wire.Op, reply: Reply) -> None:
        """Do one request and answer it. The one place of this door that catches refusals."""
        try:
            ok = await self._do(op)
        except PalaverError as error:
            reply(wire.error_line(op.req, error))
        else:
            reply(wire.answer_line(op.req, ok))

    async def _do(self, op: wire.Op) -> object:
        match op:
            case wire.SendOp():
                return await self._send(op)
            case wire.AckOp():
                return await self._ack(op)
            case wire.Whoami():
                return caller_view(self._services, self._caller(op.name))
            case wire.JoinOp():
                return await self._join(op)
            case wire.LeaveOp():
                return await self._leave(op)
            case wire.PutOp():
                return await self._put(op)
            case wire.ListenOp():
                return self._listen(op.name)
            case wire.UnlistenOp():
                return self._unlisten(op.name)
            case wire.StatusOp():
                request = SetStatus(state=op.state, detail=op.detail, tool=op.tool, file=op.file)
                await self._services.broker.submit(self._caller(op.name), request)
                return {}
            case wire.EventsOp():
                return await self._events(op)
            case wire.ListOp():
                return {"agents": agents_view(self._services)}
            case wire.ReceiptsOp():
                return receipts_view(self._services, find_message(self._services.log, op.message))
            case wire.LaneOp():
                return await self._open_lane(op)
            case wire.AnswerOp():
                return await self._answer(op)
            case _:
                assert_never(op)

    def _caller(self, name: str) -> Caller:
        """Who asks: the link itself, or one of the names it opened. Without a name, the only one it opened."""
        names = self._link.names
        if not name:
            if not names:
                return self._link.caller
            if len(names) > 1:
                raise WhoAreYou(
                    f"this connection opened several names ({', '.join(names)}): say which with `name`"
                )
            name = next(iter(names))
        if name not in names:
            if name == self._link.caller.name:
                return self._link.caller
            raise WhoAreYou(f"this connection has not opened the name {name}: join first")
        return self._callers[name]

    async def _join(self, op: wire.JoinOp) -> object:
        secret = op.secret or secrets.token_hex(16)
        request = Join(
            name=op.name,
            tag=op.tag,
            role=op.role,
            harness=op.harness,
            runtime=op.runtime,
            version=op.version,
            session=hashlib.sha256(secret.encode()).hexdigest(),
            has_link=True,
            takes_over=True,
        )
        joined = await self._services.broker.submit(self._link.caller, request)
        assert isinstance(joined, Joined)
        agent = joined.agent
        standing = min(standing_of_role(agent.role), self._link.caller.standing)
        is_known = agent.name in self._link.names
        self._link.open_name(agent.name, standing)
        self._callers[agent.name] = Caller(
            name=agent.name, standing=standing, kind=INSTANCE
        )
        if not is_known:
            self._services.presence.link_opened(agent.name)
        return {"name": agent.name, "secret": secret, "device": self._services.log.device}

    async def _leave(self, op: wire.LeaveOp) -> object:
        caller = self._caller(op.name)
        await self._services.broker.submit(caller, Leave(reason=op.reason))
        self._unlisten(caller.name)
        if caller.name in self._link.names:
            self._link.close_name(caller.name)
            self._services.presence.link_closed(caller.name)
        return {}

    async def _send(self, op: wire.SendOp) -> object:
        request = Send(
            text=op.text,
            to=op.to,
            has_mentions=op.mentions,
            intent=op.intent,
            thread=op.thread,
            reply_to=op.reply_to,
            priority=op.priority,
            expires_in_ms=op.expires_ms,
            id=op.id,
            bundle_id=op.bundle_id,
            is_confirmed=op.yes,
            is_dry_run=op.dry_run,
        )
        sent = await self._services.broker.submit(self._caller(op.name), request)
        assert isinstance(sent, Sent)
        return sent_view(sent)

    async def _put(self, op: wire.PutOp) -> object:
        request = Put(envelope=Envelope.from_json(bytes(op.envelope)))
        sent = await self._services.broker.submit(self._caller(op.name), request)
        assert isinstance(sent, Sent)
        return sent_view(sent)

    async def _ack(self, op: wire.AckOp) -> object:
        caller = self._caller(op.name)
        request = Acknowledge(messages=op.messages, lane="sdk", grade=Grade.ACKED)
        await self._services.broker.submit(caller, request)
        if (listener := self._listeners.get(caller.name)) is not None:
            listener[0].settled(op.messages)
        return {}

    # Pushes

    def _listen(self, name: str) -> object:
        caller = self._caller(name)
        if caller.kind != INSTANCE and caller.name != "human":
            raise WhoAreYou("a script has no mail of its own: join first")
        if caller.name not in self._listeners:
            taker = self._services.delivery.take(caller.name)
            self._listeners[caller.name] = taker, self._spawn(self._push_mail(caller.name, taker))
        return {}

    def _unlisten(self, name: str) -> object:
        listener = self._listeners.pop(name or self._caller(name).name, None)
        if listener is not None:
            listener[0].close()
            listener[1].cancel()
        return {}

    async def _push_mail(self, name: str, taker: Taker) -> None:
        while events := await taker.wait(LIMIT_INJECTION):
            for event in events:
                await self._push(wire.push_line("message", {"name": name, "message": message_view(event)}))

    async def _push(self, line: bytes) -> None:
        """Put a line into the outbox, waiting for room: the peer that does not read waits, and nobody else."""
        while not self._link.outbox.offer(line):
            if not await self._link.outbox.wait_for_room():
                raise asyncio.CancelledError

    async def _events(self, op: wire.EventsOp) -> object:
        query = Query(
            types=op.types,
            agents=op.agents,
            senders=op.senders,
            threads=op.threads,
            after=op.after,
            last=op.last,
            search=op.search,
            limit=max(1, min(op.limit, 10_000)),
        )
        if op.follow:
            if op.search:
                raise BadRequest("a search cannot be followed")
            self._spawn(self._push_events(op.req, query))
            return {"following": op.req}
        events = await self._services.log.read(query)
        return {"events": [encoded(event) for event in events], "last": self._services.log.last()}

    async def _push_events(self, req: int, query: Query) -> None:
        async for events in follow(self._services.log, query, after=query.after):
            for event in events:
                await self._push(wire.push_line("event", {"req": req, "event": encoded(event)}))

    # Lanes

    async def _open_lane(self, op: wire.LaneOp) -> object:
        caller = self._caller(op.name)
        if caller.kind != INSTANCE:
            raise WhoAreYou("only an agent has lanes: join first")
        number = next(self._numbers)
        try:
            kind = LaneKind[op.kind.upper()]
        except KeyError:
            raise BadRequest(
                f"the kinds of lane are {', '.join(kind.name.lower() for kind in LaneKind)}"
            ) from None
        ability = Ability(kind=kind, reaches_busy=op.reaches_busy, wakes_idle=op.wakes_idle)

        def carry(offer: Offer) -> None:
            messages = [message_view(event) for event in offer.events]
            fields = {"lane": number, "offer": offer.number, "name": caller.name, "messages": messages}
            self._spawn(self._push(wire.push_line("offer", fields)))

        recovered = [(outcome, _parse_answer(outcome.answer)) for outcome in op.outcomes]
        lane = self._services.delivery.open_lane(caller.name, ability, carry)
        self._lanes[number] = lane
        for outcome, answer in recovered:
            await self._services.delivery.recover(lane, outcome.messages, answer, grade=outcome.grade)
        return {"lane": number}

    async def _answer(self, op: wire.AnswerOp) -> object:
        lane = self._lanes.get(op.lane)
        if lane is None:
            raise NotFound(f"lane {op.lane}", "this connection has not opened it")
        await self._services.delivery.answer(
            lane, op.offer, _parse_answer(op.answer), grade=op.grade, reason=op.reason
        )
        return {}

    # The end

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _end(self) -> None:
        for taker, _ in self._listeners.values():
            taker.close()
        for task in list(self._work):
            task.cancel()
        for lane in self._lanes.values():
            self._tasks.create_task(self._services.delivery.close_lane(lane))
        for name in self._link.names:
            self._services.presence.link_closed(name)


def sent_view(sent: Sent) -> dict[str, object]:
    """Give what a sender is answered."""
    event = sent.event
    view: dict[str, object] = {} if event is None else {"seq": event.seq, "id": event.id}
    view |= {"to": list(sent.to), "delivered_to": list(sent.delivered_to)}
    if sent.empty_groups:
        view["empty_groups"] = list(sent.empty_groups)
    if sent.dead:
        view["dead"] = list(sent.dead)
    if sent.is_repeat:
        view["repeat"] = True
    if event is None:
        view["dry_run"] = True
    return view


def encoded(event: Event) -> msgspec.Raw:
    """Give an event as raw JSON inside a line."""
    return msgspec.Raw(encode_event(event))


def _parse_answer(word: str) -> Answer:
    try:
        return Answer(word)
    except ValueError:
        raise BadRequest(f"a lane answers {', '.join(Answer)}, not {word!r}") from None
