"""The hook door: handles one hook of a harness, and the connection of `pal hook`."""

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from palaver.broker.broker import Broker
from palaver.errors import AlreadyJoined, BadRequest, PalaverError
from palaver.harness.base import instructions, subagent_instructions
from palaver.harness.claude.launch import has_waker
from palaver.harness.claude.output import seqs_in_notice
from palaver.harness.codex.launch import shell_tip
from palaver.harness.gemini.hooks import SUBAGENT_TOOL
from palaver.harness.hooks import THINKING, HookNews, HookStep, is_limited, permission_answer
from palaver.harness.registry import hook_answer_object, profile_of, read_hook
from palaver.harness.setup import INSTALLED
from palaver.home import find_pal
from palaver.identity.caller import CallerClaim, CallerIdentifier, marks_of, who_joins
from palaver.identity.process import Peer, Process
from palaver.protocol.agent_text import MessageLine, format_injection
from palaver.protocol.agents import INSTANCE, Agent, Caller, caller_for
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import AgentState, State, StatusChanged, request_digest
from palaver.protocol.lanes import WITHDRAWN, Delivering, Offer
from palaver.protocol.query import Query
from palaver.protocol.requests import DIALOG, Join, SetStatus
from palaver.protocol.thin import FrameReader, ThinRequest, asked_from_bytes, frame
from palaver.services.agents import Subagents, TranscriptBook
from palaver.services.evidence import (
    LIMIT_BLOCKS,
    Conversation,
    Conversations,
    HookOutcomes,
    HookRequest,
    is_state_of,
)
from palaver.services.permissions import Pending, PermissionService
from palaver.services.queries import Queries
from palaver.services.services import Services
from palaver.services.views import carried_lines, free_session
from palaver.state.agents import read_lane_entry, read_session, read_unsure

# --------------------
# The texts that hooks pass to a model: its messages. Pure.

LIMIT_TEXT: Final = 8000
"""Characters of messages in one hook. A harness moves more than about 10,000 into a file."""


def mail_text(lines: Sequence[MessageLine], *, hints: str = "") -> str:
    """Return messages as one fenced text for the agent. A message that is too long is cut and says so."""
    return format_injection(list(map(_cut, lines)), hints=hints) if lines else ""


def _cut(line: MessageLine) -> MessageLine:
    if len(line.text) <= LIMIT_TEXT:
        return line
    return replace(line, text=f"{line.text[:LIMIT_TEXT]}… (cut; all of it: pal show {line.seq})")


# --------------------
# Find the speaker of a hook in a session: the agent itself, or one of its sub-agents.
#
# A sub-agent has a separate conversation. Its hooks report its state, carry its messages and prove what it
# has read; none of that counts for its parent. Finding a known sub-agent costs no disk access.

_BEGINNINGS: Final = frozenset(
    {HookStep.START, HookStep.PROMPT, HookStep.CALL, HookStep.RESULT, HookStep.BATCH}
)
"""Steps that begin an unknown sub-agent. Its first hooks may have run while no daemon was running."""
_RETURNS: Final = frozenset({HookStep.START, HookStep.PROMPT, HookStep.CALL})
"""Steps that resume an ended sub-agent. Other hooks may only be late."""


class Speakers:
    """The search for the speaker of a hook. Use it only on the event loop's thread."""

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    async def of(self, caller: Caller, news: HookNews) -> tuple[Caller, HookNews] | None:
        """Return the speaker, and the hook as that agent's own; None for a sub-agent that does not run.

        A resumed sub-agent receives nothing at its start, because a harness does not pass that to the model
        again.
        """
        key = news.agent_id
        if not key:
            return caller, news
        known = self._subagents.find(caller.name, key)
        was_here = known is not None or self._subagents.was_here(caller.name, key)
        if known is None:
            if news.step not in (_RETURNS if was_here else _BEGINNINGS):
                return None
            known = await self._subagents.begun(caller.name, key, news.agent_type)
            if known is None:
                return None
        # An MCP server serves the whole session, and gets only this id from the harness. It shows later
        # which sub-agent has called a tool.
        if news.step is HookStep.CALL and news.call:
            self._subagents.calls(news.call, key)
        step = HookStep.ASIDE if news.step is HookStep.START and was_here else news.step
        # A wake of the session does not wake its sub-agents. A sub-agent found late gets its name late.
        own = replace(news, agent_id="", session=key, step=step, is_woken=False)
        return caller_for(known), replace(own, is_new=not was_here and step is not HookStep.START)

    async def ended(self, caller: Caller, news: HookNews) -> None:
        """End the sub-agent that speaks, or all of the speaker's sub-agents, if the hook says so."""
        if news.is_over:
            await self._subagents.left(caller.name, "done")
        elif news.is_alone:
            for agent in self._subagents.of(caller.name):
                await self._subagents.left(agent.name, f"{caller.name} ended its turn without it")


# --------------------
# Handle a hook, from any door: first the reply, then the events that follow from it.
#
# A reply without messages does not wait for the disk. Messages are stored as `submitted` before the reply
# leaves.

_logger: Final = logging.getLogger("palaver.doors")

_CARRIERS: Final = frozenset(
    {HookStep.START, HookStep.PROMPT, HookStep.RESULT, HookStep.BATCH, HookStep.TURN_END}
)
"""Steps whose reply can carry messages, if the hook takes a text."""
_LIMIT_TURN: Final = 1000
"""Status events of one turn that are searched."""
_NEW_CONTEXT: Final = frozenset({"clear", "resume", "startup"})
"""Sources of a start whose context contains no earlier texts."""

_NO_PROCESS: Final = HookRequest()
"""A hook that is not a separate process: its outcome is unknown after a crash."""


@dataclass(frozen=True, slots=True)
class HookReply:
    """The reply to a hook, and the facts to store once it is known whether the reply left."""

    content: dict[str, object]
    news: HookNews
    conversation: Conversation
    caller: Caller
    offer: Offer | None
    proven: frozenset[int]
    is_first: bool
    unconfirmed: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    key: str = ""
    """The request key, if the hook is a separate process."""


class HookHandler:
    """The handler of the hooks of agents. Use it only on the event loop's thread."""

    def __init__(
        self,
        *,
        queries: Queries,
        broker: Broker,
        delivery: Delivering,
        conversations: Conversations,
        transcripts: TranscriptBook,
        subagents: Subagents,
        outcomes: HookOutcomes,
        hints: Callable[[str], str],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """`hints` returns the text for an agent after each batch of messages; storing runs in `tasks`."""
        self._queries = queries
        self._broker = broker
        self._delivery = delivery
        self._conversations = conversations
        self._transcripts = transcripts
        self.speakers: Final = Speakers(subagents)
        self.outcomes: Final = outcomes
        self._hints = hints
        self._tasks = tasks

    async def answer(
        self, caller: Caller, harness: str, news: HookNews, request: HookRequest = _NO_PROCESS
    ) -> HookReply:
        """Return the reply for the harness. The caller must call `settle` once it has left or is lost.

        The caller and the hook are those that `speakers` has returned: a sub-agent's hook is its own.
        """
        begins = news.step is HookStep.START and news.source in _NEW_CONTEXT
        if begins:
            self._conversations.begin(caller.name)
        conversation = self._conversations.open(caller.name)
        with conversation.recovering() as is_first:
            await self.outcomes.recover(conversation, request, is_first=is_first, is_new=begins)
            proven, unconfirmed = conversation.hear(news)
            dropped = conversation.context_evidence.take_dropped() if news.is_failed else frozenset()
            if is_first and conversation.may_be_delegated:
                has_delegated = await self._has_delegated(caller.name)
                # Another hook may have cleared it during the await. It must stay cleared.
                conversation.may_be_delegated = conversation.may_be_delegated and has_delegated
            if news.step is HookStep.END:
                self._conversations.part(conversation)  # at once: the next may begin before this is stored
            if begins:
                await self._conversations.finish(caller.name)  # the instructions list unconfirmed messages
            await self._reclaim(conversation, news)
            for lane, number in conversation.natives.take_dropped():
                await self._delivery.end_silence(lane, number)
            context = self._context(conversation, news)
            # The hook of a failed tool takes no text, for example: the next one carries the messages.
            can_carry = news.step in _CARRIERS and bool(_content(harness, news, "text"))
            offer = await self._mail(conversation, news, request) if can_carry else None
            if offer is not None:
                context = [*context, self._text(caller.name, offer.events)]
            text = "\n\n".join(part for part in context if part)
            reply = _content(harness, news, text)
            return HookReply(
                reply, news, conversation, caller, offer, proven, is_first, unconfirmed, dropped, request.key
            )

    def settle(self, answer: HookReply, *, has_left: bool) -> asyncio.Task[None]:
        """Record whether the reply has left. This takes effect at once; the returned task stores it.

        Messages in an empty reply have not left: nothing was written out.
        """
        has_left = has_left and (answer.offer is None or bool(answer.content))
        if answer.offer is not None and has_left:
            answer.conversation.given(answer.offer, answer.news.step)
            if answer.key:
                self.outcomes.remember(answer.caller.name, answer.offer.seqs, answer.key)
        return self._tasks.create_task(self._write(answer, has_left=has_left))

    # Before the reply

    def _context(self, conversation: Conversation, news: HookNews) -> Sequence[str]:
        if news.step is HookStep.START:
            if news.source in _NEW_CONTEXT:
                conversation.context_evidence.forget()
            conversation.owes_instructions = news.is_deaf
            return () if news.is_deaf else (self._instructions(conversation.agent, news),)
        is_owed = conversation.owes_instructions and news.step is HookStep.PROMPT
        conversation.owes_instructions = conversation.owes_instructions and not is_owed
        texts = (self._instructions(conversation.agent, news),) if news.is_new or is_owed else ()
        if news.step is HookStep.PROMPT and (seqs := seqs_in_notice(news.prompt)):
            return (*texts, self._arrived(conversation, seqs))
        return texts

    def _instructions(self, name: str, news: HookNews) -> str:
        known = self._broker.directory.get(name)
        if known is not None and known.parent:
            return subagent_instructions(name, known.parent)
        is_woken = self._is_woken(name, news)
        text = instructions(name, unsure=read_unsure(self._queries.rows, name), is_woken=is_woken)
        is_codex = known is not None and known.harness == "codex"
        return f"{text}\n{shell_tip(find_pal())}" if is_codex else text

    def _is_woken(self, name: str, news: HookNews) -> bool:
        return news.is_woken or self._delivery.can_wake(name)

    def _arrived(self, conversation: Conversation, seqs: frozenset[int]) -> str:
        """Record messages that the monitor shows in this prompt. Return the full text of those it cut."""
        queries = self._queries
        entries = [(seq, read_lane_entry(queries.rows, seq, conversation.agent)) for seq in sorted(seqs)]
        ours = [seq for seq, entry in entries if entry is not None and entry.state == State.SUBMITTED]
        # A prompt can also quote notices to other agents, or old ones: these prove nothing.
        conversation.arrived(ours)
        cut = [event for seq in ours if seq in conversation.cut and (event := queries.event(seq))]
        return self._text(conversation.agent, cut)

    async def _reclaim(self, conversation: Conversation, news: HookNews) -> None:
        """Keep messages that were withdrawn, but are in a prompt after all, from going over another lane."""
        if news.step is not HookStep.PROMPT:
            return
        rows, agent = self._queries.rows, conversation.agent
        entries = [(seq, read_lane_entry(rows, seq, agent)) for seq in sorted(seqs_in_notice(news.prompt))]
        late = [
            seq
            for seq, entry in entries
            if entry is not None and entry.state == State.QUEUED and entry.reason == WITHDRAWN
        ]
        if late:
            await self._delivery.reclaim(conversation.lane, late)

    async def _mail(self, conversation: Conversation, news: HookNews, request: HookRequest) -> Offer | None:
        if news.is_deaf:
            return None
        # This hook may be of a sub-agent that looks like the session: its model would get the messages.
        if conversation.delegated or conversation.may_be_delegated:
            return None
        if conversation.may_overlap(news):
            return None
        delivery, lane = self._delivery, conversation.lane
        if news.step is HookStep.TURN_END:
            # Each reply with messages keeps the turn from ending. Without a limit it might never end.
            if news.stop_active or conversation.blocks >= LIMIT_BLOCKS:
                return None
            state = AgentState.IDLE
            return await delivery.draw(lane, state, limit_text=LIMIT_TEXT, request=request.at(news.step))
        if news.step is HookStep.START and self._is_woken(conversation.agent, news):
            return None  # it would stay unread until the user writes a prompt
        state = AgentState.ACTIVE
        return await delivery.draw(lane, state, limit_text=LIMIT_TEXT, request=request.at(news.step))

    async def _has_delegated(self, name: str) -> bool:
        """Return whether an earlier daemon stored that a sub-agent began in this turn; it may still run."""
        statuses = await self._queries.read(Query(types=("status",), senders=(name,), last=_LIMIT_TURN))
        for event in reversed(statuses):
            status = body_as(event, StatusChanged)
            if status.tool == SUBAGENT_TOOL:
                return True
            if status.state == AgentState.IDLE:
                return False
        return False

    def _text(self, agent: str, events: Sequence[Event]) -> str:
        return mail_text(carried_lines(self._queries, events, agent), hints=self._hints(agent))

    # After the reply

    async def _write(self, answer: HookReply, *, has_left: bool) -> None:
        conversation, news = answer.conversation, answer.news
        status = _status(answer, has_left=has_left)
        if status is not None:
            conversation.newest = status  # before the lock: hooks that wait for it then skip older ones
        async with conversation.writing:
            # Before everything else: until then these messages can go over no other lane.
            if answer.offer is not None and not has_left:
                await conversation.not_given(answer.offer)
            if not has_left:
                self.outcomes.forget_lost(answer.key)
            if answer.is_first:
                await self._delivery.recovered(conversation.lane)
            if news.session and not self._is_past(conversation):
                self._transcripts.tell(conversation.agent, news.transcript)
                await self._bind(answer.caller, news)
            if answer.proven:
                await conversation.prove(answer.proven)
            if answer.unconfirmed:
                await conversation.unconfirm(answer.unconfirmed)
            if answer.dropped:
                await conversation.drop(answer.dropped)
            self.outcomes.forget(conversation.agent, answer.proven | answer.unconfirmed | answer.dropped)
            if status is not None:
                await self._say(answer.caller, conversation, status)
            # Texts of a failed turn may be lost, so no later hook can prove them: they become unconfirmed.
            is_lost = news.is_failed and conversation.context_evidence.has_open
            if news.step is HookStep.END or is_lost:
                self._conversations.part(conversation)
                await self._conversations.finish(conversation.agent)
            # A sub-agent that got messages with this reply continues.
            if not (news.is_over and answer.content and has_left):
                await self.speakers.ended(answer.caller, news)

    async def _say(self, caller: Caller, conversation: Conversation, status: SetStatus) -> None:
        """Store the status of the agent, unless it is known already or a newer hook has replaced it."""
        # A status with a changed file is stored even if it is old, because each edit must be in the log.
        if (status is not conversation.newest or self._is_past(conversation)) and not status.file:
            return
        # Set before it is stored: a status from the screen that follows is compared with it.
        before, conversation.reported = conversation.reported, status
        report = StatusReport(status, before, has_dialog=self._has_dialog(conversation.agent))
        written = await self._broker.submit_status(caller, status, only_if=report.is_news)
        if written.event is None and not report.is_known:  # late: it never became the agent's state
            conversation.reported = before

    def _is_past(self, conversation: Conversation) -> bool:
        """Return whether the session has ended and the agent's next one has begun."""
        return self._conversations.get(conversation.agent) not in (None, conversation)

    def _has_dialog(self, agent: str) -> bool:
        """Return whether the terminal of an agent shows a dialog."""
        levels = self._delivery.levels(agent)
        return any(not level.is_open and level.reason == DIALOG for _, level in levels)

    async def _bind(self, caller: Caller, news: HookNews) -> None:
        """Store the agent's current session, so that a later process with it is the same agent."""
        known = self._broker.directory.get(caller.name)
        if (
            known is None
            or known.left
            or known.link
            or known.session == news.session
            or news.step is HookStep.END
            or self._is_of_another(known, news.session)
        ):
            return
        await self._broker.submit(caller, _same_with(known, news.session))

    def _is_of_another(self, known: Agent, session: str) -> bool:
        """Return whether the session belongs to another agent, present or not. A hook cannot move it."""
        name = read_session(self._queries.rows, known.harness, session)
        other = self._broker.directory.get(name or "")
        return other is not None and other.name != known.name and other.session == session


@dataclass(slots=True)
class StatusReport:
    """The status of a hook, and what was known when it was about to be stored."""

    status: SetStatus
    before: SetStatus | None
    """The status that a hook of this conversation has reported before."""
    has_dialog: bool
    """Whether the terminal shows a dialog."""
    is_known: bool = False
    """Whether it was the state of the agent already, at the last decision."""

    def is_news(self, known: Agent) -> bool:
        """Return whether to store it: it is new, and the screen does not show that it is late."""
        self.is_known = self._is_known(known)
        return not self.is_known and not self._is_late(known)

    def _is_known(self, known: Agent) -> bool:
        if not is_state_of(self.status, known):
            return False
        # A holder reads from the screen that its agent is idle, often before the first hook says so. If a
        # request was typed meanwhile, a second status would mean that the agent had ignored it.
        is_read = self.status.state == AgentState.IDLE and bool(known.holder) and self.before is None
        return is_read or self.before == self.status

    def _is_late(self, known: Agent) -> bool:
        if known.state != AgentState.BLOCKED or is_state_of(self.before, known):
            return False
        # Only the terminal shows a reached usage limit; the end of a turn does not end it.
        is_resting = self.status.state == AgentState.IDLE and bool(known.holder) and is_limited(known)
        # The terminal shows a dialog that no hook has reported.
        is_past = self.status.state != AgentState.BLOCKED and not self.status.file and self.has_dialog
        return is_resting or is_past


def _same_with(known: Agent, session: str) -> Join:
    return Join(
        name=known.name,
        role=known.role,
        harness=known.harness,
        seat=known.seat,
        session=session,
        holder=known.holder,
    )


def _content(harness: str, news: HookNews, text: str) -> dict[str, object]:
    """Return the reply that passes a text to the model; empty without a text, or if the hook takes none."""
    if news.step is HookStep.TURN_END:
        return hook_answer_object(harness, news.event, block_reason=text)
    return hook_answer_object(harness, news.event, context=text)


def _status(answer: HookReply, *, has_left: bool) -> SetStatus | None:
    """Return the status of the agent after a hook. A turn that a message keeps from ending continues."""
    news = answer.news
    if news.step is HookStep.TURN_END and answer.content and has_left:
        return SetStatus(state=AgentState.ACTIVE, detail=THINKING)
    if news.state is None:
        return None
    return SetStatus(
        state=news.state, detail=news.detail, tool=news.tool, command=news.command, file=news.file
    )


# --------------------
# Hooks that arrive as tool calls or over HTTP: handled like those of a process, and never an error.
# They are not in http.py, because the packages of the HTTP server are loaded only when it starts.
#
# A harness that calls a tool in a hook fills in single values, so each may come alone or all in one object.

# In the input of a hook these are inside `tool_input`.
_OF_TOOL: Final = ("command", "file_path")
# A value that the harness did not fill in is still a placeholder, such as `${tool_name}`.
_NOT_FILLED_IN: Final = "${"


def hook_input(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the input of a hook from the arguments of a call, without values that were not filled in."""
    whole = arguments.get("input")
    data: dict[str, object] = dict(whole) if isinstance(whole, Mapping) else {}
    given = {
        name: value
        for name, value in arguments.items()
        if name not in ("harness", "event", "input") and not str(value).startswith(_NOT_FILLED_IN)
    }
    of_tool = {name: given.pop(name) for name in _OF_TOOL if name in given}
    if of_tool:
        known = data.get("tool_input")
        data["tool_input"] = {**(known if isinstance(known, Mapping) else {}), **of_tool}
    # A harness that fills in single values writes each of them as a text.
    if isinstance(value := given.get("stop_hook_active"), str):
        given["stop_hook_active"] = value.lower() == "true"
    return {**data, **given}


async def answer_hook(
    handler: HookHandler, caller: Caller, harness: str, event: str, data: Mapping[str, object]
) -> HookReply | None:
    """Return the reply to a hook; None if the caller is not an agent or has another harness."""
    news = read_hook(harness, event, data)
    if news is None or caller.kind != INSTANCE or caller.harness != harness:
        return None
    speaks = await handler.speakers.of(caller, news)
    return None if speaks is None else await handler.answer(speaks[0], harness, speaks[1])


async def run_hook(
    handler: HookHandler, caller: Caller, harness: str, event: str, data: Mapping[str, object]
) -> dict[str, object]:
    """Return the reply to a hook, and record its messages as passed to the harness; {} without a reply."""
    answer = await answer_hook(handler, caller, harness, event, data)
    if answer is None:
        return {}
    handler.settle(answer, has_left=True)
    return answer.content


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
            settings=services.daemon.settings,
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
    # `Speakers` has made a sub-agent's hook its own: it is compared only with the sub-agent's own requests.
    if news.step in _SETTLES_ALL:
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
        with suppress(AlreadyJoined):  # Another hook or tool call of the process has joined meanwhile.
            await self._services.broker.submit(who_joins(caller), request)
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
"""Seconds between two W frames while a person is asked. Several of them may be late within `_LIMIT_S`."""
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
            # An empty reply: without any, the hook would block its harness.
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
        if self._is_lost:  # during `open`, when `connection_lost` did not know the request yet
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
