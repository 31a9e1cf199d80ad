"""Blobs are written once, durably, for their owner only."""

import stat
from pathlib import Path

import pytest
from tests.log.logs import files_no_larger_than

from palaver.log.blobs import Blobs


def test_a_blob_is_read_back(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    name = blobs.write(b"content")

    assert blobs.read(name) == b"content"


def test_the_same_content_is_one_file(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    names = [blobs.write(b"content"), blobs.write(b"content"), blobs.write(b"other")]

    assert names[0] == names[1] != names[2]
    assert sorted(path.name for path in (tmp_path / "blobs").iterdir()) == sorted(set(names))


def test_blobs_are_for_their_owner_only(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    name = blobs.write(b"content")

    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "blobs" / name).stat().st_mode) == 0o600


def test_a_blob_that_is_gone_or_changed_is_none(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    gone, changed = blobs.write(b"gone"), blobs.write(b"changed")

    (tmp_path / "blobs" / gone).unlink()
    (tmp_path / "blobs" / changed).write_bytes(b"something else")

    assert blobs.read(gone) is None
    assert blobs.read(changed) is None


def test_a_blob_without_room_leaves_nothing_behind(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    with files_no_larger_than(100), pytest.raises(OSError, match="too large"):
        blobs.write(b"x" * 1000)

    assert list((tmp_path / "blobs").iterdir()) == []
    assert blobs.read(blobs.write(b"x" * 1000)) == b"x" * 1000
