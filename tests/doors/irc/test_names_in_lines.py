"""The names in a line select the agents that get it, and no word of the line is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.domain.routing import Directory, resolve
from palaver.doors.irc.showing import LIMIT_NOTICE, compact_command
from palaver.doors.irc.speaking import names_in
from palaver.errors import BadRequest, UnknownRecipient
from palaver.protocol.agents import Agent, split_name

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "irc_lines.json").read_text(encoding="utf-8")
)

BETTER = {
    "codex/main and codex": False,  # a name in the middle of a line without its @ is a word
    "@workers report": True,  # the plural is the group
    "@c* stop": False,  # a glob ends in -*, as everywhere
    "mail x@claude-* now": False,  # an address in a word is not one
    "@worker report status": True,
    "install @alloy": None,  # an unknown name is refused with the nearest names
}
"""Where the bus differs from the earlier system on purpose; None if the line is refused."""


def agent(name: str, role: str = "worker") -> Agent:
    parts = split_name(name)
    return Agent(name=name, base=parts.base, tag=parts.tag, device=parts.device, role=role)


def reached(text: str, *agents: Agent) -> set[str]:
    """Return the agents that get a line."""
    directory = Directory(agents)
    names = names_in(text, directory)
    if not names:
        return set()
    return set(resolve(names, directory, sender="", is_present=lambda name: True).recipients)


def cases(*kinds: str) -> list[Any]:
    return [pytest.param(one, id=one["text"]) for kind in kinds for one in VECTORS[kind]]


@pytest.mark.parametrize("case", cases("nick_mention"))
def test_nick_vectors(case: dict[str, Any]) -> None:
    nick = case["nick"]

    expected = BETTER.get(case["text"], case["expected"])

    assert (nick in reached(case["text"], agent(nick))) is expected


@pytest.mark.parametrize("case", cases("group_mention_in_text"))
def test_group_vectors(case: dict[str, Any]) -> None:
    nick = case["nick"].lower()
    expected = BETTER.get(case["text"], case["expected"])
    known = agent(nick, case["agent_type"])

    if expected is None:
        with pytest.raises(UnknownRecipient):
            reached(case["text"], known)
    else:
        assert (nick in reached(case["text"], known)) is expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("codex-scuttlebot-1234: read README.md", {"codex-scuttlebot-1234"}),
        ("luna, status?", {"luna"}),
        ("hello there", set()),
        ("do not let luna drop the table", set()),
        ("luna", set()),
        ("please ask luna: run tests", set()),
        ("luna, nova: both of you", {"luna", "nova"}),
        ("well, luna: hi", set()),
        ("LUNA: hi", {"luna"}),
        ("@luna: hi", {"luna"}),
        ("luna|BOXE: hi", {"luna:BOXE"}),
        ("look, @luna|boxe", {"luna:BOXE"}),
        ("http://luna: x", set()),
        ("[op] luna stop", set()),
        ("luna: luna: @luna", {"luna"}),
        ("mail me@luna.org", set()),
        ("human: hi", {"human"}),
        ("note: remember", set()),
    ],
)
def test_names_of_a_line(text: str, named: set[str]) -> None:
    known = [agent(name) for name in ("luna", "nova", "luna:BOXE", "codex-scuttlebot-1234")]

    found = reached(text, *known)

    # A base name selects every agent that has it.
    assert found - ({"luna:BOXE"} if "luna" in named else set()) == named


@pytest.mark.parametrize("text", ["lunna: hi", "hi @lunna", "@lun hi", "hi @room", "hi @luna and @lunna"])
def test_unknown_name_is_refused_with_the_nearest_ones(text: str) -> None:
    with pytest.raises(UnknownRecipient):
        names_in(text, Directory([agent("luna")]))


words = st.sampled_from(["luna", "@luna", "nova", "@nova", "hello", "a,b", ":", ",", "{", "|", "x@luna", "@"])
lines = st.lists(words, max_size=8).map(" ".join) | st.text(max_size=40)


@given(text=lines)
@example(text="luna: hi")
@example(text="luna,nova: hi")
@example(text="@luna|")
def test_only_named_agents_are_reached(text: str) -> None:
    """An agent is reached only if its name is at the start of the line or after an `@`."""
    try:
        found = reached(text, agent("luna"), agent("nova"))
    except (UnknownRecipient, BadRequest):
        return
    for name in found & {"luna", "nova"}:
        at_start = text.lstrip().lower().startswith(name) or f", {name}" in text.lower()
        groups = ("@all", "@worker", "@workers")
        assert at_start or f"@{name}" in text.lower() or any(group in text.lower() for group in groups)


@given(
    before=st.text(st.characters(exclude_characters="@"), max_size=20), name=st.sampled_from(["luna", "nova"])
)
def test_name_inside_a_line_is_only_a_word(before: str, name: str) -> None:
    text = f"please {before} {name} now"

    assert reached(text, agent("luna"), agent("nova")) == set()


@pytest.mark.parametrize("case", VECTORS["command_compaction"])
def test_compaction_vectors(case: dict[str, Any]) -> None:
    if case["in"].startswith("141 x"):
        assert compact_command("x" * 141) == "x" * LIMIT_NOTICE + "..."
    else:
        assert compact_command(case["in"]) == case["out"]


def test_number_of_looked_up_unknown_names_is_limited() -> None:
    with pytest.raises(UnknownRecipient) as caught:
        names_in(" ".join(f"@kira{index}" for index in range(16_000)), Directory([agent("luna")]))

    assert (len(caught.value.unmatched), caught.value.unchecked) == (100, 15_900)
