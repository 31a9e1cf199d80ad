"""Trace files: each line is written at once, and no file grows without limit."""

import json
import os
from pathlib import Path

from palaver.home import TraceFile, older_trace, prune_traces, trace_path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_step_is_in_the_file_as_soon_as_it_is_noted(tmp_path: Path) -> None:
    path = trace_path(tmp_path, "luna")
    file = TraceFile(path, 1000, lambda: 7)

    file.note("luna", [3, 4], "received", "terminal", "x" * 1000)

    (line,) = lines(path)
    assert line == {
        "ts": 7,
        "agent": "luna",
        "seqs": [3, 4],
        "step": "received",
        "lane": "terminal",
        "detail": "x" * 500,
    }
    assert path.stat().st_mode & 0o777 == 0o600
    file.close()
    file.close()


def test_full_file_is_rotated_and_replaces_the_older_one(tmp_path: Path) -> None:
    path = trace_path(tmp_path)
    file = TraceFile(path, 500, lambda: 1)

    for number in range(100):
        file.note("luna", [number], "offered")
    file.close()

    kept = lines(older_trace(path)) + lines(path)
    assert [line["seqs"] for line in kept] == [[number] for number in range(100 - len(kept), 100)]
    assert path.stat().st_size + older_trace(path).stat().st_size < 2 * 500 + 2 * 200
    assert len(list(path.parent.iterdir())) == 2


def test_restarted_writer_continues_in_the_same_file(tmp_path: Path) -> None:
    path = trace_path(tmp_path)
    for number in (1, 2):
        file = TraceFile(path, 500, lambda: 1)
        file.note("luna", [number], "offered")
        file.close()

    assert [line["seqs"] for line in lines(path)] == [[1], [2]]


def test_unwritable_folder_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "trace").touch()
    file = TraceFile(trace_path(tmp_path), 500, lambda: 1)

    file.note("luna", [1], "offered")
    prune_traces(tmp_path)

    assert (tmp_path / "trace").is_file()


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    for number in range(203):
        path = trace_path(tmp_path, f"a{number}")
        path.touch()
        os.utime(path, (number, number))

    prune_traces(tmp_path)

    kept = {path.name for path in (tmp_path / "trace").iterdir()}
    assert kept == {f"a{number}.holder.jsonl" for number in range(3, 203)}
