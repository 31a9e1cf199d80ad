"""Questions about the past: answered by real processes, as the bus would have answered them at that time."""

import asyncio
import os
import random
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from tests.daemon.past_log import NAMES, write_random_log
from tests.fakes import GuardedTasks, Ring, open_sqlite
from tests.limits import LIMIT_S
from tests.log.logs import writes
from tests.processes import end_process, wait_for_end

from palaver.config import Settings
from palaver.daemon.past import PastFacts, serve
from palaver.errors import (
    BadRequest,
    NewerSchema,
    NotFound,
    PalaverError,
    ShuttingDown,
    TooSlow,
    Unavailable,
    error_from_wire,
)
from palaver.log.api import Log
from palaver.log.storage import FILE_NAME, MIGRATIONS
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.views import (
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
    AttentionPage,
    Snapshot,
)
from palaver.services.past import (
    IDLE_S,
    LIMIT_PROCESSES,
    LIMIT_WAITING,
    SILENT_S,
    PastLine,
    PastProgress,
    PastReply,
    PastViews,
)
from palaver.services.past import steps_between as way
from palaver.services.queries import Queries
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader
from palaver.state.attention import read_attention
from palaver.state.fold import LIMIT_UNDO
from palaver.state.rooms import read_all_rooms

COUNT = 500
MUTE = (sys.executable, "-I", "-c", "import sys; sys.stdin.read()")
"""A program that reads and never answers."""


class Timers:
    """Timers that the test fires."""

    def __init__(self) -> None:
        self.rings: list[Ring] = []

    def call_later(self, seconds: float, ring: Callable[[], None]) -> Ring:
        self.rings.append(Ring(seconds, ring))
        return self.rings[-1]

    def running(self, seconds: float) -> list[Ring]:
        return [one for one in self.rings if not one.is_over and one.moment_s == seconds]


async def until(is_true: Callable[[], bool]) -> None:
    """Let other tasks run until a condition is true."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            if is_true():
                return
            await asyncio.sleep(0)


class Stage:
    """The views of the past of one home."""

    def __init__(self, views: PastViews, timers: Timers) -> None:
        self.views = views
        self.timers = timers

    async def ask(self, question: AnyAsk) -> object:
        """Return the answer, or the error."""
        try:
            async with asyncio.timeout(LIMIT_S):
                return msgspec.json.decode(await self.views.answer(question))
        except PalaverError as error:
            return type(error), str(error)

    async def started(self, number: int = 0) -> int:
        """Wait until a process has started, and return its id."""
        await until(lambda: len(self.views.processes) > number and self.views.processes[number].pid > 0)
        return self.views.processes[number].pid

    async def ended(self) -> None:
        """Wait until no process is left."""
        await until(lambda: not self.views.processes)


@asynccontextmanager
async def opened(home: Path, last: int = COUNT, program: tuple[str, ...] = ()) -> AsyncIterator[Stage]:
    timers = Timers()
    async with GuardedTasks() as tasks:
        views = (
            PastViews(home, last=lambda: last, tasks=tasks, call_later=timers.call_later, program=program)
            if program
            else PastViews(home, last=lambda: last, tasks=tasks, call_later=timers.call_later)
        )
        try:
            yield Stage(views, timers)
        finally:
            views.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[Event]]:
    """Return a home with a random log that no test changes, and its events."""
    home = tmp_path_factory.mktemp("home")
    return home, asyncio.run(write_random_log(home, seed=23, count=COUNT))


# The same answers as at that time


def draft_of(event: Event) -> Draft:
    fields = {name: getattr(event, name) for name in Draft.__struct_fields__}
    return Draft(**fields)


class Bygone:
    """A log that ends at the seq in question: the bus as it was."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def grow(self, events: Sequence[Event]) -> None:
        await self._log.commit_all([(None, writes(draft_of(event))) for event in events])

    @property
    def facts(self) -> PastFacts:
        event = self._log.event(self._log.last())
        now_ms = 0 if event is None else event.ts
        return PastFacts(self._log.rows, self._log.event, now_ms=now_ms, device="TEST", settings=Settings())

    async def ask(self, question: AnyAsk) -> object:
        """Return the answer of the present, or the error."""
        try:
            pages = ViewPages(self._log.rows, LogReader(Queries(self._log)), self.facts)
            return msgspec.json.decode(msgspec.json.encode(await pages.answer(question)))
        except PalaverError as error:
            return type(error), str(error)

    def questions(self, draw: random.Random) -> Iterator[AnyAsk]:
        """Yield all kinds of questions, about everything there is at that time and a few other things."""
        at = self._log.last()
        yield AskPast(at=at)
        yield AskAgents(at=at)
        yield AskAgents(at=at, after="luna", limit=1)
        yield from (AskAgent(at=at, name=name) for name in (*NAMES, "@nova", "human"))
        yield AskAttention(at=at)
        for entry in read_attention(self._log.rows, self.facts):
            if entry.id:
                yield AskPermission(at=at, id=entry.id)
        yield AskPermission(at=at, id="0000000")
        yield AskConversations(at=at)
        yield AskConversations(at=at, before=at // 2, limit=3)
        yield AskConversations(at=at, find="nova")
        for conversation in ("#general", "thread/bugs", "@luna@nova", "@human@luna", "@human@rex"):
            yield AskMessages(at=at, conversation=conversation)
            yield AskMessages(at=at, conversation=conversation, before=at // 2, limit=4)
            yield AskMessages(at=at, conversation=conversation, after=at // 2, limit=4)
        for room in read_all_rooms(self._log.rows):
            yield AskRoom(at=at, id=room.id)
            yield AskMessages(at=at, conversation=f"#{room.id}", has_outside=True)
        yield AskRooms(at=at)
        yield from (AskLedger(at=at, message=str(draw.randint(1, at + 3))) for _ in range(8))
        yield AskLog(at=at)
        yield AskLog(at=at, after=at // 3, limit=5)
        yield AskLog(at=at, before=at + 10, limit=5, types=("message", "status"))
        yield AskLog(at=at, search="apples", limit=7)
        yield AskLog(at=at, search="?")
        yield AskLog(at=at, agents=("nova",), senders=("luna", "human"))
        random_event = self._log.event(draw.randint(1, at))
        yield AskSeq(at=at, ts=0 if random_event is None else random_event.ts)
        yield AskSeq(at=at, ts=10**13)


async def answers_at(events: Sequence[Event], seqs: Sequence[int], home: Path) -> list[tuple[AnyAsk, object]]:
    """Return questions about these seqs, and the answers of a log which ends there, in random order."""
    draw = random.Random(9)
    found: list[tuple[AnyAsk, object]] = []
    log = await open_sqlite(home)
    bygone = Bygone(log)
    for seq in sorted(seqs):
        await bygone.grow(events[log.last() : seq])
        found += [(question, await bygone.ask(question)) for question in bygone.questions(draw)]
    await log.close()
    draw.shuffle(found)
    return found


class Inside:
    """The program of the process, in this process: a starved process would delay thousands of answers."""

    def __init__(self, home: Path) -> None:
        self._source = asyncio.StreamReader()
        self._replies: asyncio.Queue[PastReply] = asyncio.Queue()
        self._serving = asyncio.create_task(serve(home, self._source, self._replies.put_nowait))

    async def ask(self, question: AnyAsk) -> object:
        """Return the answer, or the error."""
        self._source.feed_data(msgspec.json.encode(PastLine(id=1, ask=question)) + b"\n")
        while not (reply := await self._replies.get()).id:
            pass  # On a slow machine a long fold reports its progress first.
        if reply.code:
            error = error_from_wire(reply.code, reply.text, reply.details)
            return type(error), str(error)
        return msgspec.json.decode(reply.answer)

    async def close(self) -> None:
        self._source.feed_eof()
        await self._serving


async def check_answers(home: Path, expected: Sequence[tuple[AnyAsk, object]]) -> None:
    inside = Inside(home)
    for question, answer in expected:
        assert await inside.ask(question) == answer, question
    await inside.close()


async def test_answers_about_random_seqs_are_those_of_that_time(
    whole: tuple[Path, Sequence[Event]], tmp_path: Path
) -> None:
    home, events = whole
    draw = random.Random(31)

    expected = await answers_at(events, [draw.randint(1, COUNT) for _ in range(50)], tmp_path)

    assert len(expected) > 2000
    await check_answers(home, expected)


async def test_answers_with_archives_are_those_of_that_time(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    events = await write_random_log(home, seed=5, count=COUNT)
    log = await open_sqlite(home)
    await log.archive(150)
    await log.archive(300)
    await log.close()

    await check_answers(home, await answers_at(events, (40, 149, 150, 200, 299, 300, 310, 480), other))


async def test_answers_of_the_process_are_those_of_that_time(
    whole: tuple[Path, Sequence[Event]], tmp_path: Path
) -> None:
    home, events = whole
    expected = await answers_at(events, (37, 250, 251, 499), tmp_path)

    async with opened(home) as stage:
        for question, answer in expected[:60]:
            assert await stage.ask(question) == answer, question


# The processes


async def test_process_has_the_lowest_priority_and_limited_memory(
    whole: tuple[Path, Sequence[Event]],
) -> None:
    async with opened(whole[0]) as stage:
        await stage.ask(AskRooms(at=50))
        pid = await stage.started()

        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        assert resource.prlimit(pid, resource.RLIMIT_AS) == (2 * 1024**3, 2 * 1024**3)


async def test_questions_use_one_process_which_keeps_its_state(
    whole: tuple[Path, Sequence[Event]],
) -> None:
    async with opened(whole[0]) as stage:
        first = await asyncio.gather(*(stage.ask(AskAgents(at=at)) for at in (100, 101, 100, 99)))
        pid = await stage.started()
        for at in (*range(200, 220), *range(220, 200, -1)):
            found = msgspec.convert(await stage.ask(AskAgents(at=at)), AgentsPage)
            assert found.seq == at

        assert await stage.started() == pid
        assert [msgspec.convert(one, AgentsPage).seq for one in first] == [100, 101, 100, 99]


async def test_question_survives_the_kill_of_its_process(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as stage:
        question = asyncio.create_task(stage.ask(AskPast(at=300)))
        first = await stage.started()
        os.kill(first, signal.SIGKILL)

        found = msgspec.convert(await question, Snapshot)

        assert found.seq == 300
        assert await stage.started() != first


async def test_process_that_is_killed_again_and_again_is_reported(
    whole: tuple[Path, Sequence[Event]],
) -> None:
    async with opened(whole[0]) as stage:
        question = asyncio.create_task(stage.ask(AskPast(at=300)))
        while not question.done():
            with suppress(IndexError, ProcessLookupError):
                if pid := stage.views.processes[0].pid:
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0)

        assert await question == (
            Unavailable,
            "the process that shows the past was stopped; ask again",
        )
        assert msgspec.convert(await stage.ask(AskPast(at=300)), Snapshot).seq == 300


async def test_process_that_was_killed_at_rest_is_replaced(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as stage:
        await stage.ask(AskAttention(at=20))
        first = await stage.started()
        end_process(first, signal.SIGKILL)

        found = await stage.ask(AskAttention(at=20))

        assert msgspec.convert(found, AttentionPage).seq == 20
        assert await stage.started() != first


async def test_process_ends_some_time_after_its_last_question(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as stage:
        await stage.ask(AskAttention(at=20))
        await stage.ask(AskAttention(at=21))
        pidfd = os.pidfd_open(await stage.started())
        (timer,) = stage.timers.running(IDLE_S)
        assert stage.timers.running(SILENT_S) == []

        timer.ring()

        assert stage.views.processes == ()
        await asyncio.to_thread(wait_for_end, pidfd)
        os.close(pidfd)
        assert msgspec.convert(await stage.ask(AskAttention(at=20)), AttentionPage).seq == 20


async def test_silent_process_is_killed(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as stage:
        await stage.ask(AskAttention(at=20))
        pid = await stage.started()
        os.kill(pid, signal.SIGSTOP)
        question = asyncio.create_task(stage.ask(AskAttention(at=20)))
        await until(lambda: bool(stage.timers.running(SILENT_S)))
        pidfd = os.pidfd_open(pid)

        stage.timers.running(SILENT_S)[0].ring()

        assert await question == (TooSlow, "the past could not be computed in time; try again")
        await asyncio.to_thread(wait_for_end, pidfd)
        os.close(pidfd)


async def test_close_ends_processes_and_questions(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as stage:
        await stage.ask(AskAttention(at=20))
        pid = await stage.started()
        os.kill(pid, signal.SIGSTOP)
        question = asyncio.create_task(stage.ask(AskAttention(at=20)))
        await until(lambda: bool(stage.timers.running(SILENT_S)))
        pidfd = os.pidfd_open(pid)

        stage.views.close()

        assert (await question)[0] is ShuttingDown  # type: ignore[index]  # an error
        await asyncio.to_thread(wait_for_end, pidfd)
        os.close(pidfd)
        assert (await stage.ask(AskAttention(at=20)))[0] is ShuttingDown  # type: ignore[index]  # an error


async def test_cancelled_question_does_not_disturb_the_next_one(
    whole: tuple[Path, Sequence[Event]],
) -> None:
    async with opened(whole[0]) as stage:
        questions = [asyncio.create_task(stage.ask(AskAgents(at=at))) for at in (400, 30, 40)]
        await stage.started()
        questions[0].cancel()
        questions[1].cancel()

        found = msgspec.convert(await questions[2], AgentsPage)

        assert found.seq == 40
        assert len(stage.timers.running(IDLE_S)) == 1


async def test_process_that_is_closed_before_its_start_does_not_start(tmp_path: Path) -> None:
    async with opened(tmp_path, program=MUTE) as stage:
        question = asyncio.create_task(stage.ask(AskRooms(at=5)))
        await until(lambda: bool(stage.views.processes))

        stage.views.close()

        assert (await question)[0] is ShuttingDown  # type: ignore[index]  # an error


@pytest.mark.parametrize(
    "program",
    [("/nowhere/python",), (sys.executable, "-I", "-c", "print('nonsense')")],
    ids=["none", "other"],
)
async def test_program_that_cannot_answer_is_reported(tmp_path: Path, program: tuple[str, ...]) -> None:
    async with opened(tmp_path, program=program) as stage:
        assert (await stage.ask(AskRooms(at=5)))[0] is Unavailable  # type: ignore[index]  # an error
        await stage.ended()


async def test_there_are_never_more_than_two_processes(tmp_path: Path) -> None:
    async with opened(tmp_path, last=10**7, program=MUTE) as stage:
        questions = [asyncio.create_task(stage.ask(AskRooms(at=at))) for at in (1_000_000, 999_999, 10, 12)]
        await stage.started(1)
        assert [process.at for process in stage.views.processes] == [999_999, 12]

        questions += [
            asyncio.create_task(stage.ask(AskRooms(at=at))) for at in (500_000, 9_000_000, 20, 999_999)
        ]
        await until(lambda: sum(process.waiting for process in stage.views.processes) == len(questions))

        assert len(stage.views.processes) == LIMIT_PROCESSES
        for question in questions:
            question.cancel()


async def test_too_many_waiting_questions_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, program=MUTE) as stage:
        questions = [asyncio.create_task(stage.ask(AskRooms(at=5))) for _ in range(LIMIT_WAITING)]
        await stage.started()

        assert await stage.ask(AskRooms(at=5)) == (
            TooSlow,
            "too many questions about the past are waiting; try again",
        )
        for question in questions:
            question.cancel()


@pytest.mark.parametrize(
    ("seq", "at", "kept", "steps"),
    [
        (0, 500, (), 500),
        (500, 500, (), 0),
        (500, 400, (), 100),
        (LIMIT_UNDO + 5, 5, (), LIMIT_UNDO),
        (LIMIT_UNDO + 6, 5, (), LIMIT_UNDO + 11),
        (1_000_000, 500_000, (), 1_500_000),
        (1_000_000, 500_000, (100_000, 490_000, 510_000, 980_000), 30_000),
        (100_000, 500_000, (490_000, 510_000), 10_000),
        (495_000, 500_000, (490_000,), 5_000),
    ],
)
def test_long_way_back_begins_at_a_kept_state_or_the_first_event(
    seq: int, at: int, kept: tuple[int, ...], steps: int
) -> None:
    assert way(seq, at, kept) == steps


async def test_progress_reaches_the_caller(tmp_path: Path) -> None:
    program = (
        sys.executable,
        "-I",
        "-c",
        "import json\nnumber = json.loads(input())['id']\nprint(json.dumps({'seq': 7}), flush=True)\n"
        "print(json.dumps({'id': number, 'answer': {'seq': 9}, 'seq': 9}), flush=True)\ninput()",
    )
    found: list[PastProgress] = []
    async with opened(tmp_path, program=program) as stage:
        async with asyncio.timeout(LIMIT_S):
            answer = await stage.views.answer(AskRooms(at=9), found.append)

        assert msgspec.json.decode(answer) == {"seq": 9}
        assert found == [PastProgress(at=9, seq=7)]
        assert stage.views.processes[0].seq == 9


async def test_unexpected_error_is_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = (
        sys.executable,
        "-I",
        "-c",
        "import json\nnumber = json.loads(input())['id']\n"
        "print(json.dumps({'id': number, 'code': 'unavailable', 'text': 'a bug', 'trace': 'at line 7'}),"
        " flush=True)\ninput()",
    )
    async with opened(tmp_path, program=program) as stage:
        assert await stage.ask(AskRooms(at=9)) == (Unavailable, "a bug")

    assert "at line 7" in caplog.text


# Refusals


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (0, "a question about the past needs a seq above 0"),
        (COUNT + 1, f"#{COUNT + 1} is not in the past: the log ends at #{COUNT}"),
    ],
)
async def test_seq_that_is_not_in_the_past_is_refused(tmp_path: Path, at: int, sentence: str) -> None:
    async with opened(tmp_path) as stage:
        assert await stage.ask(AskRooms(at=at)) == (BadRequest, sentence)
        assert stage.views.processes == ()


async def test_error_of_the_process_keeps_its_class_and_details(tmp_path: Path) -> None:
    await write_random_log(tmp_path, seed=1, count=20)
    async with opened(tmp_path, last=20) as stage:
        assert (await stage.ask(AskAgent(at=9, name="nobody")))[0] is NotFound  # type: ignore[index]  # an error
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 3}")

    async with opened(tmp_path, last=20) as stage:
        with pytest.raises(NewerSchema) as error:
            await stage.views.answer(AskRooms(at=9))

    assert (error.value.found, error.value.known) == (len(MIGRATIONS) + 3, len(MIGRATIONS))
