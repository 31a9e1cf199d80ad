"""The lists and details that a view shows, from the rows and the log: now, or at a seq in the past.

Every method changes nothing. Long lists are read in pages, and built in steps, so that other callers can run.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from palaver.broker.messages import recipients_of
from palaver.delivery.mailbox import mailboxes_of_lanes
from palaver.domain.stick import RoomFacts, lease_until_ms, rank, reservation_until_ms
from palaver.errors import NotFound, StorageFailed
from palaver.log.search import parse_search
from palaver.protocol.agents import Agent, doing_text
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState, DeliveryReport, Freed, MessageSent, State
from palaver.protocol.message import HUMAN, MESSAGE, flat, handlers_of, is_lost, readable_text
from palaver.protocol.paths import mailbox_of, readable_mailbox, split_mailbox
from palaver.protocol.query import Query, conversation_of_agent
from palaver.protocol.views import (
    LIMIT_LEDGER,
    AgentPage,
    AgentRow,
    AgentsPage,
    AnyAsk,
    AskAgent,
    AskAgents,
    AskAttention,
    AskConversations,
    AskLedger,
    AskLog,
    AskMessages,
    AskPast,
    AskPermission,
    AskRoom,
    AskRooms,
    AskSeq,
    Attention,
    AttentionPage,
    ConversationRow,
    ConversationsPage,
    Counts,
    EventRow,
    LedgerPage,
    LedgerStep,
    LogPage,
    Mark,
    MessageRow,
    MessagesPage,
    PermissionPage,
    RoomHandoff,
    RoomMember,
    RoomNote,
    RoomPage,
    RoomRow,
    RoomsPage,
    RoomTask,
    SeqPage,
    Snapshot,
    ViewValue,
    WaitingMessage,
    WaitReason,
)
from palaver.services.results import MessageReceipts, ReceiptView, in_common_words
from palaver.services.view_reader import STEP, ViewFacts, ViewReader, in_steps, let_others_run
from palaver.services.view_rows import (
    LIMIT_MARKS,
    LIMIT_TEXT,
    LastMessage,
    beginning_of,
    event_row,
    last_message,
    text_of,
)
from palaver.state.agents import (
    AGENTS,
    find_mail,
    read_agent,
    read_entry,
    read_mail,
    read_receivers,
    read_unread,
)
from palaver.state.attention import attention_of, each_attention, oldest_first
from palaver.state.conversations import count_unread, read_conversations
from palaver.state.reasons import USED_UP, read_wait
from palaver.state.references import read_tasks
from palaver.state.rooms import (
    Member,
    Room,
    StickState,
    find_past_room,
    read_memberships,
    read_notes,
    read_open_rooms,
)
from palaver.state.rows import MAIL, LedgerEntry, OpenMessage, Rows, answered_seq, mail_prefix
from palaver.state.watches import read_watch

_LIMIT_WHOLE: Final = 4000
"""Characters of a message in a conversation."""
_LIMIT_QUEUE: Final = 1000
"""Waiting messages of an agent that are counted."""
_LIMIT_MEMBERS: Final = 500
_LIMIT_OUTSIDE: Final = 100
"""Members of a room whose other messages are shown with it."""
_LIMIT_NOTES: Final = 200
_LIMIT_HANDOFFS: Final = 20
_REPORTS_AT_ONCE: Final = 1000
"""Reports that are read at once to find the steps of one message."""
_LIMIT_REPORTS: Final = 50_000
"""Reports that are searched for the steps of one message."""
_LIMIT_ROOMS: Final = 500
_NEWEST_MESSAGES: Final = 300
"""Messages that are searched for the newest one of each agent before each is looked up."""
_SNAPSHOT_AGENTS: Final = 200
_SNAPSHOT_TALKS: Final = 100
_SNAPSHOT_EVENTS: Final = 200
_SNAPSHOT_ATTENTION: Final = 500
_FINAL: Final = frozenset({State.SEEN, State.ANSWERED, State.REFUSED, State.EXPIRED, State.DEAD})
_encode: Final = msgspec.json.Encoder().encode


class ViewPages:
    """Answers the questions of views. `rows` is of the same seq as `reader`, or a little newer."""

    def __init__(self, rows: Rows, reader: ViewReader, facts: ViewFacts) -> None:
        self._rows = rows
        self._reader = reader
        self._facts = facts

    async def answer(self, question: AnyAsk) -> ViewValue:
        """Return the answer to any question; `at` is ignored. Raises NotFound and other refusals."""
        match question:
            case AskAgents():
                return await self.agents(question.after, question.limit)
            case AskAgent():
                return await self.agent(question.name, question.limit)
            case AskAttention():
                return AttentionPage(seq=self._reader.last(), entries=tuple(await self.attention()))
            case AskPermission():
                return self.permission(question.id)
            case AskConversations():
                return await self.conversations(question.before, question.find, question.limit)
            case AskMessages():
                return await self.messages(question)
            case AskLedger():
                return await self.ledger(question)
            case AskRooms():
                return await self.rooms()
            case AskRoom():
                return await self.room(question.id)
            case AskLog():
                return await self.log(question)
            case AskSeq():
                return SeqPage(seq=self._reader.last(), found=await self._reader.seq_at(question.ts))
            case AskPast():
                return await self.snapshot(HUMAN)
            case _:
                assert_never(question)

    # The whole bus

    async def snapshot(self, me: str, *, seq: int = 0) -> Snapshot:
        """Return the bus as it is now, with the newest events up to a seq, by default the last one."""
        seq = seq or self._reader.last()
        # The rows may become newer during the awaits below. That is harmless, because a view gets everything
        # that has changed after `seq` once more.
        page = await self.agents("", _SNAPSHOT_AGENTS)
        attention = await self.attention()
        events = await self.newest_events(seq)
        talks = read_conversations(self._rows, limit=_SNAPSHOT_TALKS)
        return Snapshot(
            epoch=self._facts.epoch,
            seq=seq,
            now=self._facts.now_ms,
            me=me,
            device=self._facts.device,
            version=self._facts.version,
            counts=self.counts(len(attention)),
            attention=tuple(attention[:_SNAPSHOT_ATTENTION]),
            agents=page.rows,
            agents_total=page.total,
            talks=tuple(await in_steps(talks, self._with_text)),
            events=tuple(await in_steps(events, event_row)),
        )

    async def newest_events(self, seq: int) -> list[Event]:
        """Return the newest events up to a seq, as many as a snapshot has."""
        query = Query(before=seq + 1, last=_SNAPSHOT_EVENTS, limit=_SNAPSHOT_EVENTS, with_imported=True)
        try:
            return await self._reader.read(query)
        except StorageFailed:  # An archive is lost. The bus is shown without it.
            return await self._reader.recent(query)

    def counts(self, attention: int) -> Counts:
        """Return the numbers of the top line; the number of entries of attention is given."""
        states = Counter(agent.state for agent in self._facts.agents())
        return Counts(agents=dict(states), attention=attention, unread=count_unread(self._rows))

    async def attention(self) -> list[Attention]:
        """Return all that waits for a person, oldest first."""
        found: list[Attention] = []
        # There may be thousands of messages and agents.
        for at, entry in enumerate(each_attention(self._rows, self._facts)):
            await let_others_run(at)
            if entry is not None:
                found.append(entry)
        return oldest_first(found)

    def attention_of(self, key: str) -> Attention | None:
        """Return one entry of attention; None if it has ended."""
        return attention_of(self._rows, key, self._facts)

    def permission(self, id: str) -> PermissionPage:
        """Return an open permission request with its whole input. Raises NotFound."""
        found = self._facts.permission_page(id)
        if found is None:
            raise NotFound(f"permission request {id}", "it was answered, or its session has ended")
        return found

    # Agents

    async def agents(self, after: str, limit: int) -> AgentsPage:
        """Return agents by name, above a name."""
        found = self._rows.scan(AGENTS, "", after=after, limit=limit + 1)
        names = [key for key, _ in found[:limit]]
        last = await self.last_messages(names)
        rows: list[AgentRow] = []
        for at, name in enumerate(names):
            await let_others_run(at)
            if (row := self.agent_row(name, last.get(name))) is not None:
                rows.append(row)
        return AgentsPage(
            seq=self._reader.last(),
            total=self._facts.count_agents(),
            rows=tuple(rows),
            has_more=len(found) > limit,
        )

    def agent_row(self, name: str, last: LastMessage | None) -> AgentRow | None:
        """Return one agent with the newest message that it wrote; None if there is no such agent."""
        agent = read_agent(self._rows, name)
        if agent is None:
            return None
        is_present = self._facts.is_present(name)
        rooms = read_memberships(self._rows, name).get(name, ())
        return AgentRow(
            name=name,
            state=agent.state,
            since=agent.since,
            seq=self._reader.last(),
            harness=agent.harness,
            role=agent.role,
            tag=agent.tag,
            parent=agent.parent,
            doing=doing_text(agent.tool, agent.detail),
            waits_for=self._waits_for(agent, rooms, last),
            unread=read_unread(self._rows, name),
            rooms=rooms,
            folder=agent.cwd,
            last=self._without_message(agent) if last is None else last.text,
            last_seq=0 if last is None else last.seq,
            is_present=is_present,
            is_paused=agent.paused,
            is_stale=is_present and self._is_stale(agent),
            has_left=agent.left,
            has_terminal=bool(agent.holder) and not agent.left,
        )

    def _without_message(self, agent: Agent) -> str:
        """Return the text for an agent of which no message was found: there may be one in an old archive."""
        first = self._reader.searched_from
        return f"(archived before #{first + 1}, or none)" if agent.seq <= first else ""

    def _is_stale(self, agent: Agent) -> bool:
        limit_ms = self._facts.stale_after_ms
        is_silent = self._facts.now_ms - agent.since > limit_ms
        return bool(limit_ms) and agent.state == AgentState.ACTIVE and is_silent

    def _waits_for(self, agent: Agent, rooms: Iterable[str], last: LastMessage | None) -> str:
        if agent.left:
            return ""
        if agent.state == AgentState.BLOCKED:
            return "its usage limit" if agent.detail.startswith(USED_UP) else "a person"
        for room in rooms:
            if self._facts.room(room, (agent.name,)).of(agent.name).is_waiting:
                return f"the stick of #{room}"
        if last is not None:
            for name in last.to:
                if read_watch(self._rows, name, last.seq) is not None:
                    return f"a reply of {name}"
        return ""

    async def last_messages(self, names: Sequence[str]) -> dict[str, LastMessage]:
        """Return the newest message that each of these agents wrote."""
        seq = self._reader.last()
        query = Query(types=(MESSAGE,), before=seq + 1, last=_NEWEST_MESSAGES)
        # One read finds the message of nearly every active agent; only the others need a read for each.
        found = {event.sender: last_message(event) for event in await self._reader.recent(query)}
        for name in names:
            if name not in found and (last := await self.last_message(name)) is not None:
                found[name] = last
        return found

    async def last_message(self, name: str) -> LastMessage | None:
        """Return the newest message that an agent wrote, or None. One in an old archive is not found."""
        before = self._reader.last() + 1
        query = Query(types=(MESSAGE,), senders=(name,), before=before, last=1, limit=1)
        if events := await self._reader.recent(query):
            return last_message(events[0])
        archived = await self._reader.archived_by(name)
        event = self._reader.event(archived) if archived else None
        return None if event is None else last_message(event)

    async def agent(self, name: str, limit: int) -> AgentPage:
        """Return one agent with its queue and its newest messages. Raises NotFound."""
        plain = name.removeprefix("@")
        before = self._reader.last() + 1
        query = Query(shown=(conversation_of_agent(plain),), before=before, last=limit, limit=limit)
        events = await self._reader.shown(query)
        last = await self.last_message(plain)
        if last is None:  # Its newest message may be in an old archive.
            written = [one for one in events if one.sender == plain and one.type == MESSAGE]
            last = last_message(written[-1]) if written else None
        row = self.agent_row(plain, last)
        agent = read_agent(self._rows, plain)
        if row is None or agent is None:
            raise NotFound(f"agent {beginning_of(plain)}", "'pal list' shows the agents")
        queue: list[WaitingMessage] = []
        for mailbox in mailboxes_of_lanes(self._rows, agent):
            for at, mail in enumerate(islice(read_mail(self._rows, mailbox), limit)):
                await let_others_run(at)
                if (waiting := self._waiting(mailbox, mail)) is not None:
                    queue.append(waiting)
        return AgentPage(
            seq=self._reader.last(),
            row=row,
            queue=tuple(queue[:limit]),
            queue_total=sum(
                len(self._rows.scan(MAIL, mail_prefix(mailbox), limit=_LIMIT_QUEUE))
                for mailbox in mailboxes_of_lanes(self._rows, agent)
            ),
            messages=await self._message_rows(events),
        )

    def _waiting(self, mailbox: str, mail: OpenMessage) -> WaitingMessage | None:
        event = self._reader.event(mail.seq)
        reason = None if event is None else self._reason(event, mailbox)
        if event is None or reason is None:
            return None
        entry = read_entry(self._rows, mail.seq, mailbox)
        return WaitingMessage(
            seq=event.seq,
            ts=event.ts,
            sender=event.sender,
            text=beginning_of(text_of(event), LIMIT_TEXT),
            state=State.QUEUED.value if entry is None else entry.state,
            priority=flat(event).priority,
            reason=reason,
        )

    def _reason(self, event: Event, mailbox: str) -> WaitReason | None:
        """Return why a message waits for a recipient; None if its state there is final."""
        return read_wait(self._rows, event.seq, mailbox, self._facts)

    # Conversations

    async def conversations(self, before: int, find: str, limit: int) -> ConversationsPage:
        """Return conversations, newest first, below a seq; with `find` only those with this in the title.

        A page may have a few rows more: those with the same newest message are in one page.
        """
        rows: list[ConversationRow] = []
        wanted, has_more = find.casefold(), True
        while has_more and len(rows) < limit:
            # With a rare title in `find` this reads all conversations, so it is done in steps.
            await asyncio.sleep(0)
            found = read_conversations(self._rows, before=before, limit=min(limit - len(rows), STEP))
            rows.extend(row for row in found if wanted in f"{row.title} {row.key}".casefold())
            before = found[-1].seq if found else 0
            has_more = bool(found and read_conversations(self._rows, before=before, limit=1))
        texts = await in_steps(rows, self._with_text)
        return ConversationsPage(seq=self._reader.last(), rows=tuple(texts), has_more=has_more)

    def _with_text(self, row: ConversationRow) -> ConversationRow:
        """Return a conversation with the beginning of its newest message."""
        return replace(row, text=self._facts.text_of(row.seq))

    async def messages(self, asked: AskMessages) -> MessagesPage:
        """Return messages of a conversation, in seq order."""
        before = min(asked.before or self._reader.last() + 1, self._reader.last() + 1)
        members = self._members_of(asked.conversation) if asked.has_outside else frozenset()
        conversations = (asked.conversation, *sorted(map(conversation_of_agent, members)))
        # One more than asked for shows whether there are more.
        query = Query(shown=conversations, before=before, limit=asked.limit + 1, with_imported=True)
        ends = {"after": asked.after} if asked.after else {"last": asked.limit + 1}
        events = await self._reader.shown(replace(query, **ends))
        has_more = len(events) > asked.limit
        # The extra event is the newest one after a seq, and otherwise the oldest one.
        cut = events[: asked.limit] if asked.after else events[-asked.limit :]
        return MessagesPage(seq=self._reader.last(), rows=await self._message_rows(cut), has_more=has_more)

    def _members_of(self, conversation: str) -> frozenset[str]:
        """Return the first members of the room of a conversation; none for other conversations."""
        if not conversation.startswith("#"):
            return frozenset()
        try:
            room = find_past_room(self._rows, conversation)
        except NotFound:
            return frozenset()
        return frozenset(islice(room.names, _LIMIT_OUTSIDE))

    async def _message_rows(self, events: Sequence[Event]) -> tuple[MessageRow, ...]:
        rows: list[MessageRow] = []
        for event in events:
            rows.append(await self.message_row(event))
        return tuple(rows)

    async def message_row(self, event: Event) -> MessageRow:
        """Return one message with its state for each recipient."""
        body = event.body if isinstance(event.body, MessageSent) else MessageSent()
        text = text_of(event)
        # A broadcast can have thousands of recipients, and a row shows the state of the first ones only.
        names = self._recipients(event)
        answered = answered_seq(event)
        quoted = self._reader.event(answered) if answered else None
        mail = None if HUMAN not in names else find_mail(self._rows, HUMAN, event.seq)
        marks: list[Mark] = []
        for at, name in enumerate(names[:LIMIT_MARKS]):
            await let_others_run(at)
            marks.append(self._mark(event, name))
        return MessageRow(
            seq=event.seq,
            id=event.id,
            ts=event.ts,
            sender=event.sender,
            text=text[:_LIMIT_WHOLE],
            is_cut=len(text) > _LIMIT_WHOLE,
            to=event.to,
            type=event.type,
            intent=body.intent or "",
            thread=body.thread or "",
            room=body.room or "",
            priority=body.priority or "",
            reply_to=answered or 0,
            quote="" if quoted is None else beginning_of(text_of(quoted)),
            marks=tuple(marks),
            recipients=len(names) if len(names) > LIMIT_MARKS else 0,
            is_unread=mail is not None and not mail[1].is_kept_back,
        )

    def _recipients(self, event: Event) -> tuple[str, ...]:
        if event.imported:
            return ()
        if is_lost(event):
            return tuple(read_receivers(self._rows, event.seq))
        return recipients_of(event)

    def _mark(self, event: Event, name: str) -> Mark:
        entry = read_entry(self._rows, event.seq, name)
        state = State.QUEUED.value if entry is None else entry.state
        reason = None if state in _FINAL else self._reason(event, name)
        return Mark(name=readable_mailbox(name), state=state, reason=reason)

    # The ledger

    async def ledger(self, asked: AskLedger) -> LedgerPage:
        """Return one message with its receipts and the steps of its delivery. Raises NotFound.

        A page has the steps of up to 50 recipients. The first page has all receipts, another one only those
        of its recipients.
        """
        event = self._reader.message(asked.message)
        if event.seq > self._reader.last():
            raise NotFound(
                f"message {beginning_of(asked.message)}", f"it was sent after #{self._reader.last()}"
            )
        # The steps are paged and the receipts are not: steps need a search of the log, receipts only rows.
        copies = self._copies(event)
        page = copies[asked.first : asked.first + LIMIT_LEDGER]
        if asked.recipient:
            page = tuple(one for one in copies if asked.recipient in (one.mailbox, one.readable))
            if not page:
                raise NotFound(
                    f"recipient {beginning_of(asked.recipient)} of #{event.seq}",
                    f"'pal receipts {event.seq}' shows them",
                )
        receipts = await self.receipts(event, page if asked.first or asked.recipient else copies)
        return LedgerPage(
            seq=self._reader.last(),
            message=await self.message_row(event),
            receipts=msgspec.Raw(await encode_receipts(receipts)),
            steps=await self._steps(event, receipts, page),
            recipients=len(copies),
        )

    def _copies(self, event: Event) -> tuple["_LedgerCopy", ...]:
        """Return the recipients of a message, then the paths that no subscription matched."""
        dead = event.body.dead if isinstance(event.body, MessageSent) and not event.imported else ()
        return (
            *map(_LedgerCopy, self._recipients(event)),
            *(_LedgerCopy(path, is_path=True) for path in dead),
        )

    async def receipts(self, event: Event, copies: Sequence["_LedgerCopy"] | None = None) -> MessageReceipts:
        """Return the receipts of a message, as `pal receipts` prints them; by default all."""
        found: list[ReceiptView] = []
        for at, copy in enumerate(self._copies(event) if copies is None else copies):
            await let_others_run(at)  # A broadcast can have thousands of recipients.
            found.append(self._receipt(event, copy))
        return MessageReceipts(
            seq=event.seq,
            id=event.id,
            sender=event.sender,
            ts=event.ts,
            text=readable_text(event),
            priority=flat(event).priority,
            receipts=tuple(found),
        )

    def _receipt(self, event: Event, copy: "_LedgerCopy") -> ReceiptView:
        mailbox = copy.mailbox
        entry = read_entry(self._rows, event.seq, mailbox)
        fields = msgspec.structs.asdict(entry or LedgerEntry(state=State.QUEUED.value, ts=event.ts))
        wait = read_wait(self._rows, event.seq, mailbox, self._facts, is_path=copy.is_path)
        name, session = (mailbox, "") if copy.is_path else split_mailbox(mailbox)
        handled_by = handlers_of(event, mailbox)
        return ReceiptView(name=name, session=session, handled_by=handled_by, wait=wait, **fields)

    async def _steps(
        self, event: Event, receipts: MessageReceipts, copies: Sequence["_LedgerCopy"]
    ) -> tuple[LedgerStep, ...]:
        """Return the steps of some recipients; `receipts` has at least those of the same recipients."""
        first = LedgerStep(seq=event.seq, ts=event.ts, name="", state=State.QUEUED.value, by=event.sender)
        if not copies:
            return (first,)
        names = {copy.readable for copy in copies}
        shown = [one for one in receipts.receipts if _readable_name(one) in names]
        end = self._reader.last() + 1
        # After a final state no report follows, so the search through a long log can end there.
        if all(one.state in _FINAL for one in shown):
            end = min(end, await self._reader.seq_at(max(one.ts for one in shown) + 1))
        steps = await self._reported(event, copies, end)
        answers = [
            LedgerStep(
                seq=one.answer,
                ts=one.ts,
                name=_readable_name(one),
                state=State.ANSWERED.value,
                reason="without --reply-to" if one.implied else "",
                by=one.name,
            )
            for one in shown
            if one.answer
        ]
        return (first, *sorted((*steps, *answers), key=lambda step: step.seq))

    async def _reported(self, event: Event, copies: Sequence["_LedgerCopy"], end: int) -> list[LedgerStep]:
        """Return the steps of some recipients that reports before a seq have recorded."""
        # A query selects reports by agent; those about other messages are left out below.
        names = {copy.mailbox: copy.readable for copy in copies}
        agents = tuple(dict.fromkeys(name for copy in copies for name in (copy.agent, copy.mailbox)))
        query = Query(types=("delivery",), agents=agents, before=end, limit=_REPORTS_AT_ONCE)
        steps: list[LedgerStep] = []
        after, searched = event.seq, 0
        # Bounded: for a busy recipient this search could otherwise read most of the log.
        while searched < _LIMIT_REPORTS and (found := await self._reader.read(replace(query, after=after))):
            for at, one in enumerate(found):
                await let_others_run(at)
                report = one.body
                if (
                    isinstance(report, DeliveryReport)
                    and event.seq in report.messages
                    and report.agent in names
                ):
                    steps.append(_reported_step(one, report, names[report.agent]))
            after, searched = found[-1].seq, searched + len(found)
            if len(found) < _REPORTS_AT_ONCE:
                break
        return steps

    # Rooms

    async def rooms(self) -> RoomsPage:
        """Return all open rooms, by name."""
        rows: list[RoomRow] = []
        for room in islice(read_open_rooms(self._rows), _LIMIT_ROOMS):
            await asyncio.sleep(0)  # A room can have many members.
            rows.append(self.room_row(room))
        return RoomsPage(seq=self._reader.last(), rows=tuple(rows))

    def room_row(self, room: Room) -> RoomRow:
        """Return one room in a list."""
        facts = self._facts.room(room.id, filter(None, (room.owner, room.reserved_for)))
        policy = self._facts.policy
        is_owned, is_reserved = room.state == StickState.OWNED, room.state == StickState.RESERVED
        return RoomRow(
            id=room.id,
            name=room.name,
            path=room.path,
            stick=room.state,
            owner=room.owner,
            lease_until=lease_until_ms(room, facts, policy) if is_owned else 0,
            reserved_for=room.reserved_for,
            claim_until=reservation_until_ms(room, facts, policy) if is_reserved else 0,
            members=len(room.members),
            present=sum(name == HUMAN or self._facts.is_present(name) for name in room.names),
        )

    async def room(self, id: str) -> RoomPage:
        """Return one room, open or closed. Raises RoomNotFound."""
        room = find_past_room(self._rows, id)
        facts = await self._facts_of(room)
        line = [one.name for one in _waiting_line(room, facts)]
        ranks = {name: at for at, name in enumerate(line, 1)}
        shown = sorted(
            room.members,
            key=lambda one: (
                one.name != room.owner,
                ranks.get(one.name, len(room.members)),
                not facts.of(one.name).is_present,
                one.ordinal,
            ),
        )
        members: list[RoomMember] = []
        for at, member in enumerate(shown[:_LIMIT_MEMBERS]):
            await let_others_run(at)
            members.append(self._member(room, member, facts, ranks.get(member.name, 0)))
        return RoomPage(
            seq=self._reader.last(),
            row=self.room_row(room),
            turn=room.turn,
            members=tuple(members),
            handoffs=await self._handoffs(room),
            is_handoff_open=room.pending is not None,
            notes=self._notes(room),
            tasks=self._tasks(frozenset(room.names)),
        )

    async def _facts_of(self, room: Room) -> RoomFacts:
        """Return the facts of all members; there can be thousands."""
        names, found = tuple(room.names), self._facts.room(room.id, ())
        sights = dict(found.sights)
        for begin in range(0, len(names), STEP):
            await asyncio.sleep(0)
            sights |= self._facts.room(room.id, names[begin : begin + STEP]).sights
        return dataclasses.replace(found, sights=sights)

    def _member(self, room: Room, member: Member, facts: RoomFacts, rank: int) -> RoomMember:
        agent = read_agent(self._rows, member.name)
        return RoomMember(
            name=member.name,
            state="" if agent is None else agent.state,
            is_present=facts.of(member.name).is_present,
            is_owner=member.name == room.owner,
            is_waiting=bool(rank),
            rank=rank,
            last_turn=member.last_turn,
        )

    async def _handoffs(self, room: Room) -> tuple[RoomHandoff, ...]:
        query = Query(
            types=("release", "pass"),
            rooms=(room.id,),
            before=self._reader.last() + 1,
            last=_LIMIT_HANDOFFS,
            limit=_LIMIT_HANDOFFS,
        )
        events = {event.seq: event for event in await self._reader.recent(query)}
        # An open one is shown also if it is archived.
        if room.pending is not None and (opened := self._reader.event(room.pending.seq)) is not None:
            events[opened.seq] = opened
        return tuple(
            RoomHandoff(
                seq=event.seq,
                ts=event.ts,
                sender=event.sender,
                to=freed.reserved_for or "",
                handoff=freed.handoff,
            )
            for _, event in sorted(events.items(), reverse=True)
            if isinstance(freed := event.body, Freed) and freed.handoff is not None
        )

    def _notes(self, room: Room) -> tuple[RoomNote, ...]:
        notes = read_notes(self._rows, room.id, include_resolved=True, limit=_LIMIT_NOTES)
        return tuple(
            RoomNote(id=one.id, ts=one.ts, sender=one.by, text=one.text, is_resolved=not one.is_open)
            for one in notes
        )

    def _tasks(self, members: frozenset[str]) -> tuple[RoomTask, ...]:
        """Return the newest tasks that members created or have."""
        return tuple(
            RoomTask(
                id=task.id,
                number=task.seq,
                title=task.title,
                status=task.status,
                assignee=task.assignee,
                ts=task.updated,
            )
            for task in read_tasks(self._rows, is_open=False, limit=_LIMIT_NOTES)
            if not members.isdisjoint((task.by, *task.assignees))
        )

    # The log

    async def log(self, asked: AskLog) -> LogPage:
        """Return events in seq order. Raises BadQuery for a search without words."""
        before = min(asked.before or self._reader.last() + 1, self._reader.last() + 1)
        query = Query(
            before=before,
            limit=asked.limit + 1,
            search=asked.search,
            types=asked.types,
            agents=asked.agents,
            senders=asked.senders,
            to=asked.to,
            threads=asked.threads,
            rooms=asked.rooms,
            intents=asked.intents,
            mentions=asked.mentions,
            targets=asked.targets,
            participants=asked.participants,
            files=asked.files,
            statuses=asked.statuses,
            tools=asked.tools,
            replies_to=asked.replies_to,
            since=asked.since,
            until=asked.until,
            with_imported=True,
        )
        ends = {"after": asked.after} if asked.after else {"last": asked.limit + 1}
        events = await self._reader.read(replace(query, **ends))
        has_more = len(events) > asked.limit
        cut = events[: asked.limit] if asked.after else events[-asked.limit :]
        phrases = parse_search(asked.search) if asked.search else ()
        rows: list[EventRow] = []
        for at, event in enumerate(cut):
            await let_others_run(at)
            rows.append(event_row(event, phrases))
        return LogPage(seq=self._reader.last(), first=1, rows=tuple(rows), has_more=has_more)


@dataclass(frozen=True, slots=True)
class _LedgerCopy:
    """A recipient of a message: a mailbox, or a path that no subscription matched."""

    mailbox: str
    is_path: bool = False

    @property
    def agent(self) -> str:
        return self.mailbox if self.is_path else split_mailbox(self.mailbox)[0]

    @property
    def readable(self) -> str:
        """The recipient for people. A path may look like the mailbox of a session."""
        return self.mailbox if self.is_path else readable_mailbox(self.mailbox)


def _readable_name(receipt: ReceiptView) -> str:
    if not receipt.session:
        return receipt.name
    return readable_mailbox(mailbox_of(receipt.name, receipt.session))


def _reported_step(event: Event, report: DeliveryReport, name: str) -> LedgerStep:
    return LedgerStep(
        seq=event.seq,
        ts=event.ts,
        name=name,
        state=report.state,
        lane=report.lane,
        grade=report.grade,
        reason="unconfirmed" if report.unconfirmed and not report.reason else report.reason,
        # A sender in brackets is a part of the bus, which is not shown as an author.
        by=event.by or ("" if event.sender.startswith("[") else event.sender),
    )


async def encode_receipts(receipts: MessageReceipts) -> bytes:
    """Return the receipts of a message as the JSON object that `pal receipts` prints."""
    # In steps, because thousands of receipts take long to encode.
    found: list[dict[str, object]] = []
    for at, one in enumerate(receipts.receipts):
        await let_others_run(at)
        found.append(in_common_words(msgspec.to_builtins(one)))
    whole = in_common_words(msgspec.to_builtins(replace(receipts, receipts=())))
    return _encode(whole | {"receipts": found})


def _waiting_line(room: Room, facts: RoomFacts) -> list[Member]:
    """Return the members that wait for the stick, the next one first."""
    after = next((one.ordinal for one in room.members if one.name == (room.owner or room.prior_owner)), -1)
    size = room.next_ordinal + 1
    waiting = (one for one in room.members if facts.of(one.name).is_waiting)
    return sorted(waiting, key=lambda one: rank(one, after, size))
