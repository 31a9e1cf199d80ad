"""A long random log for the tests of the past: agents, messages, deliveries, rooms, tasks and permissions."""

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.broker.scene import Scene
from tests.fakes import HUMAN, SCRIPT, Bus, open_sqlite, opened_bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import RequestError
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import AnswerPermission, ClosePermission, MessageSent, OpenPermission
from palaver.protocol.paths import ClearDeadLetters, SubscribePath
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    AddNote,
    CloseRoom,
    DaemonStarted,
    Gone,
    JoinRoom,
    Leave,
    Pause,
    Put,
    Redeliver,
    Release,
    ResolveNote,
    SetStatus,
    TagAgent,
    Unpause,
)
from palaver.protocol.tasks import CompleteTask, CreateTask, UpdateTask
from palaver.state.rooms import read_notes, read_room_at

NAMES = ("luna", "nova", "rex", "ada", "kit")
THREADS = ("", "", "release", "bugs")
PLACES = ("/home/ann/repo", "/home/ann/web")
STATES = ("idle", "active", "blocked", "idle", "active")
REPORTS = ("submitted", "seen", "held", "queued", "refused", "expired")


class RandomBus:
    """Makes random requests as the parties of a bus. Refused ones write nothing."""

    def __init__(self, bus: Bus, seed: int) -> None:
        self._bus = bus
        self._draw = random.Random(seed)
        self._callers: dict[str, Caller] = {}
        self._scenes = [Scene(bus) for _ in PLACES]
        self._asked: list[tuple[str, str]] = []
        self._seqs: list[int] = []
        self._number = 0

    async def run(self, count: int) -> None:
        """Make requests until the log has this many events."""
        acts: tuple[tuple[int, Callable[[], Awaitable[object]]], ...] = (
            (5, self._join),
            (2, self._leave),
            (8, self._set_status),
            (20, self._send),
            (6, self._ask_person),
            (8, self._reply),
            (1, self._send_too_fast),
            (12, self._report),
            (8, self._acknowledge),
            (3, self._release_or_redeliver),
            (4, self._join_room),
            (8, self._use_stick),
            (4, self._write_in_room),
            (5, self._change_tasks),
            (4, self._permission),
            (2, self._change_agent),
            (3, self._use_paths),
            (2, self._put),
            (1, self._restart),
        )
        weights = [weight for weight, _ in acts]
        for name in NAMES[:3]:
            await self._join(name)
        self._seqs.append((await self._bus.send(HUMAN, "the first text", "@luna")).seq)
        while self._bus.log.last() < count:
            (_, act) = self._draw.choices(acts, weights)[0]
            self._bus.clock.advance(self._draw.choice((0.01, 0.2, 3, 40, 600)))
            with suppress(RequestError):
                await act()
            self._number += 1

    def _name(self) -> str:
        return self._draw.choice(NAMES)

    def _caller(self) -> Caller:
        return self._draw.choice([*self._callers.values(), HUMAN])

    async def _join(self, name: str = "") -> None:
        name = name or self._name()
        harness = self._draw.choice(("codex", "claude", ""))
        self._callers[name] = await self._bus.join(name, harness=harness, cwd=f"/home/ann/{name}")

    async def _leave(self) -> None:
        name = self._draw.choice([*self._callers])
        if self._draw.random() < 0.5:
            await self._bus.broker.submit(self._callers[name], Leave())
        else:
            await self._bus.broker.submit(SYSTEM_CALLER, Gone(name=name, reason="its process ended"))
        self._bus.present.discard(name)

    async def _set_status(self) -> None:
        state = self._draw.choice(STATES)
        await self._bus.broker.submit(
            self._draw.choice([*self._callers.values()]),
            SetStatus(state=state, detail=f"step {self._number}", tool=self._draw.choice(("", "Bash"))),
        )

    async def _send(self) -> None:
        to = self._draw.choice((f"@{self._name()}", f"@{self._name()}", "@human", "@all", "build/done"))
        event = await self._bus.send(
            self._caller(),
            f"text {self._number} about {self._draw.choice(('apples', 'pears', '<b>markup</b>'))}",
            to,
            thread=self._draw.choice(THREADS),
            priority=self._draw.choice(("", "", "idle", "interrupt", "idle-first")),
            expires_in_ms=self._draw.choice((0, 0, 0, 60_000)),
            is_confirmed=True,
        )
        self._seqs.append(event.seq)

    async def _ask_person(self) -> None:
        event = await self._bus.send(
            self._draw.choice([*self._callers.values()]),
            f"question {self._number}?",
            "@human",
            intent=self._draw.choice(("request", "inform")),
            expects_reply=self._draw.random() < 0.3,
        )
        self._seqs.append(event.seq)

    async def _reply(self) -> None:
        seq = self._draw.choice(self._seqs)
        event = await self._bus.send(self._caller(), f"reply {self._number}", reply_to=str(seq))
        self._seqs.append(event.seq)

    async def _report(self) -> None:
        fields: dict[str, object] = {"lane": self._draw.choice(("native", "terminal"))}
        if self._draw.random() < 0.2:
            fields["unconfirmed"] = True
        state = self._draw.choice(REPORTS)
        if state == "held":
            fields["reason"] = self._draw.choice(("a dialog is open", "usage limit"))
        message = self._bus.log.event(self._draw.choice(self._seqs[-20:]))
        recipients = message.body.delivered_to if message and isinstance(message.body, MessageSent) else ()
        await self._bus.report(
            self._draw.choice(recipients or NAMES), state, message.seq if message else 1, **fields
        )

    async def _acknowledge(self) -> None:
        await self._bus.ack(self._caller(), *self._draw.sample(self._seqs, min(2, len(self._seqs))))

    async def _release_or_redeliver(self) -> None:
        seq = str(self._draw.choice(self._seqs))
        await self._bus.broker.submit(HUMAN, self._draw.choice((Release, Redeliver))(message=seq))

    async def _join_room(self) -> None:
        index = self._draw.randrange(len(PLACES))
        scene, name = self._scenes[index], self._name()
        scene.callers = self._callers
        if name in self._callers:
            await scene.ask(name, JoinRoom(workspaces=(PLACES[index],)))
            scene.id = scene.id or _room_at(self._bus, PLACES[index])
        if scene.id and self._draw.random() < 0.1:
            await self._bus.broker.submit(HUMAN, CloseRoom(room=scene.id))
            scene.id = ""

    async def _use_stick(self) -> None:
        scene = self._draw.choice(self._scenes)
        name = self._name()
        match self._draw.randrange(5):
            case 0 | 1:
                scene.waits(name)
                await scene.wait(name)
            case 2:
                await scene.release(scene.room.owner)
            case 3:
                await scene.pass_on(scene.room.owner, name)
            case _:
                await scene.take_over(name)

    async def _write_in_room(self) -> None:
        scene, name = self._draw.choice(self._scenes), self._name()
        notes = read_notes(self._bus.log.rows, scene.id) if scene.id else []
        match self._draw.randrange(3):
            case 0:
                await scene.ask(name, AddNote(room=scene.id, text=f"note {self._number}"))
            case 1 if notes:
                note = self._draw.choice(notes)
                await scene.ask(name, ResolveNote(room=scene.id, note=note.id))
            case _:
                event = await self._bus.send(
                    self._caller(), f"in the room {self._number}", room=scene.id, is_confirmed=True
                )
                self._seqs.append(event.seq)

    async def _change_tasks(self) -> None:
        tasks = [event.id for event in await self._bus.log.read(Query(types=("task.create",)))]
        match self._draw.randrange(3):
            case 1 if tasks:
                await self._bus.broker.submit(
                    self._caller(), UpdateTask(task=self._draw.choice(tasks), status="doing", assignee="nova")
                )
            case 2 if tasks:
                await self._bus.broker.submit(
                    self._caller(), CompleteTask(task=self._draw.choice(tasks), summary="done")
                )
            case _:
                created = CreateTask(title=f"task {self._number}", assignee=f"@{self._name()}")
                await self._bus.broker.submit(self._caller(), created)

    async def _permission(self) -> None:
        if self._asked and self._draw.random() < 0.5:
            name, permission = self._asked.pop(self._draw.randrange(len(self._asked)))
            if self._draw.random() < 0.3:
                closed = ClosePermission(name=name, permission=permission, decision="deny", reason="too late")
                await self._bus.broker.submit(SYSTEM_CALLER, closed)
                return
            is_allowed = self._draw.random() < 0.5
            answered = AnswerPermission(
                name=name, permission=permission, digest="d" * 64, is_allowed=is_allowed
            )
            await self._bus.broker.submit(HUMAN, answered)
            return
        name, permission = self._name(), f"{self._number:07x}"
        asked = OpenPermission(
            name=name,
            permission=permission,
            tool="Bash",
            text=f"rm -r build{self._number}",
            digest="d" * 64,
            until=self._bus.clock.now_ms() + 60_000,
        )
        await self._bus.broker.submit(SYSTEM_CALLER, asked)
        self._asked.append((name, permission))

    async def _send_too_fast(self) -> None:
        """Send so many messages that a brake holds the last ones."""
        asking = replace(self._draw.choice([*self._callers.values()]), harness="codex")
        for number in range(8):
            seq = self._bus.log.last() + 1
            self._seqs.append(seq)
            await self._bus.send(asking, f"fast {self._number}.{number}", "@nova")

    async def _change_agent(self) -> None:
        name = self._name()
        change = self._draw.choice((Pause(name=name), Unpause(name=name), TagAgent(name=name, tag="api")))
        await self._bus.broker.submit(HUMAN, change)

    async def _use_paths(self) -> None:
        match self._draw.randrange(3):
            case 0:
                name = self._draw.choice([*self._callers])
                subscribed = SubscribePath(agent=name, pattern="build/*")
                await self._bus.broker.submit(self._callers[name], subscribed)
            case 1:
                await self._bus.broker.submit(HUMAN, ClearDeadLetters())
            case _:
                await self._bus.send(SCRIPT, f"dead {self._number}", "nobody/here")

    async def _put(self) -> None:
        made = Draft(
            type="weather",
            sender="script",
            to=(self._name(),),
            id=f"W{self._number}",
            ts=self._bus.clock.now_ms(),
            payload={"sky": "blue"},
        )
        await self._bus.broker.submit(SCRIPT, Put(envelope=made))

    async def _restart(self) -> None:
        self._asked.clear()
        await self._bus.broker.submit(SYSTEM_CALLER, DaemonStarted(pid=self._number + 1, version="1.0"))


def _room_at(bus: Bus, path: str) -> str:
    room = read_room_at(bus.log.rows, path)
    assert room is not None
    return room.id


async def write_random_log(home: Path, *, seed: int, count: int) -> Sequence[Event]:
    """Write a log into a home, and return its events."""
    async with opened_bus(open_sqlite, home) as bus:
        await RandomBus(bus, seed).run(count)
    log = await open_sqlite(home)
    try:
        return await log.read(Query(limit=10 * count, with_imported=True))
    finally:
        await log.close()
