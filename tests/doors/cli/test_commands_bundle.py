"""The bundle commands: the files they read, the bundles they create, and their output."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.doors.cli.bundle_stage import HUMAN, LUNA, Stage

from palaver.broker.context import Sent
from palaver.broker.messages import LIMIT_UNASKED
from palaver.doors.cli import bundles as bundle_commands
from palaver.doors.cli.bundles import create, with_bundle
from palaver.doors.cli.call import Call
from palaver.errors import (
    BadRequest,
    MessageTooLarge,
    NotFound,
    NotPerson,
    PalaverError,
    UnknownRecipient,
    UsageError,
)
from palaver.harness.registry import EXCERPTS, KnownSession, excerpt_order_from_word
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.bundles import LIMIT_FILE_BYTES, bundle_of, file_content
from palaver.protocol.envelope import Event
from palaver.protocol.events import Bundle
from palaver.protocol.query import Query
from palaver.protocol.requests import Send
from palaver.protocol.transcript import Detail, Excerpt, Stretch

UNKNOWN = "7f3q9x2m"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A directory with some files, and one file outside it."""
    work = tmp_path.resolve() / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "app.py").write_text("x = 1\n")
    (work / "data.bin").write_bytes(b"\xff\x00\xfe")
    (work / "talk.jsonl").write_text('{"role":"user","text":"hi"}\n{"role":"assistant","text":"ho"}\n')
    (work.parent / "secret").write_text("s")
    return Stage(work)


async def bundles(stage: Stage) -> list[Event]:
    return await stage.log.read(Query(types=("bundle",)))


async def created(stage: Stage, *words: str) -> str:
    """Create a bundle and return its id."""
    answer = await stage.run("create", *words, "--json")
    return str(json.loads(answer.out)["bundle_id"])


# Creating


async def test_bundle_contains_files_as_the_client_reads_them(stage: Stage) -> None:
    answer = await stage.run("create", "Review", "--files", "src/app.py,./data.bin")

    (event,) = await bundles(stage)
    bundle = bundle_of(event)
    assert [(file.path, file_content(file)) for file in bundle.files] == [
        ("src/app.py", b"x = 1\n"),
        ("data.bin", b"\xff\x00\xfe"),
    ]
    assert answer.text == f"created {bundle.bundle_id} Review, 2 files\n"
    assert stage.read == [str(stage.cwd / "src/app.py"), str(stage.cwd / "data.bin")]


async def test_bundle_contains_everything_from_the_command_line(stage: Stage) -> None:
    seq = (await stage.event()).seq
    parent = await created(stage, "first")

    answer = await stage.run(
        *("create", "Review", "--description", "look", "--extends", parent, "--events", f"{seq},#{seq}"),
        *("--transcript", "nova:1-2:full", "--transcript", "2", "--transcript-file", "talk.jsonl", "--json"),
    )

    found = json.loads(answer.out)
    assert (found["title"], found["description"], found["extends"]) == ("Review", "look", parent)
    assert found["events"] == [[seq, seq], [seq, seq]]
    assert found["transcripts"] == [
        {"agent": "nova", "first": 1, "last": 2, "level": "full"},
        {"agent": "luna", "first": 2, "last": 2, "level": "normal"},
    ]
    assert [one["bundle_id"] for one in found["parents"]] == [parent]
    (_, event) = await bundles(stage)
    assert bundle_of(event).transcripts[1].entries == ({"number": 2, "role": "assistant", "text": "ho"},)


async def test_file_named_twice_is_read_and_stored_once(stage: Stage) -> None:
    answer = await stage.run(
        "create", "T", "--files", "src/app.py,,src/../src/app.py", "--files", str(stage.cwd / "src/app.py")
    )

    assert len(stage.read) == 1
    assert answer.text.endswith("T, 1 file\n")


@pytest.mark.parametrize("named", ["../secret", "{outside}/secret"])
async def test_agent_cannot_bundle_files_outside_its_directory(stage: Stage, named: str) -> None:
    with pytest.raises(NotPerson, match="is outside the working directory"):
        await stage.run("create", "T", "--files", named.format(outside=stage.cwd.parent))

    assert stage.read == []
    assert await bundles(stage) == []


@pytest.mark.parametrize("caller", [HUMAN, replace(LUNA, by="human")], ids=["in person", "as an agent"])
async def test_human_may_name_any_file_and_allow_any_directory(stage: Stage, caller: Caller) -> None:
    stage.caller = caller
    outside = str(stage.cwd.parent / "secret")

    await stage.run("create", "T", "--files", outside)
    await stage.run("create", "T", "--files", "../secret", "--root", "..")

    assert stage.read == [outside, outside]


@pytest.mark.parametrize(
    ("words", "error", "complaint"),
    [
        (["--files", "src/app.py", "--root", "src"], NotPerson, "only a person can allow more directories"),
        (["--files", "none.py"], NotFound, "none.py: No such file or directory"),
        (["--files", "src"], NotFound, "Is a directory"),
        (["--files", "large"], MessageTooLarge, "is larger than the limit of 1048576 bytes"),
        (["--files", "l1,l2,l3,l4,l5"], MessageTooLarge, "the bundle has 5242880 bytes"),
        (["--events", "5-x"], BadRequest, "is not a range"),
        (["--events", "5"], NotFound, "there is no event 5"),
        (["--extends", UNKNOWN], NotFound, f"there is no bundle:{UNKNOWN}"),
        (
            ["--transcript", "1-2"],
            NotFound,
            "transcript of luna: the harness of the agent is not known",
        ),
        (["--transcript", "kira:1-2"], NotFound, "there is no agent kira"),
        (["--transcript", "1:loud"], BadRequest, "the level of a transcript"),
        (["--transcript-file", "talk.jsonl"], UsageError, "requires --transcript A-B"),
        (["--transcript", "1-3", "--transcript-file", "talk.jsonl"], NotFound, "it has 2 entries"),
        (["--transcript", "1", "--transcript-file", "src/app.py"], BadRequest, "is not a JSON object"),
        (["--transcript", "1", "--transcript-file", "../secret"], NotPerson, "is outside"),
    ],
)
async def test_invalid_bundle_is_refused_and_nothing_is_stored(
    stage: Stage, words: list[str], error: type[PalaverError], complaint: str
) -> None:
    (stage.cwd / "large").write_bytes(bytes(LIMIT_FILE_BYTES + 1))
    for number in range(1, 6):
        (stage.cwd / f"l{number}").write_bytes(bytes(LIMIT_FILE_BYTES))

    with pytest.raises(error, match=re.escape(complaint)):
        await stage.run("create", "T", *words)

    assert await bundles(stage) == []


# Sending with a message


async def sent(stage: Stage, *words: str, key: bytes | None = None) -> tuple[Send, Sent]:
    """Run the part of `pal send` that creates a bundle, and send."""
    call, _ = stage.call("send", "@nova", *words, key=key)
    is_dry_run = call.parsed.has("--dry-run")
    bundle_id = call.parsed.value("--bundle") or ""
    request = Send(text="look", to=("@nova",), is_dry_run=is_dry_run, bundle_id=bundle_id)
    request = await with_bundle(call, request)
    outcome = await call.services.broker.submit(call.caller, request, key=call.asked.key)
    assert isinstance(outcome, Sent)
    return request, outcome


async def test_message_carries_the_bundle_of_its_command_line(stage: Stage) -> None:
    request, outcome = await sent(stage, "--title", "PR", "--files", "src/app.py")

    (bundle,) = await bundles(stage)
    assert outcome.event is not None
    assert bundle.seq < outcome.event.seq
    assert request.bundle_id == bundle.payload["bundle_id"]
    assert bundle.payload["title"] == "PR"


async def test_repeated_command_creates_nothing_twice(stage: Stage) -> None:
    first = await sent(stage, "--title", "PR", key=b"k" * 16)

    again = await sent(stage, "--title", "PR", key=b"k" * 16)

    assert again[1].event == first[1].event
    assert len(await stage.log.read(Query())) == 2


async def test_message_without_bundle_options_has_no_bundle(stage: Stage) -> None:
    request, _ = await sent(stage)

    assert request.bundle_id == ""


async def test_dry_run_creates_no_bundle(stage: Stage) -> None:
    _, outcome = await sent(stage, "--title", "PR", "--files", "none.py", "--dry-run")

    assert outcome.event is None
    assert await stage.log.read(Query()) == []


async def test_refused_message_creates_no_bundle(stage: Stage) -> None:
    call, _ = stage.call("send", "@kira", "--title", "PR", "--files", "src/app.py")

    with pytest.raises(UnknownRecipient):
        await with_bundle(call, Send(text="look", to=("@kira",)))

    assert stage.read == []
    assert await stage.log.read(Query()) == []


async def test_message_to_too_many_agents_creates_no_bundle(stage: Stage) -> None:
    for number in range(LIMIT_UNASKED):
        stage.context.directory.put(Agent(name=f"w{number}", base=f"w{number}"))
    stage.caller = replace(LUNA, harness="claude")
    call, _ = stage.call("send", "@all", "--title", "PR", "--files", "src/app.py")

    with pytest.raises(BadRequest, match="this would go to 6 agents; to confirm, add --yes"):
        await with_bundle(call, Send(text="look", to=("@all",)))

    assert stage.read == []
    assert await stage.log.read(Query()) == []
    assert (await with_bundle(call, Send(text="look", to=("@all",), is_confirmed=True))).bundle_id


async def test_bundle_content_options_need_a_title(stage: Stage) -> None:
    with pytest.raises(UsageError, match="--files creates a bundle, which requires --title TITLE"):
        await sent(stage, "--files", "src/app.py", "--extends", UNKNOWN)


# Reading


async def test_list_shows_the_newest_last(stage: Stage) -> None:
    for title in ("one", "two", "three"):
        await stage.run("create", title, "--files", "src/app.py")

    text = await stage.run("list", "--limit", "2")
    found = await stage.run("list", "--json")

    assert [line.split()[-1] for line in text.text.splitlines()] == ["TITLE", "two", "three"]
    assert [json.loads(line)["title"] for line in found.out.splitlines()] == ["one", "two", "three"]
    assert json.loads(found.out.splitlines()[0])["files"] == 1


async def test_empty_list_says_so(stage: Stage) -> None:
    assert (await stage.run("list")).text == "no bundles yet\n"
    assert (await stage.run("list", "--json")).out == b""


async def test_files_of_a_bundle_are_returned_byte_for_byte(stage: Stage) -> None:
    bundle_id = await created(stage, "T", "--files", "data.bin,src/app.py")
    (stage.cwd / "src" / "app.py").write_text("changed since")

    one = await stage.run("cat", bundle_id.upper(), "./src/app.py")
    other = await stage.run("cat", bundle_id, "data.bin")

    assert one.out == b"x = 1\n"
    assert other.out == b"\xff\x00\xfe"


def headed(bundle_id: str, path: str, content: bytes) -> bytes:
    hash_ = hashlib.sha256(content).hexdigest()
    end = b"" if content.endswith(b"\n") else b"\n"
    return f"==> {bundle_id} {path} ({len(content)} bytes, sha256 {hash_}) <==\n".encode() + content + end


async def test_cat_prints_all_files_with_hashes_parents_first(stage: Stage) -> None:
    oldest = await created(stage, "one", "--files", "data.bin,src/app.py")
    (stage.cwd / "src" / "app.py").write_text("x = 2\n")
    middle = await created(stage, "two", "--files", "src/app.py", "--extends", oldest)
    without_files = await created(stage, "three", "--extends", middle)
    (stage.cwd / "src" / "app.py").unlink()
    (stage.cwd / "data.bin").write_bytes(b"changed since")
    moved = await stage.log.archive(stage.log.last() + 1)

    answer = await stage.run("cat", without_files)
    first = await stage.run("cat", oldest)

    assert moved.count == 3
    assert first.out == headed(oldest, "data.bin", b"\xff\x00\xfe") + headed(oldest, "src/app.py", b"x = 1\n")
    assert (answer.out, answer.err) == (first.out + headed(middle, "src/app.py", b"x = 2\n"), "")


async def test_json_prints_one_file_per_line(stage: Stage) -> None:
    bundle_id = await created(stage, "T", "--files", "data.bin,src/app.py")

    answer = await stage.run("cat", bundle_id, "--json")

    binary, text = map(json.loads, answer.out.splitlines())
    alone = await stage.run("cat", bundle_id, "src/app.py", "--json")
    assert json.loads(alone.out) == text
    assert [binary["bundle_id"], text["bundle_id"]] == [bundle_id, bundle_id]
    assert (binary["path"], binary["size"], binary["base64"]) == ("data.bin", 3, "/wD+")
    assert (text["path"], text["content"]) == ("src/app.py", "x = 1\n")


async def test_file_is_also_found_in_parent_bundles(stage: Stage) -> None:
    first = await created(stage, "one", "--files", "src/app.py,data.bin")
    (stage.cwd / "src" / "app.py").write_text("x = 2\n")
    second = await created(stage, "two", "--files", "src/app.py", "--extends", first)

    assert (await stage.run("cat", second, "src/app.py")).text == "x = 2\n"
    assert (await stage.run("cat", second, "data.bin")).out == b"\xff\x00\xfe"
    with pytest.raises(NotFound, match=f"there is no file none.py in {second}"):
        await stage.run("cat", second, "none.py")


async def test_cat_of_a_bundle_without_files_prints_a_hint(stage: Stage) -> None:
    bundle_id = await created(stage, "T")

    answer = await stage.run("cat", bundle_id)

    assert (answer.out, answer.err) == (b"", f"pal: {bundle_id} has no files\n")


@pytest.mark.parametrize("command", ["show", "cat"])
async def test_unknown_bundle_is_not_found(stage: Stage, command: str) -> None:
    with pytest.raises(NotFound, match=f"there is no bundle:{UNKNOWN}"):
        await stage.run(command, UNKNOWN)


# Transcripts of harnesses


def under_claude(stage: Stage, name: str = "luna") -> None:
    stage.context.directory.put(Agent(name=name, base=name, harness="claude", session="s1"))


async def test_client_reads_the_harness_transcript_and_repeats_the_command(stage: Stage) -> None:
    under_claude(stage)
    stage.transcripts.tell("luna", "/t/s1.jsonl")
    call, client = stage.call("bundle", "create", "How", "--transcript", "1-2", "--transcript", "luna:3:full")

    status = await create(call)

    verb, order, *words = (word.decode() for word in client.verb)
    assert (status, verb) == (0, "__excerpts")
    assert words == ["bundle", "create", "How", "--transcript", "1-2", "--transcript", "luna:3:full"]
    known = KnownSession(agent="luna", harness="claude", session="s1", path="/t/s1.jsonl", is_own=True)
    assert excerpt_order_from_word(order).wanted == (
        (known, Stretch(first=1, last=2)),
        (known, Stretch(agent="luna", first=3, last=3, level=Detail.FULL)),
    )
    assert await bundles(stage) == []


async def test_excerpts_from_the_client_are_stored_and_shown(stage: Stage) -> None:
    under_claude(stage)
    tools = [
        {"name": "Bash", "input": "ls", "output": "notes.txt"},
        {"name": "Read", "input": "x", "output": "no", "is_error": True},
    ]
    entry: dict[str, object] = {"number": 1, "role": "assistant", "text": "hi", "tools": tools}
    taken = Excerpt(agent="luna", first=1, last=1, level="detailed", entries=(entry,))
    stage.environment[EXCERPTS] = str(stage.cwd / "taken")
    (stage.cwd / "taken").write_bytes(msgspec.json.encode([taken]))

    key = await created(stage, "How", "--transcript", "1:detailed")

    (event,) = await bundles(stage)
    assert bundle_of(event).transcripts == (taken,)
    assert (await stage.run("show", key, "--full")).text.splitlines()[-5:] == [
        "[1] assistant: hi",
        "    Bash ls",
        "    → notes.txt",
        "    Read x",
        "    ✗ no",
    ]


async def test_entry_with_unknown_tools_is_shown_without_them(stage: Stage) -> None:
    under_claude(stage)
    entry: dict[str, object] = {"number": 1, "role": "user", "text": "hi", "tools": ["Bash", None]}
    taken = Excerpt(agent="luna", first=1, last=1, level="detailed", entries=(entry,))
    stage.environment[EXCERPTS] = str(stage.cwd / "taken")
    (stage.cwd / "taken").write_bytes(msgspec.json.encode([taken]))

    key = await created(stage, "How", "--transcript", "1:detailed")

    assert (await stage.run("show", key, "--full")).text.splitlines()[-1] == "[1] user: hi"


@pytest.mark.parametrize("content", [b"", b"[]", b"5", b"\xff", b'[{"agent":"nova"}]', b"[" * 5000])
async def test_excerpts_that_do_not_match_the_request_are_refused(stage: Stage, content: bytes) -> None:
    under_claude(stage)
    stage.environment[EXCERPTS] = str(stage.cwd / "taken")
    (stage.cwd / "taken").write_bytes(content)

    with pytest.raises(BadRequest, match="lacks the entries of --transcript"):
        await stage.run("create", "How", "--transcript", "1")

    assert await bundles(stage) == []


async def test_person_has_no_transcript(stage: Stage) -> None:
    stage.caller = HUMAN

    with pytest.raises(NotFound, match="transcript of human: name the agent with NAME:A-B"):
        await stage.run("create", "How", "--transcript", "1")


async def test_content_of_a_bundle_is_formatted_in_a_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, threads = await created(stage, "app", "--files", "src/app.py"), []

    def lines(call: Call, bundle: Bundle) -> Iterator[list[str]]:
        threads.append(threading.current_thread())
        yield ["x = 1"]

    monkeypatch.setattr(bundle_commands, "content_lines", lines)
    shown = await stage.run("show", key, "--full")

    assert shown.text.endswith("\nx = 1\n")
    assert threads != []
    assert threading.main_thread() not in threads
