"""Joining, on both engines."""

import asyncio
import itertools
from dataclasses import replace

import msgspec
import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, seat

from palaver.broker.context import SYSTEM_CALLER, Joined
from palaver.errors import AlreadyJoined, BadName, BadText, NameTaken, NotPerson
from palaver.protocol.agents import Agent, Caller, Standing, spare_name
from palaver.protocol.envelope import Draft
from palaver.protocol.events import LifeChanged
from palaver.protocol.query import Query
from palaver.protocol.requests import Gone, Join, Leave, Put, Register, Request, SetStatus


async def joined(bus: Bus, asking: Caller, request: Request, key: bytes | None = None) -> Joined:
    outcome = await bus.broker.submit(asking, request, key=key)
    assert isinstance(outcome, Joined)
    return outcome


async def types(bus: Bus) -> list[str]:
    """Return the event types, or the action of a `life` event, without echoes of hello and bye."""
    events = [
        event
        for event in await bus.log.read(Query())
        if not (isinstance(event.body, LifeChanged) and event.body.is_echo)
    ]
    return [str(event.payload.get("action", event.type)) for event in events]


async def test_join_writes_a_hello_that_contains_the_whole_agent(bus: Bus) -> None:
    outcome = await joined(
        bus, HUMAN, Join(name="Luna", tag="API", harness="claude", version="2", seat=seat(7), session="s")
    )

    agent = outcome.agent
    assert outcome.is_new
    assert (agent.name, agent.base, agent.tag, agent.role) == ("api-luna", "luna", "api", "worker")
    assert (agent.harness, agent.runtime, agent.version, agent.session) == ("claude", "claude", "2", "s")
    assert (agent.seat, agent.state, agent.device) == (seat(7), "idle", bus.log.device)
    assert agent.joined == agent.since == bus.clock.now_ms()
    assert bus.agent("api-luna") == agent
    assert await types(bus) == ["agent.hello"]


async def test_name_that_was_not_chosen_is_drawn_and_was_never_used_before(bus: Bus) -> None:
    await bus.join(spare_name(0), tag="api")

    outcome = await joined(bus, SCRIPT, Join(tag="web"))

    assert outcome.agent.name == f"web-{spare_name(1)}"


async def test_two_joins_that_draw_the_same_name_at_once_get_two_names(bus: Bus) -> None:
    bus.draws = itertools.repeat(0)

    both = await asyncio.gather(joined(bus, SCRIPT, Join()), joined(bus, SCRIPT, Join()))

    assert {one.agent.name for one in both} == {spare_name(0), spare_name(1)}


async def test_join_without_a_name_is_refused_when_every_short_name_is_in_use(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.broker.agents._TRIES", 1)
    await bus.join(spare_name(0))

    with pytest.raises(NameTaken, match="every short name"):
        await joined(bus, SCRIPT, Join())


@pytest.mark.parametrize("name", ["human", "worker", "1st", "lu na", "luna:BOXE", "x" * 65])
async def test_invalid_name_is_refused(bus: Bus, name: str) -> None:
    with pytest.raises(BadName):
        await joined(bus, HUMAN, Join(name=name))


async def test_unknown_role_is_refused(bus: Bus) -> None:
    with pytest.raises(BadName, match="the roles are"):
        await joined(bus, HUMAN, Join(name="luna", role="king"))


async def test_harness_with_a_control_character_is_refused(bus: Bus) -> None:
    with pytest.raises(BadText):
        await joined(bus, HUMAN, Join(name="luna", harness="cla\x1bude"))


async def test_only_the_human_grants_a_role_above_worker(bus: Bus) -> None:
    given = await joined(bus, HUMAN, Join(name="luna", role="operator"))
    with pytest.raises(NotPerson):
        await joined(bus, SCRIPT, Join(name="nova", role="operator"))

    assert given.agent.role == "operator"


async def test_operator_passes_its_role_only_to_children_of_its_connection(bus: Bus) -> None:
    boss = await bus.join("boss", role="operator")

    child = await joined(bus, boss, Join(name="boss_aide_1", role="orchestrator", has_link=True))
    with pytest.raises(NotPerson, match="only a person can assign"):
        await joined(bus, boss, Join(name="nova", role="operator", seat=seat(9)))

    assert (child.agent.role, child.agent.by) == ("orchestrator", "boss")


async def test_agent_cannot_open_a_name_above_its_own_standing(bus: Bus) -> None:
    watcher = await bus.join("watcher", role="observer")

    child = await joined(bus, watcher, Join(name="watcher_eye_1", role="observer", has_link=True))
    with pytest.raises(NotPerson, match="worker, which is above your own: observer"):
        await joined(bus, watcher, Join(name="watcher_hand_1", has_link=True))

    assert child.agent.role == "observer"


async def test_name_in_use_is_refused_even_for_the_human(bus: Bus) -> None:
    await bus.join("luna")

    with pytest.raises(NameTaken, match="in use"):
        await joined(bus, HUMAN, Join(name="luna"))


async def test_two_joins_of_one_name_at_once_have_one_winner(bus: Bus) -> None:
    outcomes = await asyncio.gather(
        joined(bus, HUMAN, Join(name="luna", seat=seat(1))),
        joined(bus, HUMAN, Join(name="luna", seat=seat(2))),
        return_exceptions=True,
    )

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Joined", "NameTaken"]


async def test_used_name_is_returned_only_by_the_human(bus: Bus) -> None:
    nova = await bus.join("nova")
    await bus.join("luna", seat=seat(1))
    bus.present.discard("luna")

    for stranger in (nova, SCRIPT):
        with pytest.raises(NameTaken, match="earlier agent"):
            await joined(bus, stranger, Join(name="luna", seat=seat(2)))
    taken = await joined(bus, HUMAN, Join(name="luna", seat=seat(2)))

    assert taken.is_new
    assert taken.agent.seat == seat(2)


async def test_refused_script_learns_how_to_take_over_a_worker(bus: Bus) -> None:
    await bus.join("luna", is_here=False)
    await bus.join("boss", role="operator", is_here=False)

    refused = []
    for request in (Join(name="luna"), Join(name="boss"), Join(name="boss", takes_over=True)):
        with pytest.raises(NameTaken) as caught:
            await joined(bus, SCRIPT, request)
        refused.append("pal join --as" in str(caught.value))

    assert refused == [True, False, False]


async def test_script_with_takeover_gets_an_offline_worker(bus: Bus) -> None:
    await bus.join("luna", is_here=False)
    await bus.join("boss", role="operator", is_here=False)

    with pytest.raises(NameTaken):
        await joined(bus, replace(SCRIPT, is_orphan=True), Join(name="luna", takes_over=True))
    taken = await joined(bus, SCRIPT, Join(name="luna", takes_over=True))
    with pytest.raises(NameTaken):
        await joined(bus, SCRIPT, Join(name="boss", takes_over=True))

    assert taken.agent.by == "script"


async def test_agent_gets_its_own_children_back(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.join("luna_reviewer_1", by=luna, is_here=False, has_link=True)

    with pytest.raises(NameTaken):
        await joined(bus, nova, Join(name="luna_reviewer_1", has_link=True))
    back = await joined(bus, luna, Join(name="luna_reviewer_1", has_link=True))

    assert back.agent.by == "luna"


async def test_join_at_the_same_seat_changes_nothing(bus: Bus) -> None:
    await bus.join("luna", seat=seat(1), session="s")

    again = await joined(bus, SCRIPT, Join(name="luna", seat=seat(1)))

    assert not again.is_new
    assert await types(bus) == ["agent.hello"]


async def test_session_resumed_at_another_seat_writes_no_second_hello(
    bus: Bus,
) -> None:
    await bus.join("luna", harness="claude", seat=seat(1), session="s")
    await bus.submit(SYSTEM_CALLER, Gone(name="luna", reason="its process ended", seat=seat(1)))
    bus.present.discard("luna")
    bus.clock.advance(5)

    back = await joined(
        bus, SCRIPT, Join(name="luna", harness="claude", seat=seat(2), session="s", version="3")
    )

    assert not back.is_new
    assert (back.agent.role, back.agent.seat, back.agent.version) == ("worker", seat(2), "3")
    assert (back.agent.state, back.agent.left, back.agent.since) == ("idle", False, bus.clock.now_ms())
    assert await types(bus) == ["agent.hello", "agent.bye", "resumed"]


@pytest.mark.parametrize(
    ("standing", "role"),
    [
        (Standing.OBSERVER, "observer"),
        (Standing.WORKER, "worker"),
        (Standing.ORCHESTRATOR, "worker"),
        (Standing.OPERATOR, "operator"),
        (Standing.HUMAN, "operator"),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
async def test_operator_session_alone_does_not_raise_the_role_of_the_caller(
    bus: Bus, standing: Standing, role: str, is_named: bool
) -> None:
    await bus.join("boss", role="operator", harness="claude", seat=seat(1), session="s", is_here=False)
    kind = "human" if standing is Standing.HUMAN else "instance"
    caller = Caller(name="x", standing=standing, kind=kind)

    name = "boss" if is_named else ""
    back = await joined(bus, caller, Join(name=name, harness="claude", seat=seat(2), session="s"))

    assert (back.agent.name, back.agent.role) == ("boss", role)


async def test_seat_and_holder_secret_and_link_secret_keep_a_role(bus: Bus) -> None:
    await bus.join("boss", role="operator", harness="claude", seat=seat(1), session="s")
    await bus.join("held", role="operator", harness="claude", seat=seat(2), session="t", holder="h")
    await bus.join("linked", role="operator", session="hash", has_link=True)
    for name in ("held", "linked"):
        bus.present.discard(name)

    again = [
        await joined(bus, SCRIPT, Join(name="boss", harness="claude", seat=seat(1), session="u")),
        await joined(bus, SCRIPT, Join(name="held", harness="claude", seat=seat(3), holder="h")),
        await joined(bus, SCRIPT, Join(name="linked", session="hash", has_link=True, runtime="py")),
    ]

    assert [one.agent.role for one in again] == ["operator"] * 3


async def test_session_continues_under_another_holder_after_the_first_has_ended(bus: Bus) -> None:
    await bus.join("luna", harness="codex", seat=seat(1), session="s", holder="first")
    again = Join(harness="codex", seat=seat(2), session="s", holder="second")
    bus.present.discard("luna")

    with pytest.raises(NameTaken, match="earlier agent"):
        await joined(bus, SCRIPT, again)
    await bus.submit(SYSTEM_CALLER, Gone(name="luna", reason="its process ended", seat=seat(1)))
    with pytest.raises(NameTaken, match="earlier agent"):
        await joined(bus, SCRIPT, Join(name="luna", harness="codex", seat=seat(2), session="t", holder="x"))

    back = await joined(bus, SCRIPT, again)

    assert (back.agent.name, back.agent.holder) == ("luna", "second")


async def test_session_without_a_name_gets_its_earlier_name(bus: Bus) -> None:
    first = await joined(bus, SCRIPT, Join(harness="claude", seat=seat(1), session="s"))

    second = await joined(bus, SCRIPT, Join(harness="claude", seat=seat(2), session="s"))

    assert second.agent.name == first.agent.name


async def test_session_whose_name_was_taken_draws_a_new_one(bus: Bus) -> None:
    await bus.join("luna", harness="claude", session="s", is_here=False)
    await bus.join("luna", harness="claude", session="t", is_here=False)

    outcome = await joined(bus, SCRIPT, Join(harness="claude", session="s"))

    assert outcome.agent.name == spare_name(0)


async def test_session_in_use_at_another_seat_cannot_be_copied(bus: Bus) -> None:
    await bus.join("luna", harness="claude", seat=seat(1), session="s")

    for name in ("luna", ""):
        with pytest.raises(NameTaken, match="in use"):
            await joined(bus, SCRIPT, Join(name=name, harness="claude", seat=seat(2), session="s"))


async def test_reconnected_link_keeps_its_status(bus: Bus) -> None:
    luna = await bus.join("luna", has_link=True, session="hash")
    await bus.submit(luna, SetStatus(state="active"))

    again = await joined(bus, SCRIPT, Join(name="luna", has_link=True, session="hash", runtime="py"))

    assert (again.agent.state, again.agent.runtime) == ("active", "py")


async def test_agent_that_left_and_joins_again_at_its_seat_writes_a_new_hello(bus: Bus) -> None:
    luna = await bus.join("luna", seat=seat(1))
    await bus.submit(luna, Leave())

    again = await joined(bus, SCRIPT, Join(name="luna", seat=seat(1)))

    assert again.is_new
    assert not again.agent.left
    assert await types(bus) == ["agent.hello", "agent.bye", "agent.hello"]


async def test_human_raises_the_role_of_a_present_agent(bus: Bus) -> None:
    await bus.join("luna", seat=seat(1))

    with pytest.raises(NotPerson):
        await joined(bus, SCRIPT, Join(name="luna", role="operator", seat=seat(1), has_link=True))
    raised = await joined(bus, HUMAN, Join(name="luna", role="operator", seat=seat(1)))

    assert raised.agent.role == "operator"


async def test_same_request_key_returns_the_same_join(bus: Bus) -> None:
    request = Join(seat=seat(1))
    first = await joined(bus, SCRIPT, request, key=b"k" * 16)
    bus.present.add(first.agent.name)

    second = await joined(bus, SCRIPT, request, key=b"k" * 16)

    assert second == first


async def test_same_request_key_is_not_refused_because_the_name_is_now_in_use(bus: Bus) -> None:
    first = await joined(bus, HUMAN, Join(name="luna"), key=b"k" * 16)
    bus.present.add("luna")

    second = await joined(bus, HUMAN, Join(name="luna"), key=b"k" * 16)
    with pytest.raises(NameTaken):
        await joined(bus, HUMAN, Join(name="luna"), key=b"m" * 16)

    assert second == first


async def test_remote_agent_is_registered_once(bus: Bus) -> None:
    first = await joined(bus, HUMAN, Register(name="api-luna:boxe"))
    second = await joined(bus, HUMAN, Register(name="api-luna:BOXE"))

    assert (first.is_new, second.is_new) == (True, False)
    assert (first.agent.name, first.agent.device, first.agent.remote) == ("api-luna:BOXE", "BOXE", True)


@pytest.mark.parametrize("name", ["luna", "human:BOXE", "lu na:BOXE"])
async def test_remote_name_needs_a_device_and_a_valid_name(bus: Bus, name: str) -> None:
    with pytest.raises(BadName):
        await joined(bus, HUMAN, Register(name=name))


async def test_local_agent_cannot_be_registered(bus: Bus) -> None:
    with pytest.raises(BadName):
        await joined(bus, HUMAN, Register(name=f"luna:{bus.log.device}"))


async def test_guest_in_a_chat_cannot_assign_a_role(bus: Bus) -> None:
    guest = Caller(name="ann", standing=Standing.GUEST, kind="external")

    with pytest.raises(NotPerson):
        await joined(bus, guest, Join(name="luna"))


async def test_hello_envelope_changes_the_runtime_and_not_the_identity(bus: Bus) -> None:
    luna = await bus.join("luna")
    forged: dict[str, object] = {
        "agent": {"name": "luna", "base": "luna", "role": "operator"},
        "runtime": "py",
    }

    await bus.submit(luna, Put(envelope=Draft(type="agent.hello", id="h1", sender="luna", payload=forged)))

    assert (bus.agent("luna").role, bus.agent("luna").runtime) == ("worker", "py")


async def test_agent_from_an_older_log_keeps_a_name_that_is_refused_now(bus: Bus) -> None:
    zed = Agent(
        name="human-zed",
        base="zed",
        tag="human",
        harness="claude",
        session="s",
        device=bus.log.device,
        seat=seat(7),
    )
    payload = {"runtime": "claude", "version": "", "agent": msgspec.to_builtins(zed)}
    hello = Draft(type="agent.hello", sender="human-zed", payload=payload, id="old", ts=bus.clock.now_ms())
    await bus.log.commit("agent/human-zed", lambda rows: hello)

    outcome = await joined(
        bus, SCRIPT, Join(name="zed", tag="human", harness="claude", session="s", seat=seat(7))
    )

    assert (outcome.agent.name, outcome.is_new) == ("human-zed", False)
    with pytest.raises(BadName):
        await joined(bus, SCRIPT, Join(name="zoe", tag="human", seat=seat(8)))


@pytest.mark.parametrize("session", ["", "s1"])
async def test_joins_of_one_seat_at_the_same_time_are_one_agent(bus: Bus, session: str) -> None:
    request = Join(seat=seat(7), session=session, harness="codex")

    found = await asyncio.gather(
        *(bus.broker.submit(SCRIPT, request) for _ in range(3)), return_exceptions=True
    )

    names = {one.agent.name for one in found if isinstance(one, Joined)}
    names |= {one.name for one in found if isinstance(one, AlreadyJoined)}
    assert len(names) == 1
    assert {agent.name for agent in bus.broker.directory.all()} == names


async def test_seat_of_an_agent_that_has_left_is_free(bus: Bus) -> None:
    luna = await bus.join("luna", seat=seat(7))
    await bus.submit(luna, Leave())

    joined = await bus.broker.submit(SCRIPT, Join(seat=seat(7)))

    assert isinstance(joined, Joined)
    assert joined.agent.name != "luna"
