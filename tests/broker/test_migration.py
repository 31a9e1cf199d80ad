"""What another path broker had stored: written once, without any effect on agents; on both engines."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

import pytest
from msgspec import structs
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import DiskFull, NotAllowed, NotPerson
from palaver.log.api import Commit, Order
from palaver.log.follow import follow
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.events import State
from palaver.protocol.paths import (
    LIMIT_SUBSCRIPTIONS,
    CreateSession,
    Migrate,
    MigratedAutoRun,
    MigratedMessage,
    MigratedSession,
    MigratedSubscription,
    MigrationResult,
    RemoveSession,
    SubscribePath,
    UnsubscribePath,
)
from palaver.protocol.query import Query
from palaver.protocol.requests import Acknowledge, Archive
from palaver.protocol.turns import SetAutoRun
from palaver.state.agents import read_entry, read_unread
from palaver.state.paths import read_agent_session, read_path_subscriptions
from palaver.state.turns import read_auto_run

BORROWED = Caller(name="human", standing=Standing.HUMAN, kind="human", by="nova")
EVERYTHING = Migrate(
    agents=("luna", "api-nova"),
    sessions=(MigratedSession(agent="luna", session="mon", title="Team", created=5, used=9),),
    subscriptions=(
        MigratedSubscription(agent="luna", pattern="/slack//team/", added=6),
        MigratedSubscription(agent="luna", pattern="slack/**", session="mon", added=7),
        MigratedSubscription(agent="luna", pattern="agent/luna", added=7),
    ),
    messages=(
        MigratedMessage(
            id="m-1",
            sender="bridge",
            path="slack/team",
            ts=10,
            command="new",
            payload=False,
            source="slack",
            external_id="e",
            mailboxes=("luna+mon", "luna"),
            taken=("luna+mon",),
            handled={"luna": ("mon",)},
        ),
        MigratedMessage(id="m-2", sender="luna", path="agent/api-nova", ts=11, mailboxes=("api-nova",)),
        MigratedMessage(id="m-3", sender="luna", path="x/y", ts=12),
    ),
)
NEW = MigrationResult(agents=2, sessions=1, subscriptions=2, messages=2, dead=1)


async def migrate(bus: Bus, request: Migrate) -> MigrationResult:
    done = await bus.broker.submit(HUMAN, request)
    assert isinstance(done, MigrationResult)
    return done


def message(**fields: object) -> Migrate:
    """Return a request with one message for luna, which is sent with it."""
    made = {"id": "m", "sender": "kira", "path": "a", "ts": 1, **fields}
    return Migrate(agents=("luna",), messages=(MigratedMessage(**made),))  # type: ignore[arg-type]  # its fields


async def messages(bus: Bus) -> list[Event]:
    return await bus.log.read(Query(types=("message",)))


def states(bus: Bus, seq: int, *mailboxes: str) -> list[str]:
    entries = [read_entry(bus.log.rows, seq, mailbox) for mailbox in mailboxes]
    return ["" if entry is None else entry.state for entry in entries]


async def test_migration_stores_agents_sessions_subscriptions_and_messages(bus: Bus) -> None:
    done = await migrate(bus, EVERYTHING)

    assert done == NEW
    luna, nova = bus.agent("luna"), bus.agent("api-nova")
    assert (luna.left, luna.state, luna.detail) == (True, "exited", "migrated")
    assert (nova.base, nova.tag) == ("nova", "api")
    session = read_agent_session(bus.log.rows, "luna", "mon")
    assert session is not None
    assert (session.title, session.created_at, session.last_used_at) == ("Team", 5, 9)
    assert [(one.pattern, one.added_at) for one in session.subscriptions] == [("slack/**", 7)]
    own = read_path_subscriptions(bus.log.rows, "luna")
    assert [(one.pattern, one.added_at) for one in own] == [("slack/team", 6)]
    assert bus.broker.directory.by_path("slack/team") == {"luna", "luna+mon"}


async def test_message_is_one_event_with_the_state_of_each_copy(bus: Bus) -> None:
    await migrate(bus, EVERYTHING)

    first, second, dead = await messages(bus)
    assert (first.id, first.sender, first.ts, first.to) == ("m-1", "bridge", 10, ("slack/team",))
    assert first.payload == {
        "text": "",
        "scope": "path",
        "mentions": [],
        "sender_kind": "external",
        "delivered_to": ["luna+mon", "luna"],
        "path": "slack/team",
        "command": "new",
        "payload": False,
        "source": "slack",
        "external_id": "e",
        "wakes": [],
        "migrated": ["luna+mon"],
        "handled": {"luna": ["mon"]},
    }
    assert states(bus, first.seq, "luna+mon", "luna") == [State.SEEN, ""]
    assert second.payload["sender_kind"] == "instance"
    assert read_unread(bus.log.rows, "api-nova") == 1
    assert dead.payload["dead"] == ["x/y"]
    assert states(bus, dead.seq, "x/y") == [State.DEAD]
    reader = bus.delivery.take("luna")
    assert [event.id for event in reader.poll(10)] == ["m-1"]
    reader.close()


async def test_second_migration_writes_nothing(bus: Bus) -> None:
    await migrate(bus, EVERYTHING)
    last = bus.log.last()

    done = await migrate(bus, EVERYTHING)

    assert done == MigrationResult(known=3)
    assert bus.log.last() == last


async def test_second_migration_writes_nothing_for_archived_messages(bus: Bus) -> None:
    await migrate(bus, EVERYTHING)
    await bus.broker.submit(HUMAN, Archive(before=bus.log.last() + 1))
    last = bus.log.last()

    assert await migrate(bus, EVERYTHING) == MigrationResult(known=3)
    assert bus.log.last() == last


async def test_what_was_removed_here_stays_removed(bus: Bus) -> None:
    await migrate(bus, EVERYTHING)
    luna = await bus.join("luna")
    await bus.submit(luna, UnsubscribePath(agent="luna", pattern="slack/team"))
    await bus.submit(luna, RemoveSession(agent="luna", session="mon"))
    last = bus.log.last()

    await migrate(bus, EVERYTHING)

    assert bus.log.last() == last
    assert read_path_subscriptions(bus.log.rows, "luna") == ()


async def test_what_is_here_already_stays_as_it_is(bus: Bus) -> None:
    luna = await bus.join("luna", role="operator")
    await bus.submit(luna, CreateSession(agent="luna", session="mon", title="Mine"))
    await bus.submit(luna, SubscribePath(agent="luna", pattern="slack/**", session="mon"))
    before = bus.agent("luna"), read_agent_session(bus.log.rows, "luna", "mon")

    done = await migrate(bus, EVERYTHING)

    assert (done.agents, done.sessions, done.subscriptions) == (1, 0, 1)
    assert (bus.agent("luna"), read_agent_session(bus.log.rows, "luna", "mon")) == before


@pytest.mark.parametrize(("title", "expected"), [("Home", 1), ("", 0)])
async def test_default_session_gets_its_title_once(bus: Bus, title: str, expected: int) -> None:
    one = MigratedSession(agent="luna", session="main", title=title, created=5, used=9)
    request = Migrate(agents=("luna",), sessions=(one,))

    assert (await migrate(bus, request)).sessions == expected
    changed = structs.replace(one, title="Other")
    again = await migrate(bus, Migrate(sessions=(changed,)))

    assert again.sessions == 1 - expected


async def test_copy_that_was_taken_there_since_counts_as_seen(bus: Bus) -> None:
    request = message(mailboxes=("luna+mon", "luna"))
    await migrate(bus, request)
    taken = message(mailboxes=("luna+mon", "luna"), taken=("luna",))

    first, again = await migrate(bus, taken), await migrate(bus, taken)

    assert (first.known, first.taken, again.taken) == (1, 1, 0)
    (event,) = await messages(bus)
    assert states(bus, event.seq, "luna+mon", "luna") == ["", State.SEEN]


async def test_copy_that_was_taken_here_stays_seen(bus: Bus) -> None:
    request = message(mailboxes=("luna",))
    await migrate(bus, request)
    luna, (event,) = await bus.join("luna"), await messages(bus)
    await bus.submit(luna, Acknowledge(messages=(event.seq,), lane="recv", grade="flushed"))

    done = await migrate(bus, request)

    assert (done.known, done.taken) == (1, 0)
    assert states(bus, event.seq, "luna") == [State.SEEN]


@pytest.mark.parametrize("changed", [{"ts": 2}, {"mailboxes": ("luna",)}])
async def test_other_message_with_the_same_id_is_named(bus: Bus, changed: Mapping[str, object]) -> None:
    await migrate(bus, message())

    done = await migrate(bus, message(**changed))

    assert (done.messages, done.known, done.different) == (0, 0, ("m",))


async def test_message_with_the_id_of_another_event_is_named(bus: Bus) -> None:
    kira = await bus.join("kira")
    event = await bus.submit(kira, SubscribePath(agent="kira", pattern="a/b"))
    assert event is not None

    done = await migrate(bus, message(id=event.id, ts=event.ts))

    assert done.different == (event.id,)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Migrate(agents=("Luna!",)), "Luna!"),
        (Migrate(agents=("claude",)), "reserved"),
        (Migrate(agents=("luna:BOXE",)), "cannot be the name of a local agent"),
        (Migrate(sessions=(MigratedSession(agent="x", session="s", created=1, used=1),)), "is not an agent"),
        (
            Migrate(
                agents=("luna",), sessions=(MigratedSession(agent="luna", session="..", created=1, used=1),)
            ),
            "cannot be a session id",
        ),
        (Migrate(subscriptions=(MigratedSubscription(agent="x", pattern="a", added=1),)), "is not an agent"),
        (message(sender="human"), "cannot be the sender"),
        (message(id="a\0b"), "the id"),
        (message(path="//"), "a path needs"),
        (message(mailboxes=("vega",)), "is not an agent of this bus"),
        (message(mailboxes=("luna+..",)), "cannot be a session id"),
        (message(payload="x" * 100_001), "the payload"),
    ],
)
async def test_part_that_cannot_be_stored_is_named(bus: Bus, request_: Migrate, reason: str) -> None:
    done = await migrate(bus, request_)

    (sentence,) = done.refused
    assert reason in sentence
    assert await messages(bus) == []


async def test_subscriptions_have_a_limit(bus: Bus) -> None:
    many = tuple(
        MigratedSubscription(agent="luna", pattern=f"a/{number}", added=1)
        for number in range(LIMIT_SUBSCRIPTIONS + 1)
    )

    done = await migrate(bus, Migrate(agents=("luna",), subscriptions=many))

    assert (done.subscriptions, len(done.refused)) == (LIMIT_SUBSCRIPTIONS, 1)


async def test_only_a_person_can_migrate(bus: Bus) -> None:
    for caller, refusal in ((SCRIPT, NotAllowed), (SYSTEM_CALLER, NotAllowed), (BORROWED, NotPerson)):
        with pytest.raises(refusal):
            await bus.broker.submit(caller, EVERYTHING)

    assert await messages(bus) == []


async def test_migrated_message_wakes_no_agent_and_goes_along_with_the_next_one(bus: Bus) -> None:
    nova, _ = await bus.join("nova"), await bus.join("luna")
    lane = bus.open_lane("luna")

    await migrate(bus, message(mailboxes=("luna",)))
    sent = await bus.send(nova, "a new message", "@luna")

    # An offer for the migrated message alone would come first.
    assert [event.id for event in (await lane.next()).events] == ["m", sent.id]


async def test_migrated_events_call_no_handler_and_reach_no_follower(bus: Bus) -> None:
    heard: list[Event] = []
    stop = bus.log.subscribe(heard.extend, {"message"})
    first = bus.log.last()

    await migrate(bus, EVERYTHING)
    sent = await bus.send(await bus.join("nova"), "a new message", "@luna")

    stop()
    assert [event.id for event in heard] == [sent.id]
    async with aclosing(follow(bus.log, Query(), after=first)) as batches:
        found = await anext(batches)
    assert found[0].type == "agent.hello"


async def test_failure_of_the_log_is_raised(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(orders: Sequence[Order]) -> list[Commit | Exception]:
        return [DiskFull("log.sqlite")]

    monkeypatch.setattr(bus.log, "commit_all", full)

    with pytest.raises(DiskFull):
        await migrate(bus, message())


async def test_automatic_turns_are_taken_over_unless_they_are_here(bus: Bus) -> None:
    await bus.join("nova")
    await bus.submit(HUMAN, SetAutoRun(agent="nova", value=False))
    found = (
        MigratedAutoRun(agent="luna", value={"debounceMs": 5}),
        MigratedAutoRun(agent="luna", session="mon", value={"debounceMs": -5}),
        MigratedAutoRun(agent="nova", value=True),
    )

    done = await migrate(bus, Migrate(agents=("luna",), auto_runs=found))

    assert done.auto_runs == 1
    assert [one.partition(":")[0] for one in done.refused] == ["autoRun of luna+mon"]
    assert read_auto_run(bus.log.rows, "luna") == {"debounceMs": 5}
    assert read_auto_run(bus.log.rows, "nova") is False
