"""The page of events, the structs of their types and the events of the broker agree, in both directions."""

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.docs.pages import first_cells, page, sections, source
from tests.fakes import HUMAN, LIMIT_A_MINUTE, Bus, open_memory, opened_bus, seat

from palaver.broker.broker import TABLE
from palaver.broker.context import SYSTEM_CALLER, Imported, Joined
from palaver.errors import RateLimited
from palaver.log.api import Archived
from palaver.protocol.agents import BeginSubagent, Caller, Standing
from palaver.protocol.bundles import BundleFile, CreateBundle
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import (
    BODIES,
    DAEMON_STARTED,
    MIGRATED,
    READY,
    RESUMED,
    SESSION,
    STARTED,
    STOPPED,
    AnswerPermission,
    ClosePermission,
    DeliveryReport,
    Filter,
    OpenPermission,
    fields_of,
    unlisted_fields,
)
from palaver.protocol.paths import (
    ClearDeadLetters,
    Content,
    CreateSession,
    Migrate,
    MigratedMessage,
    MigratedSession,
    MigratedSubscription,
    MigrationResult,
    RemoveSession,
    SubscribePath,
    UnsubscribePath,
)
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    TYPED,
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
from palaver.protocol.transcript import Excerpt
from palaver.protocol.turns import BatchMessage, FailTurn, FinishTurn, SetAutoRun, SkipTurn, StartTurn

ACTIONS = {STARTED, READY, STOPPED, RESUMED, SESSION, DAEMON_STARTED, TYPED, MIGRATED}


def shown() -> dict[str, str]:
    return {heading.strip("`"): content for heading, content in sections(page("events.md"), "##").items()}


def test_page_has_exactly_the_written_types() -> None:
    assert sorted(shown()) == sorted(BODIES)


@pytest.mark.parametrize("type_", BODIES)
def test_page_has_exactly_the_fields_of_a_type(type_: str) -> None:
    text = shown()[type_].rpartition("| field | meaning |")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))

    assert set(first_cells(text)) == fields_of(type_).all
    assert {name for name, meaning in rows.items() if meaning.endswith("; always there")} == (
        fields_of(type_).always
    )


def test_page_has_exactly_the_actions_of_a_life_event() -> None:
    text = shown()["life"].partition("| action | when |")[2].partition("| field |")[0]

    assert set(first_cells(text)) == ACTIONS


def test_table_has_every_type_that_the_broker_names() -> None:
    assert set(re.findall(r'\btype="([\w.]+)"', source("src/palaver/broker"))) <= BODIES.keys()


class Play:
    """Submit every kind of request, and record the kinds."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.asked: set[type] = set()

    async def ask(self, asking: Caller, request: Request) -> Event:
        """Submit one request and return the event that it wrote."""
        self.asked.add(type(request))
        outcome = await self.bus.broker.submit(asking, request)
        without = Joined | Archived | Imported | MigrationResult
        event = None if isinstance(outcome, without) else outcome.event
        return await self.last() if event is None else event

    async def last(self) -> Event:
        return (await self.bus.log.read(Query(last=1)))[-1]

    async def join(self, name: str, **fields: object) -> Caller:
        self.asked.add(Join)
        return await self.bus.join(name, **fields)  # type: ignore[arg-type]  # fields of a join

    async def lives(self) -> None:
        """Join and leave in every way."""
        await self.ask(SYSTEM_CALLER, DaemonStarted(pid=1, version="1"))
        await self.ask(HUMAN, Register(name="luna:BOXE"))
        mila = await self.join("mila", has_link=True, session="s")
        await self.join("mila", has_link=True, session="s", runtime="python")
        hello = Draft(type="agent.hello", id="h", sender="mila", payload={"runtime": "x", "version": "2"})
        await self.ask(mila, Put(envelope=hello))
        await self.ask(
            mila, SetStatus(state="idle", detail="all ears", tool="Edit", command="ls", file="a.py")
        )
        await self.ask(mila, Leave())
        await self.join("lena", seat=seat(3))
        await self.join("lena", seat=seat(3), session="s2")
        await self.ask(SYSTEM_CALLER, BeginSubagent(parent="lena", key="a1", type="reviewer"))
        await self.ask(SYSTEM_CALLER, Gone(name="lena", reason="its process ended", seat=seat(3)))

    async def talks(self) -> None:
        """Send messages with all fields, and apply every request to them."""
        luna = replace(await self.join("luna", harness="claude"), harness="claude")
        nova = await self.join("nova")
        first = await self.ask(luna, CreateBundle(title="first"))
        bundle = await self.ask(
            luna,
            CreateBundle(
                title="all",
                description="of it",
                files=(BundleFile(path="a.py", content=b"x"),),
                events=((1, 1),),
                transcripts=(Excerpt(agent="luna", first=1, last=1, level="normal", entries=({},)),),
                extends=str(first.payload["bundle_id"]),
            ),
        )
        asked = await self.ask(
            nova,
            Send(
                text="well?",
                to=("@luna", "agent/luna", "ticket/7"),
                intent="request",
                thread="pr-1",
                priority="idle",
                expires_in_ms=1000,
                bundle_id=str(bundle.payload["bundle_id"]),
            ),
        )
        await self.ask(
            luna, Acknowledge(messages=(asked.seq,), lane="recv", grade="flushed", tips=("request",))
        )
        await self.ask(luna, Send(text="so", to=("@nova",), channel="#general"))
        await self.ask(luna, Send(text="so", reply_to=str(asked.seq)))
        for _ in range(LIMIT_A_MINUTE):
            mail = await self.bus.log.read(Query(types=("message",), senders=("luna",), last=1))
            with suppress(RateLimited):
                await self.ask(luna, Send(text="again", to=("@nova",), reply_to=str(asked.seq)))
        held = (await self.bus.log.read(Query(types=("message",), senders=("luna",), last=1)))[-1]
        await self.ask(HUMAN, Release(message=str(held.seq)))
        for unconfirmed in (False, True):
            step = DeliveryReport(
                agent="nova",
                messages=(mail[-1].seq,),
                state="submitted",
                lane="hook",
                request="" if unconfirmed else "result 0f",
                unconfirmed=unconfirmed,
            )
            await self.ask(SYSTEM_CALLER, ReportDelivery(report=step))
        await self.ask(HUMAN, Redeliver(message=str(mail[-1].seq)))
        await self.ask(SYSTEM_CALLER, Notify(to="nova", text="look", cause="c", kind="k"))
        await self.ask(HUMAN, ChangeSetting(key="brake_hops", value=1, old=40))
        await self.ask(HUMAN, SetVerbosity(channel="#general", level="full"))
        await self.ask(HUMAN, SetTopic(channel="#general", text="t"))

    async def works(self) -> None:
        """Create a task, update it and complete it."""
        mina = await self.join("mina")
        made = await self.ask(mina, CreateTask(title="t", description="d", assignee="mina"))
        await self.ask(
            mina,
            UpdateTask(task=made.id, status="blocked", title="T", description="D", assignee="@mina"),
        )
        await self.ask(mina, CompleteTask(task=made.id, summary="done"))

    async def waits(self) -> None:
        """Subscribe to events and receive notices."""
        luna, nova = await self.join("kira"), await self.join("vera")
        made = await self.ask(
            HUMAN,
            Subscribe(
                filter=Filter(types=("status",)),
                owner="kira",
                once=True,
                preset="collision",
                text="see",
                send="go",
            ),
        )
        id_ = str(made.payload["id"])
        await self.ask(
            SYSTEM_CALLER,
            FireSubscription(
                id=id_, made=made.seq, event=1, cause="c", text="x", agents=("luna", "nova"), file="a.py"
            ),
        )
        await self.ask(SYSTEM_CALLER, Retire(id=id_))
        other = await self.ask(luna, Subscribe(filter=Filter(types=("x",))))
        await self.ask(luna, Unsubscribe(id=str(other.payload["id"])))
        request = await self.ask(luna, Send(text="well?", to=("@vera",), intent="request"))
        await self.ask(nova, Acknowledge(messages=(request.seq,), lane="ack", grade="acked"))
        await self.ask(nova, SetStatus(state="idle"))
        await self.ask(SYSTEM_CALLER, FireWatch(agent="vera", request=request.seq))

    async def routes(self) -> None:
        """Subscribe an agent and its session to paths, and send to these."""
        cleo = await self.join("cleo")
        made = CreateSession(agent="cleo", session="chat", title="Team", harness_session="h1")
        await self.ask(cleo, made)
        for session in ("", "chat"):
            await self.ask(cleo, SubscribePath(agent="cleo", pattern="slack/*", session=session))
        content = Content(command="new", payload=[], source="slack", external_id="ts-1")
        await self.ask(HUMAN, Send(text="", to=("slack/team",), content=content))
        for session in ("", "chat"):
            await self.ask(cleo, UnsubscribePath(agent="cleo", pattern="slack/*", session=session))
        await self.ask(cleo, RemoveSession(agent="cleo", session="chat"))
        bob = Caller(name="irc/net/bob", standing=Standing.EXTERNAL, kind="external", by="cleo")
        await self.ask(bob, RelayLine(text="cleo: hello", nick="Bob", path="irc/net/#c"))
        await self.ask(
            HUMAN,
            Migrate(
                agents=("orla",),
                sessions=(MigratedSession(agent="orla", session="mon", created=5, used=6, title="Team"),),
                subscriptions=(MigratedSubscription(agent="orla", pattern="slack/**", added=5),),
                messages=(
                    MigratedMessage(id="m-1", sender="bridge", path="slack/x", ts=7, mailboxes=("orla",)),
                ),
            ),
        )
        await self.ask(cleo, ClearDeadLetters())

    async def runs(self) -> None:
        """Run automatic turns of a session: one that fails until it is held, one with a result, none."""
        vela = await self.join("vela")
        await self.ask(vela, CreateSession(agent="vela", session="mon"))
        await self.ask(HUMAN, SetAutoRun(agent="vela", session="mon", value={"enabled": True}))
        await self.ask(vela, SubscribePath(agent="vela", pattern="build/*", session="mon"))
        content = Content(command="new")
        message = await self.ask(HUMAN, Send(text="", to=("build/done",), content=content))
        batch = (BatchMessage(seq=message.seq, mailbox="vela+mon"),)
        start = StartTurn(agent="vela", session="mon", batch=batch, triage="accepted")
        for _ in range(3):
            turn = await self.ask(SYSTEM_CALLER, start)
            await self.ask(SYSTEM_CALLER, FailTurn(turn=turn.seq, error="exit status 1"))
        iris = replace(await self.join("iris", harness="claude"), harness="claude")
        reply = await self.ask(iris, Send(text="so", to=("@vela",), reply_to=str(message.seq)))
        answered = (BatchMessage(seq=reply.seq, mailbox="vela"),)
        turn = await self.ask(
            SYSTEM_CALLER,
            StartTurn(agent="vela", session="mon", batch=answered, text="look", started_by="human"),
        )
        await self.ask(SYSTEM_CALLER, FinishTurn(turn=turn.seq, text="done"))
        await self.ask(
            SYSTEM_CALLER,
            SkipTurn(agent="vela", session="mon", batch=batch, reason="triage", output="NO"),
        )

    async def sits(self) -> None:
        """Run in a terminal in which a person types and a message waits for its reply."""
        zora = await self.join("zora", holder="h", seat=seat(9), argv=("claude",), cwd="/w")
        await self.ask(HUMAN, Pause(name="zora"))
        await self.ask(HUMAN, Unpause(name="zora"))
        await self.ask(HUMAN, TagAgent(name="zora", tag="api"))
        await self.ask(SYSTEM_CALLER, Typed(name="zora", text="blue"))
        await self.ask(SYSTEM_CALLER, Typed(name="zora", secret=7))
        await self.ask(HUMAN, Send(text="blue", recipient="zora", is_bare=True))
        keys = await self.ask(HUMAN, Send(text="", raw=b"y", recipient="zora"))
        await self.ask(HUMAN, Send(text="", raw=b"y", raw_hash="scrypt$1", recipient="zora"))
        seen = DeliveryReport(agent="zora", messages=(keys.seq,), state="seen", evidence="sure? [y/n]")
        await self.ask(SYSTEM_CALLER, ReportDelivery(report=seen))
        await self.ask(HUMAN, Redact(event=str(keys.seq), hash="scrypt$1"))
        request = await self.ask(HUMAN, Send(text="well?", to=("@zora",), expects_reply=True))
        asked = OpenPermission(
            name="zora", permission="p1", tool="Bash", text="Bash: ls", digest="d", until=9
        )
        await self.ask(SYSTEM_CALLER, asked)
        await self.ask(HUMAN, AnswerPermission(name="zora", permission="p1", digest="d", is_allowed=True))
        over = ClosePermission(name="zora", permission="p1", decision="deny", reason="timeout")
        await self.ask(SYSTEM_CALLER, over)
        await self.ask(zora, Leave())
        await self.ask(SYSTEM_CALLER, FireReminder(agent="zora", request=request.seq))

    async def shares(self) -> None:
        """Join and leave a room, and use the stick in every way."""
        room = JoinRoom(workspaces=("/repo",))
        members = [await self.join(name, harness="claude") for name in ("rosa", "sara", "tara")]
        rosa, _, tara = members
        for one in members:
            joined = await self.ask(one, room)
        id_ = str(joined.payload["room"])
        held = await self.ask(rosa, Claim(room=id_))
        lease = str(held.payload["lease_id"])
        handoff: dict[str, object] = {"status": "done", "next_action": "go on"}
        await self.ask(rosa, ReleaseStick(room=id_, turn=1, lease=lease, handoff=handoff))
        self.bus.clock.advance(1201)
        self.bus.member_presence.waiting.add((id_, "tara"))
        await self.ask(SYSTEM_CALLER, ExpireReservation(room=id_, turn=1))
        held = await self.ask(tara, Claim(room=id_))
        lease = str(held.payload["lease_id"])
        await self.ask(tara, PassStick(room=id_, turn=2, lease=lease, to="sara", handoff=handoff))
        await self.ask(HUMAN, room)
        await self.ask(HUMAN, TakeOver(room=id_, turn=2, reason="mine", is_override=True))
        self.bus.member_presence.gone["human"] = self.bus.clock.now_ms()
        self.bus.clock.advance(600)
        await self.ask(SYSTEM_CALLER, HandOn(room=id_, turn=3))
        await self.ask(rosa, Send(text="hear", room=id_, delivery_hint="interrupt"))
        note = await self.ask(rosa, AddNote(room=id_, text="look", turn=1))
        await self.ask(rosa, ResolveNote(room=id_, note=note.id))
        kick = await self.ask(HUMAN, KickMember(room=id_, target="tara", is_forced=True, reason="late"))
        await self.ask(SYSTEM_CALLER, TellKick(room=id_, member="tara", kick=kick.id))
        await self.ask(rosa, LeaveRoom(room=id_))
        await self.ask(SYSTEM_CALLER, RetireMember(room=id_, member="sara"))
        await self.ask(HUMAN, CloseRoom(room=id_, reason="over"))


async def test_everything_in_the_table_is_written_and_nothing_else(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        play = Play(bus)

        await play.lives()
        await play.talks()
        await play.works()
        await play.waits()
        await play.shares()
        await play.routes()
        await play.runs()
        await play.sits()

        events = await bus.log.read(Query())
    written: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        assert unlisted_fields(event.type, event.payload) == set(), event
        written[event.type] |= event.payload.keys()
    assert play.asked == set(TABLE) - {Archive, Import}, "neither writes an event about itself"
    assert written == {type_: set(fields_of(type_).all) for type_ in BODIES}
    assert {event.payload["action"] for event in events if event.type == "life"} == ACTIONS
