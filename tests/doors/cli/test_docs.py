"""The command line page and the table of commands agree."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from palaver.doors.cli.events import DEFAULT_EVENTS
from palaver.doors.cli.messages import DEFAULT_INBOX, DEFAULT_RECV
from palaver.doors.cli.parser import parse
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import GLOBAL_OPTIONS, Command, option_usage, usage_line

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
SHOWN = [one for one in TABLE.commands if not one.is_hidden]


@dataclass(frozen=True, slots=True)
class Section:
    """The section of the page about one command."""

    text: str

    @property
    def usage(self) -> list[str]:
        return re.findall(r"^```text\n(.*)\n```$", self.text, re.MULTILINE)

    @property
    def rows(self) -> dict[str, str]:
        return dict(re.findall(r"^\| `(-[^`]*)` \| (.*) \|$", self.text, re.MULTILINE))


def sections() -> dict[str, Section]:
    """Split the page at its headings: `### ` starts a command, `## ` ends one."""
    found = re.split(r"^(##+ .*)$", PAGE, flags=re.MULTILINE)[1:]
    return {heading: Section(text) for heading, text in zip(found[::2], found[1::2], strict=True)}


def section_of(command: Command) -> Section:
    return sections()[f"### `pal {' '.join(command.path)}`"]


def test_page_has_the_commands_of_the_table_in_groups_and_order() -> None:
    headings = [heading for heading in sections() if heading != "## How a line is read"]

    expected: list[str] = []
    for command in SHOWN:
        if f"## {command.group}" not in expected:
            expected.append(f"## {command.group}")
        expected.append(f"### `pal {' '.join(command.path)}`")
    assert headings == expected


@pytest.mark.parametrize("command", SHOWN, ids=lambda one: " ".join(one.path))
def test_page_shows_the_usage_and_exactly_the_options_of_a_command(command: Command) -> None:
    section = section_of(command)

    assert section.usage == [usage_line(command)]
    assert list(section.rows) == [option_usage(one) for one in command.options]


@pytest.mark.parametrize("command", SHOWN, ids=lambda one: " ".join(one.path))
def test_page_names_every_choice(command: Command) -> None:
    section = section_of(command)

    for option in command.options:
        for choice in option.choices:
            assert f"`{choice}`" in section.rows[option_usage(option)]
    for place in command.positionals:
        for choice in place.choices:
            assert f"`{choice}`" in section.text


def test_page_has_exactly_the_global_options() -> None:
    rows = sections()["## How a line is read"].rows

    assert list(rows) == [option_usage(one) for one in GLOBAL_OPTIONS]


def test_page_states_the_default_limits() -> None:
    commands = {command.path: section_of(command) for command in SHOWN}

    assert f"(default: {DEFAULT_RECV})." in commands["recv",].rows["--limit N"]
    assert f"(default: {DEFAULT_INBOX})." in commands["inbox",].rows["--limit N"]
    assert f"(default: {DEFAULT_EVENTS})." in commands["events",].rows["--last N"]


def test_every_example_on_the_page_can_be_parsed() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("eval")]

    for line in lines:
        words = shlex.split(line, comments=True)
        start = words.index("pal") + 1
        end = words.index("|", start) if "|" in words[start:] else len(words)
        assert parse(TABLE, words[start:end]).command in SHOWN

    assert len(lines) > 10
