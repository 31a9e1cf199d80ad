"""The pages agree with the code: settings, errors, requests, events, links, files and commands."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.docs.pages import (
    DOCS,
    PACKAGE,
    PAGES,
    ROOT,
    anchors,
    blocks,
    first_cells,
    named,
    our_files,
    page,
    prose,
    sections,
    source,
)

from palaver.config import NOT_SETTINGS, Settings
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse
from palaver.errors import error_codes
from palaver.harness.marks import MARKS
from palaver.protocol.events import BODIES
from palaver.protocol.lines import Op
from palaver.protocol.views import AnyAsk, Changes, Snapshot

# Settings and errors


def test_settings_page_lists_every_setting_with_its_default() -> None:
    table = page("settings.md").partition("## ")[0]

    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))

    defaults = {field.name: field.default for field in fields(Settings)}
    assert {name: ast.literal_eval(default) for name, default in rows.items()} == defaults


def test_settings_page_lists_every_variable_that_is_not_a_setting() -> None:
    table = sections(page("settings.md"), "##")["Variables that are not settings"]

    assert set(first_cells(table)) == NOT_SETTINGS


def test_errors_page_lists_every_code_once() -> None:
    codes = first_cells(page("errors.md"))

    assert sorted(codes) == sorted(error_codes())


def test_errors_page_has_the_exit_status_of_every_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d) \|$", page("errors.md"), re.MULTILINE))

    assert rows == {code: "2" if code == "usage" else "1" for code in error_codes()}


# Lines of JSON

OPS: dict[str, type[msgspec.Struct]] = {str(op.__struct_config__.tag): op for op in get_args(Op)}


def requests() -> dict[str, str]:
    chapter = sections(page("protocol.md"), "##")["Requests"]
    return {heading.strip("`"): content for heading, content in sections(chapter, "###").items()}


def test_protocol_page_has_exactly_the_requests_of_the_wire() -> None:
    assert sorted(requests()) == sorted(OPS)


@pytest.mark.parametrize("tag", OPS)
def test_protocol_page_has_exactly_the_fields_of_a_request(tag: str) -> None:
    every = {"req", "name"}

    assert set(first_cells(requests()[tag])) == set(OPS[tag].__struct_encode_fields__) - every


@pytest.mark.parametrize("tag", OPS)
def test_protocol_page_marks_required_fields(tag: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", requests()[tag], re.MULTILINE)

    needed = {name for name, meaning in rows if meaning.endswith("must be there")}

    assert needed == {field.name for field in msgspec.structs.fields(OPS[tag]) if field.required}


def test_protocol_page_has_exactly_the_pushes_of_the_wire() -> None:
    shown = first_cells(sections(page("protocol.md"), "##")["Pushes"])

    # The line of a view is encoded once for all connections, where its record is made.
    writers = source("src/palaver/doors", "lines*.py") + source("src/palaver/services", "view_hub.py")
    assert set(shown) == set(re.findall(r'push_line\(\s*"(\w+)"', writers))


def test_protocol_page_has_exactly_the_questions_of_a_view() -> None:
    part = sections(page("protocol.md"), "###")["Questions of a view"]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| .* \|$", part, re.MULTILINE)

    shown = {what: set(re.findall(r"`(\w+)`", fields)) for what, fields in rows}

    asks = {str(ask.__struct_config__.tag): ask for ask in get_args(AnyAsk)}
    assert shown == {tag: set(ask.__struct_encode_fields__) - {"at"} for tag, ask in asks.items()}


def test_protocol_page_has_exactly_the_fields_of_the_records_of_a_view() -> None:
    part = sections(page("protocol.md"), "##")["Views"]
    rows = dict(re.findall(r"^\| (snapshot|changes) \| (.*) \|$", part, re.MULTILINE))

    shown = {name: set(re.findall(r"(?:^|[;,] |and )`(\w+)`", fields)) for name, fields in rows.items()}

    assert shown["snapshot"] >= set(Snapshot.__struct_encode_fields__)
    assert shown["changes"] >= set(Changes.__struct_encode_fields__)


# The wire of the client


def frames(side: str) -> set[str]:
    return set(first_cells(sections(page("protocol.md"), "##")[f"Frames of the {side}"]))


def test_protocol_page_has_exactly_the_frames_of_the_c_client() -> None:
    client = "".join(source("native", name) for name in ("signals.c", "request.c", "frames.c", "input.c"))

    sent = set(re.findall(r"(?:send_frame\(|frame\[HEAD \+ 1\] = {)'(\w)'", client))
    opening = set(re.findall(r'"PAL1(\w)', client))
    obeyed = set(re.findall(r"^    case '(\w)':", client, re.MULTILINE))

    assert frames("client") == sent | opening
    assert frames("daemon") == obeyed


def test_protocol_page_has_every_frame_of_the_daemon() -> None:
    daemon = source("src/palaver/protocol", "thin.py") + source("src/palaver/doors", "thin.py")

    letters = set(re.findall(r'\bb"([A-Z])"', daemon)) - {"L"}  # a line of `pal mcp` has its own section

    assert frames("client") <= letters
    assert letters <= frames("client") | frames("daemon")


def test_protocol_page_has_exactly_the_fields_of_the_client_request() -> None:
    shown = set(first_cells(sections(page("protocol.md"), "##")["The request"]))

    client = "".join(source("native", name) for name in ("request.c", "wire.c", "hook.c"))
    assert shown == set(re.findall(r"add_(?:field|text)\('(\w)'", client))
    assert shown == set(re.findall(r'\bb"([a-z])"', source("src/palaver/protocol", "thin.py")))


# The log and the marks


def test_log_page_names_every_written_event_type() -> None:
    chapter = sections(page("log.md"), "##")["Event types"]

    assert set(re.findall(r"`([\w.-]+)`", chapter.partition(". ")[0])) == BODIES.keys()


def test_identity_page_names_every_mark() -> None:
    assert [name for name in MARKS if f"`{name}`" not in page("identity.md")] == []


# Links


def test_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", page("README.md")))

    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_relative_link_has_a_target(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))

    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


# Files


def files_and_names(text: str) -> tuple[list[str], list[str]]:
    """Return the files and folders that a page names, and the names of Python code in it."""
    tokens = re.findall(r"`([^`\s]+)`", text)
    files = [token for token in tokens if "/" in token or re.search(r"\.(?:py|c)$", token)]
    return files, [token for token in tokens if re.fullmatch(r"_?[A-Z]\w+(?:\.\w+)?", token)]


def test_architecture_page_names_only_files_that_exist() -> None:
    files, _ = files_and_names(page("architecture.md"))

    def exists(name: str) -> bool:
        pattern = re.sub(r"<\w+>", "*", name)
        return any(next(folder.glob(pattern), None) is not None for folder in (PACKAGE, ROOT))

    assert len(files) > 100
    assert [name for name in files if not exists(name)] == []


def test_architecture_page_lists_every_package() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/__init__.py")}

    assert folders - {file.rstrip("/") for file in files_and_names(page("architecture.md"))[0]} == set()


def test_architecture_page_names_only_code_that_exists() -> None:
    _, names = files_and_names(page("architecture.md"))
    text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    defined = set(re.findall(r"^\s*(?:class |(?:async )?def )?(\w+)(?=[(:]| =|: Final)", text, re.MULTILINE))

    assert [name for name in names if not defined.issuperset(name.split("."))] == []


def test_glossary_names_types_where_they_are_defined() -> None:
    rows = re.findall(r"`(\w+)` in `([\w/]+\.py)`", page("glossary.md"))

    assert len(rows) > 20
    assert [
        (name, file)
        for name, file in rows
        if not re.search(rf"^class {name}\b", (PACKAGE / file).read_text(encoding="utf-8"), re.MULTILINE)
    ] == []


# Words


# Split, so that this file does not contain the texts it searches for.
@pytest.mark.parametrize("word", ["/" + "work/", "/" + "root/", "../" + "shared"])
def test_no_file_contains_a_path_of_the_build_machine(word: str) -> None:
    files = our_files("*.md", "*.py", "*.c", "*.sql", "*.toml", "Makefile")

    assert [named(path) for path in files if word in path.read_text(encoding="utf-8")] == []


# Commands


def commands(text: str) -> Iterator[str]:
    """Return every line that calls `pal`: all lines of `sh` blocks, and prompt lines of `console` blocks."""
    whole = (content.replace("\\\n", " ") for content in blocks(text, "sh"))  # without broken lines
    lines = [line for content in whole for line in content.splitlines()]
    for content in blocks(text, "console"):
        lines += re.findall(r"^\w*\$ (.*)$", content, re.MULTILINE)  # the prompt may name its terminal
    return (line for line in lines if "pal" in shlex.split(line.replace("$(", " "), comments=True))


def arguments(line: str) -> list[str]:
    """Return the arguments of the first `pal` on a line, up to the end of that shell command."""
    words = shlex.split(line.replace("$(", " "), comments=True)
    start = words.index("pal") + 1
    ends = [at for at, word in enumerate(words) if at >= start and word in ("|", "&&", ";", ">", ")")]
    return words[start : ends[0] if ends else None]


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_command_on_a_page_can_be_parsed(path: Path) -> None:
    for line in commands(path.read_text(encoding="utf-8")):
        parsed = parse(TABLE, arguments(line))

        assert not parsed.command.is_hidden, line


def test_pages_contain_many_commands() -> None:
    found = [line for path in PAGES for line in commands(path.read_text(encoding="utf-8"))]

    assert len(found) > 60


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_command_named_in_a_sentence_exists(path: Path) -> None:
    verbs = set(re.findall(r"`pal ([a-z]+)", prose(path.read_text(encoding="utf-8"))))

    assert verbs - set(TABLE.root.children) == set()


def test_every_command_for_a_task_of_the_peer_can_be_parsed() -> None:
    rows = re.findall(r"^\|.*\| (`pal .*) \|[^|]*\|$", page("from-hcom.md"), re.MULTILINE)
    found = [command for row in rows for command in re.findall(r"`pal ([^`]+)`", row)]

    for command in found:
        parse(TABLE, shlex.split(command))
    assert len(found) > 30
