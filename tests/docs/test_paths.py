"""The commands of the page about paths run in their order, each by the agent of its prompt or by a script."""

import re
import shlex
from collections.abc import Iterator

import pytest
from tests.daemon.stage import Home, Result, Shell, new_home
from tests.docs.pages import page, sections
from tests.docs.story import steps

from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse

PAGE = page("paths.md")
SCRIPT = "script"


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        yield made


class Seats:
    """A shell for each agent of the page; the script has none."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._shells: dict[str, Shell] = {}

    def run(self, name: str, command: str) -> Result:
        program, *words = shlex.split(command)
        assert program == "pal"
        if name == SCRIPT:
            return self._home.pal(*words)
        if name not in self._shells:
            self._shells[name] = self._home.shell()
        return self._shells[name].pal(*words)


def comparable(text: str) -> list[list[str]]:
    """Return the words of each line, without numbers of messages and ages, which depend on the run."""
    return [re.sub(r"#\d+|\b\d+s\b", "#", line).split() for line in text.splitlines()]


def test_every_command_prints_the_output_of_the_page(home: Home) -> None:
    seats = Seats(home)
    found = steps(PAGE)

    for name, command, out in found:
        result = seats.run(name, command)
        assert (result.status, result.err) == (0, ""), command
        assert comparable(result.out) == comparable(out), command

    assert len(found) > 15


def test_every_command_for_a_task_of_a_path_broker_can_be_parsed() -> None:
    table = sections(PAGE, "##")["Coming from a path broker"]
    found = [command for row in table.splitlines() for command in re.findall(r"`pal ([^`]+)`", row)]

    for command in found:
        parse(TABLE, shlex.split(command))
    assert len(found) > 10
