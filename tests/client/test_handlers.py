"""Handlers of the SDK with a real daemon, and the recorded cases of dispatching."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.client.bus import Bus
from tests.limits import LIMIT_S

import palaver
from palaver.client.connection import Handlers
from palaver.errors import BadRequest, Disconnected, IdTaken, ReservedType, UnknownRecipient

_VECTORS = Path(__file__).parent.parent / "vectors"


@asynccontextmanager
async def handling(me: palaver.Connection) -> AsyncIterator[asyncio.Task[None]]:
    """Run the handlers of a connection for the length of the block, and cancel them at its end."""
    task = asyncio.create_task(me.handle())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await is_true():
            pass


async def state_of(me: palaver.Connection, receipt: palaver.Receipt) -> str:
    (line,) = await me.receipts(receipt.seq)
    return line.state


async def until_state(me: palaver.Connection, receipt: palaver.Receipt, state: str) -> None:
    async def is_there() -> bool:
        return await state_of(me, receipt) == state

    await until(is_there)


@pytest.mark.parametrize("row", json.loads((_VECTORS / "sdk_dispatch.json").read_text()))
async def test_envelope_goes_to_the_handlers_of_its_type(bus: Bus, row: dict[str, object]) -> None:
    called: dict[str, int] = {}
    counts = row["called"]
    assert isinstance(counts, dict)
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        for type_ in counts:

            @nova.on(type_)
            async def count(envelope: palaver.Envelope, type_: str = type_) -> None:
                called[type_] = called.get(type_, 0) + 1

        @nova.on("done")
        async def done(envelope: palaver.Envelope) -> None: ...

        async with handling(nova):
            await luna.emit(str(row["type"]), {"title": "x"}, to=["nova"])
            await until_state(luna, await luna.emit("done", to=["nova"]), "seen")

    expected = {type_: count + (type_ == "*") for type_, count in counts.items()}
    assert {type_: called.get(type_, 0) for type_ in counts} == expected


async def test_handler_gets_the_envelope_that_was_sent(bus: Bus) -> None:
    got: asyncio.Queue[palaver.Envelope] = asyncio.Queue()
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:
        nova.on("myorg.deploy.triggered")(got.put)
        sent = palaver.Envelope(
            type="myorg.deploy.triggered",
            id="foreign-1",
            sender="luna",
            to=("nova",),
            ts=5,
            payload={"a": [1]},
        )
        async with handling(nova), asyncio.timeout(LIMIT_S):
            receipt = await luna.put(sent)
            assert await got.get() == sent
            await until_state(luna, receipt, "seen")


async def test_envelope_is_acknowledged_only_when_its_handlers_return(bus: Bus) -> None:
    began, end = asyncio.Event(), asyncio.Event()
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:

        @nova.on("slow")
        async def slow(envelope: palaver.Envelope) -> None:
            began.set()
            await end.wait()

        async with handling(nova), asyncio.timeout(LIMIT_S):
            receipt = await luna.emit("slow", to="nova")
            await began.wait()
            while_running = await state_of(luna, receipt)
            end.set()
            await until_state(luna, receipt, "seen")

    assert while_running != "seen"


async def test_slow_handler_delays_no_other(bus: Bus) -> None:
    end = asyncio.Event()
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:

        @nova.on("slow")
        async def slow(envelope: palaver.Envelope) -> None:
            await end.wait()

        @nova.on("quick")
        def quick(envelope: palaver.Envelope) -> None:
            end.set()

        async with handling(nova):
            first = await luna.emit("slow", to="nova")
            await luna.emit("quick", to="nova")
            await until_state(luna, first, "seen")


async def test_failing_handler_is_logged_and_nothing_else_ends(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:

        @nova.on("bad")
        async def bad(envelope: palaver.Envelope) -> None:
            calls.append(envelope.id)
            raise ValueError("no such row")

        @nova.on("good")
        async def good(envelope: palaver.Envelope) -> None: ...

        async with handling(nova):
            failed = await luna.emit("bad", to="nova")
            await until_state(luna, await luna.emit("good", to="nova"), "seen")
            assert await state_of(luna, failed) != "seen"

    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "bad" in record.getMessage()
    assert failed.id in record.getMessage()
    assert record.exc_info is not None
    assert calls == [failed.id]


async def test_next_connection_gets_the_envelope_of_a_failed_handler(bus: Bus) -> None:
    got: asyncio.Queue[palaver.Envelope] = asyncio.Queue()

    async def fail(envelope: palaver.Envelope) -> None:
        await got.put(envelope)
        raise ValueError

    async with bus.connect("nova"):
        pass
    async with bus.connect("luna") as luna:
        sent = await luna.emit("bad", to="nova")
        for _ in range(2):
            async with bus.connect("nova") as nova:
                nova.on("bad")(fail)
                async with handling(nova), asyncio.timeout(LIMIT_S):
                    assert (await got.get()).id == sent.id


async def test_text_message_is_an_envelope_of_the_type_message(bus: Bus) -> None:
    got: asyncio.Queue[palaver.Envelope] = asyncio.Queue()
    async with bus.connect("luna") as luna, bus.connect("nova", tag="api") as nova:
        nova.on("message")(got.put)

        async with handling(nova), asyncio.timeout(LIMIT_S):
            sent = await luna.send("nova", "can you review this?", intent="request", thread="pr-1")
            envelope = await got.get()

            assert (envelope.type, envelope.id, envelope.sender) == ("message", sent.id, "luna")
            assert envelope.payload == {"text": "can you review this?", "intent": "request", "thread": "pr-1"}
            assert palaver.matches_recipient(envelope, nova.name, "worker")
            (event,) = await luna.events(types=["message"], last=1)
            assert event.envelope == envelope


async def test_envelope_with_another_recipient_is_never_dispatched(bus: Bus) -> None:
    got: list[str] = []
    async with bus.connect("luna") as luna, bus.connect("nova") as nova, bus.connect("kira"):

        @nova.on("*")
        async def keep(envelope: palaver.Envelope) -> None:
            got.append(envelope.type)

        async with handling(nova):
            # An assignee is always notified: it has the envelope in its mailbox, but is not in `to`.
            task = await luna.emit("task.create", {"title": "x", "assignee": "nova"}, to=["kira"])
            assert "nova" in task.delivered_to
            await luna.emit("other", to=["kira"])
            await until_state(luna, await luna.emit("mine", to=["nova"]), "seen")

    assert got == ["mine"]


async def test_unknown_types_are_ignored_and_unhandled_messages_stay_unread(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:

        @nova.on("known")
        async def known(envelope: palaver.Envelope) -> None: ...

        async with handling(nova):
            text = await luna.send("nova", "hello")
            unknown = await luna.emit("unknown", to="nova")
            await until_state(luna, await luna.emit("known", to="nova"), "seen")
            await until_state(luna, unknown, "seen")

            assert await state_of(luna, text) != "seen"


async def test_handlers_of_hello_and_bye_hear_other_agents(bus: Bus) -> None:
    got: asyncio.Queue[palaver.Envelope] = asyncio.Queue()
    async with bus.connect("nova") as nova, bus.connect("luna") as luna:
        nova.on("agent.hello")(got.put)
        nova.on("agent.bye")(got.put)

        @nova.on("ready")
        async def ready(envelope: palaver.Envelope) -> None: ...

        async with handling(nova), asyncio.timeout(LIMIT_S):
            await until_state(luna, await luna.emit("ready", to="nova"), "seen")
            while got.empty():  # the log is followed from now on, which a hello proves
                async with bus.connect("kira"):
                    await asyncio.sleep(0)
            hello = await got.get()

    assert (hello.type, hello.sender, hello.payload["runtime"]) == ("agent.hello", "kira", "python")
    assert set(hello.payload) == {"runtime", "version"}


async def test_handling_ends_with_the_block_and_ends_running_handlers(bus: Bus) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(LIMIT_S):
        async with bus.connect("luna") as luna, bus.connect("nova") as nova:

            @nova.on("endless")
            async def endless(envelope: palaver.Envelope) -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            task = asyncio.create_task(nova.handle())
            await luna.emit("endless", to="nova")
            await began.wait()
        await task

    assert cancelled.is_set()


async def test_handler_of_an_empty_type_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        Handlers().on("")


async def test_wrong_envelope_is_refused_before_it_is_sent(bus: Bus) -> None:
    async with bus.connect("luna") as luna:
        with pytest.raises(BadRequest, match="envelope cannot be built"):
            await luna.emit("x", {"a": object()})
        with pytest.raises(BadRequest, match="`payload`"):
            await luna.emit("x", [1])  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="`type`"):
            await luna.emit("")
        with pytest.raises(BadRequest, match="`to`"):
            await luna.emit("x", to=[1])  # type: ignore[list-item]
        with pytest.raises(ReservedType):
            await luna.emit("delivery")
        for token in ("@worker", "@luna", "@ALL", "@*", "nobody", ""):
            with pytest.raises(UnknownRecipient):
                await luna.emit("x", to=[token])

        assert await luna.events(types=["x"]) == []


async def test_same_envelope_is_one_event_also_after_a_restart(bus: Bus) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova"):
        envelope = palaver.Envelope.new("x", "luna", {"a": 1}, ["nova"])
        first = await luna.put(envelope)
        bus.kill()

        again = await luna.put(envelope)
        for changed in (
            replace(envelope, type="y"),
            replace(envelope, to=("luna",)),
            replace(envelope, payload={"a": 2}),
        ):
            with pytest.raises(IdTaken):
                await luna.put(changed)

        assert (again.seq, again.delivered_to, again.is_repeat) == (first.seq, first.delivered_to, True)
        assert len(await luna.events(types=["x"])) == 1


async def test_handling_ends_with_an_error_after_pal_down(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async with bus.connect("luna") as luna, bus.connect("nova") as nova:

        @nova.on("x")
        @nova.on("agent.hello")
        async def keep(envelope: palaver.Envelope) -> None: ...

        task = asyncio.create_task(nova.handle())
        await until_state(luna, await luna.emit("x", to="nova"), "seen")

        bus.pal("down")

        with pytest.raises(Disconnected, match="'pal up' starts it again"):
            await task
