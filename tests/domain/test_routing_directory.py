import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.domain.routing import Directory, own_paths
from palaver.protocol.agents import ROLES, Agent, full_name


def agent(name: str, role: str = "worker") -> Agent:
    text, _, device = name.partition(":")
    tag, _, base = text.rpartition("-")
    return Agent(name=name, base=base, tag=tag, role=role, device=device, remote=bool(device))


def _names(agents: list[Agent]) -> list[str]:
    return [one.name for one in agents]


bases = st.sampled_from(
    ["lu", "luna", "luna2", "luna_a", "luna_a_1", "luna_a__", "luna_ab_1", "lunb", "nova", "n", "_"]
)
names = st.builds(full_name, bases, st.sampled_from(["", "api", "claude-x"]), st.sampled_from(["", "BOXE"]))
agents = st.builds(agent, names, st.sampled_from(ROLES))


@given(
    st.lists(agents | names, max_size=20),
    st.sampled_from(["", "l", "lu", "luna", "luna_", "luna_a", "luna_a_", "n", "x"]),
)
def test_every_index_finds_the_same_agents_as_a_scan(steps: list[Agent | str], prefix: str) -> None:
    directory = Directory()
    held: dict[str, Agent] = {}
    for step in steps:
        if isinstance(step, Agent):
            directory.put(step)
            held[step.name] = step
        else:
            directory.drop(step)
            held.pop(step, None)

    everybody = list(directory.all())
    assert everybody == list(held.values())
    assert len(directory) == len(held)
    assert {one.name for one in directory.by_base("luna")} == {o.name for o in everybody if o.base == "luna"}
    assert {one.name for one in directory.by_tag("api")} == {o.name for o in everybody if o.tag == "api"}
    assert {one.name for one in directory.by_role("worker")} == {
        o.name for o in everybody if o.role == "worker"
    }
    assert _names(directory.by_glob(prefix)) == sorted(o.name for o in everybody if o.name.startswith(prefix))
    assert directory.bases_with(prefix, 99) == sorted(
        {o.base for o in everybody if o.base.startswith(prefix) and not is_stopped(prefix, o.base)}
    )


def is_stopped(prefix: str, base: str) -> bool:
    """Return whether an underscore stops the prefix: the first one, or one right after the prefix."""
    rest = base[len(prefix) :]
    return rest.startswith("_") if "_" in prefix else "_" in rest


def test_agent_is_found_by_every_part_of_its_name() -> None:
    directory = Directory(map(agent, ["luna", "api-luna", "luna:BOXE", "api-nova"]))

    assert directory.get("api-luna") == agent("api-luna")
    assert directory.get("kira") is None
    assert _names(directory.by_base("luna")) == ["luna", "api-luna", "luna:BOXE"]
    assert _names(directory.by_tag("api")) == ["api-luna", "api-nova"]
    assert _names(directory.by_glob("api-")) == ["api-luna", "api-nova"]
    assert (directory.by_base("kira"), directory.by_tag("web"), directory.by_role("operator")) == ([], [], [])


def test_hints_of_an_agent_replace_those_of_the_bus() -> None:
    directory = Directory([Agent(name="luna", base="luna", hints="in German"), agent("nova")])

    hints = [directory.hints_for(name, "in English") for name in ("luna", "nova", "human")]

    assert hints == ["in German", "in English", "in English"]


def test_updated_agent_keeps_its_position() -> None:
    directory = Directory(map(agent, ["luna", "nova"]))

    directory.put(Agent(name="luna", base="luna", state="blocked"))
    directory.put(agent("luna", "operator"))

    assert _names(list(directory.all())) == ["luna", "nova"]
    assert _names(directory.by_role("operator")) == ["luna"]
    assert _names(directory.by_role("worker")) == ["nova"]


def test_agent_with_a_new_role_moves_to_the_end_of_its_groups() -> None:
    directory = Directory(map(agent, ["api-luna", "api-nova", "luna"]))

    directory.put(agent("api-luna", "operator"))
    directory.put(agent("api-luna"))

    assert _names(list(directory.all())) == ["api-luna", "api-nova", "luna"]
    assert _names(directory.by_role("worker")) == ["api-nova", "luna", "api-luna"]
    assert _names(directory.by_tag("api")) == ["api-nova", "api-luna"]
    assert _names(directory.by_base("luna")) == ["luna", "api-luna"]


def test_dropping_one_of_two_with_the_same_base_name_keeps_the_other() -> None:
    directory = Directory(map(agent, ["luna", "api-luna"]))

    directory.drop("luna")

    assert _names(directory.by_base("luna")) == ["api-luna"]
    assert directory.bases_with("lu", 9) == ["luna"]


def test_tag_stays_known_when_no_agent_has_it() -> None:
    directory = Directory([agent("api-luna")])

    directory.drop("api-luna")

    assert directory.has_tag("api")
    assert not directory.has_tag("web")


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("luna_r", ["luna_reviewer_1"]),
        ("luna_reviewer_", ["luna_reviewer_1"]),
        ("luna_", ["luna_reviewer_1", "luna_tester"]),
        ("luna_reviewer", []),
        ("luna", []),
        ("lun", []),
    ],
)
def test_prefix_with_an_underscore_matches_sub_agents(prefix: str, found: list[str]) -> None:
    directory = Directory(map(agent, ["luna_reviewer_1", "luna_tester"]))

    assert directory.bases_with(prefix, 9) == found


def test_number_of_candidates_is_limited() -> None:
    directory = Directory(map(agent, ["luna", "lunb", "lunc"]))

    assert directory.bases_with("lu", 2) == ["luna", "lunb"]


def test_nearest_names_are_the_most_similar() -> None:
    directory = Directory(map(agent, ["luna", "lena", "nova", "api-luna", "kira"]))

    assert directory.nearest("lunna")[0] == "luna"
    assert "nova" in directory.nearest("ova")
    assert directory.nearest("zzzzzz") == []
    assert directory.nearest("") == []
    assert len(directory.nearest("luna", 1)) == 1


def test_ended_sub_agent_is_not_suggested() -> None:
    over = msgspec.structs.replace(agent("luna_reviewer_1"), parent="luna", left=True)
    alive = msgspec.structs.replace(agent("luna_reviewer_2"), parent="luna")

    directory = Directory([agent("luna"), over, alive])

    near = directory.nearest("luna_reviewer_3")
    assert near[0] == "luna_reviewer_2"
    assert "luna_reviewer_1" not in near


def test_number_of_compared_names_is_limited() -> None:
    directory = Directory(agent(f"l{index}") for index in range(600))
    directory.put(agent("oops"))

    assert directory.nearest("oopz") == ["oops"]
    assert "oops" not in directory.nearest("loops")


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("luna", ("agent/luna",)),
        ("api-luna:BOXE", ("agent/api-luna:BOXE",)),
        ("luna_reviewer_1", ("agent/luna_reviewer_1", "agent/luna/reviewer_1")),
        ("luna_", ("agent/luna_",)),
    ],
)
def test_agent_is_found_by_its_own_paths(name: str, paths: tuple[str, ...]) -> None:
    directory = Directory([agent(name)])

    assert own_paths(name) == paths
    assert all(directory.by_path(path) == {name} for path in paths)


def test_underscore_in_the_name_of_a_parent_does_not_split_it() -> None:
    child = msgspec.structs.replace(agent("my_agent_reviewer_1"), parent="my_agent")
    directory = Directory([agent("my_agent"), child])

    assert directory.by_path("agent/my_agent/reviewer_1") == {"my_agent_reviewer_1"}
    assert directory.by_path("agent/my_agent/**") == {"my_agent", "my_agent_reviewer_1"}
    assert "agent/my_agent/reviewer_1" in directory.paths_of("my_agent_reviewer_1")
    assert directory.paths_of("nobody") == ("agent/nobody",)

    directory.put(agent("my_agent_reviewer_1"))

    assert directory.by_path("agent/my_agent/reviewer_1") == set()


def test_path_with_wildcards_reaches_the_subtree() -> None:
    directory = Directory(map(agent, ["luna", "luna_reviewer_1", "nova"]))

    assert directory.by_path("agent/luna/**") == {"luna", "luna_reviewer_1"}
    assert directory.by_path("agent/*") == {"luna", "luna_reviewer_1", "nova"}
    directory.drop("luna_reviewer_1")
    assert directory.by_path("agent/luna/**") == {"luna"}


@pytest.mark.parametrize("written", ["luna:BOXE", "@Luna:boxe", "LUNA:Boxe"])
def test_full_name_is_found_in_any_spelling(written: str) -> None:
    directory = Directory(map(agent, ["luna", "luna:BOXE"]))

    found = directory.find(written)

    assert found is not None
    assert found.name == "luna:BOXE"


@pytest.mark.parametrize(
    ("name", "is_launched"), [("nova", True), ("run", False), ("luna", False), ("nobody", False)]
)
def test_only_agents_started_with_pal_harness_are_launched(name: str, is_launched: bool) -> None:
    nova = Agent(name="nova", base="nova", holder="h", argv=("pal", "claude"))
    run = Agent(name="run", base="run", holder="h", argv=("claude",))
    directory = Directory([nova, run, agent("luna")])

    assert directory.is_launched(name) is is_launched


def test_wildcard_reaches_absent_agents_only_with_automatic_turns() -> None:
    directory = Directory([agent("luna"), agent("nova")])

    directory.set_auto_run("luna", is_on=True)
    found = directory.by_path("agent/*", is_present=lambda name: False)
    directory.set_auto_run("luna", is_on=False)
    directory.set_auto_run("nova", is_on=False)

    assert found == {"luna"}
    assert directory.by_path("agent/*", is_present=lambda name: False) == set()
    assert directory.by_path("agent/luna", is_present=lambda name: False) == {"luna"}


def test_paths_of_served_networks_are_carried_without_a_subscription() -> None:
    directory = Directory()
    directory.serve_network("net")

    paths = [
        "irc/net/#c",
        "irc/net/bob",
        "irc/local/#x",
        "irc/other/#c",
        "irc/net",
        "irc/net/*",
        "irc/*/#c",
        "a/net/b",
    ]
    assert [path for path in paths if directory.is_served(path)] == paths[:3]
