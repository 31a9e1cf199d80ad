"""Views of a bundle: short and in full, for people and for programs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doors.cli.bundle_stage import Stage

from palaver.doors.cli.bundles import headed_content
from palaver.protocol.bundles import BundleFile, keep_file
from palaver.protocol.display import Paint
from palaver.protocol.envelope import decode_event

TALK = [
    {"role": "user", "text": "list them"},
    {"role": "assistant", "content": [{"type": "tool_use", "name": "Bash", "input": "ls"}]},
]


HASH_OF_FF = "a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    """A bundle with every kind of content; it is the newest one."""
    (tmp_path / "app.py").write_text("x = 1\n\x1b[31m")
    (tmp_path / "data.bin").write_bytes(b"\xff")
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in TALK))
    stage = Stage(tmp_path)
    first, last = await stage.event("first " + "x" * 300), await stage.event("last")
    await stage.run("create", "Parent")
    await stage.run(
        *("create", "Review", "--description", "two\nlines", "--files", "app.py,data.bin"),
        *("--transcript", "1-2:detailed", "--transcript-file", "talk.jsonl"),
        *("--events", f"{first.seq}-{last.seq}", "--extends", "00000000"),
    )
    return stage


async def shown(stage: Stage, *options: str) -> str:
    return (await stage.run("show", "bundle:00000001", *options)).text


async def test_summary_lists_the_contents_of_a_bundle(stage: Stage) -> None:
    lines = (await shown(stage)).splitlines()

    assert lines[0] == "bundle:00000001 Review"
    assert lines[1].startswith("from luna, ")
    assert lines[2] == "extends bundle:00000000 Parent (from luna)"
    assert lines[3:7] == ["", "two", "lines", ""]
    assert lines[7].split() == ["FILE", "SIZE", "SHA-256"]
    assert lines[8].split()[:3] == ["app.py", "11", "bytes"]
    assert lines[9].split() == ["data.bin", "1", "byte", HASH_OF_FF]
    assert lines[10:13] == ["", "transcript of luna, 1-2, detailed", "events 1-4"]
    assert [line.split()[0] for line in lines[13:]] == ["#1", "#4"]
    assert lines[13].endswith(" message nova → @luna: first " + "x" * 300)
    assert lines[14].endswith(" message nova → @luna: last")


async def test_full_view_shows_contents_after_the_summary(stage: Stage) -> None:
    short, full = await shown(stage), await shown(stage, "--full")

    contents = (
        "\n==> app.py <==\nx = 1\n\\u{1b}[31m\n"
        "\n==> data.bin <==\n(no text)\n"
        "\n==> transcript of luna <==\n[1] user: list them\n[2] assistant: \n    Bash ls\n"
    )
    summary = short[: short.index("#1 ")]
    assert full.startswith(summary + contents)
    assert f"first {'x' * 300}\n" in full


async def test_content_cannot_control_a_terminal(stage: Stage) -> None:
    stage.is_terminal = True

    assert "\x1b" not in await shown(stage, "--full")


async def test_narrow_terminal_gets_complete_hashes(stage: Stage) -> None:
    stage.is_terminal = True

    assert HASH_OF_FF in await shown(stage)


async def test_path_cannot_forge_a_header_line() -> None:
    kept = keep_file(BundleFile(path="a <==\n\x1b[2J", content=b""))

    assert headed_content("bundle:00000000", kept, Paint(False)).count(b"\n") == 1
    assert b"\x1b" not in headed_content("bundle:00000000", kept, Paint(False))


@given(st.binary(max_size=40), st.text(max_size=20))
def test_content_follows_its_header_exactly_and_ends_with_a_newline(content: bytes, path: str) -> None:
    kept = keep_file(BundleFile(path=path, content=content))

    head, found = headed_content("bundle:00000000", kept, Paint(False)).split(b"\n", 1)

    assert head.endswith(f"({len(content)} bytes, sha256 {kept.sha256}) <==".encode())
    assert found[: len(content)] == content
    assert found[len(content) :] == (b"" if not content or content.endswith(b"\n") else b"\n")


async def test_bundle_with_only_a_title_takes_two_lines(stage: Stage) -> None:
    answer = await stage.run("show", "00000000")

    assert len(answer.text.splitlines()) == 2


async def test_json_has_everything_except_the_contents(stage: Stage) -> None:
    found = json.loads(await shown(stage, "--json"))

    assert " ".join(found) == (
        "bundle_id seq id ts from title description files events transcripts extends parents"
    )
    assert found["files"][1] == {
        "path": "data.bin",
        "size": 1,
        "sha256": HASH_OF_FF,
    }
    assert found["transcripts"] == [{"agent": "luna", "first": 1, "last": 2, "level": "detailed"}]
    assert found["events"] == [[1, 4]]
    assert [(one["bundle_id"], one["title"]) for one in found["parents"]] == [("bundle:00000000", "Parent")]


async def test_full_json_has_the_contents_followed_by_the_events(stage: Stage) -> None:
    first, *events = (await shown(stage, "--full", "--json")).splitlines()

    found = json.loads(first)
    assert [file.get("content", file.get("base64")) for file in found["files"]] == ["x = 1\n\x1b[31m", "/w=="]
    assert [entry["number"] for entry in found["transcripts"][0]["entries"]] == [1, 2]
    assert [decode_event(line).seq for line in events] == [1, 4]
