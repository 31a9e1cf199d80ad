"""The native lane of Codex: messages wake it, join its running turn, wait for a dialog, and are confirmed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.holder.codex_fake import FakeCodex, fake_codex
from tests.holder.codex_near import TOOL, Near, near, work
from tests.holder.stage import Stage
from tests.limits import LIMIT_S

from palaver.harness.base import AgentReport
from palaver.protocol.events import AgentState


async def test_message_to_an_idle_codex_starts_a_turn_and_is_seen_in_it(stage: Stage) -> None:
    async with near(stage) as holder:
        stage.daemon.offer(7, "hello", intent="request", delivered_to=["luna", "kira"])

        asked = await holder.server.heard("turn/start")
        answer = await stage.daemon.heard("answer")

        assert asked["input"] == [
            {"type": "text", "text": "<pal>[request #7] nova → luna (+1 other): hello</pal>"}
        ]
        assert (answer["answer"], answer["grade"], answer["offer"]) == ("seen", "context", 7)
        assert stage.daemon.last("hold")["session"] == "one"


async def test_message_during_a_tool_joins_the_running_turn(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)

        stage.daemon.offer(7, "hello")
        asked = await holder.server.heard("turn/steer")
        assert asked["expectedTurnId"] == "turn-9"
        assert [one for one in stage.daemon.said if one["op"] == "answer"] == []

        holder.server.show("one", asked["clientUserMessageId"])

        answer = await stage.daemon.heard("answer")
        assert (answer["answer"], answer["grade"]) == ("seen", "context")


async def test_gate_follows_the_state_of_codex(stage: Stage) -> None:
    async with near(stage) as holder:
        await stage.daemon.heard("gate", open=True)

        holder.server.set_status("one", "active")
        await stage.daemon.heard("gate", open=True, paused=True)
        holder.server.tell("item/started", threadId="one", item=TOOL)
        await stage.daemon.until(lambda: stage.daemon.last("gate").get("paused") is None)
        holder.server.set_status("one", "active", "waitingOnApproval")

        await stage.daemon.heard("gate", open=False, reason="dialog")


async def test_nothing_is_sent_or_answered_during_a_dialog(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        holder.server.set_status("one", "active", "waitingOnApproval")
        holder.server.ask(0, "item/commandExecution/requestApproval", threadId="one", command="rm -r x")
        await holder.until(
            lambda: holder.codex.status is not None and holder.codex.status.detail == "permission: rm -r x"
        )

        stage.daemon.offer(7, "y")  # it was in transit when the dialog opened

        answer = await stage.daemon.heard("answer")
        assert (answer["answer"], answer["reason"]) == ("deferred", "dialog")
        assert [one for one in holder.server.said if one.get("method", "").startswith("turn/")] == []
        assert holder.server.answers == []


async def test_turn_that_ends_without_the_message_defers_it(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        stage.daemon.offer(7, "hello")
        await holder.server.heard("turn/steer")

        holder.server.end_turn("one", status="interrupted")

        answer = await stage.daemon.heard("answer")
        assert answer["answer"] == "deferred"
        assert "ended before" in answer["reason"]


async def test_refused_steering_defers_the_message(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        holder.server.refusals["turn/steer"] = {"code": -32600, "message": "no active turn to steer"}
        stage.daemon.offer(7, "hello")
        await holder.server.heard("turn/steer", count=3)

        answer = await stage.daemon.heard("answer")

        assert (answer["answer"], answer["reason"]) == ("deferred", "no active turn to steer")


async def test_new_thread_is_followed_from_its_first_turn(stage: Stage) -> None:
    async with fake_codex(stage.home) as server:
        server.add_thread("one")
        server.refusals["thread/resume"] = {"code": -32600, "message": "no rollout found"}
        server.on_turn = lambda asked: server.set_status("one", "active")
        holder = Near(stage, server)
        running = asyncio.create_task(holder.bus.run())
        try:
            await stage.daemon.heard("hold")
            holder.codex.start()
            await stage.daemon.heard("lane")
            stage.daemon.offer(7, "hello")
            asked = await server.heard("turn/start")
            item = {"type": "userMessage", "clientId": asked["clientUserMessageId"]}
            server.turns["one"]["items"] = [item]
            del server.refusals["thread/resume"]

            answer = await stage.daemon.heard("answer")

            assert (answer["answer"], answer["grade"]) == ("seen", "context")
        finally:
            holder.codex.close()
            running.cancel()
            await asyncio.wait([running, *holder.tasks])


async def test_text_taken_before_its_notification_is_seen_at_the_turn_end(stage: Stage) -> None:
    async with near(stage) as holder:
        server = holder.server
        server.on_turn = lambda asked: server.set_status("one", "active")
        stage.daemon.offer(7, "hello")
        asked = await server.heard("turn/start")
        server.turns["one"]["items"] = [{"type": "userMessage", "clientId": asked["clientUserMessageId"]}]

        server.tell("turn/completed", threadId="one", turn={"id": server.turns["one"]["id"]})

        answer = await stage.daemon.heard("answer")
        assert (answer["answer"], answer["grade"]) == ("seen", "context")


async def test_text_whose_report_was_missed_is_found_in_its_thread(stage: Stage) -> None:
    async with near(stage, look_s=0.001) as holder:
        server = holder.server
        server.on_turn = lambda asked: None
        stage.daemon.offer(7, "hello")
        asked = await server.heard("turn/start")
        await server.heard("thread/resume", 4)  # it is read more than once

        server.turns["one"]["items"] = [{"type": "userMessage", "clientId": asked["clientUserMessageId"]}]

        answer = await stage.daemon.heard("answer")
        assert (answer["answer"], answer["grade"]) == ("seen", "context")


async def test_text_missing_in_its_ended_turn_is_deferred_without_a_report(
    stage: Stage,
) -> None:
    async with near(stage, look_s=0.001) as holder:
        server = holder.server
        server.on_turn = lambda asked: None
        stage.daemon.offer(7, "hello")
        await server.heard("turn/start")
        await server.heard("thread/resume", 4)

        server.turns["one"]["status"] = "completed"

        assert (await stage.daemon.heard("answer"))["answer"] == "deferred"


async def test_turn_can_end_before_its_start_is_reported(stage: Stage) -> None:
    async with near(stage) as holder:
        server = holder.server
        server.tell("turn/completed", threadId="one", turn={"id": "turn-1"})
        server.on_turn = lambda asked: server.turns.update(one={"id": "turn-1", "items": []})

        stage.daemon.offer(7, "hello")

        answer = await stage.daemon.heard("answer")
        assert (answer["answer"], answer["reason"]) == (
            "deferred",
            "its turn ended before it included the message",
        )


@pytest.mark.parametrize("newest", [None, "turn-2"])
async def test_turn_that_could_not_be_read_leaves_the_message_unconfirmed(
    stage: Stage, newest: str | None
) -> None:
    async with near(stage) as holder:
        server = holder.server
        server.tell("turn/completed", threadId="one", turn={"id": "turn-1"})
        if newest is None:
            server.on_turn = lambda asked: server.set_status("one", "idle")
            server.refusals["thread/resume"] = {"code": -32600, "message": "no rollout found"}
        else:
            server.on_turn = lambda asked: server.turns.update(one={"id": newest, "items": []})

        stage.daemon.offer(7, "hello")

        assert (await stage.daemon.heard("answer"))["answer"] == "unconfirmed"


async def test_closed_thread_leaves_its_message_unconfirmed(stage: Stage) -> None:
    async with near(stage) as holder:
        server = holder.server
        server.on_turn = lambda asked: server.tell("thread/closed", threadId="one")

        stage.daemon.offer(7, "hello")

        assert (await stage.daemon.heard("answer"))["answer"] == "unconfirmed"


async def test_thread_that_is_still_loading_is_polled_until_it_is_ready(stage: Stage) -> None:
    async with fake_codex(stage.home) as server:
        server.add_thread("one", status={"type": "notLoaded"})
        server.refusals["thread/resume"] = {"code": -32600, "message": "no rollout found"}
        holder = Near(stage, server)
        running = asyncio.create_task(holder.bus.run())
        try:
            await stage.daemon.heard("hold")
            holder.codex.start()
            await stage.daemon.heard("gate")
            before = stage.daemon.last("gate")

            server.threads["one"]["status"] = {"type": "idle"}

            assert (before["open"], before["reason"]) == (False, "starting")
            assert (await stage.daemon.heard("gate", count=2))["open"]
        finally:
            holder.codex.close()
            running.cancel()
            await asyncio.wait([running, *holder.tasks])


async def test_thread_begun_by_a_person_becomes_the_thread_of_the_agent(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")

        holder.server.tell("thread/started", thread={"id": "two"})
        await holder.server.heard("thread/unsubscribe")
        stage.daemon.offer(7, "hello")

        assert (await holder.server.heard("turn/start"))["threadId"] == "two"
        assert stage.daemon.last("hold")["session"] == "two"


async def test_title_thread_does_not_become_the_thread_of_the_agent(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("title", ephemeral=True)

        holder.server.tell("thread/started", thread={"id": "title"})
        await holder.server.heard("thread/read", count=2)
        stage.daemon.offer(7, "hello")

        assert (await holder.server.heard("turn/start"))["threadId"] == "one"


async def test_most_recent_of_several_threads_belongs_to_the_agent(stage: Stage) -> None:
    async with fake_codex(stage.home) as server:
        server.add_thread("new", recencyAt=20)
        server.add_thread("old", recencyAt=10)
        holder = Near(stage, server)
        running = asyncio.create_task(holder.bus.run())
        try:
            await stage.daemon.heard("hold")
            holder.codex.start()
            await stage.daemon.heard("lane")

            assert stage.daemon.last("hold")["session"] == "new"
        finally:
            holder.codex.close()
            running.cancel()
            await asyncio.wait([running, *holder.tasks])


async def test_lost_server_leaves_an_open_offer_unconfirmed(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        stage.daemon.offer(7, "hello")
        await holder.server.heard("turn/steer")

        await holder.server.close()
        await holder.until(lambda: holder.codex.is_over)

        await stage.daemon.heard("hold", count=3)  # a new connection, without this lane
        assert holder.codex.status is None
        assert stage.daemon.last("answer")["answer"] == "unconfirmed"
        assert len([one for one in stage.daemon.said if one["op"] == "lane"]) == 1


async def test_codex_without_turn_support_is_left_to_its_terminal(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.refusals["turn/start"] = {"code": -32601, "message": "unknown method"}

        stage.daemon.offer(7, "hello")

        await holder.until(lambda: holder.codex.is_over)


async def test_missing_server_opens_no_lane(stage: Stage) -> None:
    server = FakeCodex(stage.home / "none.sock")
    holder = Near(stage, server)
    running = asyncio.create_task(holder.bus.run())
    try:
        await stage.daemon.heard("hold")

        holder.codex.start()
        await holder.until(lambda: holder.codex.is_over)

        assert [one for one in stage.daemon.said if one["op"] == "lane"] == []
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_open_offer_at_the_death_of_the_daemon_is_reported_to_the_next(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        stage.daemon.offer(7, "hello")
        asked = await holder.server.heard("turn/steer")

        await stage.daemon.close()
        await stage.daemon.open()
        await stage.daemon.heard("hold", count=3)
        holder.server.show("one", asked["clientUserMessageId"])

        lane = await stage.daemon.heard("lane", count=2)
        assert lane["outcomes"] == [{"messages": [7], "answer": "seen", "grade": "context"}]


async def test_usage_limit_is_reported_and_lifted(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        limits = {"primary": {"usedPercent": 100, "resetsAt": 1_000_000_000}}
        holder.server.tell("account/rateLimits/updated", rateLimits=limits)

        holder.server.end_turn("one", error={"codexErrorInfo": "usageLimitExceeded"})
        await holder.state(AgentState.BLOCKED)

        assert holder.codex.status is not None
        assert holder.codex.status.detail == "usage_limit until 1000000000"
        await stage.daemon.heard("gate", open=False, reason="usage_limit")
        await holder.state(AgentState.IDLE)


async def test_usage_limit_of_a_turn_before_the_subscription_is_reported(stage: Stage) -> None:
    async with fake_codex(stage.home) as server, _starting(stage, server) as holder:
        no_file = {"code": -32600, "message": "no rollout found"}
        server.silent.add("thread/resume")
        await server.heard("thread/resume")
        error = {"codexErrorInfo": "usageLimitExceeded", "message": "try again at 9:49 AM."}

        server.set_status("one", "active")
        server.set_status("one", "systemError")
        server.release("thread/resume", error=no_file)  # refused while the turn ran, received after its end
        server.turns["one"] = {"id": "turn-1", "status": "failed", "items": [], "error": error}
        server.silent.clear()

        await holder.state(AgentState.BLOCKED)
        assert holder.codex.status == AgentReport(
            state=AgentState.BLOCKED, detail="usage_limit until 9:49 AM"
        )


async def test_usage_limit_of_a_thread_that_failed_unseen_is_reported(stage: Stage) -> None:
    async with near(stage) as holder:
        server = holder.server
        error = {"codexErrorInfo": "usageLimitExceeded"}
        server.silent.add("thread/resume")
        server.add_thread("two", status={"type": "systemError"})

        server.tell("thread/started", thread={"id": "two"})
        await server.heard("thread/resume", count=2)
        server.release("thread/resume", error={"code": -32600, "message": "no rollout found"})
        server.turns["two"] = {"id": "turn-1", "status": "failed", "items": [], "error": error}
        server.silent.clear()

        await holder.state(AgentState.BLOCKED)


async def test_gate_stays_closed_until_the_tools_have_started(stage: Stage) -> None:
    async with fake_codex(stage.home) as server, _starting(stage, server) as holder:
        await server.heard("mcpServerStatus/list")
        await stage.daemon.heard("gate", reason="starting")
        assert holder.codex.status is not None
        assert holder.codex.status.state is AgentState.STARTING
        assert [one for one in stage.daemon.said if one["op"] == "gate" and one.get("open")] == []

        server.release("mcpServerStatus/list", data=[{"name": "palaver", "runtimeStatus": "connected"}])

        await stage.daemon.heard("gate", open=True)
        assert holder.codex.status == AgentReport(state=AgentState.IDLE)


async def test_failed_tools_open_the_gate_and_the_status_contains_the_reason(stage: Stage) -> None:
    async with fake_codex(stage.home) as server, _starting(stage, server) as holder:
        await server.heard("mcpServerStatus/list")
        failed = {"name": "palaver", "runtimeStatus": "failed", "toolsError": "handshake failed"}

        server.release("mcpServerStatus/list", data=[failed])

        await stage.daemon.heard("gate", open=True)
        assert holder.codex.status == AgentReport(
            state=AgentState.IDLE, detail="no Palaver tools: handshake failed"
        )


async def test_tools_that_never_start_open_the_gate_after_the_limit(stage: Stage) -> None:
    async with fake_codex(stage.home) as server, _starting(stage, server, limit_s=0.01) as holder:
        await stage.daemon.heard("gate", open=True)

        assert holder.codex.status is not None
        assert holder.codex.status.detail == "no Palaver tools: they have not started within 0.01 s"


async def test_codex_without_a_tool_status_gets_messages(stage: Stage) -> None:
    async with fake_codex(stage.home) as server, _starting(stage, server) as holder:
        await server.heard("mcpServerStatus/list")

        server.release("mcpServerStatus/list", error={"code": -32601, "message": "unknown method"})

        await stage.daemon.heard("gate", open=True)
        assert holder.codex.status == AgentReport(state=AgentState.IDLE)


async def test_each_new_thread_waits_for_its_own_tools(stage: Stage) -> None:
    async with near(stage) as holder:
        await stage.daemon.heard("gate", open=True)
        holder.server.silent.add("mcpServerStatus/list")
        holder.server.add_thread("two")

        holder.server.tell("thread/started", thread={"id": "two"})

        asked = await holder.server.heard("mcpServerStatus/list", 2)
        assert asked == {"threadId": "two", "serverName": "palaver", "detail": "toolsAndAuthOnly"}
        await stage.daemon.heard("gate", reason="starting")


@asynccontextmanager
async def _starting(stage: Stage, server: FakeCodex, limit_s: float = LIMIT_S) -> AsyncIterator[Near]:
    """Yield a lane to a Codex with one thread that has not reported its tools yet."""
    server.add_thread("one")
    server.silent.add("mcpServerStatus/list")
    holder = Near(stage, server, tools_limit_s=limit_s)
    running = asyncio.create_task(holder.bus.run())
    try:
        await stage.daemon.heard("hold")
        holder.codex.start()
        yield holder
    finally:
        holder.codex.close()
        running.cancel()
        await asyncio.wait([running, *holder.tasks])
