"""The settings file: writes are atomic, and only its owner can read it."""

import stat
from pathlib import Path

import pytest

from palaver.errors import StorageFailed
from palaver.home import read_settings_file, write_settings_file


def test_missing_file_is_read_as_empty(tmp_path: Path) -> None:
    assert read_settings_file(tmp_path) == b""


def test_written_file_is_read_back_and_private(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("old")
    path.chmod(0o644)

    write_settings_file(tmp_path, b"new")

    assert read_settings_file(tmp_path) == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]


def test_symlink_stays_a_symlink(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles"
    kept.mkdir()
    (tmp_path / "config.toml").symlink_to(kept / "palaver.toml")

    write_settings_file(tmp_path, b"new")

    assert (tmp_path / "config.toml").is_symlink()
    assert (kept / "palaver.toml").read_bytes() == b"new"


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()

    with pytest.raises(StorageFailed, match="nothing was changed"):
        write_settings_file(tmp_path, b"new")
    with pytest.raises(StorageFailed, match="cannot be read"):
        read_settings_file(tmp_path)

    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]
