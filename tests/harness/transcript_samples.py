"""Transcripts recorded from the four harnesses in a made-up home."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from palaver.protocol.transcript import TranscriptEntry, TranscriptReader

FOLDER = Path(__file__).parent / "transcripts"
SESSIONS = {
    "claude": "d6183dc9-1de2-48bd-ae78-85ee05944ee6",
    "codex": "01a1df05-e8d7-7f42-a677-2b771ec05287",
    "gemini": "4fde1e98-be8c-4c56-bf2c-7439e4423ff8",
    "opencode": "ses_e20f74573ffeRP3nnyuGLAQWfu",
}


def sample_lines(name: str) -> list[bytes]:
    return (FOLDER / f"{name}.jsonl").read_bytes().splitlines(keepends=True)


def opencode_lines() -> Iterator[bytes]:
    """Return the messages of the sample as OpenCode exports them."""
    database = sqlite3.connect(":memory:")
    try:
        database.executescript((FOLDER / "opencode.sql").read_text())
        for key, data in database.execute(
            "SELECT id, data FROM message ORDER BY time_created, id"
        ).fetchall():
            parts = database.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (key,))
            line = {"info": msgspec.Raw(data.encode()), "parts": [msgspec.Raw(p.encode()) for (p,) in parts]}
            yield msgspec.json.encode(line) + b"\n"
    finally:
        database.close()


def outline(reader: TranscriptReader, lines: list[bytes]) -> list[str]:
    """Return one line per entry: its role, its text, and its tools with the start of their results."""
    return [_line(entry) for entry in reader.entries(lines)]


def _line(entry: TranscriptEntry) -> str:
    tools = "".join(
        f" | {tool.name} {'!' if tool.is_error else '='} {' '.join((tool.output or '-').split())[:60]}"
        for tool in entry.tools
    )
    return f"{entry.role}: {' '.join(entry.text.split())[:60]}{tools}"


def install_samples(home: Path) -> None:
    """Put every sample where its harness stores it below a home."""
    paths = {
        "claude": home / ".claude/projects/-home-pat-demo" / f"{SESSIONS['claude']}.jsonl",
        "codex": home
        / ".codex/sessions/2026/11/15"
        / f"rollout-2026-11-15T11-44-28-{SESSIONS['codex']}.jsonl",
        "gemini": home
        / ".gemini/tmp/demo/chats"
        / f"session-2026-11-15T11-44-{SESSIONS['gemini'][:8]}.jsonl",
    }
    for harness, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(sample_lines(harness)))
    folder = home / ".local/share/opencode"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "opencode.db") as database:
        database.executescript((FOLDER / "opencode.sql").read_text())
    database.close()
