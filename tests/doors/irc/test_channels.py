"""Nick lists, joins, leaves, topics and changes of the bus, as clients see them."""

from dataclasses import replace
from pathlib import Path

from tests.doors.irc.door_stage import MANY_LINES, IrcStage, Timers, commands, shown
from tests.doors.irc.stage import opened_stage
from tests.fakes import FakeClock

from palaver.broker.context import SYSTEM_CALLER, Seated
from palaver.doors.irc.connection import Client
from palaver.protocol.agents import Agent, caller_for
from palaver.protocol.requests import Gone, JoinRoom, Leave, LeaveRoom


async def test_join_shows_topic_and_all_nicks(irc: IrcStage) -> None:
    await irc.agent("luna")
    await irc.agent("nova", role="operator")
    bob = await irc.guest("bob")

    lines = await bob.ask("JOIN #General")

    assert commands(lines) == ["JOIN", "332", "333", "353", "366"]
    assert lines[0].source == "bob!bob@palaver"
    assert lines[3].params == ("bob", "=", "#General", "bob +luna @nova")


async def test_others_see_join_part_and_quit(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #x")

    await bob.ask("JOIN #X", "PART #x :later", "JOIN #x")
    bob.send("QUIT :bye")
    lines = await ann.until("QUIT")

    assert shown(lines) == [("JOIN", "#x"), ("PART", "#x", "later"), ("JOIN", "#x"), ("QUIT", "Quit: bye")]
    assert {line.source for line in lines} == {"bob!bob@palaver"}
    assert (await bob.rest())[-1].command == "ERROR"


async def test_quit_is_sent_once_for_several_shared_channels(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #a,#b,#c")
    await bob.ask("JOIN #a,#b,#d")
    await ann.ask()

    await bob.close()

    assert shown(await ann.until("QUIT")) == [("QUIT", "the connection was closed")]
    assert await ann.ask() == []


async def test_agents_that_come_and_go_are_shown(irc: IrcStage) -> None:
    bob = await irc.guest("bob", "extended-join", "account-tag")
    await bob.ask("JOIN #general")

    luna = await irc.agent("luna")
    joined = (await bob.until("JOIN"))[-1]
    await irc.broker.submit(caller_for(luna), Leave())
    left = (await bob.until("QUIT"))[-1]

    assert joined.source == "luna!luna@palaver"
    assert joined.params == ("#general", "luna", "worker")
    assert joined.tags["account"] == "luna"
    assert (left.source, left.params) == ("luna!luna@palaver", ("left the bus",))


async def test_registered_agent_is_listed_as_an_agent_each_time_it_connects(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    await bob.ask("JOIN #general")
    secret = await irc.token("scout", role="operator")

    for _ in range(2):
        scout = await irc.connect()
        await scout.log_in("scout", secret)
        joined = (await bob.until("JOIN"))[-1]
        names = await bob.ask("NAMES #general", "NAMES #agent-scout")
        await scout.close()
        await irc.broker.submit(SYSTEM_CALLER, Gone(name="scout", reason="its connection was lost"))
        await bob.until("QUIT", "PART")

        assert (joined.source, joined.params) == ("scout!scout@palaver", ("#general",))
        assert [line.params[-1] for line in names if line.command == "353"] == ["bob @scout", "@scout"]


async def test_room_lists_its_members(irc: IrcStage, tmp_path: Path) -> None:
    luna = await irc.agent("luna")
    room = await join_room(irc, luna, tmp_path)
    bob = await irc.guest("bob")

    lines = await bob.ask(f"JOIN #{room}")
    nova = await irc.agent("nova")
    await join_room(irc, nova, tmp_path)
    joined = (await bob.until("JOIN"))[-1]

    assert lines[1].params[2] == f"Room {room} in {tmp_path}"
    assert lines[3].params[-1] == "bob +luna"
    assert (joined.source, joined.params) == ("nova!nova@palaver", (f"#{room}",))


async def test_short_name_of_a_room_leads_to_its_channel(irc: IrcStage, tmp_path: Path) -> None:
    luna = await irc.agent("luna")
    room = await join_room(irc, luna, tmp_path)
    bob = await irc.guest("bob")
    short = room.rpartition("-")[0]

    lines = await bob.ask(f"JOIN #{short}")

    assert shown(lines)[:2] == [
        ("470", "bob", f"#{short}", f"#{room}", "This is the short name of a room; you are in its channel"),
        ("JOIN", f"#{room}"),
    ]


async def test_agent_that_only_leaves_a_room_parts(irc: IrcStage, tmp_path: Path) -> None:
    luna = await irc.agent("luna")
    room = await join_room(irc, luna, tmp_path)
    bob = await irc.guest("bob")
    await bob.ask(f"JOIN #{room}")

    await irc.broker.submit(caller_for(luna), LeaveRoom(room=room))

    assert (await bob.until("PART", "QUIT"))[-1].params == (f"#{room}",)


async def test_member_that_leaves_a_room_parts_or_quits(irc: IrcStage, tmp_path: Path) -> None:
    luna = await irc.agent("luna")
    room = await join_room(irc, luna, tmp_path)
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask(f"JOIN #{room},#general")
    await bob.ask(f"JOIN #{room}")

    await irc.broker.submit(SYSTEM_CALLER, Gone(name="luna", reason="test"))

    assert (await ann.until("PART", "QUIT"))[-1].source == "luna!luna@palaver"
    assert (await bob.until("PART", "QUIT"))[-1].source == "luna!luna@palaver"


async def join_room(irc: IrcStage, agent: Agent, directory: Path) -> str:
    done = await irc.broker.submit(caller_for(agent), JoinRoom(workspaces=(str(directory),)))
    assert isinstance(done, Seated)
    return done.room.id


async def test_connections_of_one_account_share_nick_and_channels(irc: IrcStage) -> None:
    codes = irc.accounts.codes
    first, second = await irc.connect(), await irc.connect()
    await first.log_in("human", codes.issue())
    await first.ask("JOIN #a")
    bob = await irc.guest("bob")
    await bob.ask("JOIN #a,#b")
    await first.ask()

    await second.log_in("human", codes.issue())
    joined = await second.ask()
    await second.ask("JOIN #b")
    on_first = await first.ask()
    seen = await bob.ask()
    await second.close()
    await bob.ask()
    await first.close()

    assert commands(joined)[:2] == ["JOIN", "353"]
    assert ("JOIN", "#b") in shown(on_first)
    assert shown(seen) == [("JOIN", "#b")]
    assert shown(await bob.until("QUIT", "PART"))[-1][0] == "QUIT"


async def test_connection_that_overflows_at_a_part_stops_no_other(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        hub = stage.hub
        first, bob = stage.person("#a"), stage.guest("bob", "#a")
        slow = Client(
            id="slow",
            clock=FakeClock(),
            call_later=Timers(FakeClock()).call_later,
            # The JOIN, the nicks and their end fit; the PART does not.
            limits=replace(MANY_LINES, waiting_lines=3),
            is_local=True,
            ended=hub.quit,
        )
        slow.nick = slow.user = first.nick
        slow.set_account(first.account)
        hub.add(slow)
        last = stage.person()

        hub.part(first, "#a")

        assert slow.is_ended
        assert [dict(one.joined) for one in (first, slow, last)] == [{}, {}, {}]
        assert [commands(one.lines)[-1] for one in (first, last, bob)] == ["PART", "PART", "PART"]
        assert hub.members("#a") == (bob,)


async def test_agent_whose_last_client_ends_is_online_for_the_grace_period(irc: IrcStage) -> None:
    luna, bob = await irc.program("luna"), await irc.guest("bob")
    await luna.ask("JOIN #a")
    await bob.ask("JOIN #a")

    await luna.close()
    parted = await bob.until("PART", "QUIT")
    await irc.broker.submit(SYSTEM_CALLER, Gone(name="luna", reason="test"))

    assert shown(parted)[-1] == ("PART", "#a", "the connection was closed")
    assert await bob.ask("ISON luna") != []


async def test_agent_stays_listed_when_its_client_leaves(irc: IrcStage) -> None:
    luna = await irc.program("luna")
    bob = await irc.guest("bob")
    await bob.ask("JOIN #general")

    parted = await luna.ask("JOIN #general", "PART #general")

    assert commands(parted)[-1] == "PART"
    assert await bob.ask() == []
    assert (await bob.ask("NAMES #general"))[0].params[-1] == "bob +luna"


async def test_own_channel_of_an_agent_lists_it(irc: IrcStage) -> None:
    await irc.agent("luna")
    bob = await irc.guest("bob")

    lines = await bob.ask("JOIN #agent-luna", "WHOIS luna")

    assert lines[3].params[-1] == "bob +luna"
    assert ("319", "bob", "luna", "+#general +#agent-luna") in shown(lines)


async def test_away_is_shown_to_clients_that_asked_for_it(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann", "away-notify"), await irc.guest("bob")
    await ann.ask("JOIN #a")
    await bob.ask("JOIN #a")
    await ann.ask()

    replies = await bob.ask("AWAY :at \x02lunch\x1b", "AWAY")

    assert commands(replies) == ["306", "305"]
    assert shown(await ann.ask()) == [("AWAY", "at lunch␛"), ("AWAY",)]


async def test_away_of_a_new_member_is_shown(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann", "away-notify"), await irc.guest("bob")
    await ann.ask("JOIN #a")

    await bob.ask("AWAY :lunch", "JOIN #a")

    assert shown(await ann.ask()) == [("JOIN", "#a"), ("AWAY", "lunch")]


async def test_guest_changes_its_nick(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann"), await irc.guest("bob")
    await ann.ask("JOIN #a", "AWAY :out", "MONITOR + rob")
    await bob.ask("JOIN #a")
    await ann.ask()

    own = await bob.ask("NICK rob", "NICK ROB")
    seen = await ann.ask("WHOIS rob")

    assert [(line.source, line.params) for line in own] == [
        ("bob!bob@palaver", ("rob",)),
        ("rob!bob@palaver", ("ROB",)),
    ]
    assert shown(seen)[:3] == [("NICK", "rob"), ("730", "ann", "rob!bob@palaver"), ("NICK", "ROB")]
    assert "319" in commands(seen)


async def test_monitor_reports_clients_and_agents(irc: IrcStage) -> None:
    ann = await irc.guest("ann")

    first = await ann.ask("MONITOR + bob,luna,ann")
    bob = await irc.guest("bob")
    came = await ann.until("730")
    await irc.agent("luna")
    joined = await ann.until("730")
    await bob.close()
    left = await ann.until("731")
    await irc.broker.submit(SYSTEM_CALLER, Gone(name="luna", reason="test"))
    gone = await ann.until("731")

    assert shown(first) == [("730", "ann", "ann!ann@palaver"), ("731", "ann", "bob,luna")]
    assert [came[-1].params[1], joined[-1].params[1]] == ["bob!bob@palaver", "luna!luna@palaver"]
    assert [left[-1].params[1], gone[-1].params[1]] == ["bob", "luna"]


async def test_agent_with_a_client_is_online_once(irc: IrcStage) -> None:
    secret = await irc.token("luna")
    ann, luna = await irc.guest("ann"), await irc.connect()
    await ann.ask("MONITOR + luna")

    await luna.log_in("luna", secret)
    await luna.ask("JOIN #a")

    assert shown(await ann.ask()) == [("730", "ann", "luna!luna@palaver")]


async def test_setname_is_shown_and_checked(irc: IrcStage) -> None:
    ann, bob = await irc.guest("ann", "setname"), await irc.guest("bob", "setname")
    await ann.ask("JOIN #a")
    await bob.ask("JOIN #a")
    await ann.ask()

    replies = await bob.ask("SETNAME :B\x1bob \u202e", f"SETNAME :{'x' * 200}", "SETNAME :")

    assert shown(replies)[0] == ("SETNAME", "B␛ob \\u202e")
    assert [line.params[1] for line in replies[1:]] == ["INVALID_REALNAME", "INVALID_REALNAME"]
    assert shown(await ann.ask()) == [("SETNAME", "B␛ob \\u202e")]


async def test_setname_is_not_shown_without_the_capability(irc: IrcStage) -> None:
    bob = await irc.guest("bob")

    assert await bob.ask("SETNAME :Robert") == []
    assert (await bob.ask("WHO bob"))[0].params[-1] == "0 Robert"
