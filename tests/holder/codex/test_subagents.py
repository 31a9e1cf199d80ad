"""Sub-agents of Codex: child threads, each with its own name, state and messages."""

import asyncio

from tests.holder.codex_near import Near, near
from tests.holder.stage import Stage
from tests.limits import LIMIT_S


def add_below(holder: Near, name: str, parent: str = "one", role: str | None = "explorer") -> None:
    """Have the agent start a sub-agent."""
    source = {"subAgent": {"thread_spawn": {"depth": 1, "parent_thread_id": parent}}}
    holder.server.add_thread(name, parentThreadId=parent, agentRole=role, source=source)
    holder.server.tell("thread/status/changed", threadId=name, status={"type": "idle"})


async def test_subagent_has_a_name_and_its_own_messages(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        begun = await stage.daemon.heard("sub_begin")
        await stage.daemon.heard("lane", name="luna_explorer_1")
        await stage.daemon.heard("gate", lane=2, open=True)

        stage.daemon.offer(7, "for the sub-agent", lane=2)

        asked = await holder.server.heard("turn/start")
        answer = await stage.daemon.heard("answer")
        assert (begun["key"], begun["type"], begun.get("name")) == ("sub", "explorer", None)
        assert asked["threadId"] == "sub"
        assert "nova → luna_explorer_1: for the sub-agent" in asked["input"][0]["text"]
        assert (answer["lane"], answer["answer"], answer["grade"]) == (2, "seen", "context")
        assert stage.daemon.last("hold")["session"] == "one"


async def test_message_for_the_agent_does_not_reach_a_subagent(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        await stage.daemon.heard("gate", lane=2, open=True)

        stage.daemon.offer(7, "for the agent", lane=1)

        asked = await holder.server.heard("turn/start")
        assert asked["threadId"] == "one"


async def test_activity_of_a_subagent_is_reported_under_its_name(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        await stage.daemon.heard("status", name="luna_explorer_1", state="idle")

        holder.server.set_status("sub", "active")
        item = {"id": "a", "type": "commandExecution", "command": "make"}
        holder.server.tell("item/started", threadId="sub", item=item)

        report = await stage.daemon.heard("status", name="luna_explorer_1", tool="Bash")
        assert (report["state"], report["command"]) == ("active", "make")
        assert holder.codex.status is not None
        assert holder.codex.status.state == "idle"


async def work_below(holder: Near, stage: Stage) -> None:
    """Have the agent start a sub-agent that works, and wait until that is reported."""
    source = {"subAgent": {"thread_spawn": {"depth": 1, "parent_thread_id": "one"}}}
    active = {"type": "active", "activeFlags": []}
    holder.server.turns["sub"] = {"id": "turn-5", "status": "inProgress", "items": []}
    holder.server.add_thread("sub", parentThreadId="one", agentRole="explorer", source=source, status=active)
    holder.server.tell("thread/started", thread={"id": "sub"})
    await stage.daemon.heard("status", name="luna_explorer_1", state="active")


async def end_silently(holder: Near, stage: Stage) -> None:
    """End the turn of the sub-agent without a report, and wait until its holder has noticed that."""
    holder.server.turns["sub"]["status"] = "completed"
    holder.server.threads["sub"]["status"] = {"type": "idle"}
    await stage.daemon.heard("status", name="luna_explorer_1", state="idle")


async def test_end_of_a_subagents_turn_that_is_not_reported_is_noticed(stage: Stage) -> None:
    async with near(stage, look_s=0.001) as holder:
        await work_below(holder, stage)

        await end_silently(holder, stage)


async def test_subagent_that_cannot_be_read_yet_is_read_later(stage: Stage) -> None:
    async with near(stage, look_s=0.001) as holder:
        holder.server.refusals["thread/resume"] = {"code": -32600, "message": "no rollout found"}
        await work_below(holder, stage)
        await holder.server.heard("thread/resume", count=4)

        holder.server.refusals.clear()

        await end_silently(holder, stage)


async def test_unreadable_answer_does_not_end_the_repeated_reads(stage: Stage) -> None:
    async with near(stage, look_s=0.001) as holder:
        await work_below(holder, stage)
        holder.server.turns["sub"]["items"] = "none"
        read = holder.server.count("thread/resume")
        await holder.server.heard("thread/resume", count=read + 3)

        holder.server.turns["sub"]["items"] = []

        await end_silently(holder, stage)


async def settle(holder: Near) -> None:
    """Wait until the client has processed all messages of the server."""
    read = holder.server.count("thread/read")
    holder.server.add_thread("side", ephemeral=True)
    holder.server.tell("thread/closed", threadId="side")
    holder.server.tell("thread/started", thread={"id": "side"})
    await holder.server.heard("thread/read", count=read + 1)


async def test_answer_older_than_a_permission_request_does_not_remove_it(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.silent.add("thread/resume")
        await work_below(holder, stage)
        await holder.server.heard("thread/resume", count=2)
        older = {"thread": dict(holder.server.threads["sub"]), "initialTurnsPage": None}
        holder.server.set_status("sub", "active", "waitingOnApproval")
        holder.server.ask(7, "item/commandExecution/requestApproval", threadId="sub", command="rm x")
        await stage.daemon.heard("permission", request="7")
        question = holder.codex.questions()["7"]
        reply = asyncio.create_task(holder.codex.decide(question, is_allowed=True))
        await holder.server.until(lambda: holder.server.answers)

        holder.server.release("thread/resume", **older)
        await settle(holder)

        assert not reply.done()
        assert holder.codex.questions() == {"7": question}
        assert holder.codex.status_of("sub").detail == "permission: rm x"
        holder.server.tell("serverRequest/resolved", threadId="sub", requestId=7)
        async with asyncio.timeout(LIMIT_S):
            assert await reply


async def test_answer_older_than_the_end_of_a_tool_does_not_start_it_again(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.silent.add("thread/resume")
        await work_below(holder, stage)
        await holder.server.heard("thread/resume", count=2)
        item = {"id": "a", "type": "commandExecution", "command": "make", "status": "inProgress"}
        turn = {"id": "turn-5", "status": "inProgress", "items": [item]}
        older = {"thread": dict(holder.server.threads["sub"]), "initialTurnsPage": {"data": [turn]}}
        holder.server.tell("item/started", threadId="sub", item=item)
        holder.server.tell("item/completed", threadId="sub", item={**item, "status": "completed"})
        await settle(holder)

        holder.server.silent.clear()
        holder.server.release("thread/resume", **older)
        await holder.server.heard("thread/resume", count=3)
        await settle(holder)

        assert holder.codex.status_of("sub").detail == "thinking"
        assert holder.codex.session == "one"


async def test_older_status_of_a_known_thread_does_not_remove_a_request(stage: Stage) -> None:
    async with near(stage) as holder:
        await work_below(holder, stage)
        holder.server.silent.add("thread/read")
        read = holder.server.count("thread/read")
        older = dict(holder.server.threads["sub"])
        holder.server.tell("thread/started", thread={"id": "sub"})
        await holder.server.heard("thread/read", count=read + 1)
        holder.server.set_status("sub", "active", "waitingOnApproval")
        holder.server.ask(7, "item/commandExecution/requestApproval", threadId="sub", command="rm x")
        await stage.daemon.heard("permission", request="7")

        holder.server.silent.clear()
        holder.server.release("thread/read", thread=older)
        await settle(holder)

        assert list(holder.codex.questions()) == ["7"]


async def test_closed_subagent_is_not_read_again(stage: Stage) -> None:
    async with near(stage, look_s=0.05) as holder:
        await work_below(holder, stage)

        holder.server.tell("thread/closed", threadId="sub")
        await settle(holder)
        read = holder.server.count("thread/resume")
        async with asyncio.timeout(LIMIT_S):
            while holder.tasks:
                await asyncio.wait(holder.tasks)

        assert holder.server.count("thread/resume") == read


async def test_nested_subagent_begins_below_its_parent(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        await stage.daemon.heard("sub_begin", key="sub")

        add_below(holder, "deeper", "sub", None)

        begun = await stage.daemon.heard("sub_begin", key="deeper")
        assert begun["name"] == "luna_explorer_1"
        await stage.daemon.heard("lane", name="luna_explorer_1_sub_1")


async def test_subagent_ends_with_its_thread(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        await stage.daemon.heard("gate", lane=2, open=True)

        holder.server.tell("thread/closed", threadId="sub")

        ended = await stage.daemon.heard("sub_end")
        assert (ended["key"], ended["reason"]) == ("sub", "its thread was closed")


async def test_restarted_daemon_receives_the_live_subagents(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        await stage.daemon.heard("lane", name="luna_explorer_1")

        await stage.daemon.close()
        await stage.daemon.open()

        await stage.daemon.heard("sub_begin", count=2, key="sub")
        await stage.daemon.heard("lane", count=2, name="luna_explorer_1")
        await stage.daemon.heard("status", count=2, name="luna_explorer_1", state="idle")


async def test_permission_request_of_a_subagent_has_its_name(stage: Stage) -> None:
    async with near(stage) as holder:
        add_below(holder, "sub")
        await stage.daemon.heard("gate", lane=2, open=True)

        holder.server.set_status("sub", "active", "waitingOnApproval")
        holder.server.ask(3, "item/commandExecution/requestApproval", threadId="sub", command="ls")

        report = await stage.daemon.heard("permission")
        assert (report["name"], report["session"]) == ("luna_explorer_1", "sub")


async def test_subagent_without_a_name_has_no_lane(stage: Stage) -> None:
    async with near(stage) as holder:
        stage.daemon.refusals["sub_begin"] = {"error": "bad_request", "message": "no"}

        add_below(holder, "sub")

        await stage.daemon.heard("sub_begin")
        holder.server.set_status("one", "active")
        await stage.daemon.heard("gate", open=True, paused=True)
        assert [one.get("name") for one in stage.daemon.said if one["op"] == "lane"] == [None]
