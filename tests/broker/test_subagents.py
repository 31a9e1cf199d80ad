"""Starting sub-agents, on both engines."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes import HUMAN, Bus, open_memory, opened_bus, seat

from palaver.broker.context import SYSTEM_CALLER, Joined
from palaver.errors import BadName, BadRequest, BadText, NotAllowed, NotFound
from palaver.protocol.agents import Agent, BeginSubagent
from palaver.protocol.envelope import Event
from palaver.protocol.events import LifeChanged
from palaver.protocol.query import Query
from palaver.protocol.requests import Gone, Join, Leave


async def begin(bus: Bus, parent: str, key: str, type: str = "reviewer") -> Joined:
    outcome = await bus.broker.submit(SYSTEM_CALLER, BeginSubagent(parent=parent, key=key, type=type))
    assert isinstance(outcome, Joined)
    return outcome


async def end(bus: Bus, agent: Agent) -> None:
    await bus.broker.submit(SYSTEM_CALLER, Gone(name=agent.name, reason="done", seat=agent.seat))


async def written(bus: Bus, name: str) -> list[Event]:
    return [
        event
        for event in await bus.log.read(Query(senders=(name,)))
        if not (isinstance(event.body, LifeChanged) and event.body.is_echo)
    ]


async def test_sub_agent_has_its_own_name_and_the_seat_of_its_parent(bus: Bus) -> None:
    await bus.join("luna", tag="api", harness="claude", seat=seat(7), version="2")

    begun = await begin(bus, "api-luna", "a1", "code-reviewer")

    agent = begun.agent
    assert begun.is_new
    assert (agent.name, agent.base, agent.tag) == (
        "api-luna_code_reviewer_1",
        "luna_code_reviewer_1",
        "api",
    )
    assert (agent.by, agent.parent, agent.session, agent.seat) == (
        "api-luna",
        "api-luna",
        "a1",
        seat(7, "a1"),
    )
    assert (agent.harness, agent.version, agent.role) == ("claude", "2", "worker")
    assert (agent.state, agent.detail) == ("active", "thinking")
    (hello,) = await written(bus, agent.name)
    assert (hello.type, hello.by) == ("agent.hello", "api-luna")


async def test_numbers_increase_and_are_never_reused(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))
    first = await begin(bus, "luna", "a1")
    await end(bus, first.agent)

    later = [await begin(bus, "luna", key, type) for key, type in (("a2", "reviewer"), ("a3", ""))]

    assert [one.agent.name for one in later] == ["luna_reviewer_2", "luna_sub_1"]


async def test_name_chosen_by_another_agent_is_skipped(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))
    await bus.join("luna_reviewer_1", seat=seat(8))

    begun = await begin(bus, "luna", "a1")

    assert begun.agent.name == "luna_reviewer_2"


async def test_same_key_of_the_same_parent_is_the_same_sub_agent(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))
    await bus.join("nova", seat=seat(8))
    begun = await begin(bus, "luna", "a1")

    again, other = await begin(bus, "luna", "a1", "writer"), await begin(bus, "nova", "a1")

    assert (again.agent, again.is_new) == (begun.agent, False)
    assert other.agent.name == "nova_reviewer_1"
    assert len(await written(bus, "luna_reviewer_1")) == 1


async def test_ended_sub_agent_joins_again_with_its_old_name(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))
    await end(bus, (await begin(bus, "luna", "a1")).agent)

    again = await begin(bus, "luna", "a1")

    assert (again.agent.name, again.is_new, again.agent.left) == ("luna_reviewer_1", True, False)
    types = [event.type for event in await written(bus, "luna_reviewer_1")]
    assert types == ["agent.hello", "agent.bye", "agent.hello"]


async def test_sub_agent_moves_to_the_new_seat_of_its_parent(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7), session="s", harness="claude")
    await begin(bus, "luna", "a1")
    bus.present.clear()
    await bus.join("luna", seat=seat(9), session="s", harness="claude")

    moved = await begin(bus, "luna", "a1")

    assert (moved.agent.seat, moved.is_new) == (seat(9, "a1"), False)
    events = await written(bus, "luna_reviewer_1")
    assert [event.payload.get("action") for event in events] == [None, "resumed"]


async def test_name_reassigned_by_a_person_does_not_return_to_the_sub_agent(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))
    await end(bus, (await begin(bus, "luna", "a1")).agent)
    await bus.broker.submit(HUMAN, Join(name="luna_reviewer_1", seat=seat(8)))

    again = await begin(bus, "luna", "a1")

    assert again.agent.name == "luna_reviewer_2"


async def test_sub_agent_may_have_sub_agents_without_more_rights(bus: Bus) -> None:
    await bus.join("luna", role="operator", seat=seat(7))
    await bus.join("mira", role="observer")

    worker = (await begin(bus, "luna", "a1")).agent
    inner = (await begin(bus, worker.name, "b1", "")).agent
    watcher = (await begin(bus, "mira", "a1")).agent

    assert (worker.role, watcher.role) == ("worker", "observer")
    assert (inner.name, inner.parent) == ("luna_reviewer_1_sub_1", "luna_reviewer_1")
    assert watcher.seat is None


async def test_absent_agent_cannot_have_sub_agents(bus: Bus) -> None:
    luna = await bus.join("luna", seat=seat(7))
    await bus.broker.submit(luna, Leave())

    for parent in ("luna", "nobody"):
        with pytest.raises(NotFound, match=f"no agent {parent} here"):
            await begin(bus, parent, "a1")


async def test_key_and_name_of_a_sub_agent_are_validated(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))
    long = "x" * 60
    await bus.join(long, seat=seat(8))

    with pytest.raises(BadRequest, match="is missing"):
        await begin(bus, "luna", "")
    with pytest.raises(BadText):
        await begin(bus, "luna", "a\x01")
    with pytest.raises(BadName):
        await begin(bus, long, "a1")


@pytest.mark.parametrize("key", ["t2", "s2"])
async def test_session_of_the_same_process_cannot_become_a_sub_agent(bus: Bus, key: str) -> None:
    await bus.join("luna", harness="codex", seat=seat(7, "t1"), session="t1")
    nova = await bus.join("nova", harness="codex", seat=seat(7, "t2"), session="s2")
    await bus.join("mira", harness="codex", seat=seat(8, "t3"), session="t3")
    await bus.join("linked", has_link=True, session="s2")

    with pytest.raises(BadRequest, match="belongs to nova, which is not a sub-agent of luna"):
        await begin(bus, "luna", key)

    assert (await begin(bus, "mira", key)).agent.name == "mira_reviewer_1"
    assert (await begin(bus, "linked", key)).agent.name == "linked_reviewer_1"
    await bus.submit(nova, Leave())
    assert (await begin(bus, "luna", key)).agent.name == "luna_reviewer_1"


async def test_only_the_bus_starts_sub_agents(bus: Bus) -> None:
    luna = await bus.join("luna", seat=seat(7))

    with pytest.raises(NotAllowed):
        await bus.broker.submit(luna, BeginSubagent(parent="luna", key="a1"))


async def test_concurrent_starts_get_distinct_names(bus: Bus) -> None:
    await bus.join("luna", seat=seat(7))

    begun = await asyncio.gather(*(begin(bus, "luna", f"a{index // 2}") for index in range(10)))

    names = {one.agent.session: one.agent.name for one in begun}
    assert sorted(names.values()) == [f"luna_reviewer_{number}" for number in range(1, 6)]
    assert all(names[one.agent.session] == one.agent.name for one in begun)
    assert sum(one.is_new for one in begun) == 5


_PARENTS = ("luna", "luna_a", "api-luna")
_TYPES = ("", "a", "a_b", "b", "a-b", "sub_1")
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "join", "pause"]),
        st.sampled_from(_PARENTS),
        st.sampled_from(["k1", "k2", "k3", "k4"]),
        st.sampled_from(_TYPES),
    ),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
async def test_names_never_collide_in_any_order_of_starts(
    tmp_path: Path, steps: list[tuple[str, str, str, str]]
) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        for number, parent in enumerate(_PARENTS):
            await bus.join(parent, seat=seat(number + 1))
        waiting: list[asyncio.Task[Joined]] = []
        chosen: set[str] = set()
        for step, parent, key, type in steps:
            if step == "begin":
                waiting.append(asyncio.create_task(begin(bus, parent, key, type)))
            elif step == "pause":
                await asyncio.sleep(0)
            elif step == "join" and bus.broker.directory.get(f"{parent}_{type or 'sub'}_1") is None:
                name = f"{parent}_{type or 'sub'}_1".replace("a-b", "a_b")
                if bus.broker.directory.get(name) is None and not waiting:
                    await bus.join(name, seat=seat(100 + len(chosen)))
                    chosen.add(name)
            elif step == "end" and waiting:
                await end(bus, (await waiting[0]).agent)
        begun = [one.agent for one in await asyncio.gather(*waiting)]

        owners: dict[str, tuple[str, str]] = {}
        for agent in begun:
            assert owners.setdefault(agent.name, (agent.parent, agent.session)) == (
                agent.parent,
                agent.session,
            )
        assert len(owners) == len(set(owners.values()))
        assert not chosen & owners.keys()
