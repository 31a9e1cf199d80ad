"""The Unix door for programs: lines of JSON, many requests on one connection.

The requests are passed to the broker, the log and delivery. The last part reads and writes the lines.
"""

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, assert_never

import msgspec

from palaver.broker.context import Sent
from palaver.domain.rights import require, require_own_mail
from palaver.doors.connection import STOPS, IdentifyCaller, Link, Names, WaitingCalls
from palaver.doors.lines_holders import (
    AnchorOfSession,
    AskedOnLines,
    Companions,
    Holding,
    Lanes,
    RunnerRequests,
    See,
)
from palaver.doors.tools import TOOLS, Tool, ToolRequest, run_tool
from palaver.errors import BadRequest, PalaverError, ShuttingDown, TooSlow, Unavailable, WhoAreYou
from palaver.protocol import lines as holder
from palaver.protocol import lines as program
from palaver.protocol import lines as wire
from palaver.protocol.agents import INSTANCE, Caller, Standing
from palaver.protocol.display import safe
from palaver.protocol.envelope import Event, decode_draft, encode_event
from palaver.protocol.events import Grade
from palaver.protocol.lanes import MailboxReader
from palaver.protocol.lines import (
    AccompanyOp,
    BridgeOp,
    BridgeRequest,
    HoldOp,
    JoinOp,
    LeaveOp,
    LineReader,
    NoticeOp,
    NoticeReply,
    Op,
    PathOp,
    PermissionOp,
    RouteOp,
    RunnerRequest,
    SendOp,
    SubBeginOp,
    SubEndOp,
    ToolOp,
    ViewOp,
    ViewRequest,
    error_line,
    op_from_json,
    req_of,
)
from palaver.protocol.message import EXTERNAL, HUMAN
from palaver.protocol.paths import Content, Migrate, check_network, external_sender, irc_path, route_result
from palaver.protocol.query import Query
from palaver.protocol.requests import Acknowledge, Put, RelayLine, Request, Send, SetStatus
from palaver.protocol.text import LIMIT_FRAME_BYTES, LIMIT_INJECTION
from palaver.protocol.views import AskPast
from palaver.services.past import PastProgress
from palaver.services.paths import PathService, Range, path_request
from palaver.services.results import AgentView
from palaver.services.services import Services
from palaver.services.view_hub import OpenView
from palaver.services.views import (
    agent_with_queue,
    agents_view,
    caller_view,
    message_view,
    receipts_view,
    sent_view,
)

# --------------------
# Tool calls of programs on one connection: the same tools, with the same results, as over MCP.

_WAITING: Final = frozenset(tool.name for tool in TOOLS if tool.is_waiting)


class ToolCalls:
    """The running calls. Those that only wait end with the connection, and when the daemon stops."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting = WaitingCalls()

    async def call(self, caller: Caller, op: ToolOp) -> dict[str, object]:
        """Run one call. Raises ShuttingDown for a wait that must be repeated at the next daemon."""

        async def who(tool: Tool) -> Caller:
            return caller

        asked = ToolRequest(tool=op.tool, arguments=op.arguments, who=who, cwd=op.cwd, key=_key_of(op))
        # Not cancelled with the connection: a call that changes something is finished once it has begun.
        if op.tool not in _WAITING:
            return await run_tool(self._services, TOOLS, asked)
        return await self._waiting.run(lambda: run_tool(self._services, TOOLS, asked))

    async def claim(self, caller: Caller, op: NoticeOp) -> NoticeReply:
        """Wait for the decision whether this view tells the person. Raises NotAllowed for other callers."""
        require(caller, Standing.HUMAN, "notice")
        notices = self._services.notices
        return await self._waiting.run(lambda: notices.claim(op.key, is_in_view=op.is_in_view))

    def end(self) -> None:
        """Cancel the calls that wait, and refuse new ones that would."""
        self._waiting.end()


# --------------------
# The requests of one connection, except those of holders.

Reply = Callable[[bytes], None]

LIMIT_FOREIGN_VIEWS: Final = 50
"""Open views of agents and scripts together: each one that does not read can use a few MiB."""
_LIMIT_EVENTS: Final = 10_000
_LIMIT_UNACKED: Final = 1_000
"""Unacknowledged messages that are pushed to one listener; further ones wait in the mailbox."""
_LIMIT_EVENTS_BYTES: Final = LIMIT_FRAME_BYTES // 2
_FAILED: Final = Unavailable("an internal error in the daemon; see daemon.log in its home")

_logger: Final = logging.getLogger("palaver.doors")


class LineSession:
    """One connection's names, listeners, followers and lanes; all of them end with the link."""

    def __init__(
        self,
        services: Services,
        link: Link,
        look: IdentifyCaller,
        see: See,
        tasks: asyncio.TaskGroup,
        anchor_of: AnchorOfSession,
    ) -> None:
        """`look` returns the current caller, `see` its processes, and `anchor_of` the anchor of its seat."""
        self._services = services
        self._link = link
        self._tasks = tasks
        self._names = Names(services, link, look)
        self._lanes = Lanes(services, self._push_soon)
        self._holding = Holding(
            services, self._names, self._lanes, see, self._control_soon, tasks.create_task
        )
        self._companions = Companions(services, self._names, see, anchor_of)
        self._asked = AskedOnLines(services, self._decision_soon, tasks.create_task)
        self._tools = ToolCalls(services)
        self._runner = RunnerRequests(services, see)
        self._listeners: dict[str, tuple[MailboxReader, asyncio.Task[None]]] = {}
        self._view: OpenView | None = None
        self._past: asyncio.Future[object] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._is_let_go = False
        link.on_close(self._end)

    async def serve(self, ops: Sequence[Op], reply: Reply) -> None:
        """Serve one request, or several sends and routes together, and always reply to each."""
        try:
            outcomes = await self._do_all(ops)
        except Exception as error:
            outcomes = [error] * len(ops)
        for op, outcome in zip(ops, outcomes, strict=True):
            reply(self._line_of(op, outcome))
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, PalaverError):
                raise outcome  # the daemon logs it

    async def _do_all(self, ops: Sequence[Op]) -> Sequence[object]:
        """Return the result of each request, or the exception that it raised."""
        if len(ops) == 1:
            return [await self._do(ops[0])]
        return await self._sent_all([op for op in ops if isinstance(op, program.SendOp | program.RouteOp)])

    def _line_of(self, op: Op, outcome: object) -> bytes:
        """Return the reply to a request from its result or exception."""
        if isinstance(outcome, PalaverError):
            verb, name = type(op).__name__, self._link.caller.name
            _logger.info("refused %s of %s: %s: %s", verb, name, outcome.code, safe(str(outcome)))
            return wire.error_line(op.req, outcome)
        if isinstance(outcome, Exception):
            return wire.error_line(op.req, _FAILED)
        return wire.answer_line(op.req, outcome)

    async def _do(self, op: Op) -> object:
        if isinstance(op, PathOp):
            return await _on_path(self._services.paths, self._names.caller(op.name), op)
        if isinstance(op, BridgeRequest):
            return await _on_bridge(self._services, self._names.caller(op.name), op)
        if isinstance(op, ViewRequest):
            return await self._on_view(self._names.caller(op.name), op)
        if isinstance(op, RunnerRequest):
            return await self._runner.serve(self._names.caller(op.name), op)
        match op:
            case program.SendOp():
                return await self._sent(op.name, _send_from(op))
            case program.AckOp():
                return await self._ack(op)
            case program.WhoamiOp():
                return caller_view(self._services, self._names.caller(op.name))
            case program.JoinOp():
                return await self._names.join(op)
            case program.LeaveOp():
                left = await self._names.leave(op)
                self._unlisten(left)
                await self._lanes.close(left)
            case program.PutOp():
                return await self._sent(op.name, Put(envelope=decode_draft(bytes(op.envelope))))
            case program.ListenOp():
                self._listen(op.name)
            case program.UnlistenOp():
                self._unlisten(self._names.caller(op.name).name)
            case program.StatusOp():
                request = SetStatus(
                    state=op.state, detail=op.detail, tool=op.tool, command=op.command, file=op.file
                )
                await self._holding.report(op.name, request)
            case program.EventsOp():
                return await self._events(op)
            case program.ToolOp():
                return await self._tools.call(self._names.caller(op.name), op)
            case program.ListOp():
                return {"agents": await _agents(self._services, op.agent)}
            case program.ReceiptsOp():
                return await receipts_view(self._services, self._services.queries.message(op.message))
            case program.NoticeOp():
                return await self._tools.claim(self._names.caller(op.name), op)
            case holder.LaneOp():
                return await self._lanes.open(self._names.caller(op.name), op)
            case holder.AnswerOp():
                await self._lanes.answer(op)
            case holder.HoldOp():
                return await self._holding.hold(op)
            case holder.GateOp():
                self._holding.gate(op)
            case holder.TypedOp():
                await self._holding.typed(op)
            case holder.TellOp():
                self._holding.tell(op)
            case holder.SubBeginOp():
                return await self._names.begin_subagent(op)
            case holder.SubEndOp():
                if ended := await self._names.end_subagent(op):
                    await self._lanes.close(ended)
            case holder.AccompanyOp():
                return await self._companions.accompany(op)
            case holder.PermissionOp():
                return await self._asked.hear(self._names.caller(op.name), op)
            case _:
                assert_never(op)
        return {}

    async def _submit(self, name: str, request: Request) -> object:
        return await self._services.broker.submit(self._names.caller(name), request)

    async def _sent(self, name: str, request: Send | Put) -> object:
        sent = await self._submit(name, request)
        assert isinstance(sent, Sent)
        return sent_view(sent)

    async def _sent_all(self, ops: Sequence[program.SendOp | program.RouteOp]) -> Sequence[object]:
        """Submit messages that arrived together. They share one commit; each has its own outcome."""
        # A caller that cannot be identified must not keep the others from sending.
        callers = {name: self._find_caller(name) for name in {op.name for op in ops}}
        requests = [_request_of(callers[op.name], op) for op in ops]
        good = [one for one in requests if not isinstance(one, PalaverError)]
        sent = iter(await self._services.broker.submit_sends(good))
        outcomes = [one if isinstance(one, PalaverError) else next(sent) for one in requests]
        return [
            _sent_line(op, outcome) if isinstance(outcome, Sent) else outcome
            for op, outcome in zip(ops, outcomes, strict=True)
        ]

    def _find_caller(self, name: str) -> Caller | PalaverError:
        try:
            return self._names.caller(name)
        except PalaverError as error:
            return error

    async def _ack(self, op: program.AckOp) -> object:
        caller = self._names.caller(op.name)
        request = Acknowledge(messages=op.messages, lane=op.lane, grade=Grade.ACKED)
        await self._services.broker.submit(caller, request)
        if (listener := self._listeners.get(caller.name)) is not None:
            listener[0].settled(op.messages)
        return {}

    # Pushes

    def _listen(self, name: str) -> None:
        caller = self._names.caller(name)
        if caller.kind not in (INSTANCE, HUMAN):
            raise WhoAreYou("a script has no mailbox: join first")
        require_own_mail(caller)
        if caller.name not in self._listeners:
            reader = self._services.delivery.take(caller.name, window=_LIMIT_UNACKED, is_pushed=True)
            self._listeners[caller.name] = reader, self._spawn(self._push_mail(caller.name, reader))

    def _unlisten(self, name: str) -> None:
        if (listener := self._listeners.pop(name, None)) is not None:
            listener[0].close()
            listener[1].cancel()

    async def _push_mail(self, name: str, reader: MailboxReader) -> None:
        while events := await reader.wait(LIMIT_INJECTION):
            for event in events:
                fields = {"name": name, "message": message_view(event, name)}
                await self._push(wire.push_line("message", fields))

    def _control_soon(self, fields: Mapping[str, object]) -> None:
        self._push_soon(wire.push_line("control", fields))

    def _decision_soon(self, fields: Mapping[str, object]) -> None:
        self._push_soon(wire.push_line("decision", fields))

    def _push_soon(self, line: bytes) -> None:
        self._spawn(self._push(line))

    async def _push(self, line: bytes) -> None:
        """Put a line into the outbox, and wait while it is full. A slow peer delays only its own pushes."""
        while not self._link.outbox.offer(line):
            if not await self._link.outbox.wait_for_room():
                raise asyncio.CancelledError  # the peer has disconnected: end this task without an error

    async def _events(self, op: program.EventsOp) -> object:
        query = Query(
            types=op.types,
            agents=op.agents,
            senders=op.senders,
            threads=op.threads,
            rooms=op.rooms,
            after=op.after,
            last=op.last,
            search=op.search,
            limit=max(1, min(op.limit, _LIMIT_EVENTS)),
            with_imported=not op.follow,  # a follower may act on events, and these are only history
        )
        if op.follow:
            if op.search:
                raise BadRequest("search and follow cannot be used together; choose one")
            self._spawn(self._push_events(op.req, query))
            return {"following": op.req}
        events = await self._services.queries.read(query)
        is_backwards = op.last is not None
        # From the end that was asked for: if not all events fit into the reply, the others are left out.
        # In a thread, because ten thousand events take too long for the event loop.
        lines = await asyncio.to_thread(_fitting, events[::-1] if is_backwards else events)
        if is_backwards:
            lines.reverse()
        view: dict[str, object] = {"events": lines, "last": self._services.queries.last()}
        if len(lines) < len(events):
            view["more"] = True
        return view

    async def _push_events(self, req: int, query: Query) -> None:
        async for events in self._services.queries.follow(query, after=query.after):
            for event in events:
                fields = {"req": req, "event": msgspec.Raw(encode_event(event))}
                await self._push(wire.push_line("event", fields))

    # Views

    async def _on_view(self, caller: Caller, op: ViewRequest) -> object:
        live = self._services.live
        if not isinstance(op, ViewOp):
            answering = live.answer(op.ask, partial(self._push_progress, op.req))
            return await (self._replace_past(answering) if isinstance(op.ask, AskPast) else answering)
        if self._view is not None:
            raise BadRequest("this connection has a view already: open another connection for another view")
        me = HUMAN if caller.is_person else caller.name
        if me != HUMAN and live.foreign >= LIMIT_FOREIGN_VIEWS:
            raise BadRequest(
                f"the limit of {LIMIT_FOREIGN_VIEWS} open views of agents and scripts is reached; close one"
            )
        view = self._view = live.open(op.after, op.epoch, me=me)
        try:
            first = await anext(view)
        except StopAsyncIteration:
            raise ShuttingDown(STOPS) from None
        self._spawn(self._push_records(view))
        return msgspec.Raw(first.data)

    async def _replace_past(self, answering: Coroutine[None, None, object]) -> object:
        """Await a snapshot of the past; an older one that this connection waits for is given up.

        A person who holds an arrow key, or chooses another time, wants only the newest one.
        """
        if self._past is not None:
            self._past.cancel()
        task = self._past = asyncio.ensure_future(answering)
        try:
            return await task
        except asyncio.CancelledError:
            # Only the inner task was cancelled, so this request still gets a reply.
            if self._past is not task:
                raise TooSlow(
                    "a newer question about the past on this connection has replaced this one"
                ) from None
            task.cancel()
            raise
        finally:
            if self._past is task:
                self._past = None

    def _push_progress(self, req: int, progress: PastProgress) -> None:
        self._push_soon(wire.push_line("past", {"req": req, "at": progress.at, "seq": progress.seq}))

    async def _push_records(self, view: OpenView) -> None:
        """Push each record when the last one was written: the rest waits in the view, which limits it."""
        while await self._link.outbox.wait_until_empty():
            try:
                record = await anext(view)
            except (StopAsyncIteration, PalaverError):
                break
            await self._push(record.line)
        if not self._is_let_go:  # The client connects again, and continues.
            self._link.outbox.end()

    # The end

    def hang_up(self) -> None:
        """Cancel the requests that only wait, because the peer has disconnected. Others continue."""
        self._tools.end()
        self._runner.end()

    def let_go(self) -> None:
        """Keep lanes and names when the daemon stops, so that holders can resume them with the next one."""
        self._is_let_go = True
        if self._view is not None:
            self._view.close()
        self._tools.end()
        self._runner.end()
        self._asked.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _end(self) -> None:
        self._tools.end()
        self._runner.close()
        self._asked.close()
        for reader, _ in self._listeners.values():
            reader.close()
        if self._view is not None:
            self._view.close()
        for task in list(self._work):
            task.cancel()
        self._holding.close()
        if not self._is_let_go:
            self._names.close()
            if self._lanes.has_any:
                self._tasks.create_task(self._lanes.close())


# --------------------
# Requests about paths. A caller acts for its own agent; it may read about others.


async def _on_path(paths: PathService, caller: Caller, op: PathOp) -> object:
    match op:
        case program.RouteOp():
            return (await paths.route(caller, op.path, _content_of(op), id=op.id)).result
        case program.SubscribeOp():
            return await paths.subscribe(caller, caller.name, op.pattern, session=op.session)
        case program.UnsubscribeOp():
            return await paths.unsubscribe(caller, caller.name, op.pattern, session=op.session)
        case program.SubscriptionsOp():
            return {"subscriptions": paths.subscriptions(op.agent or caller.name, session=op.session)}
        case program.ReceiveOp():
            wanted, key = _range_of(op), _key_of(op)
            return {
                "messages": await paths.receive(
                    caller, caller.name, session=op.session, wanted=wanted, key=key
                )
            }
        case program.HistoryOp():
            agent = op.agent or caller.name
            return {"messages": await paths.history(agent, session=op.session, wanted=_range_of(op))}
        case program.DeadLettersOp():
            return {"messages": await paths.dead_letters(_range_of(op))}
        case program.ClearDeadLettersOp():
            await paths.clear_dead_letters(caller, key=_key_of(op))
            return {}
        case program.MigrateOp():
            return await paths.migrate(caller, _migrate_from(op))
        case _:
            assert_never(op)


# --------------------
# Requests of a bridge. A sender on another network is external, whatever its nick is.


async def _on_bridge(services: Services, caller: Caller, op: BridgeRequest) -> object:
    require(caller, Standing.WORKER, "bridge")
    network = check_network(op.network)
    if isinstance(op, BridgeOp):
        services.broker.directory.serve_network(network)
        return {}
    request = RelayLine(
        text=op.text,
        nick=op.nick,
        path=irc_path(network, op.channel) if op.channel else "",
        recipient=op.to,
        id=op.id,
    )
    sender = Caller(
        name=external_sender(network, op.nick), standing=Standing.EXTERNAL, kind=EXTERNAL, by=caller.name
    )
    sent = await services.broker.submit(sender, request)
    assert isinstance(sent, Sent)
    return sent_view(sent)


def _content_of(op: program.RouteOp) -> Content:
    return Content(command=op.command, payload=op.payload, source=op.source, external_id=op.external_id)


def _migrate_from(op: program.MigrateOp) -> Migrate:
    return Migrate(
        agents=op.agents,
        sessions=op.sessions,
        subscriptions=op.subscriptions,
        messages=op.messages,
        auto_runs=op.auto_runs,
    )


def _range_of(op: program.ReceiveOp | program.HistoryOp | program.DeadLettersOp) -> Range:
    return Range(limit=op.limit, since=op.since, until=op.until)


def _key_of(op: ToolOp | program.ReceiveOp | program.ClearDeadLettersOp) -> bytes | None:
    return bytes.fromhex(op.key) if op.key else None


async def _agents(services: Services, name: str) -> list[AgentView]:
    if not name:
        return await agents_view(services)
    agent = services.broker.directory.get(name)
    if agent is None:
        return []
    return [await agent_with_queue(services, agent)]


def _request_of(
    caller: Caller | PalaverError, op: program.SendOp | program.RouteOp
) -> tuple[Caller, Send] | PalaverError:
    """Return the request of a message, or the refusal of its caller or of its path."""
    if isinstance(caller, PalaverError):
        return caller
    if isinstance(op, program.SendOp):
        return caller, _send_from(op)
    try:
        return caller, path_request(op.path, _content_of(op), id=op.id)
    except PalaverError as error:
        return error


def _sent_line(op: program.SendOp | program.RouteOp, sent: Sent) -> object:
    if isinstance(op, program.SendOp):
        return sent_view(sent)
    assert sent.event is not None  # it is not a dry run
    return route_result(sent.event.id, sent.delivered_to)


def _send_from(op: program.SendOp) -> Send:
    return Send(
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
        expects_reply=op.expects_reply,
    )


def _fitting(events: list[Event]) -> list[msgspec.Raw]:
    """Encode as many events as one line can hold, and at least one."""
    lines: list[msgspec.Raw] = []
    size = 0
    for event in events:
        line = encode_event(event)
        size += len(line)
        if lines and size > _LIMIT_EVENTS_BYTES:
            break
        lines.append(msgspec.Raw(line))
    return lines


# --------------------
# The connection of one program: its lines in, the replies out, and the order of its requests.
#
# Requests start in the order of arrival; each reply is sent when its request finishes. Requests after one
# that changes the names of the connection (`join`, `hold`, `leave` and others) wait until it is done, because
# it decides their caller; those after a `permission` wait because the next one may withdraw it. Bad input
# gets an error reply and the connection continues. A peer that does not read its replies, or sends requests
# faster than they are served, is not read from in the meantime.

_IN_ORDER: Final = (JoinOp, HoldOp, AccompanyOp, LeaveOp, SubBeginOp, SubEndOp, PermissionOp)
"""Requests that must be finished before the next one starts."""
_LIMIT_RUNNING: Final = 4096
"""Requests of one connection that run at once; further ones wait in order."""
_LIMIT_SENDS: Final = 64
"""Sends and routes that are served together.

They share a task and a commit, and take a few milliseconds of the loop.
"""


class LinesConnection(asyncio.Protocol):
    """The connection of one program."""

    def __init__(
        self,
        link: Link,
        session: LineSession,
        tasks: asyncio.TaskGroup,
        ended: Callable[["LinesConnection"], None],
    ) -> None:
        """`ended` is called when the connection is closed."""
        self._link = link
        self._session = session
        self._tasks = tasks
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._reader = LineReader()
        self._line: deque[Op] = deque()
        self._running = 0
        self._is_held_up = False
        self._is_last = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._overflow: deque[bytes] = deque()
        self._is_lost = False

    def attach(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take over a transport, with the bytes that were already read from it."""
        self._transport = transport
        self._tasks.create_task(self._write_out())
        self.data_received(first)

    # Requests

    def data_received(self, data: bytes) -> None:
        for line in self._reader.feed(data):
            if line is None:
                refusal = BadRequest(f"a line has at most {LIMIT_FRAME_BYTES} bytes; this one was dropped")
                self._answer(error_line(0, refusal))
            else:
                self._take(line)
        self._advance()

    def eof_received(self) -> bool:
        """Serve the requests that were read, then end the connection: the peer sends nothing more.

        If the peer has closed the connection completely, requests that only wait for a result are cancelled.
        """
        if self._reader.rest().strip():
            self._answer(error_line(0, BadRequest("the connection ended in the middle of a line")))
        self._is_last = True
        if self._has_hung_up():
            self._session.hang_up()
        self._advance()
        return True  # keep the connection: the replies are still to be written

    def _has_hung_up(self) -> bool:
        """Return whether the peer has closed both directions; the end of its input looks the same."""
        assert self._transport is not None
        looking = select.poll()
        # No events are named, because the system always reports POLLHUP and POLLERR.
        looking.register(self._transport.get_extra_info("socket").fileno(), 0)
        return any(found & (select.POLLHUP | select.POLLERR) for _, found in looking.poll(0))

    def finish(self) -> None:
        """Accept no more requests, reply to the running ones, and end. Called when the daemon stops."""
        self._session.let_go()
        # Requests that have not begun get no reply: the client sends them again to the next daemon.
        self._line.clear()
        self._is_last = True
        self._advance()

    def abort(self) -> None:
        """Close the connection at once and drop unsent output."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, line: bytes) -> None:
        try:
            self._line.append(op_from_json(line))
        except PalaverError as error:
            self._answer(error_line(req_of(line), error))

    def _advance(self) -> None:
        while self._line and not self._is_held_up and self._running < _LIMIT_RUNNING:
            ops = self._next_ops()
            self._running += len(ops)
            self._is_held_up = isinstance(ops[0], _IN_ORDER)
            self._tasks.create_task(self._run(ops))
        if self._is_last and not self._running and not self._line and not self._overflow:
            self._link.outbox.end()
        self._read_or_not()

    def _next_ops(self) -> list[Op]:
        """Remove the next request, and with a send or route all that follow it: they are served together."""
        ops = [self._line.popleft()]
        if _is_plain_send(ops[0]):
            while self._line and len(ops) < _LIMIT_SENDS and _is_plain_send(self._line[0]):
                ops.append(self._line.popleft())
        return ops

    async def _run(self, ops: list[Op]) -> None:
        try:
            await self._session.serve(ops, self._answer)
        finally:
            # Also after a bug: otherwise the later requests would wait without an end.
            self._running -= len(ops)
            if isinstance(ops[0], _IN_ORDER):
                self._is_held_up = False
            if self._line or self._is_last:
                self._advance()

    def _read_or_not(self) -> None:
        if self._transport is None or self._is_lost:
            return
        if self._overflow or self._line or self._is_last:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Replies: the outbox writes to this connection.

    def _answer(self, line: bytes) -> None:
        """Queue a reply. Replies are never dropped: while the outbox is full, nothing more is read."""
        # Not directly while others are in the overflow: a reply must not overtake them.
        if self._overflow or not self._link.outbox.offer(line):
            self._overflow.append(line)
            if len(self._overflow) == 1:
                self._read_or_not()
                self._tasks.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        while self._overflow and await self._link.outbox.wait_for_room():
            while self._overflow and self._link.outbox.offer(self._overflow[0]):
                self._overflow.popleft()
        self._overflow.clear()  # something is left only if the peer has disconnected
        self._advance()

    async def _write_out(self) -> None:
        await self._link.outbox.drain(self)
        if self._transport is not None:
            self._transport.close()

    def write(self, data: bytes, /) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def drain(self) -> None:
        await self._can_write.wait()
        if self._is_lost:
            raise ConnectionError("the other side has closed the connection")

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._can_write.set()
        self._line.clear()
        self._link.close()
        self._ended(self)


def _is_plain_send(op: Op) -> bool:
    return isinstance(op, RouteOp) or (isinstance(op, SendOp) and not op.dry_run)
