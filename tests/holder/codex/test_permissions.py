"""Permission requests of Codex: reported to the bus, and a person's decision passed back in time."""

import asyncio

from tests.holder.codex_near import Near, near, work
from tests.holder.stage import Stage
from tests.limits import LIMIT_S

COMMAND = "item/commandExecution/requestApproval"


async def asking(stage: Stage, holder: Near, number: int = 3, **given: object) -> None:
    """Have Codex request permission for a command, and wait until the bus knows."""
    await work(holder)
    holder.server.set_status("one", "active", "waitingOnApproval")
    holder.server.ask(number, COMMAND, threadId="one", **{"command": "rm -r x", **given})
    await stage.daemon.heard("permission", request=str(number))


async def answered(holder: Near) -> list[object]:
    """Return the replies to the server after it has received all of them."""
    holder.server.tell("thread/started", thread={"id": "two"})
    await holder.server.heard("thread/read", count=2)
    return [(one["id"], one["result"]) for one in holder.server.answers]


async def test_permission_request_is_reported_in_full(stage: Stage) -> None:
    async with near(stage) as holder:
        await asking(stage, holder, cwd="/src", reason="to see", availableDecisions=["accept", "cancel"])

        report = stage.daemon.last("permission")

        assert (report["session"], report["tool"]) == ("one", "Bash")
        assert report["input"] == {"command": "rm -r x", "cwd": "/src", "reason": "to see"}
        assert holder.server.answers == []


async def test_first_decision_is_passed_on_and_reported_as_taken(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        stage.daemon.push("decision", request="3", allowed=True)
        stage.daemon.push("decision", request="3", allowed=False)

        assert await answered(holder) == [(3, {"decision": "accept"})]
        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)
        report = await stage.daemon.heard("permission", request="3", outcome="taken")
        assert "tool" not in report


async def test_older_answer_to_a_subscription_does_not_remove_a_request(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.silent.add("thread/resume")
        holder.server.add_thread("two")
        older = {"thread": dict(holder.server.threads["two"])}
        holder.server.tell("thread/started", thread={"id": "two"})
        await holder.server.heard("thread/resume", count=2)
        holder.server.set_status("two", "active", "waitingOnApproval")
        holder.server.ask(3, COMMAND, threadId="two", command="rm -r x")
        await stage.daemon.heard("permission", request="3")

        holder.server.silent.clear()
        holder.server.release("thread/resume", **older)
        await holder.server.heard("thread/resume", count=3)

        assert list(holder.codex.questions()) == ["3"]
        assert (holder.codex.session, holder.codex.gate_of("").gate.reason) == ("two", "dialog")


async def test_denial_is_passed_on(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        stage.daemon.push("decision", request="3", allowed=False)

        assert await answered(holder) == [(3, {"decision": "decline"})]


async def test_request_answered_at_the_terminal_accepts_no_decision(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)
        await stage.daemon.heard("permission", request="3", outcome="gone")
        stage.daemon.push("decision", request="3", allowed=True)

        assert await answered(holder) == []


async def test_changed_request_accepts_no_earlier_decision(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        holder.server.ask(3, COMMAND, threadId="one", command="rm -r /")
        await stage.daemon.heard("permission", request="3", outcome="gone")
        report = stage.daemon.last("permission")

        assert report["input"] == {"command": "rm -r /"}
        assert await answered(holder) == []


async def test_decision_on_another_request_answers_nothing(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        stage.daemon.push("decision", request="4", allowed=True)

        assert await answered(holder) == []


async def test_restarted_daemon_receives_the_request_again(stage: Stage) -> None:
    async with near(stage) as holder:
        await asking(stage, holder)

        await stage.daemon.close()
        await stage.daemon.open()

        report = await stage.daemon.heard("permission", count=2, request="3")
        assert report["input"] == {"command": "rm -r x"}
        assert holder.server.answers == []


async def test_request_that_cannot_be_shown_in_full_is_not_reported(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        holder.server.set_status("one", "active", "waitingOnApproval")
        holder.server.ask(3, "mcpServer/elicitation/request", threadId="one", message="May it?")
        holder.server.ask(4, COMMAND, threadId="one", command="ls")

        await stage.daemon.heard("permission", request="4")

        assert [one["request"] for one in stage.daemon.said if one["op"] == "permission"] == ["4"]


async def decided(*replies: "asyncio.Task[bool]") -> list[bool]:
    async with asyncio.timeout(LIMIT_S):
        return list(await asyncio.gather(*replies))


async def test_other_decision_after_a_daemon_restart_ends_at_once(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two", ephemeral=True)
        await asking(stage, holder)
        stage.daemon.push("decision", request="3", allowed=True)
        assert await answered(holder) == [(3, {"decision": "accept"})]

        await stage.daemon.close()
        await stage.daemon.open()
        await stage.daemon.heard("permission", count=2, request="3")
        stage.daemon.push("decision", request="3", allowed=False)

        await stage.daemon.heard("permission", request="3", outcome="gone")
        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)
        await stage.daemon.heard("permission", request="3", outcome="taken")
        assert len(holder.server.answers) == 1


async def test_same_decision_twice_is_sent_once_and_both_callers_get_the_result(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two", ephemeral=True)
        await asking(stage, holder)
        asked = holder.codex.questions()["3"]

        replies = [asyncio.create_task(holder.codex.decide(asked, is_allowed=True)) for _ in range(2)]
        assert await answered(holder) == [(3, {"decision": "accept"})]
        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)

        assert await decided(*replies) == [True, True]


async def test_different_second_decision_is_not_passed_on(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two", ephemeral=True)
        await asking(stage, holder)
        asked = holder.codex.questions()["3"]

        first = asyncio.create_task(holder.codex.decide(asked, is_allowed=False))
        second = asyncio.create_task(holder.codex.decide(asked, is_allowed=True))

        assert await decided(second) == [False]
        assert await answered(holder) == [(3, {"decision": "decline"})]
        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)
        assert await decided(first) == [True]


async def test_cancelled_caller_leaves_the_other_waiting(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two", ephemeral=True)
        await asking(stage, holder)
        asked = holder.codex.questions()["3"]
        first, second = (asyncio.create_task(holder.codex.decide(asked, is_allowed=True)) for _ in range(2))
        await answered(holder)

        first.cancel()
        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)

        assert await decided(second) == [True]


async def test_decision_after_the_integration_was_closed_is_not_accepted(stage: Stage) -> None:
    async with near(stage) as holder:
        await asking(stage, holder)
        asked = holder.codex.questions()["3"]
        holder.codex.close()

        reply = asyncio.create_task(holder.codex.decide(asked, is_allowed=True))

        assert await decided(reply) == [False]
