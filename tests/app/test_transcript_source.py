"""Finding transcripts and reading their lines."""

import json
import os
import sqlite3
from pathlib import Path

import pytest
from tests.harness.transcript_samples import SESSIONS, install_samples

from palaver.app import transcript as transcript_source
from palaver.app.transcript import Transcript, find_transcript
from palaver.errors import NotFound, Unavailable
from palaver.harness.registry import TRANSCRIPTS, KnownSession


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with one session of each harness."""
    install_samples(tmp_path)
    return tmp_path


def known(harness: str, session: str | None = None, **fields: object) -> KnownSession:
    found = SESSIONS[harness] if session is None else session
    return KnownSession(agent="luna", harness=harness, session=found, **fields)  # type: ignore[arg-type]  # keyword fields of the session


@pytest.mark.parametrize("harness", sorted(TRANSCRIPTS))
def test_session_of_every_harness_is_found_and_read(home: Path, harness: str) -> None:
    found = find_transcript(known(harness), {"HOME": str(home)})

    texts = [entry.text for entry in found.entries()]

    assert texts[:2] == ["list the files", "I look at the files first."]
    assert [entry.text for entry in found.entries()] == texts


def test_claude_subagent_is_found_below_the_session_of_its_parent(home: Path) -> None:
    (session,) = (home / ".claude" / "projects").glob("*/*.jsonl")
    child = session.with_suffix("") / "subagents" / "agent-a1b2.jsonl"
    child.parent.mkdir(parents=True)
    child.write_bytes(session.read_bytes())

    found = find_transcript(known("claude", "a1b2"), {"HOME": str(home)})

    assert found.path == str(child)
    assert next(found.entries()).text == "list the files"


def test_file_reported_by_a_hook_is_preferred(home: Path, tmp_path: Path) -> None:
    reported = tmp_path / "told.jsonl"
    reported.write_text("")

    found = find_transcript(known("claude", path=str(reported)), {"HOME": str(home)})

    assert found.path == str(reported)


def test_missing_file_of_a_hook_is_searched_for(home: Path) -> None:
    found = find_transcript(known("claude", path="/gone.jsonl"), {"HOME": str(home)})

    assert found.path.startswith(str(home))


def test_file_is_enough_without_a_session(home: Path, tmp_path: Path) -> None:
    reported = tmp_path / "told.jsonl"
    reported.write_text("")

    assert find_transcript(known("codex", "", path=str(reported)), {}).path == str(reported)


def test_running_claude_reports_its_current_session(home: Path) -> None:
    registry = home / ".claude/sessions/77.json"
    registry.parent.mkdir()
    registry.write_text(json.dumps({"pid": 77, "sessionId": SESSIONS["claude"]}))

    found = find_transcript(
        known("claude", "before-clear", pid=77, path="/old/before-clear.jsonl"), {"HOME": str(home)}
    )

    assert found.session == SESSIONS["claude"]


def test_running_claude_without_a_report_uses_the_known_session(home: Path) -> None:
    registry = home / ".claude/sessions/77.json"
    registry.parent.mkdir()
    registry.write_text("{}")

    for pid in (77, 78):
        found = find_transcript(known("claude", pid=pid), {"HOME": str(home)})
        assert found.session == SESSIONS["claude"]


def test_agent_finds_its_own_current_session(home: Path) -> None:
    environment = {"HOME": str(home), "CODEX_THREAD_ID": SESSIONS["codex"]}

    assert find_transcript(known("codex", "old", is_own=True), environment).session == SESSIONS["codex"]


def test_session_of_an_outer_harness_is_ignored(home: Path) -> None:
    environment = {"HOME": str(home), "CLAUDE_CODE_SESSION_ID": "other"}

    assert find_transcript(known("codex", is_own=True), environment).session == SESSIONS["codex"]


@pytest.mark.parametrize(
    ("harness", "session", "complaint"),
    [
        ("claude", "", "no session of luna: luna has not run a hook"),
        ("claude", "../../etc", "no session of luna"),
        ("claude", "unknown", "looked for .*/.claude/projects/\\*/unknown.jsonl"),
        ("codex", "unknown", "no transcript of luna: the harness writes it at the first prompt"),
        ("gemini", "unknown", "session-\\*-unknown.jsonl"),
        ("opencode", "ses_unknown", "opencode.db"),
    ],
)
def test_missing_transcript_error_names_the_searched_paths(
    home: Path, harness: str, session: str, complaint: str
) -> None:
    with pytest.raises(NotFound, match=complaint):
        find_transcript(known(harness, session), {"HOME": str(home)})


def test_without_a_home_there_is_nowhere_to_search() -> None:
    with pytest.raises(NotFound, match="HOME is not set"):
        find_transcript(known("claude"), {})


def test_most_recently_changed_file_is_read(home: Path) -> None:
    folder = home / ".claude/projects/-moved"
    folder.mkdir()
    newer = folder / f"{SESSIONS['claude']}.jsonl"
    newer.write_text("")
    os.utime(newer, (4_000_000_000, 4_000_000_000))

    assert find_transcript(known("claude"), {"HOME": str(home)}).path == str(newer)


def test_oversized_line_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_source, "LIMIT_LINE_BYTES", 8)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"short\n" + b"x" * 30 + b"\n1234567\nhalf")
    transcript = Transcript("claude", str(path), "s")

    lines = list(transcript.lines())

    assert lines == [b"short\n", b"1234567\n", b"half"]
    assert transcript.skipped_lines == 1


def test_file_that_is_not_regular_is_not_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    with pytest.raises(NotFound, match="there is no regular file"):
        list(Transcript("claude", str(fifo), "s").lines())


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file or directory"):
        list(Transcript("claude", str(tmp_path / "none"), "s").lines())


def test_invalid_database_is_skipped_or_reported(tmp_path: Path) -> None:
    folder = tmp_path / ".local/share/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.db").write_text("no database at all, whatever its name says")

    with pytest.raises(NotFound, match="no transcript of luna"):
        find_transcript(known("opencode"), {"HOME": str(tmp_path)})
    with pytest.raises(Unavailable, match="cannot be read now"):
        list(Transcript("opencode", str(folder / "opencode.db"), "s").lines())


def test_long_session_in_a_database_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE message (id, session_id, time_created INTEGER, data)")
        database.execute("CREATE TABLE part (id, message_id, data)")
        for number in range(250):
            # Two messages share each timestamp: their ids order them.
            row = (f"m{number:04}", "s" if number % 5 else "other", number // 2, '{"role":"user"}')
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            parts = [f'{{"type":"text","text":"{number}"}}', "no json"]
            for at, data in enumerate(parts):
                database.execute("INSERT INTO part VALUES (?, ?, ?)", (f"p{at}", f"m{number:04}", data))
    database.close()

    entries = Transcript("opencode", str(path), "s").entries()

    assert [entry.text for entry in entries] == [str(number) for number in range(250) if number % 5]
