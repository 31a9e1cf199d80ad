"""The page docs/cli.md: it is generated from the table of commands, and it is up to date."""

import re
from pathlib import Path

import pytest

from palaver.doors.cli.events import DEFAULT_EVENTS
from palaver.doors.cli.help import render_manual, render_page
from palaver.doors.cli.messages import DEFAULT_INBOX, DEFAULT_RECV
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import Command, Option, Positional, build_table, option_usage, usage_line

DOCS = Path(__file__).resolve().parents[3] / "docs"
SHOWN = [one for one in TABLE.commands if not one.is_hidden]


def section_of(page: str, *path: str) -> str:
    """Return the section of a command, without its heading."""
    return re.split(r"^##+ .*$", page.split(f"### `pal {' '.join(path)}`\n", 1)[1], flags=re.MULTILINE)[0]


def page_of(*commands: Command) -> str:
    return render_page(build_table(TABLE.root.command, commands))


def test_page_on_disk_is_up_to_date() -> None:
    written = (DOCS / "cli.md").read_text(encoding="utf-8")

    assert written == render_page(TABLE), "run `make docs`"


def test_page_has_the_commands_in_the_groups_and_order_of_help() -> None:
    headings = re.findall(r"^##+ .*$", render_page(TABLE), re.MULTILINE)

    expected = ["## How a line is read"]
    for command in SHOWN:
        if f"## {command.group}" not in expected:
            expected.append(f"## {command.group}")
        expected.append(f"### `pal {' '.join(command.path)}`")
    assert headings == expected


@pytest.mark.parametrize("command", SHOWN, ids=lambda one: " ".join(one.path))
def test_section_has_usage_options_and_examples(command: Command) -> None:
    section = section_of(render_page(TABLE), *command.path)

    assert re.findall(r"^```text\n(.*)\n```$", section, re.MULTILINE) == [usage_line(command)]
    shown = re.findall(r"^\| `(-[^`]*)` \|", section, re.MULTILINE)
    assert shown == [option_usage(one) for one in command.options]
    for line, meaning in command.examples:
        assert re.search(rf"^{re.escape(line)} +# {re.escape(meaning)}$", section, re.MULTILINE)


def test_page_states_the_default_limits() -> None:
    page = render_page(TABLE)

    assert f"`--limit N` | At most N messages (default: {DEFAULT_RECV})." in section_of(page, "recv")
    assert f"`--limit N` | At most N messages (default: {DEFAULT_INBOX})." in section_of(page, "inbox")
    assert f"`--last N` | The newest N events (default: {DEFAULT_EVENTS})." in section_of(page, "events")


def test_parts_to_type_are_shown_as_code() -> None:
    text = (
        "Run 'pal up' with --http as @api- in ~/.palaver; the agent's text after -- stays, and '' is empty."
    )

    section = section_of(page_of(Command(path=("go",), summary="Go.", description=text)), "go")

    assert " ".join(section.split("```")[2].split()) == (
        "Go. Run `pal up` with `--http` as `@api-` in `~/.palaver`; "
        "the agent's text after `--` stays, and `''` is empty."
    )


def test_line_is_not_broken_inside_code() -> None:
    text = " ".join(["Use 'pal send @nova the build is green'."] * 9)

    section = section_of(page_of(Command(path=("go",), summary="Go.", description=text)), "go")

    assert section.count("`pal send @nova the build is green`") == 9
    assert max(map(len, section.splitlines())) <= 120


def test_choices_and_excluded_options_follow_the_meaning() -> None:
    fast = Option(name="--fast", help="Go fast.")
    slow = Option(name="--slow", help="Go slowly.")
    gear = Option(name="--gear", metavar="GEAR", help="Use this gear.", choices=("low", "high"))
    where = Positional(name="WHERE", help="Home or away.", choices=("Home", "away"))
    command = Command(
        path=("go",),
        summary="Go.",
        positionals=(where,),
        options=(fast, slow, gear),
        exclusive=(("--fast", "--slow", "--gear"), ("--fast", "--slow")),
    )

    section = section_of(page_of(command), "go")

    assert "| argument or option | meaning |" in section
    assert "| `WHERE` | Home or away. |" in section
    assert "| `--fast` | Go fast. Not together with `--slow` or `--gear`. |" in section
    assert "| `--gear GEAR` | Use this gear. One of: `low` or `high`. Not together with" in section


def test_section_has_exit_statuses_json_links_subcommands_and_aliases() -> None:
    note = Command(path=("note",), summary="Notes.", is_group=True)
    add = Command(
        path=("note", "add"),
        summary="Add one.",
        statuses=((3, "Nothing came within --wait."),),
        json="'id' and 'text'.",
        see=(("notes", "notes.md"), ("rooms", "rooms.md")),
        aliases=("new",),
    )

    page = page_of(note, add)

    assert "Subcommands: [`pal note add`](#pal-note-add).\n" in section_of(page, "note")
    section = section_of(page, "note", "add")
    assert "Add one. See [notes](notes.md) and [rooms](rooms.md).\n" in section
    assert "| exit status | meaning |\n|---|---|\n| `3` | Nothing came within `--wait`. |\n" in section
    assert "With `--json`: `id` and `text`.\n" in section
    assert "Aliases: `new`.\n" in section


def test_hidden_command_is_not_on_the_page() -> None:
    page = page_of(Command(path=("__debug",), summary="Look inside.", is_hidden=True))

    assert "__debug" not in page


def test_manual_page_is_current_and_has_no_unescaped_signs() -> None:
    page = render_manual(TABLE)

    assert (DOCS / "pal.1").read_text(encoding="utf-8") == page
    assert page.isascii()
    assert not re.search(r"(?m)^'", page)
    for command in (one for one in TABLE.commands if not one.is_hidden):
        assert f"pal {' '.join(command.path)}".replace("-", "\\-") in page
