"""Everything that a person can do on the page, in the person's name.

Acts are requests to the broker. Only to end an agent, its holder is asked.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import msgspec

from palaver.broker.context import Sent, Written
from palaver.errors import NotPerson, PalaverError, error_from_wire
from palaver.protocol.address import parse_tag
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import body_as
from palaver.protocol.events import DeliveryReport, Grade, Seq
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import Acknowledge, Pause, Redeliver, Release, Request, Send, TagAgent, Unpause
from palaver.services.agents import STOP
from palaver.services.permissions import decide_permission
from palaver.services.services import Services
from palaver.services.views import sent_lines

PERSON: Final = Caller(name=HUMAN, standing=Standing.HUMAN, kind=HUMAN)
"""The person who signed the browser in."""
_STOP_S: Final = 30.0
"""Seconds that an agent may take to end."""

RequestKey = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
"""16 random bytes: an act that is repeated with the same key is done once.

A repeated `StopAgents` or `AnswerRequest` may be refused, because its agent or request has ended.
"""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=500)]


class PageAct(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """Base of all acts."""

    key: RequestKey


class SendText(PageAct, frozen=True, kw_only=True, tag="send"):
    """Send a message. A reply has `reply_to`; without recipients it goes to the author of that message."""

    text: str
    to: tuple[Name, ...] = ()
    thread: str = ""
    reply_to: str = ""
    priority: str = ""
    intent: str = ""


class ReleaseMessage(PageAct, frozen=True, kw_only=True, tag="release"):
    """Release a held message."""

    message: Name


class RedeliverMessage(PageAct, frozen=True, kw_only=True, tag="redeliver"):
    """Queue a message again for recipients that may not have it."""

    message: Name


class AnswerRequest(PageAct, frozen=True, kw_only=True, tag="answer"):
    """Approve or deny the permission request that was shown: `digest` is that of its whole input."""

    id: Name
    digest: Name
    is_allowed: bool


class PauseAgents(PageAct, frozen=True, kw_only=True, tag="pause"):
    """Deliver only interrupts to agents."""

    names: Names


class UnpauseAgents(PageAct, frozen=True, kw_only=True, tag="unpause"):
    """Deliver all messages to agents again."""

    names: Names


class StopAgents(PageAct, frozen=True, kw_only=True, tag="stop"):
    """End agents."""

    names: Names


class TagAgents(PageAct, frozen=True, kw_only=True, tag="tag"):
    """Put agents into the group of a tag; an empty tag removes them from their group."""

    names: Names
    tag: str


class MarkSeen(PageAct, frozen=True, kw_only=True, tag="seen"):
    """Mark messages to the person as seen. Others are ignored."""

    messages: Annotated[tuple[Seq, ...], msgspec.Meta(min_length=1, max_length=500)]


AnyAct = (
    SendText
    | ReleaseMessage
    | RedeliverMessage
    | AnswerRequest
    | PauseAgents
    | UnpauseAgents
    | StopAgents
    | TagAgents
    | MarkSeen
)


class ActResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of an act as a sentence, and for an act on several agents the result of each."""

    text: str
    seq: int = 0
    results: "tuple[NamedResult, ...]" = ()


class NamedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an act for one agent."""

    name: str
    is_done: bool
    text: str


class Acts:
    """Performs acts. A refusal is a PalaverError, and nothing was done, except perhaps after Unavailable."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def perform(self, act: AnyAct) -> ActResult:
        """Perform one act, and say what was done."""
        match act:
            case SendText():
                return await self._send(act)
            case ReleaseMessage():
                await self._submit(act, Release(message=act.message))
                return ActResult(text=f"#{self._seq(act.message)} is queued now")
            case RedeliverMessage():
                await self._submit(act, Redeliver(message=act.message))
                return ActResult(text=f"#{self._seq(act.message)} is queued again")
            case AnswerRequest():
                return await self._answer(act)
            case PauseAgents():
                return await self._for_each(act.names, lambda name: self._pause(act, name))
            case UnpauseAgents():
                return await self._for_each(act.names, lambda name: self._unpause(act, name))
            case StopAgents():
                return await self._for_each(act.names, self._stop)
            case TagAgents():
                return await self._for_each(act.names, lambda name: self._tag(act, name))
            case MarkSeen():
                return await self._mark_seen(act)

    async def _submit(self, act: PageAct, request: Request, part: str = "") -> object:
        """Submit one request of an act; `part` is what it is about, if there are several."""
        # An act on several agents has one key, but each of its requests needs its own.
        key = hashlib.sha256(bytes.fromhex(act.key) + part.encode()).digest()[:16]
        return await self._services.broker.submit(PERSON, request, key=key)

    def _seq(self, reference: str) -> int:
        return self._services.queries.message(reference).seq

    async def _send(self, act: SendText) -> ActResult:
        request = Send(
            text=act.text,
            to=act.to,
            thread=act.thread,
            reply_to=act.reply_to,
            priority=act.priority,
            intent=act.intent,
            is_confirmed=True,
        )
        sent = await self._submit(act, request)
        assert isinstance(sent, Sent)
        assert sent.event is not None
        text = "; ".join(sent_lines(sent, self._services.clock.now_ms))
        return ActResult(text=text, seq=sent.event.seq)

    async def _answer(self, act: AnswerRequest) -> ActResult:
        if not self._services.daemon.settings.now.web_approvals:
            raise NotPerson(
                "permission requests cannot be answered on the page: answer at a terminal with "
                f"'pal {'approve' if act.is_allowed else 'deny'} {act.id}', or allow it first with "
                "'pal config set web_approvals 1'"
            )
        one = await decide_permission(
            self._services.agents.permissions,
            act.id,
            digest=act.digest,
            is_allowed=act.is_allowed,
            submit=lambda request: self._submit(act, request),
            where="on the page",
        )
        decision = "allowed" if act.is_allowed else "denied"
        return ActResult(text=f"{decision}: {one.agent}, {one.text}")

    async def _mark_seen(self, act: MarkSeen) -> ActResult:
        request = Acknowledge(messages=act.messages, lane="web", grade=Grade.ACKED)
        written = await self._submit(act, request)
        assert isinstance(written, Written)
        moved = body_as(written.event, DeliveryReport).messages if written.event is not None else ()
        return ActResult(text=f"{len(moved)} marked as seen")

    # Acts on agents. Of several agents, one that fails stops no other.

    async def _for_each(self, names: tuple[str, ...], do: Callable[[str], Awaitable[str]]) -> ActResult:
        async def one(name: str) -> NamedResult:
            try:
                return NamedResult(name=name, is_done=True, text=await do(name))
            except PalaverError as error:
                return NamedResult(name=name, is_done=False, text=str(error))

        # Each name once: the second request of the same agent would have the same key.
        results = tuple(await asyncio.gather(*map(one, dict.fromkeys(names))))
        done = sum(one.is_done for one in results)
        return ActResult(text=f"{done} of {len(results)} done", results=results)

    async def _pause(self, act: PageAct, name: str) -> str:
        await self._submit(act, Pause(name=name), name)
        return "is paused: it gets only interrupts"

    async def _unpause(self, act: PageAct, name: str) -> str:
        await self._submit(act, Unpause(name=name), name)
        return "is no longer paused: it gets all messages"

    async def _tag(self, act: TagAgents, name: str) -> str:
        new = parse_tag(act.tag)
        await self._submit(act, TagAgent(name=name, tag=new), name)
        return f"has the tag {new}" if new else "has no tag"

    async def _stop(self, name: str) -> str:
        reply = await self._services.agents.holds.ask_once(name, STOP, limit_s=_STOP_S, by=HUMAN)
        if reply.error:
            raise error_from_wire(reply.error, reply.message, {})
        return f"has ended: {reply.ok.get('reason', 'ended')}"
