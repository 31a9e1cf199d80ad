import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadName
from palaver.protocol.agents import GUEST_ROLE, ROLES, Agent, Seat, Standing, doing_text, standing_of_role

texts = st.text(st.characters(exclude_categories=["Cs"]))
seats = st.builds(Seat, pid=st.integers(1, 2**22), start=st.integers(0, 2**53), boot=texts, key=texts)
agents = st.builds(
    Agent,
    name=texts,
    base=texts,
    tag=texts,
    state=texts,
    seat=st.none() | seats,
    left=st.booleans(),
    link=st.booleans(),
)


@given(agents)
def test_agent_survives_encoding_and_decoding(agent: Agent) -> None:
    assert msgspec.json.decode(msgspec.json.encode(agent), type=Agent) == agent


def test_default_fields_of_an_agent_are_not_encoded() -> None:
    assert msgspec.json.encode(Agent(name="luna", base="luna")) == b'{"name":"luna","base":"luna"}'


def test_standings_are_in_order() -> None:
    words = [standing.word for standing in sorted(Standing, reverse=True)]

    assert words == ["human", "operator", "orchestrator", "worker", "guest", "observer", "external"]


@pytest.mark.parametrize("role", [*ROLES, GUEST_ROLE])
def test_role_has_the_standing_of_its_name(role: str) -> None:
    assert standing_of_role(role).word == role


@pytest.mark.parametrize("role", ["human", "", "Worker", "Guest"])
def test_other_word_is_not_a_role(role: str) -> None:
    with pytest.raises(BadName):
        standing_of_role(role)


@pytest.mark.parametrize(
    ("tool", "detail", "shown"),
    [
        ("Bash", "make test", "Bash: make test"),
        ("Bash", "Bash: make test", "Bash: make test"),
        ("Bash", "", "Bash"),
        ("", "thinking", "thinking"),
        ("", "", ""),
    ],
)
def test_tool_is_named_once_with_its_use(tool: str, detail: str, shown: str) -> None:
    assert doing_text(tool, detail) == shown
