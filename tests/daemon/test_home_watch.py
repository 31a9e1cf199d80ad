"""A daemon whose home was removed."""

import shutil
from collections.abc import Callable
from pathlib import Path

from palaver.daemon.home_watch import HomeWatch


class Timer:
    """One that a test lets ring."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Watched:
    """A home with a watch over it, and how often it was lost."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.begin()
        self.timers: list[Timer] = []
        self.times_lost = 0
        self.watch = HomeWatch(home, self._lose, self._call_later)

    def begin(self) -> None:
        """Do as a daemon that begins does."""
        self.home.mkdir()
        (self.home / "daemon.lock").touch()

    def look(self) -> None:
        """Let the time of the next look come."""
        self.timers[-1].ring()

    def _lose(self) -> None:
        self.times_lost += 1

    def _call_later(self, delay_s: float, ring: Callable[[], None]) -> Timer:
        self.timers.append(Timer(ring))
        return self.timers[-1]


def test_a_home_that_is_there_is_looked_at_again_and_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")

    watched.look()
    watched.look()

    assert (watched.times_lost, len(watched.timers)) == (0, 3)


def test_a_home_that_was_removed_is_lost_and_looked_at_no_more(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")
    shutil.rmtree(watched.home)

    watched.look()

    assert (watched.times_lost, len(watched.timers)) == (1, 1)


def test_a_home_that_another_daemon_made_anew_is_lost_too(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")
    watched.home.rename(tmp_path / "old")  # kept, so that its number is not given out again
    watched.begin()

    watched.look()

    assert watched.times_lost == 1


def test_a_watch_that_was_closed_does_not_look(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "home")

    watched.watch.close()

    assert watched.timers[-1].is_cancelled
