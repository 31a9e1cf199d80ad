"""Paths through the SDK: routes, subscriptions, sessions, dead letters, and the stream of deliveries."""

import asyncio
from contextlib import aclosing

import pytest
from tests.client.bus import Bus
from tests.client.test_restart import soon

import palaver
from palaver.errors import BadRequest, NotAllowed, RequestError, UnknownRecipient


async def test_route_reaches_the_subscribers_of_a_path(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("kira") as kira, bus.connect("ci") as ci:
        subscribed = await nova.subscribe("/build//*/")

        sent = await ci.route("build/done", "report", {"ok": True}, "github", "run-9")

        assert (subscribed.pattern, subscribed.note) == ("build/*", "")
        assert [one.pattern for one in subscribed.subscriptions] == ["build/*"]
        assert (sent.delivered, sent.unmatched) == (True, False)
        assert (sent.delivered_to, sent.delivered_to_sessions) == (("nova",), ())
        (message,) = await nova.receive()
        assert (message.id, message.sender, message.path) == (sent.message_id, "ci", "build/done")
        assert (message.command, message.payload) == ("report", {"ok": True})
        assert (message.source, message.external_id) == ("github", "run-9")
        assert (message.status, message.handled) == ("delivered", False)
        assert await kira.receive() == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, {}), (False, {}), (0, {}), ("", {}), ([], []), ({}, {}), (7, 7), ("x", "x"), ([None], [None])],
)
async def test_payload_is_any_value_and_an_empty_one_is_an_object(
    bus: Bus, given: object, kept: object
) -> None:
    async with bus.connect("nova") as nova:
        await nova.route("agent/nova", payload=given)

        (message,) = await nova.receive()

        assert (message.command, message.payload, message.source) == ("message", kept, "internal")


async def test_received_message_is_taken_once_by_all_readers(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("ci") as ci:
        await ci.route("agent/nova", "first")
        await ci.send("@nova", "second", intent="inform", thread="t")

        taken = await nova.receive()

        assert [(one.command, one.payload) for one in taken] == [
            ("first", {}),
            ("message", {"text": "second"}),
        ]
        assert (taken[1].path, taken[1].intent, taken[1].thread) == ("agent/nova", "inform", "t")
        assert await nova.receive() == []
        await ci.route("agent/nova", "third")
        assert (await soon(nova.messages())).fields["command"] == "third"


async def test_session_has_its_own_mailbox_and_its_agent_a_handled_copy(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("ci") as ci:
        await nova.subscribe("build/failed", session="repairs")

        sent = await ci.route("build/failed")

        session = palaver.SessionId("nova", "repairs")
        assert (sent.delivered_to, sent.delivered_to_sessions) == (("nova",), (session,))
        (own,) = await nova.receive(session="repairs")
        (copy,) = await nova.receive()
        assert own.id == copy.id == sent.message_id
        assert (copy.handled, copy.handled_by) == (True, (session,))
        assert not own.handled
        assert await nova.receive(session="repairs") == await nova.receive(session="main") == []


async def test_history_shows_messages_newest_first_and_takes_none(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("ci") as ci:
        await nova.subscribe("build/**", session="repairs")
        for command in ("1", "2", "3"):
            await ci.route("agent/nova", command)
        await ci.route("build/x", "4")

        (first, *_) = await nova.receive(limit=1)
        history = await ci.history("nova")
        of_session = await nova.history(session="repairs")

        assert [(one.command, one.status) for one in history] == [
            ("4", "pending"),
            ("3", "pending"),
            ("2", "pending"),
            ("1", "delivered"),
        ]
        assert [one.command for one in of_session] == ["4"]
        assert [one.command for one in await nova.history(limit=2)] == ["4", "3"]
        assert await nova.history(limit=0) == []
        assert await nova.history(until=first.timestamp - 1) == []
        assert len(await nova.history(since=first.timestamp)) == 4
        assert [one.command for one in await nova.receive()] == ["2", "3", "4"]


async def test_subscriptions_are_stored_once_and_end(bus: Bus) -> None:
    async with bus.connect("nova") as nova:
        own = await nova.subscribe("agent/nova")
        await nova.subscribe("a/b")
        await nova.subscribe("a/b")
        await nova.subscribe("c", session="s")

        assert (own.note, own.subscriptions) == ("auto-subscribed", ())
        assert [one.pattern for one in await nova.subscriptions()] == ["a/b"]
        assert [one.pattern for one in await nova.subscriptions("nova", session="s")] == ["c"]
        assert (await nova.unsubscribe("a/b")).subscriptions == ()
        assert (await nova.unsubscribe("never/was")).pattern == "never/was"
        with pytest.raises(BadRequest, match="Cannot unsubscribe from auto-subscription"):
            await nova.unsubscribe("agent/nova")
        with pytest.raises(NotAllowed, match="other agents"):
            await nova.subscribe("agent/*")
        with pytest.raises(BadRequest, match="pattern is required"):
            await nova.subscribe("//")


async def test_broadcast_reaches_all_present_agents_except_the_sender(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("kira"), bus.connect("ci") as ci:
        sent = await nova.broadcast("announce", {"n": 1})

        assert sent.delivered_to == ("ci", "kira")
        assert await nova.receive() == []
        assert [(one.command, one.path) for one in await ci.receive()] == [("announce", "agent/**")]


async def test_message_without_a_subscriber_is_a_dead_letter(bus: Bus) -> None:
    async with bus.connect("ci") as ci:
        lost = await ci.route("agent/ghost", "x")
        await ci.route("deploy/done", "y", {"n": 1}, external_id="e")

        letters = await ci.dead_letters()
        await ci.clear_dead_letters()

        assert (lost.delivered, lost.unmatched, lost.delivered_to) == (False, True, ())
        assert [(one.path, one.reason) for one in letters] == [
            ("deploy/done", "no_subscribers"),
            ("agent/ghost", "no_subscribers"),
        ]
        assert (letters[0].payload, letters[0].external_id, letters[0].sender) == ({"n": 1}, "e", "ci")
        assert letters[1].id == lost.message_id
        assert await ci.dead_letters() == []
        await ci.route("deploy/again")
        assert [one.path for one in await ci.dead_letters(limit=1)] == ["deploy/again"]


@pytest.mark.parametrize(
    ("path", "text"),
    [("/", "path is required"), ("", "path is required"), ("x/" * 65, "64"), ("a" * 1025, "limit is 1024")],
)
async def test_bad_path_is_refused(bus: Bus, path: str, text: str) -> None:
    async with bus.connect("ci") as ci:
        with pytest.raises(RequestError, match=text):
            await ci.route(path)


async def test_messages_that_arrive_together_have_their_own_results(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("ci") as ci:
        one, bad, text, unknown, lost = await asyncio.gather(
            ci.route("agent/nova", "1"),
            ci.route("//"),
            ci.send("@nova", "2"),
            ci.send("@ghost", "3"),
            ci.route("nowhere"),
            return_exceptions=True,
        )

        assert isinstance(one, palaver.RouteResult)
        assert isinstance(text, palaver.Receipt)
        assert isinstance(lost, palaver.RouteResult)
        assert [type(bad), type(unknown)] == [BadRequest, UnknownRecipient]
        assert (one.delivered_to, text.delivered_to, lost.unmatched) == (("nova",), ("nova",), True)
        taken = await nova.receive()
        assert [(message.id, message.payload) for message in taken] == [
            (one.message_id, {}),
            (text.id, {"text": "2"}),
        ]


async def test_repeated_id_is_stored_once(bus: Bus) -> None:
    async with bus.connect("nova") as nova:
        first = await nova.route("agent/nova", "x")

        assert await nova.route("agent/nova", "x", id=first.message_id) == first
        assert len(await nova.receive()) == 1


async def test_routes_and_receives_across_a_crash_lose_and_repeat_nothing(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("ci") as ci:
        routes = [asyncio.ensure_future(ci.route("agent/nova", str(number))) for number in range(400)]
        await routes[20]
        takes = [asyncio.ensure_future(nova.receive(limit=10)) for _ in range(60)]

        bus.kill()
        await asyncio.gather(*routes)
        taken = [message for some in await asyncio.gather(*takes) for message in some]
        while more := await nova.receive():
            taken += more

        assert sorted(int(message.command) for message in taken) == list(range(400))


async def test_routed_yields_each_delivery_without_a_gap_across_crashes(bus: Bus) -> None:
    async with bus.connect("nova") as nova, bus.connect("ci") as ci:
        await nova.subscribe("build/*", session="s")
        async with aclosing(ci.routed(after=0)) as stream:
            seen: list[palaver.Routed] = []
            for number in range(12):
                await ci.send("@nova", "not by a path")
                await ci.route("nowhere", "dead")
                sent = await ci.route(f"build/{number}", str(number))
                if number % 4 == 1:
                    bus.kill()
                seen.append(await soon(stream))

                assert (seen[-1].message.id, seen[-1].result) == (sent.message_id, sent)

        assert [routed.message.command for routed in seen] == [str(number) for number in range(12)]
        async with aclosing(ci.routed(after=seen[9].seq)) as rest:
            assert [(await soon(rest)).message.path for _ in range(2)] == ["build/10", "build/11"]


async def test_routed_begins_with_the_next_delivery(bus: Bus) -> None:
    async with bus.connect("nova") as nova:
        await nova.route("agent/nova", "old")
        stream = nova.routed()
        waiting = asyncio.ensure_future(soon(stream))
        while not waiting.done():
            await nova.route("agent/nova", "new")

        assert (await waiting).message.command == "new"
