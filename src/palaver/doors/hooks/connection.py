"""`pal hook` on the Unix socket: one request, one reply, and the client's confirmation.

    client  R request with the input of the hook   A it has the reply, and now writes it out
    daemon  H reply, may be empty                  W wait up to this many seconds for the next frame
            M reply with messages in it, for a client that then leaves a file with the outcome

While a person is asked for a decision, W is repeated, so that no hook waits for a daemon that hangs. After
any error the reply is empty: a hook must never block its harness. A client that disconnects without A has
written nothing. A client that loses the daemon first repeats its request, with `r`, to the next daemon.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec

from palaver.broker.context import Joined
from palaver.doors.hooks.handler import HookHandler, HookReply
from palaver.errors import AlreadyJoined, BadRequest, PalaverError
from palaver.harness.claude.launch import has_waker
from palaver.harness.hooks import HookNews, HookStep, permission_answer
from palaver.harness.registry import profile_of, read_hook
from palaver.harness.setup import INSTALLED
from palaver.identity.caller import CallerClaim, CallerIdentifier, marks_of, who_joins
from palaver.identity.process import Peer, Process
from palaver.protocol.agents import INSTANCE, Caller
from palaver.protocol.events import request_digest
from palaver.protocol.requests import Join
from palaver.protocol.thin import FrameReader, ThinRequest, asked_from_bytes, frame
from palaver.services.evidence import HookRequest
from palaver.services.permissions import Pending, PermissionService
from palaver.services.services import Services
from palaver.services.views import free_session

_logger: Final = logging.getLogger("palaver.doors")

# --------------------
# Hooks that carry a permission request: which of them wait, which later hooks settle them, and the reply.
#
# The request and the decision themselves are in `palaver.services.permissions`.

_SETTLES_ALL: Final = frozenset(
    {HookStep.START, HookStep.PROMPT, HookStep.BATCH, HookStep.TURN_END, HookStep.END}
)
"""After these steps no permission request of the turn is open."""


class HookPermissions:
    """The hooks that wait for a person's decision."""

    def __init__(self, services: Services) -> None:
        self._requests = services.agents.permissions
        self._permissions = PermissionService(
            services.agents.permissions,
            broker=services.broker,
            queries=services.queries,
            clock=services.clock,
            settings=services.daemon.live,
        )

    def hear(self, caller: Caller, news: HookNews) -> None:
        """End the open requests that this hook shows to be settled: the user decided in the harness itself.

        The harness does not notify the hook that waits. A request that is ended too early does no harm: the
        harness asks its own user.
        """
        for pending in self._requests.all():
            is_own = pending.agent == caller.name and pending.session == news.session
            if is_own and _is_settled(pending, news):
                pending.leave()

    async def open(self, reply: HookReply) -> Pending | None:
        """Open the permission request of a hook; None if the hook must not wait."""
        news, caller = reply.news, reply.caller
        # Only some hooks of a harness can carry a decision: for the others there is no form of reply.
        can_carry = permission_answer(caller.harness, news.event, is_allowed=False, message="")
        if not can_carry or news.permission is None:
            return None
        try:
            return await self._permissions.take(caller, news.session, *_tool_and_input(news.permission))
        except BadRequest as refusal:  # The harness asks its own user instead.
            _logger.warning("%s", refusal)
            return None

    async def decision(self, reply: HookReply, pending: Pending) -> dict[str, object]:
        """Wait for a person's decision and return the reply for the harness; empty without a decision."""
        verdict = await self._permissions.verdict(pending)
        if verdict.is_allowed is None:
            return {}
        return permission_answer(
            pending.harness, reply.news.event, is_allowed=verdict.is_allowed, message=verdict.message
        )


def _tool_and_input(call: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return the name of the tool, and its input, from a tool call in a hook."""
    given = call.get("input")
    return str(call.get("tool") or ""), given if isinstance(given, Mapping) else {}


def _is_settled(pending: Pending, news: HookNews) -> bool:
    """Return whether a hook shows that a request is decided: its tool has run, or its turn went on."""
    if news.step in _SETTLES_ALL and not news.agent_id:  # The steps of a sub-agent say nothing about others.
        return True
    if news.result_of is None:
        return False
    return request_digest(news.session, *_tool_and_input(news.result_of)) == pending.digest


# --------------------
# Find the agent of a hook process: the one whose process runs the harness, not a session nested in it.
#
# A session without an agent joins when it starts, if its harness is found above the hook process. A session
# whose hooks or daemon were installed later joins at its next prompt.

_VERB: Final = "hook"
_SLOW_MARK: Final = "slow"
"""A file in the home, created by a hook that timed out. While it is new, other hooks wait only briefly."""


class HookAsking:
    """The handler of hooks that arrive from hook processes."""

    def __init__(self, services: Services, identifier: CallerIdentifier, handler: HookHandler) -> None:
        self._services = services
        self._identifier = identifier
        self.handler = handler
        self.permissions = HookPermissions(services)

    async def answer(self, peer: Peer, asked: ThinRequest) -> HookReply | None:
        """Return the reply; None if the hook belongs to no agent or cannot be read."""
        with suppress(OSError):
            # This daemon replies, so hooks may wait for it again.
            (self._services.daemon.home / _SLOW_MARK).unlink()
        # `pal hook HARNESS EVENT`, and a third argument if `pal install` wrote the command.
        arguments = asked.argv[asked.argv.index(_VERB) + 1 :] if _VERB in asked.argv else ()
        is_installed = arguments[2:] == (INSTALLED,)
        is_complete = len(arguments) == 2 or is_installed
        news = read_hook(arguments[0], arguments[1], asked.body) if is_complete else None
        if news is None:
            return None
        harness = arguments[0]
        chain = tuple(peer.chain(self._services.callers.seats.is_anchor))
        claim = CallerClaim(marks=marks_of(asked.environment), key=news.session)
        if self._identifier.is_forged(chain, claim, child=news.agent_id):
            return None
        caller = self._identifier.who(chain, claim)
        if caller.turn:
            return None  # The runner reports an automatic turn; its hooks must not touch an open session.
        if caller.kind != INSTANCE:
            caller = await self._join_session(peer, caller, claim, harness, news)
            news = replace(news, is_new=True)
        news = replace(news, is_woken=has_waker(harness, asked.environment))
        if caller.kind != INSTANCE or caller.harness != harness or self._is_inside(chain, caller, news):
            return None
        if caller.is_orphan:
            return None  # It must not get the messages that the reply may contain.
        if is_installed and self._services.broker.directory.is_launched(caller.name):
            return None  # Hooks from its launch report already; do not count each event twice.
        found = await self.handler.speakers.of(caller, news)
        if found is None:
            return None
        speaker, news = found  # The agent, or the sub-agent that the hook is about.
        self.permissions.hear(speaker, news)
        request = HookRequest(asked.key.hex(), is_repeat=asked.resume is not None)
        return await self.handler.answer(speaker, harness, news, request)

    async def _join_session(
        self, peer: Peer, caller: Caller, claim: CallerClaim, harness: str, news: HookNews
    ) -> Caller:
        """Let a session without an agent join, under its former name or a new one.

        Return the agent, or the caller unchanged if the session cannot join: the hook is of another step or
        of a sub-agent, the process has an agent already, or the harness does not run above it.
        """
        if news.step not in (HookStep.START, HookStep.PROMPT) or news.agent_id:
            return caller
        chain = tuple(peer.chain())  # All processes, as for `pal join`: a seat is chosen among them.
        try:
            anchor = self._identifier.anchor_of(chain, claim)
        except (AlreadyJoined, BadRequest):
            return caller
        if anchor.harness != harness:
            return caller
        session = free_session(self._services, harness, news.session)
        request = Join(harness=harness, seat=anchor.seat, session=session, cwd=news.cwd)
        joined = await self._services.broker.submit(who_joins(caller), request)
        assert isinstance(joined, Joined)
        return self._identifier.who(chain, claim)

    def _is_inside(self, chain: tuple[Process, ...], caller: Caller, news: HookNews) -> bool:
        """Return whether the hook is from another session of a harness that runs inside the agent.

        A process of a harness between the hook and the agent is not enough: some harnesses start through a
        second process of the same name. The session id tells the two cases apart. But the agent's own
        session can get a new id, for example by `/clear`: a start with another id is a nested session only
        if its source is `startup`.
        """
        anchored = self._services.callers.seats.nearest(chain)
        if anchored is None:
            return False
        between = chain[1 : anchored.index]
        environment_of = self._identifier.environments.look
        if not any(environment_of(process).harness for process in between):
            return False
        # The harness's own second process has the same marks as the first one and is its direct child.
        is_own = (
            len(between) == 1
            and environment_of(between[0]).marks == environment_of(chain[anchored.index]).marks
        )
        if is_own and profile_of(caller.harness).starts_twice:
            return False
        known = self._services.broker.directory.get(caller.name)
        if known is None or known.session in ("", news.session):
            return False
        return news.step is not HookStep.START or news.source == "startup" or bool(news.agent_id)


# --------------------
# The connection of one hook: its frames, the wait for a decision, and whether the reply was written out.

MAGIC: Final = b"PALH"
KEEP_S: Final = 5.0
"""Seconds between two W frames while a person is asked."""
_LIMIT_S: Final = 20
"""Seconds in a W frame: a client that receives nothing for this time ends."""
_encode: Final = msgspec.json.Encoder().encode


class HookConnection(asyncio.Protocol):
    """A connection that carries one hook."""

    def __init__(
        self,
        peer: Peer,
        asking: HookAsking,
        tasks: asyncio.TaskGroup,
        ended: Callable[["HookConnection"], None],
        *,
        keep_s: float = KEEP_S,
    ) -> None:
        self._peer = peer
        self._asking = asking
        self._tasks = tasks
        self._ended = ended
        self._keep_s = keep_s
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._has_asked = False
        self._unsettled: HookReply | None = None
        """The reply of which it is not known yet whether the client has written it out."""
        self._is_lost = False
        self._pending: Pending | None = None

    def attach(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Take over a transport, with the bytes that were read after the magic string."""
        self._transport = transport
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._reader.feed(data):
                self._on_frame(kind, payload)
        except PalaverError:
            self._send_reply(b"")

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R" and not self._has_asked:
            self._has_asked = True
            self._tasks.create_task(self._serve(asked_from_bytes(payload)))
        elif kind == b"A":
            self._settle(has_left=True)
            if self._pending is not None:
                self._pending.arrive(has_it=True)

    async def _serve(self, asked: ThinRequest) -> None:
        content, kind = b"", b"H"
        try:
            reply = await self._asking.answer(self._peer, asked)
            if reply is not None:
                content = _encode(reply.content) if reply.content else b""
                kind = b"M" if reply.offer is not None and b"M" in asked.can else kind
                self._unsettled = reply
                if not content:
                    content = await self._permission(reply)
        except PalaverError as error:
            _logger.info("no answer to a hook of process %d: %s: %s", self._peer.pid, error.code, error)
        finally:
            # Also after a bug: a hook without any reply would block its harness.
            self._send_reply(content, kind)
            if not content:  # There is nothing to write out, so the client sends no A.
                self._settle(has_left=True)
            elif self._is_lost:
                self._settle(has_left=False)

    async def _permission(self, reply: HookReply) -> bytes:
        """Let the hook wait for a person's decision on a permission request, if the setting is on."""
        pending = await self._asking.permissions.open(reply)
        if pending is None:
            return b""
        self._pending = pending
        if self._is_lost:
            pending.leave()
        blocked = self._settle(has_left=True)  # Report at once that the agent is blocked.
        keeping = self._tasks.create_task(self._keep_waiting())
        try:
            if blocked is not None:
                await asyncio.wait({blocked})  # Store it before the state that follows the decision.
            decision = await self._asking.permissions.decision(reply, pending)
        finally:
            keeping.cancel()
        return _encode(decision) if decision else b""

    async def _keep_waiting(self) -> None:
        """Tell the client to keep waiting, until cancelled."""
        while True:
            self._send(frame(b"W", struct.pack(">I", _LIMIT_S)))
            await asyncio.sleep(self._keep_s)

    def _settle(self, *, has_left: bool) -> asyncio.Task[None] | None:
        """Report once whether the client has written the reply out. The returned task stores it."""
        reply, self._unsettled = self._unsettled, None
        return None if reply is None else self._asking.handler.settle(reply, has_left=has_left)

    def _send_reply(self, content: bytes, kind: bytes = b"H") -> None:
        self._send(frame(kind, content))

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def part(self, closing_text: str | None) -> None:
        """End a connection without a request or with an open permission request. Others are nearly done."""
        if not self._has_asked or self._pending is not None:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once and drop unsent output."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._peer.close()
        self._ended(self)
        self._settle(has_left=False)
        if self._pending is not None:
            self._pending.leave()
