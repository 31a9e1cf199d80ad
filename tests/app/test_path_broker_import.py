"""Reading the files of another path broker: lines, names, folders, and the requests made of them."""

import io
import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.path_broker import T0, source_line, subscribed, write_agent, write_lines, write_source

from palaver.app.path_broker_import import (
    LIMIT_LINE_BYTES,
    FolderImport,
    ImportReport,
    Progress,
    Spool,
    agent_names,
    import_folder,
    normal_sender,
    normal_session,
    numbered_lines,
    parse_config,
    parse_copy,
    read_folder,
    renamed_path,
    report_lines,
    report_view,
    session_ids,
    split_stem,
    time_or,
    warning_lines,
)
from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.protocol.agents import check_name, split_name
from palaver.protocol.lines import MigrateOp
from palaver.protocol.paths import (
    Content,
    MigratedMessage,
    MigratedSession,
    MigratedSubscription,
    MigrationResult,
    check_session,
    is_migrated_sender,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def encoded(**fields: object) -> bytes:
    return json.dumps({**source_line(1, "agent/luna"), **fields}).encode()


class FakeBus:
    """Answers as a bus does that has nothing yet."""

    def __init__(self) -> None:
        self.requests: list[MigrateOp] = []

    async def ask(self, request: MigrateOp) -> msgspec.Raw:
        self.requests.append(request)
        result = MigrationResult(messages=len(request.messages), auto_runs=len(request.auto_runs))
        return msgspec.Raw(msgspec.json.encode(result))


def work_on(root: Path, report: ImportReport) -> tuple[FolderImport, Spool]:
    """Read a whole folder."""
    work = FolderImport(read_folder(root, report), report, Progress(None), T0)
    spool = Spool()
    work.read_messages(spool)
    return work, spool


def parts_of(root: Path) -> tuple[MigrateOp, ImportReport]:
    """Return everything that a folder has as one request, and the report."""
    report = ImportReport()
    work, spool = work_on(root, report)
    requests = list(work.requests(spool))
    spool.close()
    whole = MigrateOp(
        agents=tuple(one for request in requests for one in request.agents),
        sessions=tuple(one for request in requests for one in request.sessions),
        subscriptions=tuple(one for request in requests for one in request.subscriptions),
        messages=tuple(one for request in requests for one in request.messages),
    )
    return whole, report


# Lines


def test_line_keeps_every_field_of_a_message() -> None:
    handled_by = [{"agentId": "luna", "sessionId": "mon"}]
    line = encoded(status="delivered", externalId=17, handled=True, handledBy=handled_by, colour="red")

    copy = parse_copy(line)

    assert (copy.id, copy.sender, copy.path, copy.ts) == (
        "0b7e1c9a-4f7d-4c1e-9a35-000000000001",
        "writer",
        "agent/luna",
        T0 + 1,
    )
    content = Content(command="analyze", payload={"number": 1}, source="internal", external_id="17")
    assert copy.content == content
    assert (copy.is_taken, copy.is_handled, copy.handled_by) == (True, True, (("luna", "mon"),))
    assert copy.unknown == {"colour"}


def test_missing_fields_have_the_defaults_of_the_path_broker() -> None:
    copy = parse_copy(b'{"id":"1","from":"a","path":"x","timestamp":5.9,"payload":null,"status":null}')

    assert copy.content == Content(command="message", payload={}, source="internal")
    assert (copy.ts, copy.is_taken) == (5, False)


@given(payload=_JSON.filter(lambda value: value is not None), ts=st.integers(1, T0))
def test_any_payload_is_kept(payload: object, ts: int) -> None:
    copy = parse_copy(encoded(payload=payload, timestamp=ts))

    assert (copy.content.payload, copy.ts) == (payload, ts)
    assert type(copy.content.payload) is type(payload)


@given(line=st.binary(max_size=80) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(PalaverError):
        parse_copy(line)


@given(field=st.sampled_from(sorted(source_line(1, ""))), value=_JSON)
def test_line_with_any_value_is_read_or_refused(field: str, value: object) -> None:
    try:
        copy = parse_copy(encoded(**{field: value}))
    except PalaverError:
        return
    assert copy.id
    assert copy.sender


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff", "malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"id":"1\x00"}', "malformed"),
        (b'{"id":"1","payload":' + b"[" * 100_000, "recursion"),
        (encoded(payload=json.loads("[" * 500 + "]" * 500)), "levels deep"),
        (encoded(payload=[0]).replace(b"[0]", b"[1e999]"), "range"),
        (encoded(id=5), "Expected `str`"),
        (encoded(id=""), "`id` is empty"),
        (encoded(id="a\0b"), "its id"),
        (encoded(id="x" * 300), "its id"),
        (encoded(**{"from": ""}), "`from` is empty"),
        (encoded(path="//"), "a path needs"),
        (encoded(timestamp="now"), "Expected `int | float`"),
        (encoded(command="x" * 2000), "its command"),
        (encoded(source="\x1b[2J"), "its source"),
        (encoded(payload="x" * 100_001), "its payload has"),
    ],
)
def test_bad_line_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(PalaverError, match=reason.replace("|", "\\|")):
        parse_copy(line)


@pytest.mark.parametrize("value", [-1, 0, 10**18, 4_102_444_800_001, True, "5", None, float("inf")])
def test_absurd_time_is_the_default(value: object) -> None:
    assert time_or(value, 7) == 7


def test_long_line_is_left_out_and_the_next_one_is_read() -> None:
    content = b"\xef\xbb\xbfone\n\n" + b"x" * 25 + b"\n" + b"y" * 10 + b"\nlast"

    assert list(numbered_lines(io.BytesIO(content), 10)) == [
        (1, b"one\n"),
        (3, None),
        (4, None),
        (5, b"last"),
    ]


@given(lines=st.lists(st.binary(max_size=30).map(lambda one: one.replace(b"\n", b"")), max_size=8))
def test_every_line_has_its_number(lines: Sequence[bytes]) -> None:
    found = dict(numbered_lines(io.BytesIO(b"\n".join(lines)), 20))

    for number, line in enumerate(lines, 1):
        if len(line) > 20:
            assert found[number] is None
        elif len(line) < 20 and line.strip() and not line.startswith(b"\xef\xbb\xbf"):
            assert (found[number] or b"").rstrip(b"\n") == line


# Names


@given(ids=st.sets(st.text(max_size=80), max_size=20))
def test_every_agent_has_a_valid_name_that_no_other_has(ids: set[str]) -> None:
    names = agent_names(ids)

    assert names.keys() == ids
    assert len(set(names.values())) == len(ids)
    for name in names.values():
        parts = split_name(name)
        check_name(parts.base, parts.tag)
    assert agent_names(names.values()) == {name: name for name in names.values()}


@given(ids=st.sets(st.text(max_size=80), max_size=20))
def test_every_session_has_a_valid_id_that_no_other_has(ids: set[str]) -> None:
    found = session_ids(ids)

    assert found.keys() == ids
    assert len(set(found.values())) == len(ids)
    assert all(check_session(one) for one in found.values())
    assert session_ids(found.values()) == {one: one for one in found.values()}


@given(sender=st.text(min_size=1, max_size=200))
def test_every_sender_becomes_a_valid_one(sender: str) -> None:
    assert is_migrated_sender(normal_sender(sender))


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("luna", "luna"),
        ("slack-monitor", "slack-monitor"),
        ("Writer Bot", "writer_bot"),
        ("Prüfer", "prufer"),
        ("3f2a-77", "agent_3f2a_77"),
        ("claude", "agent_claude"),
        ("system-log", "agent_system_log"),
        ("../..", "agent"),
        ("…", "agent"),
        ("luna:BOXE", "luna_boxe"),
    ],
)
def test_name_is_the_nearest_valid_one(id_: str, name: str) -> None:
    assert agent_names([id_]) == {id_: name}


def test_valid_id_keeps_its_name_and_others_get_numbers() -> None:
    assert agent_names(["Luna", "luna", "LUNA", "x" * 90, "X" * 90]) == {
        "luna": "luna",
        "LUNA": "luna_2",
        "Luna": "luna_3",
        "X" * 90: "x" * 54,
        "x" * 90: "x" * 54 + "_2",
    }


@pytest.mark.parametrize(
    ("sender", "stored"),
    [
        ("slack-bridge", "slack-bridge"),
        ("humanist", "humanist"),
        ("human", "imported-human"),
        ("Human-zed", "imported-Human-zed"),
        ("[pal-events]", "_pal-events_"),
        ("a b\n<pal>", "a_b_pal_"),
    ],
)
def test_sender_never_looks_like_the_person_or_the_bus(sender: str, stored: str) -> None:
    assert normal_sender(sender) == stored


def test_session_without_any_valid_character_has_a_name() -> None:
    assert normal_session("…/…") == "session"


def test_path_follows_its_agent_to_the_new_name() -> None:
    names = {"Writer Bot": "writer_bot"}

    assert renamed_path("/agent/Writer Bot/**", names) == "agent/writer_bot/**"
    assert renamed_path("slack/Writer Bot", names) == "slack/Writer Bot"
    assert renamed_path("agent", names) == "agent"


@pytest.mark.parametrize(
    ("stem", "sessions", "split"),
    [
        ("a--b", {}, ("a", "b")),
        ("a--b--c", {}, ("a", "b--c")),
        ("a--b--c", {"a--b": {}}, ("a--b", "c")),
        ("a--b--c", {"a": {}, "a--b": {}}, ("a--b", "c")),
        ("a--b--c", {"a": {"b--c": 1}, "a--b": {}}, ("a", "b--c")),
        ("a---b", {"a-": {}}, ("a-", "b")),
        ("..--x", {}, ("..", "x")),
        ("a", {}, None),
        ("--a", {}, None),
        ("a--", {}, None),
    ],
)
def test_ambiguous_file_name_is_split_at_known_agents(
    stem: str, sessions: dict[str, dict[str, int]], split: tuple[str, str] | None
) -> None:
    assert split_stem(stem, sessions) == split


# Files of agents and sessions


def test_file_of_an_agent_is_read_part_by_part() -> None:
    content = {
        "name": "Luna",
        "subscriptions": [*subscribed("a/b"), "c/*", {"pattern": 5}, {"pattern": "/"}, 7],
        "autoRun": {"enabled": False, "debounceMs": 5},
        "title": "two\nlines",
    }

    found = parse_config(json.dumps(content).encode(), "luna")

    assert found.id == "luna"
    assert [(one.pattern, one.added) for one in found.subscriptions] == [("a/b", T0), ("c/*", 0)]
    assert found.auto_run == {"enabled": False, "debounceMs": 5}
    assert (found.title, set(found.unknown), len(found.wrong)) == ("two lines", {"name"}, 3)


@pytest.mark.parametrize(("given_", "expected"), [(True, True), (False, False), ("yes", None), (None, None)])
def test_automatic_turns_are_kept_as_they_are_except_texts(given_: object, expected: object) -> None:
    found = parse_config(json.dumps({"autoRun": given_, "id": "x"}).encode(), "luna")

    assert found.auto_run is expected
    assert found.id == "x"


def test_parts_of_the_wrong_type_are_named() -> None:
    found = parse_config(b'{"id":7,"title":7,"subscriptions":{},"autoRun":"yes","createdAt":"x"}', "luna")

    assert (found.id, found.title, found.created) == ("luna", "", 0)
    assert [one.partition(":")[0] for one in found.wrong] == ["subscriptions"]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{"])
def test_file_that_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_config(content, "luna")


# Folders


def test_folder_becomes_one_message_per_id_in_the_order_of_time(tmp_path: Path) -> None:
    found, report = parts_of(write_source(tmp_path))

    assert set(found.agents) == {"researcher", "writer", "writer_bot", "ghost"}
    assert [one.id[-1] for one in found.messages] == ["1", "2", "3", "4", "6", "7", "8"]
    slack = found.messages[2]
    assert slack.mailboxes == ("researcher+slack-monitor", "researcher", "writer_bot")
    assert slack.taken == ("researcher+slack-monitor",)
    assert slack.handled == {"researcher": ("slack-monitor",)}
    assert found.messages[-1].mailboxes == ()
    assert found.messages[4].path == "agent/writer_bot"
    assert found.sessions == (
        MigratedSession(
            agent="researcher",
            session="slack-monitor",
            title="Slack channel monitor",
            created=T0 + 5,
            used=T0 + 900,
        ),
    )
    assert MigratedSubscription(agent="researcher", pattern="agent/writer_bot", added=T0 + 2) in (
        found.subscriptions
    )
    assert report.skipped == 2
    assert report.ignored == {"name (of agents)": 1, "description (of agents)": 1}


def test_repeated_line_is_one_copy_and_a_taken_one_counts(tmp_path: Path) -> None:
    line = source_line(1, "agent/luna")
    handled = {**line, "handled": True, "handledBy": [{"agentId": "luna", "sessionId": "x y"}]}
    write_lines(
        tmp_path / ".messages" / "agent--luna.jsonl", [line, {**line, "status": "delivered"}, handled]
    )
    write_lines(tmp_path / ".messages" / "broker-unmatched.jsonl", [line])

    found, _ = parts_of(tmp_path)

    (message,) = found.messages
    assert (message.mailboxes, message.taken) == (("luna",), ("luna",))
    assert message.handled == {"luna": ("x_y",)}


def test_agent_and_session_without_a_file_are_created_from_their_messages(tmp_path: Path) -> None:
    lines = [source_line(number, "slack/x") for number in (5, 2, 9)]
    lines += [source_line(10, "slack/x", timestamp=-5)]
    write_lines(tmp_path / ".messages" / "session--a--b--c.jsonl", lines)

    found, report = parts_of(tmp_path)

    assert found.agents == ("a",)
    assert found.sessions == (MigratedSession(agent="a", session="b--c", created=T0 + 2, used=T0 + 9),)
    assert {one.mailboxes for one in found.messages} == {("a+b--c",)}
    assert (report.counts["untimed"], found.messages[0].ts) == (1, 0)


def test_folder_of_an_agent_may_have_another_name_than_its_id(tmp_path: Path) -> None:
    write_agent(tmp_path, "folder", {"mon": {}}, id="luna")
    write_lines(tmp_path / ".messages" / "agent--folder.jsonl", [source_line(1, "agent/luna")])
    write_lines(tmp_path / ".messages" / "session--folder--mon.jsonl", [source_line(1, "agent/luna")])

    found, _ = parts_of(tmp_path)

    assert found.agents == ("luna",)
    assert found.messages[0].mailboxes == ("luna+mon", "luna")


def test_ids_that_look_like_paths_are_only_names(tmp_path: Path) -> None:
    write_lines(
        tmp_path / ".messages" / "session--..--..jsonl", [source_line(1, "x", **{"from": "../../etc"})]
    )

    found, report = parts_of(tmp_path)

    assert found.agents == ("agent",)
    assert found.messages[0].mailboxes == ("agent+session",)
    assert found.messages[0].sender == "../../etc"
    assert ("agent", "..") in report.renamed


def test_other_files_among_the_messages_are_named(tmp_path: Path) -> None:
    for name in ("notes.txt", "agent--.jsonl", "session--x.jsonl", "other.jsonl"):
        write_lines(tmp_path / ".messages" / name, [source_line(1, "x")])

    found, report = parts_of(tmp_path)

    assert found.agents == ()
    assert report.skipped == 4


def test_long_line_and_large_file_are_skipped(tmp_path: Path) -> None:
    write_lines(
        tmp_path / ".messages" / "agent--luna.jsonl", ["x" * (LIMIT_LINE_BYTES + 1), source_line(1, "a")]
    )
    write_agent(tmp_path, "big", note="x" * LIMIT_LINE_BYTES)

    found, report = parts_of(tmp_path)

    assert (len(found.messages), found.agents) == (1, ("luna",))
    assert [(one.file, one.line) for one in report.first_skipped] == [
        ("agents/big/jvAgent.json", 0),
        (".messages/agent--luna.jsonl", 1),
    ]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    write_agent(tmp_path, "luna")
    (tmp_path / "agents" / "again").symlink_to(tmp_path)

    found, report = parts_of(tmp_path)

    assert found.agents == ("luna",)
    assert report.is_complete


def test_what_cannot_be_opened_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write_agent(tmp_path, "luna")
    write_agent(tmp_path, "nova")
    (tmp_path / "agents" / "nova" / "jvAgent.json").unlink()
    os.mkfifo(tmp_path / "agents" / "nova" / "jvAgent.json")
    sessions = tmp_path / "agents" / "luna" / "sessions"
    sessions.rmdir()
    sessions.symlink_to(sessions)
    (tmp_path / ".messages").mkdir()
    (tmp_path / ".messages" / "agent--x.jsonl").mkdir()

    found, report = parts_of(tmp_path)

    assert found.agents == ("luna", "x")
    assert [one.file for one in report.unreadable] == [
        "agents/luna/sessions",
        "agents/nova/jvAgent.json",
        ".messages/agent--x.jsonl",
    ]
    assert not report.is_complete


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "is not a directory"),
        ("missing", "No such file"),
        ("empty", "has no files of the path broker"),
        (".messages", "give the folder above .messages"),
    ],
)
def test_folder_without_the_files_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".messages").mkdir()

    with pytest.raises(BadRequest, match=reason):
        read_folder(tmp_path / name, ImportReport())


# Requests and the report


async def test_requests_are_small_and_automatic_turns_come_last(tmp_path: Path) -> None:
    write_agent(tmp_path, "luna", {"mon": {"autoRun": True}}, subscriptions=subscribed("a"), autoRun=True)
    lines = [source_line(number, "agent/luna", payload="x" * 1000) for number in range(450)]
    lines += [source_line(500 + number, "agent/luna", payload="x" * 90_000) for number in range(5)]
    write_lines(tmp_path / ".messages" / "agent--luna.jsonl", lines)
    report, bus = ImportReport(), FakeBus()
    work, spool = work_on(tmp_path, report)

    await work.send(bus, spool)

    spool.close()
    assert [one for request in bus.requests[:3] for one in request.agents] == ["luna"]
    assert all(not request.messages for request in bus.requests[:3])
    assert all(len(request.messages) <= 200 for request in bus.requests)
    assert all(len(msgspec.json.encode(request)) < 250_000 for request in bus.requests)
    assert report.counts["messages"] == 455
    assert report.counts["auto_runs"] == 2
    assert [one.session for one in bus.requests[-1].auto_runs] == ["", "mon"]


def test_report_names_everything_that_was_left_out() -> None:
    report = ImportReport()
    report.add(
        MigrationResult(agents=1, messages=2, known=1, taken=1, different=("m1",), refused=("too many",))
    )
    for number in range(15):
        report.skip("a.jsonl", number, "bad")
    report.fail("b.jsonl", OSError(13, "Permission denied"))
    report.rename("agent", "A\x1b", "a")
    report.counts["untimed"] = 1
    report.ignored["colour (of messages)"] = 3

    lines, warnings = list(report_lines(report, is_dry_run=False)), list(warning_lines(report))

    assert lines == [
        "imported 1 agent, 0 sessions, 0 subscriptions, 2 messages and 0 dead letters; "
        "1 message was here already",
        "1 copy that waited here had been received there since",
        "renamed the agent 'A\\x1b': a",
    ]
    assert warnings[0] == "b.jsonl cannot be read: Permission denied"
    assert warnings[1] == "skipped 16 lines and parts:"
    assert warnings[2:5] == ["  too many", "  a.jsonl: bad", "  a.jsonl, line 1: bad"]
    assert "  and 6 more" in warnings
    assert any("same sender and id: m1" in one for one in warnings)
    assert "not imported: the field colour (of messages), found 3 times" in warnings
    assert not report.is_complete
    view = report_view(report, is_dry_run=False)
    assert (view["skipped"], view["different"], view["first_different"]) == (16, 1, ["m1"])


def test_only_the_first_hundred_senders_are_named() -> None:
    report = ImportReport()
    for number in range(150):
        report.rename("sender", f"a b{number}", f"a_b{number}")
    report.rename("agent", "A", "a")

    assert len(report.renamed) == 101


def test_progress_is_one_line_that_is_removed() -> None:
    out = io.StringIO()
    progress = Progress(out)

    progress.show("reading a\x1b")
    progress.show("too soon")
    progress.end()

    assert out.getvalue() == "\r\x1b[Kreading a␛\r\x1b[K"


def test_dry_run_needs_no_bus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_source(tmp_path)

    status = import_folder(str(tmp_path / "home"), tmp_path, is_json=True, is_dry_run=True)

    view = json.loads(capsys.readouterr().out)
    assert (status, view["messages"], view["dead"], view["dry_run"]) == (0, 6, 1, True)
    assert view["auto_runs"] == 2


def test_full_disk_for_temporary_files_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(spool: Spool, *_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    write_source(tmp_path)
    monkeypatch.setattr(Spool, "add", fail)

    with pytest.raises(Unavailable, match="database or disk is full; set TMPDIR"):
        import_folder(str(tmp_path / "home"), tmp_path, is_json=True, is_dry_run=True)


def test_migrated_messages_of_the_spool_are_all_different(tmp_path: Path) -> None:
    write_lines(
        tmp_path / ".messages" / "agent--luna.jsonl",
        [source_line(1, "a"), source_line(1, "a", **{"from": "other"})],
    )

    found, _ = parts_of(tmp_path)

    assert [type(one) for one in found.messages] == [MigratedMessage] * 2
    assert {one.sender for one in found.messages} == {"writer", "other"}
