"""A home with the agents that every measurement needs, each in its own seat."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bench.hcom_home import HcomHome
from bench.home import CHECKER, OTHERS, RARE_WORD, SENDER, SINK, TAKER, WAITER, Home, seed
from bench.measure import Reception
from bench.palaver_home import PalaverHome
from bench.seat import Command, Seat

AnyHome = TypeVar("AnyHome", bound=Home, covariant=True)


@dataclass(frozen=True, slots=True)
class Stage(Generic[AnyHome]):
    """A bus ready for measurement: twenty stored messages, one waiting receiver, other agents idle."""

    home: AnyHome
    sender: Seat
    checker: Seat
    taker: Seat
    silent: tuple[Seat, ...]

    @property
    def sending(self) -> tuple[Seat, Command]:
        """A send to an agent that does not wait for it."""
        return self.sender, self.home.send(SINK, "the build is green again, you can rebase on it")

    @property
    def checking(self) -> tuple[Seat, Command]:
        """A check that finds no message."""
        return self.checker, self.home.check(CHECKER)

    @property
    def reception(self) -> Reception:
        """The sender and the receiver of latency measurements."""
        return Reception(home=self.home, sender=self.sender, taker=self.taker, to=TAKER)

    def asking(self, command: Command) -> tuple[Seat, Command]:
        """Return a listing command, to be run in the seat of the sender."""
        return self.sender, command

    def close(self) -> None:
        """Close the seats, then the home."""
        for seat in (self.sender, self.checker, self.taker, *self.silent):
            seat.close()
        self.home.close()


def open_palaver(folder: Path, program: Path) -> Stage[PalaverHome]:
    """Set up Palaver in a new home."""
    return _open(PalaverHome(_new_root(folder), program))


def open_hcom(folder: Path, program: Path) -> Stage[HcomHome]:
    """Set up hcom in a new home."""
    return _open(HcomHome(_new_root(folder), program))


def _new_root(folder: Path) -> Path:
    # Short names, because the path of a socket is limited to about 100 characters.
    return Path(tempfile.mkdtemp(prefix="b", dir=folder))


def _open(home: AnyHome) -> Stage[AnyHome]:  # type: ignore[misc]  # covariant type in a parameter of a factory
    silent = tuple(home.seat(name) for name in (SINK, *OTHERS))
    sender = home.seat(SENDER)
    seed(home, sender)
    home.idle((WAITER,))
    stage = Stage(
        home=home, sender=sender, checker=home.checker(CHECKER), taker=home.seat(TAKER), silent=silent
    )
    _prove_it_works(stage)
    return stage


def _prove_it_works(stage: Stage[Home]) -> None:
    # A check for an unknown agent, or an empty listing, would be fast and mean nothing.
    home = stage.home
    stage.sender.time(home.send(CHECKER, "proof-mark"))
    stage.checker.prove(home.check(CHECKER), "proof-mark")
    stage.checker.prove(home.check(CHECKER), "")
    stage.sender.prove(home.list_agents(), SINK)
    stage.sender.prove(home.last_events(), RARE_WORD)
    stage.sender.prove(home.search(), RARE_WORD)
