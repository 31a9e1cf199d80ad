"""`pal transcript` in the client's own process."""

import json
import os
from pathlib import Path

import pytest
from tests.harness.transcript_samples import SESSIONS, install_samples

from palaver.app.transcript import read_transcript, take_excerpts
from palaver.harness.registry import (
    EXCERPTS,
    ExcerptOrder,
    KnownSession,
    ReadOrder,
    order_to_word,
    order_to_words,
)
from palaver.protocol.transcript import Detail, Stretch

LUNA = KnownSession(agent="luna", harness="claude", session=SESSIONS["claude"])


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a home with one session of each harness."""
    install_samples(tmp_path)
    return {"HOME": str(tmp_path)}


def ordered(*known: KnownSession, **fields: object) -> list[str]:
    return order_to_words(ReadOrder(known=known or (LUNA,), **fields))  # type: ignore[arg-type]  # its fields


def numbers(out: str) -> list[int]:
    return [json.loads(line)["number"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, list(range(1, 14))),
        ({"first": 2, "last": 4}, [2, 3, 4]),
        ({"first": 12}, [12, 13]),
        ({"first": 12, "last": 99}, [12, 13]),
        ({"newest": 3}, [11, 12, 13]),
        ({"newest": 99}, list(range(1, 14))),
        ({"newest": 2, "first": 2, "last": 6}, [5, 6]),
        ({"search": "notes.txt"}, [4, 13]),
        ({"search": "notes.txt", "newest": 1}, [13]),
        ({"search": "missing", "level": Detail.DETAILED}, [3]),
    ],
)
def test_exactly_the_requested_entries_are_printed(
    environment: dict[str, str],
    capfd: pytest.CaptureFixture[str],
    fields: dict[str, object],
    expected: list[int],
) -> None:
    status = read_transcript(ordered(is_json=True, **fields), environment)

    assert status == 0
    assert numbers(capfd.readouterr().out) == expected


def test_default_output_is_text(environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    read_transcript(ordered(first=5, last=5), environment)

    assert capfd.readouterr().out.endswith("\nis that all?\nreally?\n\n")


def test_json_output_has_all_fields_of_its_level(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    read_transcript(ordered(first=2, last=2, level=Detail.FULL, is_json=True), environment)

    (entry,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert set(entry) == {"agent", "number", "role", "text", "ts", "tools", "whole"}


def test_no_match_is_reported_and_is_not_a_failure(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    status = read_transcript(ordered(search="xyzzy"), environment)

    assert (status, capfd.readouterr().err) == (0, "pal: no matching entries\n")


def test_empty_transcript_is_reported(environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    (found,) = Path(environment["HOME"]).glob(f".claude/projects/*/{SESSIONS['claude']}.jsonl")
    found.write_text("")

    read_transcript(ordered(newest=20), environment)

    assert capfd.readouterr().err == "pal: the transcript is empty\n"


def test_oversized_line_is_reported(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.app.transcript.LIMIT_LINE_BYTES", 1000)

    read_transcript(ordered(), environment)

    assert "lines that are too long to read: " in capfd.readouterr().err


@pytest.mark.parametrize("is_json", [True, False])
def test_range_after_the_end_is_refused(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str], is_json: bool
) -> None:
    status = read_transcript(ordered(first=50, is_json=True, is_refusal_json=is_json), environment)

    err = capfd.readouterr().err
    assert status == 1
    assert "it has 13 entries" in err
    if is_json:
        assert json.loads(err)["error"] == "not_found"
        assert json.loads(err)["details"]["reason"] == "it has 13 entries"
    else:
        assert err.startswith("pal: there is no entry 50")


def test_excerpts_are_passed_in_an_unnamed_file_with_the_same_arguments(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    become: list[tuple[list[str], list[dict[str, object]]]] = []

    def execve(path: str, words: list[str], own: dict[str, str]) -> None:
        become.append((words[1:], json.loads(Path(own[EXCERPTS]).read_bytes())))

    monkeypatch.setattr(os, "execve", execve)
    order = ExcerptOrder(wanted=((LUNA, Stretch(first=1, last=2, level=Detail.DETAILED)),))

    take_excerpts(order_to_word(order), ["bundle", "create", "x"], environment)

    ((words, excerpts),) = become
    # Isolated: a file in the folder of the caller must not replace one of ours.
    assert words == ["-I", "-m", "palaver.app.thin.client", "bundle", "create", "x"]
    assert [(one["agent"], one["first"], one["last"], one["level"]) for one in excerpts] == [
        ("luna", 1, 2, "detailed")
    ]


def test_missing_range_creates_no_bundle(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    order = ExcerptOrder(wanted=((LUNA, Stretch(first=1, last=99)),), is_json=True)

    status = take_excerpts(order_to_word(order), [], environment)

    assert status == 1
    assert json.loads(capfd.readouterr().err)["error"] == "not_found"


def test_search_of_all_names_the_agents_and_skips_what_cannot_be_read(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    same = KnownSession(agent="kira", harness="claude", session=SESSIONS["claude"])
    nova = KnownSession(agent="nova", harness="codex", session=SESSIONS["codex"])
    lost = KnownSession(agent="vega", harness="claude", session="none-such")
    words = ordered(LUNA, same, nova, lost, search="list the files", is_all=True)

    status = read_transcript(words, environment)

    out, err = capfd.readouterr()
    assert status == 0
    assert [line.split("]")[0] for line in out.splitlines() if "] user" in line] == ["luna [1", "nova [1"]
    assert err == "pal: transcripts that cannot be read: vega\n"


def test_invalid_expression_is_refused_without_a_transcript(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = KnownSession(agent="vega", harness="claude", session="none-such")

    status = read_transcript(ordered(lost, search="(", is_all=True), {"HOME": str(tmp_path)})

    _, err = capfd.readouterr()
    assert (status, "is not a regular expression" in err) == (2, True)


def test_json_entries_name_their_agent(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    read_transcript(ordered(first=1, last=1, is_json=True), environment)

    assert json.loads(capfd.readouterr().out)["agent"] == "luna"
