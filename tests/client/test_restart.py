"""The SDK across restarts of a real daemon: no loss, no duplicates, the same name."""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import pytest
from tests.client.bus import Bus
from tests.limits import LIMIT_S

import palaver
from palaver.errors import Disconnected

T = TypeVar("T")


async def soon(stream: AsyncIterator[T]) -> T:
    async with asyncio.timeout(LIMIT_S):
        return await anext(stream)


async def test_name_rights_and_messages_survive_the_daemon(bus: Bus) -> None:
    async with bus.connect("luna", tag="api") as luna, bus.connect("nova") as nova:
        messages = luna.messages()
        await nova.send("@api-luna", "before")
        before = await soon(messages)
        await before.ack()

        bus.kill()
        await nova.send("@api-luna", "after")

        assert (await soon(messages)).text == "after"
        assert luna.name == "api-luna"
        hellos = await nova.events(types=["agent.hello"])
        assert [event.sender for event in hellos] == ["api-luna", "nova"]


async def test_message_waiting_for_its_ack_is_not_returned_again_after_a_crash(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        messages = luna.messages()
        await nova.send("@luna", "first")
        first = await soon(messages)

        bus.kill()
        await nova.send("@luna", "second")
        second = await soon(messages)
        await first.ack()

        assert [first.text, second.text] == ["first", "second"]
        assert [line.state for line in await nova.receipts(first.seq)] == ["seen"]


async def test_message_not_taken_before_a_crash_is_returned_once(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        messages = luna.messages()
        for text in ("1", "2", "3"):
            await nova.send("@luna", text)
        taken = [await soon(messages)]

        bus.kill()
        await nova.send("@luna", "4")
        taken += [await soon(messages) for _ in range(3)]

        assert [message.text for message in taken] == ["1", "2", "3", "4"]


async def test_sends_during_a_daemon_crash_are_stored_once_and_in_order(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        sends = [asyncio.ensure_future(nova.send("@luna", str(number))) for number in range(2000)]
        await sends[100]

        bus.kill()
        receipts = await asyncio.gather(*sends)

        stored = await nova.events(types=["message"], limit=10_000)
        assert [event.payload["text"] for event in stored] == [str(number) for number in range(2000)]
        assert [receipt.seq for receipt in receipts] == [event.seq for event in stored]


async def test_follower_has_no_gap_and_no_repeat_across_crashes(bus: Bus) -> None:
    async with bus.connect("luna"), bus.connect("nova") as nova:
        async with aclosing(nova.follow(types=["message"], after=0)) as events:
            seen = []
            for number in range(30):
                await nova.send("@luna", str(number))
                if number % 10 == 5:
                    bus.kill()
                if number % 3 == 2:
                    seen += [await soon(events) for _ in range(3)]

        assert [event.payload["text"] for event in seen] == [str(number) for number in range(30)]


async def test_daemon_that_fails_to_start_once_is_started_again(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 1; }}\n")
    python.write_text(python.read_text() + f'exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    async with bus.connect("luna") as luna:
        monkeypatch.setenv("PALAVER_PYTHON", str(python))
        bus.kill()

        assert [agent.name for agent in await luna.agents()] == ["luna"]

    assert (tmp_path / "tried").exists()


async def test_daemon_that_never_starts_is_given_up(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bus.connect("luna") as luna:
        monkeypatch.setenv("PALAVER_PYTHON", "/bin/false")
        monkeypatch.setattr("palaver.client.wire._PAUSES_S", (0.0,))
        bus.kill()

        with pytest.raises(Disconnected, match="did not start"):
            await luna.agents()


async def test_client_reconnects_to_a_daemon_restarted_by_others(bus: Bus) -> None:
    async with bus.connect("luna") as luna:
        bus.pal("down")
        with pytest.raises(Disconnected, match="pal down"):
            await luna.agents()
        bus.pal("up")

        receipt = await luna.send("@luna", "to myself")

        assert receipt.delivered_to == ("luna",)


async def test_after_pal_down_nothing_is_started_and_readers_get_an_error(bus: Bus) -> None:
    async with bus.connect("luna") as luna:
        waiting = asyncio.ensure_future(soon(luna.messages()))
        following = asyncio.ensure_future(soon(luna.follow(after=10**9)))
        await luna.agents()  # both readers wait by now

        bus.pal("down")

        with pytest.raises(Disconnected, match="'pal up' starts it again"):
            await waiting
        with pytest.raises(Disconnected, match="'pal up' starts it again"):
            await following
        with pytest.raises(Disconnected, match="'pal up' starts it again"):
            await luna.send("@luna", "hello")
        assert (bus.home / "down").exists()


async def test_messages_can_be_received_again_once_the_bus_is_up(bus: Bus) -> None:
    async with bus.connect("luna") as luna:
        waiting = asyncio.ensure_future(soon(luna.messages()))
        bus.pal("down")
        with pytest.raises(Disconnected):
            await waiting
        bus.pal("up")
        bus.pal("send", "@luna", "--", "are you there?")

        message = await soon(luna.messages())

        assert message.text == "are you there?"


async def test_block_that_ends_while_the_bus_is_down_ends_at_once(bus: Bus) -> None:
    async with bus.connect("luna") as luna:
        bus.pal("down")

    with pytest.raises(Disconnected, match="async with"):
        await luna.agents()


async def test_after_pal_down_a_new_connection_is_refused(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")  # count as a harness, even if a person runs the tests
    async with bus.connect("luna"):
        bus.pal("down")

    with pytest.raises(palaver.errors.Disconnected, match="pal down"):
        async with bus.connect("luna"):
            pass
