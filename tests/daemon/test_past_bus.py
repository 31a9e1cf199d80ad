"""The past of a running bus, over the wire of views."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.daemon.stage import Home
from tests.limits import LIMIT_S
from tests.processes import processes_of, wait_for_end

from palaver.client.view_link import ViewLink
from palaver.errors import BadRequest, TooSlow
from palaver.protocol.views import (
    AgentsPage,
    AskAgents,
    AskAttention,
    AskConversations,
    AskLog,
    AskMessages,
    AskPast,
    AttentionPage,
    ConversationsPage,
    LogPage,
    MessagesPage,
    Snapshot,
)


@asynccontextmanager
async def linked(home: Home) -> AsyncIterator[ViewLink]:
    link = ViewLink(str(home.path))
    try:
        async with asyncio.timeout(LIMIT_S):
            yield link
    finally:
        await link.close()


def past_processes(folder: Path) -> list[int]:
    return [pid for pid, command in processes_of(folder).items() if "palaver.daemon.past" in command]


def last_seq(home: Home) -> int:
    return int(home.events()[-1]["seq"])


async def test_past_has_nothing_of_today(bus: Home) -> None:
    agent = bus.shell()
    agent.ok("join", "--name", "luna")
    agent.ok("send", "@human", "--intent", "request", "--", "shall I go on?")
    then = last_seq(bus)
    agent.ok("send", "@human", "--", "a later text")
    agent.ok("leave")

    async with linked(bus) as link:
        now = await link.ask(AskAgents(), AgentsPage)
        past = await link.ask(AskPast(at=then), Snapshot)
        before = await link.ask(AskPast(at=1), Snapshot)
        talks = await link.ask(AskConversations(at=then), ConversationsPage)
        messages = await link.ask(AskMessages(at=then, conversation="@human@luna"), MessagesPage)
        log = await link.ask(AskLog(at=then), LogPage)

    assert [(one.name, one.has_left) for one in now.rows] == [("luna", True)]
    assert [(one.name, one.has_left, one.is_present) for one in past.agents] == [("luna", False, True)]
    assert (past.seq, past.counts.attention, past.counts.unread) == (then, 1, 1)
    assert [one.what for one in past.attention] == ["shall I go on?"]
    assert [(one.key, one.text) for one in talks.rows] == [("@human@luna", "shall I go on?")]
    assert [one.text for one in messages.rows] == ["shall I go on?"]
    assert [mark.state for mark in messages.rows[0].marks] == ["queued"]
    assert log.rows[-1].seq == then
    assert (before.seq, before.agents, before.attention, before.talks) == (1, (), (), ())


async def test_future_is_refused(bus: Home) -> None:
    async with linked(bus) as link:
        with pytest.raises(BadRequest, match="the last one is #"):
            await link.ask(AskPast(at=10**6), Snapshot)

    assert past_processes(bus.path) == []


async def test_waiting_question_delays_no_other_one(bus: Home) -> None:
    async with linked(bus) as link:
        await link.ask(AskAttention(at=1), AttentionPage)
        (pid,) = past_processes(bus.path)
        os.kill(pid, signal.SIGSTOP)
        waiting = asyncio.create_task(link.ask(AskAttention(at=1), AttentionPage))

        present = await link.ask(AskAttention(), AttentionPage)

        assert present.seq >= 1
        assert not waiting.done()
        os.kill(pid, signal.SIGCONT)
        assert (await waiting).seq == 1


async def test_newer_snapshot_of_the_past_replaces_one_that_waits(bus: Home) -> None:
    bus.ok("send", "@human", "--", "hello")
    async with linked(bus) as link, linked(bus) as other:
        await link.ask(AskAttention(at=1), AttentionPage)
        (pid,) = past_processes(bus.path)
        os.kill(pid, signal.SIGSTOP)
        elsewhere = asyncio.create_task(other.ask(AskPast(at=2), Snapshot))
        questions = [asyncio.create_task(link.ask(AskPast(at=at), Snapshot)) for at in (1, 2, 1)]

        for question in questions[:2]:
            with pytest.raises(TooSlow, match="a newer question about the past"):
                await question
        assert not elsewhere.done()
        os.kill(pid, signal.SIGCONT)

        assert ((await questions[2]).seq, (await elsewhere).seq) == (1, 2)


async def test_question_about_now_ends_one_about_the_past_that_waits(bus: Home) -> None:
    async with linked(bus) as link:
        await link.ask(AskAttention(at=1), AttentionPage)
        (pid,) = past_processes(bus.path)
        os.kill(pid, signal.SIGSTOP)
        waiting = asyncio.create_task(link.ask(AskPast(at=1), Snapshot))
        await link.ask(AskAttention(), AttentionPage)  # The first question was sent before this one.

        present = await link.ask(AskPast(), Snapshot)

        assert present.seq >= 1
        with pytest.raises(TooSlow, match="a newer question about the past"):
            await waiting
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_process_ends_with_its_daemon(bus: Home, number: int) -> None:
    async with linked(bus) as link:
        await link.ask(AskAttention(at=1), AttentionPage)
        (pid,) = past_processes(bus.path)
        pidfd = os.pidfd_open(pid)

        await asyncio.to_thread(bus.kill, number)

        await asyncio.to_thread(wait_for_end, pidfd)
        os.close(pidfd)
