"""Measure how long commands take to start, against an earlier version. Both versions take turns."""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.drawn import open_program
from bench.figures import Amount
from bench.home import SENDER, SINK, seed
from bench.palaver_home import PalaverHome
from bench.seat import Command, Seat

_SCREEN_RATIO = 1.5
_COMMAND_RATIO = 1.05
_CHAT_MS = 340.0
"""The first screen of `pal chat` before the dashboard, if no earlier version is measured."""
_BREATH_S = 0.003

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("help",),
    ("list",),
    ("list", "--json"),
    ("status",),
    ("send", f"@{SINK}", "--", "the build is green again, you can rebase on it"),
    ("recv",),
    ("events", "--last", "20"),
    ("receipts", "20"),
    ("show", "20"),
    ("pending",),
    ("inbox",),
    ("room", "list"),
    ("whoami",),
)
"""Commands of the C client, which the daemon answers. They print the same, or nearly, in both versions."""
PYTHON_COMMANDS: tuple[tuple[str, ...], ...] = (("doctor",), ("run", "--detach", "--", "/bin/true"))
"""Commands that Python runs in the client's process."""


@dataclass(frozen=True, slots=True)
class StartRounds:
    """How often each start is measured."""

    screens: int = 15
    commands: int = 400
    python: int = 40


def first_screens(
    home: PalaverHome, before: PalaverHome | None, folder: Path, rounds: StartRounds
) -> list[Amount]:
    """Measure the first screens of the dashboard and the chat, against the chat of the earlier version."""
    for one in filter(None, (home, before)):
        with one.seat(SENDER) as seat:
            seat.time(one.command("room", "join", str(folder)))
    screens: dict[str, tuple[PalaverHome, str, bytes]] = {
        "ui": (home, "ui", b"bus up"),
        "chat": (home, "chat", b"bus up"),
    }
    if before is not None:
        screens["before"] = (before, "chat", b"no messages yet")
    times: dict[str, list[float]] = {name: [] for name in screens}
    for _ in range(rounds.screens):
        for name, (which, word, text) in screens.items():
            program = open_program(which, folder, (word,))
            times[name].append((program.until(text) - program.began_s) * 1000)
            program.close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    chat_ms = medians.get("before", _CHAT_MS)
    return [
        Amount(
            f"first full screen of `pal {name}` ({medians[name]:.0f} ms), as a multiple of `pal chat` before "
            f"({chat_ms:.0f} ms)",
            "times",
            medians[name] / chat_ms,
            _SCREEN_RATIO,
        )
        for name in ("ui", "chat")
    ]


def command_starts(
    home: PalaverHome, before: PalaverHome, rounds: StartRounds
) -> tuple[list[Amount], list[str]]:
    """Measure other commands in two equal homes. Return the worst ratio, and a remark with all of them."""
    ratios: dict[str, float] = {}
    with ExitStack() as seats:
        now_seat, before_seat = (_agents(one, seats) for one in (home, before))
        for words in COMMANDS:
            pair = ((now_seat, home.command(*words)), (before_seat, before.command(*words)))
            ratios[_name(words)] = _ratio(pair, rounds.commands)
        for words in PYTHON_COMMANDS:
            pair = ((now_seat, home.command(*words)), (before_seat, before.command(*words)))
            ratios[_name(words)] = _ratio(pair, rounds.python)
        pair = ((now_seat, _offline_help(home)), (before_seat, _offline_help(before)))
        ratios["pal help, without the daemon"] = _ratio(pair, rounds.python)
    worst = max(ratios, key=lambda name: ratios[name])
    shown = ", ".join(f"`{name}` {ratio:.2f}" for name, ratio in ratios.items())
    return (
        [
            Amount(
                f"start of any other command, against before; the slowest is `{worst}`",
                "times",
                ratios[worst],
                _COMMAND_RATIO,
            )
        ],
        [f"Start of other commands, against before: {shown}."],
    )


def _agents(home: PalaverHome, seats: ExitStack) -> Seat:
    """Let the same agents join and write the same messages. Return the seat of the caller."""
    seats.enter_context(home.seat(SINK))
    seat = seats.enter_context(home.seat("caller"))
    seed(home, seat)
    return seat


def _ratio(pair: Sequence[tuple[Seat, Command]], rounds: int) -> float:
    """Run both commands in each round, in turn first, and return the ratio of their medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(-2, rounds):
        for at in (0, 1) if number % 2 else (1, 0):
            seat, command = pair[at]
            wall_ms = seat.time(command).wall_ms
            if number >= 0:
                times[at].append(wall_ms)
            time.sleep(_BREATH_S)
    return statistics.median(times[0]) / statistics.median(times[1])


def _offline_help(home: PalaverHome) -> Command:
    """Return the command that prints the help when no daemon runs."""
    command = home.command("help")
    python = str(Path(command.argv[0]).parent / "python3")
    return Command((python, "-I", "-m", "palaver.app", "help"), command.env)


def _name(words: Sequence[str]) -> str:
    return " ".join(("pal", *words)).partition(" -- ")[0]
