"""A daemon whose home, or a file in it, was removed."""

import shutil
from collections.abc import Callable
from pathlib import Path

from palaver.daemon.daemon import HomeWatch
from palaver.home import file_id, is_at


class Timer:
    """A timer that a test fires."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Watched:
    """A home with a watch, and the number of times it was reported as lost."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.begin()
        self.timers: list[Timer] = []
        self.times_lost = 0
        self.watch = HomeWatch(home, self._lose, self._call_later)

    def begin(self) -> None:
        """Create the home as a starting daemon does."""
        self.home.mkdir()
        (self.home / "daemon.lock").touch()

    def look(self) -> None:
        """Fire the timer of the next check."""
        self.timers[-1].ring()

    def _lose(self) -> None:
        self.times_lost += 1

    def _call_later(self, delay_s: float, ring: Callable[[], None]) -> Timer:
        self.timers.append(Timer(ring))
        return self.timers[-1]


def test_existing_home_is_checked_again_and_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")

    watched.look()
    watched.look()

    assert (watched.times_lost, len(watched.timers)) == (0, 3)


def test_removed_home_is_lost_and_not_checked_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")
    shutil.rmtree(watched.home)

    watched.look()

    assert (watched.times_lost, len(watched.timers)) == (1, 1)


def test_home_that_another_daemon_created_again_is_lost_too(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")
    watched.home.rename(tmp_path / "old")  # kept, so that its inode is not reused
    watched.begin()

    watched.look()

    assert watched.times_lost == 1


def test_closed_watch_does_not_check(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")

    watched.watch.close()

    assert watched.timers[-1].is_cancelled


def test_file_is_at_its_path_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    path.touch()
    file = file_id(path)
    assert is_at(path, file)

    (tmp_path / "other").touch()
    (tmp_path / "other").rename(path)

    assert not is_at(path, file)


def test_file_that_was_never_seen_is_at_no_path(tmp_path: Path) -> None:
    assert file_id(tmp_path / "daemon.sock") is None
    assert not is_at(tmp_path / "daemon.sock", None)
