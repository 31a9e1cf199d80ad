"""Transcript paths reported by hooks."""

import pytest

from palaver.services import agents as transcripts
from palaver.services.agents import TranscriptBook


def test_last_reported_path_is_remembered() -> None:
    book = TranscriptBook()

    book.tell("luna", "/a.jsonl")
    book.tell("luna", "/b.jsonl")

    assert (book.path_of("luna"), book.path_of("nova")) == ("/b.jsonl", "")


@pytest.mark.parametrize("path", ["", "a.jsonl", "/a\0b", "/" + "x" * 5000])
def test_invalid_path_is_ignored(path: str) -> None:
    book = TranscriptBook()
    book.tell("luna", "/a.jsonl")

    book.tell("luna", path)

    assert book.path_of("luna") == "/a.jsonl"


def test_oldest_report_is_dropped_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "LIMIT_TOLD", 2)
    book = TranscriptBook()
    book.tell("luna", "/luna")
    book.tell("nova", "/nova")
    book.tell("luna", "/luna")

    book.tell("kira", "/kira")

    assert [book.path_of(name) for name in ("luna", "nova", "kira")] == ["/luna", "", "/kira"]
