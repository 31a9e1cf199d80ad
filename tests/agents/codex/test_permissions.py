"""What a Codex asks leave for: told to the bus, and a person's word passed on while it is still asked."""

from tests.agents.codex_near import Near, near, work
from tests.agents.stage import Stage

COMMAND = "item/commandExecution/requestApproval"


async def asking(stage: Stage, holder: Near, number: int = 3, **given: object) -> None:
    """Have it ask leave for a command, and wait until the bus knows."""
    await work(holder)
    holder.server.set_status("one", "active", "waitingOnApproval")
    holder.server.ask(number, COMMAND, threadId="one", **{"command": "rm -r x", **given})
    await stage.daemon.heard("permission", request=str(number))


async def answered(holder: Near) -> list[object]:
    """Give what the server has been answered, once it has surely heard all."""
    holder.server.tell("thread/started", thread={"id": "two"})
    await holder.server.heard("thread/read", count=2)
    return [(one["id"], one["result"]) for one in holder.server.answers]


async def test_what_is_asked_is_told_whole(stage: Stage) -> None:
    async with near(stage) as holder:
        await asking(stage, holder, cwd="/src", reason="to see", availableDecisions=["accept", "cancel"])

        told = stage.daemon.last("permission")

        assert (told["session"], told["tool"]) == ("one", "Bash")
        assert told["input"] == {"command": "rm -r x", "cwd": "/src", "reason": "to see"}
        assert holder.server.answers == []


async def test_a_persons_word_is_passed_on_and_said_to_be_taken(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        stage.daemon.push("decision", request="3", allowed=True)
        stage.daemon.push("decision", request="3", allowed=False)

        assert await answered(holder) == [(3, {"decision": "accept"})]
        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)
        told = await stage.daemon.heard("permission", request="3", outcome="taken")
        assert "tool" not in told


async def test_a_no_is_passed_on_too(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        stage.daemon.push("decision", request="3", allowed=False)

        assert await answered(holder) == [(3, {"decision": "decline"})]


async def test_what_is_answered_at_the_terminal_is_over_and_takes_no_word(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        holder.server.tell("serverRequest/resolved", threadId="one", requestId=3)
        await stage.daemon.heard("permission", request="3", outcome="gone")
        stage.daemon.push("decision", request="3", allowed=True)

        assert await answered(holder) == []


async def test_a_request_that_became_another_takes_no_word(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        holder.server.ask(3, COMMAND, threadId="one", command="rm -r /")
        await stage.daemon.heard("permission", request="3", outcome="gone")
        told = stage.daemon.last("permission")

        assert told["input"] == {"command": "rm -r /"}
        assert await answered(holder) == []


async def test_nothing_is_answered_that_nobody_said_a_word_to(stage: Stage) -> None:
    async with near(stage) as holder:
        holder.server.add_thread("two")
        await asking(stage, holder)

        stage.daemon.push("decision", request="4", allowed=True)

        assert await answered(holder) == []


async def test_a_daemon_that_comes_back_is_told_again(stage: Stage) -> None:
    async with near(stage) as holder:
        await asking(stage, holder)

        await stage.daemon.close()
        await stage.daemon.open()

        told = await stage.daemon.heard("permission", count=2, request="3")
        assert told["input"] == {"command": "rm -r x"}
        assert holder.server.answers == []


async def test_what_is_not_shown_whole_is_not_told(stage: Stage) -> None:
    async with near(stage) as holder:
        await work(holder)
        holder.server.set_status("one", "active", "waitingOnApproval")
        holder.server.ask(3, "mcpServer/elicitation/request", threadId="one", message="May it?")
        holder.server.ask(4, COMMAND, threadId="one", command="ls")

        await stage.daemon.heard("permission", request="4")

        assert [one["request"] for one in stage.daemon.said if one["op"] == "permission"] == ["4"]
