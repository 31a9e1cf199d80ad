from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.domain.rights import (
    RESERVED_TYPES,
    can,
    check_foreign_type,
    require,
    require_person,
    require_turns_of,
)
from palaver.errors import BadRequest, NotAllowed, NotPerson, ReservedType
from palaver.protocol.agents import Agent, Caller, Seat, Standing


@pytest.mark.parametrize("type", [*sorted(RESERVED_TYPES), "session.created", "trigger.x", "schedule.fired"])
def test_own_event_types_are_reserved(type: str) -> None:
    with pytest.raises(ReservedType) as caught:
        check_foreign_type(type)

    assert caught.value.type == type


@pytest.mark.parametrize(
    "type",
    [
        "message",
        "agent.hello",
        "agent.bye",
        "task.assign",
        "myorg.deploy.triggered",
        "sessions",
        "Status",
        "x",
    ],
)
def test_other_event_types_may_come_from_outside(type: str) -> None:
    check_foreign_type(type)


def test_empty_event_type_is_refused() -> None:
    with pytest.raises(BadRequest):
        check_foreign_type("")


@given(st.sampled_from(Standing), st.sampled_from(Standing))
def test_request_needs_at_least_its_standing(standing: Standing, needed: Standing) -> None:
    caller = Caller(name="luna", standing=standing, kind="instance")

    if can(standing, needed):
        require(caller, needed, "stop")
        assert standing >= needed
    else:
        with pytest.raises(NotAllowed) as caught:
            require(caller, needed, "stop")
        assert (caught.value.standing, caught.value.needed) == (standing.word, needed.word)


def test_only_a_person_that_acts_as_itself_is_a_person() -> None:
    person = Caller(name="human", standing=Standing.HUMAN, kind="human")
    require_person(person, "import")

    with pytest.raises(NotPerson, match="not possible with --as"):
        require_person(replace(person, by="nova"), "import")
    with pytest.raises(NotAllowed):
        require_person(replace(person, kind="system"), "import")


LUNA = Agent(name="luna", base="luna")
BOSS = Agent(name="boss", base="boss", role="operator")
SCRIPT = Caller(name="script", standing=Standing.WORKER, kind="external")
SELF = Caller(name="luna", standing=Standing.WORKER, kind="instance")


@pytest.mark.parametrize(
    ("caller", "agent"),
    [
        (SELF, LUNA),
        (SCRIPT, LUNA),
        (Caller(name="boss", standing=Standing.OPERATOR, kind="instance"), LUNA),
        (Caller(name="human", standing=Standing.HUMAN, kind="human"), BOSS),
    ],
)
def test_automatic_turns_belong_to_the_agent_operators_and_scripts(caller: Caller, agent: Agent) -> None:
    require_turns_of(caller, agent)


@pytest.mark.parametrize(
    ("caller", "agent"),
    [
        (replace(SELF, name="nova"), LUNA),
        (replace(SELF, turn="luna+main"), LUNA),
        (SCRIPT, BOSS),
        (replace(SCRIPT, is_orphan=True), LUNA),
        (replace(SCRIPT, standing=Standing.OBSERVER), LUNA),
        (replace(SCRIPT, seat=Seat(pid=1, start=1, boot="b")), LUNA),
    ],
)
def test_automatic_turns_of_others_are_refused(caller: Caller, agent: Agent) -> None:
    with pytest.raises(NotAllowed):
        require_turns_of(caller, agent)
