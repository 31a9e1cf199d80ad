"""The file that stores a consumer's cursor."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import StorageFailed
from palaver.services.agents import Cursor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "consumers" / "luna" / "ci"


def test_missing_file_has_no_cursor(path: Path) -> None:
    assert Cursor(path).read() is None


@given(seqs=st.lists(st.integers(min_value=0, max_value=2**63 - 1), min_size=1, max_size=5))
def test_last_stored_cursor_is_read(seqs: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("home") / "consumers" / "luna" / "ci"
    cursor = Cursor(path)
    cursor.begin(seqs[0])
    for seq in seqs[1:]:
        cursor.keep(seq)

    assert Cursor(path).read() == seqs[-1]
    cursor.close()


def test_stored_cursor_needs_no_close(path: Path) -> None:
    cursor = Cursor(path)
    cursor.begin(7)
    cursor.keep(8)

    assert path.read_bytes() == b"00000000000000000008\n"
    cursor.close()


def test_begin_at_the_stored_cursor_leaves_the_file_unchanged(path: Path) -> None:
    cursor = Cursor(path)
    cursor.begin(7)
    before = path.stat().st_ino

    cursor.begin(7)
    same = path.stat().st_ino
    cursor.begin(3)

    assert same == before
    assert Cursor(path).read() == 3
    cursor.close()


def test_only_its_owner_can_read_the_file(path: Path) -> None:
    cursor = Cursor(path)

    cursor.begin(1)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    cursor.close()
    cursor.close()


def test_partial_file_of_a_crash_is_replaced(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.with_name("ci~").write_bytes(b"0000000000000")
    cursor = Cursor(path)

    missing = cursor.read()
    cursor.begin(4)

    assert missing is None
    assert cursor.read() == 4
    cursor.close()


@pytest.mark.parametrize("content", [b"", b"7", b"0000000000000000000x\n", b"00000000000000000007\n\n"])
def test_invalid_file_is_reported_and_can_be_overridden(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    cursor = Cursor(path)

    with pytest.raises(StorageFailed, match="--after"):
        cursor.read()
    cursor.begin(9)

    assert cursor.read() == 9
    cursor.close()


def test_cursor_that_cannot_be_read_or_written_is_a_storage_error(path: Path) -> None:
    path.mkdir(parents=True)
    blocked = Cursor(path)
    with pytest.raises(StorageFailed):
        blocked.read()
    with pytest.raises(StorageFailed):
        blocked.begin(1)

    other = Cursor(path.with_name("other"))
    other.begin(1)
    os.close(_file_of(other))
    with pytest.raises(StorageFailed):
        other.keep(2)


def _file_of(cursor: Cursor) -> int:
    file = cursor._file
    assert file is not None
    return file
