"""Attacks with names: a process takes a name that looks like the person or the bus."""

import pytest
from tests.daemon.stage import Home, run_as_person
from tests.daemon.wires import LinesWire

NAMES = [
    "human-zed",
    "human-ops-zed",
    "human_zed",
    "system-zed",
    "script-zed",
    "all-zed",
    "room-zed",
    "pal-events",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_door_opens_a_name_that_looks_like_the_person(bus: Home, name: str) -> None:
    """Promise: every door refuses a new name that begins with a reserved word, and stores nothing."""
    tag, _, base = name.rpartition("-")
    tagged = ("--tag", tag) if tag else ()
    shell = bus.shell()

    refused = [
        shell.pal("join", "--name", base, *tagged, "--json").error,
        shell.pal("join", "--name", name, "--json").error,
        run_as_person(bus, "join", "--remote", f"{name}:BOXE", "--json").error,
        bus.pal("run", "--name", base, *tagged, "--json", "--", "true").error,
    ]
    with LinesWire(bus.path) as program:
        refused.append(program.ask("join", name=name))
        program.ask("join", name="luna")
        refused.append(program.ask("join", name=name))

    assert {one["error"] for one in refused} == {"bad_name"}
    assert [one["name"] for one in bus.ok("list", "--json").lines] == ["luna"]


def test_tag_alone_draws_no_name_that_looks_like_the_person(bus: Home) -> None:
    """Promise: a drawn name obeys the same rule as a chosen one."""
    assert bus.shell().pal("join", "--tag", "human", "--json").error["error"] == "bad_name"
