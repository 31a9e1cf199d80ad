"""People and programs talk with agents through real connections."""

import json

import pytest
from tests.doors.irc.door_stage import IrcClient, IrcStage

from palaver.doors.irc.irc_wire import Line, join_exactly, split_exactly
from palaver.protocol.agents import caller_for
from palaver.protocol.envelope import body_as
from palaver.protocol.events import MessageSent
from palaver.protocol.query import Query
from palaver.state.references import read_task

LONG = ("batch", "message-tags", "draft/multiline")


async def person(irc: IrcStage, *caps: str) -> IrcClient:
    """Return a person that has logged in with a code."""
    client = await irc.connect()
    lines = await client.log_in("human", irc.accounts.codes.issue(), *caps)
    assert lines[-1].command == "376"
    return client


async def next_text(client: IrcClient) -> Line:
    return (await client.until("PRIVMSG"))[-1]


async def next_batch(client: IrcClient) -> str:
    """Return the text of the next multiline batch."""
    await client.until("BATCH")
    *lines, _ = await client.until("BATCH")
    return join_exactly([(line.params[1], "draft/multiline-concat" in line.tags) for line in lines])


async def test_person_asks_an_agent_and_reads_the_reply(irc: IrcStage) -> None:
    luna = caller_for(await irc.agent("luna"))
    client = await person(irc, "message-tags", "server-time", "account-tag")
    program = await irc.program("nova")
    await client.ask("JOIN #general")
    await program.ask("JOIN #general")

    await client.ask("PRIVMSG #general :luna: which tests fail?")
    asked = json.loads((await next_text(program)).params[1])
    await irc.bus.send(luna, "none", reply_to=asked["id"])

    line = await next_text(client)
    assert (line.source, line.params) == ("luna!luna@palaver", ("#general", "none"))
    assert line.tags["account"] == "luna"
    reply = json.loads((await next_text(program)).params[1])
    assert (reply["from"], reply["payload"]["text"], reply["id"]) == ("luna", "none", line.tags["msgid"])
    assert (asked["from"], asked["payload"]["text"]) == ("human", "luna: which tests fail?")


async def test_program_without_capabilities_works_on_a_task(irc: IrcStage) -> None:
    client = await irc.connect()
    secret = await irc.token("nova")
    client.send(f"PASS {secret}", "NICK nova", "USER nova 0 * :nova")
    await client.until("376")
    await client.ask("JOIN #general")

    def line(type: str, id: str, **payload: str) -> str:
        made = {"v": 1, "type": type, "id": id, "from": "nova", "payload": payload}
        return f"PRIVMSG #general :{json.dumps(made)}"

    replies = [
        *await client.ask(line("task.create", "t1", title="fix it")),
        *await client.ask(line("task.update", "u1", task_id="t1", status="in_progress")),
        *await client.ask(line("task.complete", "d1", task_id="t1", summary="done")),
    ]

    task = read_task(irc.log.rows, "t1")
    assert task is not None
    assert (task.title, task.status, task.by) == ("fix it", "completed", "nova")
    assert replies == []


@pytest.mark.parametrize("text", ["三" * 30_000, "line\n" * 2000, " spaced  out " * 3000])
async def test_long_text_is_equal_at_both_ends(irc: IrcStage, text: str) -> None:
    luna = caller_for(await irc.agent("luna"))
    program = await irc.program("nova", *LONG)
    envelope = json.dumps(
        {"v": 1, "type": "my.text", "id": "e1", "from": "nova", "to": ["luna"], "payload": {"text": text}},
        ensure_ascii=False,
    )
    pieces = split_exactly(envelope, 400)
    program.send("BATCH +1 draft/multiline luna")
    for piece, is_continued in pieces:
        concat = ";draft/multiline-concat" if is_continued else ""
        program.send(f"@batch=1{concat} PRIVMSG luna :{piece}")
    await program.ask("BATCH -1")

    (event,) = await irc.log.read(Query(types=("my.text",)))
    await irc.bus.send(luna, text.strip("\n"), "@nova")
    back = json.loads(await next_batch(program))

    assert (event.payload, event.delivered_to) == ({"text": text}, ("luna",))
    assert back["payload"]["text"] == text.strip("\n")


async def test_body_with_line_ends_is_no_command(irc: IrcStage) -> None:
    luna = caller_for(await irc.agent("luna"))
    client = await person(irc)

    await irc.bus.send(luna, "one\r\nQUIT :bye\r\n:luna!x PRIVMSG human :forged", "@human")

    lines = [await next_text(client) for _ in range(3)]
    assert {line.source for line in lines} == {"luna!luna@palaver"}
    assert [line.params[1] for line in lines] == ["one", "QUIT :bye", ":luna!x PRIVMSG human :forged"]


async def test_label_is_answered_only_after_the_message_is_stored(irc: IrcStage) -> None:
    client = await person(irc, "batch", "message-tags", "labeled-response", "echo-message")
    await client.ask("JOIN #general")

    (echo,) = await client.ask("@label=a PRIVMSG #general :hello")
    (refused,) = await client.ask("@label=b PRIVMSG #general :hello @nobody")
    await irc.log.close()
    (lost,) = await client.ask("@label=c PRIVMSG #general :lost")

    assert (echo.command, echo.tags["label"], echo.params[1]) == ("PRIVMSG", "a", "hello")
    assert (refused.command, refused.tags["label"]) == ("NOTICE", "b")
    assert (lost.command, lost.tags["label"]) == ("FAIL", "c")


async def test_mail_that_was_not_read_comes_again(irc: IrcStage) -> None:
    luna = caller_for(await irc.agent("luna"))
    secret = await irc.token("nova")
    first = await irc.connect()
    await first.log_in("nova", secret)
    event = await irc.bus.send(luna, "hello", "@nova")
    await first.until("PRIVMSG")
    await first.close()

    second = await irc.connect()
    await second.log_in("nova", secret)
    again = json.loads((await next_text(second)).params[1])
    ping = (await second.until("PING"))[-1]
    assert irc.bus.state(event, "nova") != "seen"
    await second.ask(f"PONG {ping.params[0]}")
    await irc.until(lambda: irc.bus.state(event, "nova") == "seen")

    assert (again["id"], again["payload"]["text"]) == (event.id, "hello")


async def test_forged_sender_stores_nothing(irc: IrcStage) -> None:
    await irc.agent("luna")
    program = await irc.program("nova")
    await program.ask("JOIN #general")
    last = irc.log.last()

    replies = await program.ask(
        'PRIVMSG #general :{"v":1,"type":"x","id":"1","from":"luna"}', 'PRIVMSG #general :{"v":1}'
    )

    assert [line.params[:2] for line in replies] == [("PRIVMSG", "NOT_YOU"), ("PRIVMSG", "BAD_ENVELOPE")]
    assert irc.log.last() == last


async def test_history_comes_over_the_wire(irc: IrcStage) -> None:
    client = await person(irc, "batch", "message-tags", "server-time", "draft/chathistory")
    await client.ask("JOIN #dev", *(f"PRIVMSG #dev :line {number}" for number in range(5)))

    lines = await client.ask("CHATHISTORY LATEST #dev * 3")

    assert [line.params[-1] for line in lines[1:-1]] == ["line 2", "line 3", "line 4"]
    stored = await irc.log.read(Query(types=("message",), last=3))
    assert [line.tags["msgid"] for line in lines[1:-1]] == [event.id for event in stored]
    assert [body_as(event, MessageSent).channel for event in stored] == ["#dev"] * 3
