"""Questions to holders: replies reach their question, and no question waits for an exited holder."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import msgspec
import pytest

from palaver.errors import NotFound, Unavailable
from palaver.identity.process import Process
from palaver.protocol.envelope import Event
from palaver.protocol.lines import TellOp
from palaver.protocol.message import flat
from palaver.services.agents import HeldAgents, Hold, with_hidden_keys

HOLDER = Process(7, 1, 7, 7, 0, -1, 70, "holder")


class Holder:
    """A holder that records the questions it gets."""

    def __init__(self, holds: HeldAgents, name: str = "luna") -> None:
        self.asked: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self.hold = Hold(name, HOLDER, self.asked.put_nowait)
        holds.open(self.hold)


async def words(holds: HeldAgents, verb: str) -> list[str]:
    async with aclosing(holds.ask("luna", verb)) as replies:
        return [word.message async for word in replies]


async def test_replies_come_in_order_up_to_the_last() -> None:
    holds = HeldAgents()
    holder = Holder(holds)
    asking = asyncio.create_task(words(holds, "stop"))
    ask = int(str((await holder.asked.get())["ask"]))

    holds.take_reply(holder.hold, TellOp(ask=ask, done=False, message="one"))
    holds.take_reply(holder.hold, TellOp(ask=ask + 1, message="of another question"))
    holds.take_reply(holder.hold, TellOp(ask=ask, message="two"))
    holds.take_reply(holder.hold, TellOp(ask=ask, message="too late"))

    assert await asking == ["one", "two"]
    assert holder.hold.questions == {}


async def test_single_reply_is_awaited_up_to_the_limit() -> None:
    holds = HeldAgents()
    holder = Holder(holds)
    asking = asyncio.create_task(holds.ask_once("luna", "peek", limit_s=5, lines=3))
    asked = await holder.asked.get()

    holds.take_reply(holder.hold, TellOp(ask=int(str(asked["ask"])), done=False))
    holds.take_reply(holder.hold, TellOp(ask=int(str(asked["ask"])), ok={"text": "$"}))

    assert (asked["name"], asked["verb"], asked["lines"]) == ("luna", "peek", 3)
    assert (await asking).ok == {"text": "$"}
    with pytest.raises(Unavailable, match="within"):
        await holds.ask_once("luna", "peek", limit_s=0)
    assert holder.hold.questions == {}


async def test_open_question_fails_when_the_holder_exits() -> None:
    holds = HeldAgents()
    holder = Holder(holds)
    asking = asyncio.create_task(words(holds, "stop"))
    await holder.asked.get()

    holds.close(holder.hold)
    holds.close(holder.hold)

    with pytest.raises(Unavailable, match="exited before it replied"):
        await asking
    assert holds.get("luna") is None
    with pytest.raises(NotFound):
        await words(holds, "stop")


async def test_reconnected_holder_replaces_the_previous_one() -> None:
    holds = HeldAgents()
    before = Holder(holds)
    asking = asyncio.create_task(words(holds, "stop"))
    await before.asked.get()

    after = Holder(holds)
    holds.close(before.hold)

    with pytest.raises(Unavailable):
        await asking
    assert holds.get("luna") is after.hold


async def test_watcher_is_notified_of_new_holders_until_it_stops() -> None:
    holds, replies = HeldAgents(), []
    unwatch = holds.watch(lambda: replies.append("came"))

    Holder(holds)
    unwatch()
    Holder(holds, "nova")

    assert replies == ["came"]


def test_hidden_keys_follow_the_hash_of_their_message() -> None:
    holds = HeldAgents()
    holds.hidden["scrypt$1"] = b"y"
    payload: dict[str, object] = {"text": "(1 character)", "raw": "", "secret": 1, "hash": "scrypt$1"}
    event = Event(type="message", id="1", sender="human", ts=0, payload=payload, seq=3, device="BOXE")

    fields = msgspec.to_builtins(with_hidden_keys(holds, flat(event)))

    assert list(fields)[-3:] == ["secret", "hash", "raw"]
    assert fields["raw"] == "eQ=="
