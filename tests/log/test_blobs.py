"""Blobs are written once, durably, and are private to their owner."""

import stat
from pathlib import Path

import pytest
from tests.log.logs import files_no_larger_than

from palaver.log.records import Blobs


def test_blob_is_read_back(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    name = blobs.write(b"content")

    assert blobs.read(name) == b"content"


def test_same_content_is_one_file(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    names = [blobs.write(b"content"), blobs.write(b"content"), blobs.write(b"other")]

    assert names[0] == names[1] != names[2]
    assert sorted(path.name for path in (tmp_path / "blobs").iterdir()) == sorted(set(names))


def test_blobs_are_private_to_their_owner(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    name = blobs.write(b"content")

    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "blobs" / name).stat().st_mode) == 0o600


def test_missing_or_changed_blob_is_not_returned(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    gone, changed = blobs.write(b"gone"), blobs.write(b"changed")

    (tmp_path / "blobs" / gone).unlink()
    (tmp_path / "blobs" / changed).write_bytes(b"something else")

    assert blobs.read(gone) is None
    assert blobs.read(changed) is None


def test_blob_that_the_disk_cannot_read_is_lost_and_can_be_written_again(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    path = tmp_path / "blobs" / blobs.write(b"content")
    path.unlink()
    path.symlink_to("/proc/self/mem")  # Its first byte cannot be read.

    found = blobs.read(path.name)
    blobs.write(b"content")

    assert found is None
    assert blobs.read(path.name) == b"content"


def test_blob_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    path = tmp_path / "blobs" / blobs.write(b"content")
    path.unlink()
    path.mkdir()

    with pytest.raises(IsADirectoryError):
        blobs.read(path.name)


def test_damaged_blob_is_replaced_when_its_content_is_written_again(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    (tmp_path / "blobs" / blobs.write(b"content")).write_bytes(b"damaged")

    name = blobs.write(b"content")

    assert blobs.read(name) == b"content"


def test_blob_on_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")

    with files_no_larger_than(100), pytest.raises(OSError, match="too large"):
        blobs.write(b"x" * 1000)

    assert list((tmp_path / "blobs").iterdir()) == []
    assert blobs.read(blobs.write(b"x" * 1000)) == b"x" * 1000
