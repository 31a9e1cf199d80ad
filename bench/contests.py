"""The measurements: each function takes stages of both buses and returns figures. `suite` calls them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import Amount, Figure, Goal, Growth
from bench.hcom_home import HcomHome
from bench.home import SINK, Home
from bench.measure import Rounds, Sample, flood_rate, following_latency, in_turn, waiting_latency
from bench.palaver_home import PalaverHome
from bench.seat import Command, Seat
from bench.stage import Stage

_FLAT = Goal(limit=1.3)
_HALF = Goal(limit=0.5)
_WAITING = Goal(limit=0.4)
_FLOODERS = 8
_HOOKED = "hooked"
_DAEMON_LIMIT_MB = 80

Act = Callable[[Stage[Home]], tuple[Seat, Command]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A stage of each bus, both set up in the same way."""

    palaver: Stage[PalaverHome]
    hcom: Stage[HcomHome]

    def close(self) -> None:
        """Close both stages."""
        self.palaver.close()
        self.hcom.close()


def _sending(stage: Stage[Home]) -> tuple[Seat, Command]:
    return stage.sending


def _checking(stage: Stage[Home]) -> tuple[Seat, Command]:
    return stage.checking


def version_wall(small: Pair, rounds: Rounds) -> Figure:
    """Measure the time to start and print the version."""
    samples = in_turn(
        {
            "palaver": (small.palaver.sender, small.palaver.home.version()),
            "hcom": (small.hcom.sender, small.hcom.home.version()),
        },
        rounds.wall,
        rounds.warm_up,
    )
    return _figure("`--version`, wall time", samples, None)


def hook_wall(small: Pair, rounds: Rounds) -> Figure:
    """Measure how long a harness waits for its hook after a tool call when no message is pending."""
    seat, hook = small.palaver.home.hooked(_HOOKED)
    with seat:
        # A hook without an agent would exit at once, and its time would mean nothing.
        small.palaver.sender.time(small.palaver.home.send(_HOOKED, "proof-mark"))
        seat.prove(hook, "proof-mark")
        seat.prove(hook, "")
        commands = {"palaver": (seat, hook), "hcom": small.hcom.checking}
        samples = in_turn(commands, rounds.wall, rounds.warm_up)
    return _figure("hook after a tool, nothing pending", samples, _HALF)


def walls(small: Pair, big: Pair, rounds: Rounds) -> tuple[list[Figure], list[Growth]]:
    """Measure commands in an empty home and in a full one, all four in turn."""
    acts: list[tuple[str, str, Act, Goal | None]] = [
        ("send", "send", _sending, Goal(limit=0.4)),
        ("check, nothing pending", "check, all messages for others", _checking, Goal(limit=0.7)),
        ("list", "`list`", lambda stage: stage.asking(stage.home.list_agents()), None),
        ("events", "`events --last 20`", lambda stage: stage.asking(stage.home.last_events()), None),
        ("search", "search, 20 found", lambda stage: stage.asking(stage.home.search()), None),
    ]
    figures: list[Figure] = []
    growths: list[Growth] = []
    for name, full_name, act, goal in acts:
        palaver, hcom = _both(small, big, act, rounds)
        growths.append(_growth(f"{full_name}, {rounds.events:,} events", palaver, hcom))
        if goal:
            samples = {"palaver": palaver[0], "hcom": hcom[0]}
            figures.append(_figure(f"{name}, wall time", samples, goal))
    return figures, growths


def crowd_wall(small: Pair, crowd: Pair, rounds: Rounds) -> Growth:
    """Measure a send to one agent while many other agents wait for messages."""
    palaver, hcom = _both(small, crowd, _sending, rounds)
    return _growth(f"send, {rounds.receivers} idle receivers", palaver, hcom)


def watched_wall(small: Pair, watched: Pair, rounds: Rounds) -> Growth:
    """Measure a send while an agent has many subscriptions that do not match it."""
    palaver, hcom = _both(small, watched, _sending, rounds)
    return _growth(f"send, {rounds.subscriptions:,} subscriptions", palaver, hcom)


def latencies(small: Pair, rounds: Rounds) -> list[Figure]:
    """Measure from the spawn of a send to the line on a receiver's standard output."""
    receptions = {"palaver": small.palaver.reception, "hcom": small.hcom.reception}
    waiting = waiting_latency(receptions, rounds.latency, rounds.warm_up)
    following = following_latency(receptions, rounds.following, rounds.warm_up)
    return [
        _figure("send to a waiting receiver's line, p50", waiting, _WAITING),
        _figure("send to a waiting receiver's line, p99", waiting, _WAITING, p99=True),
        _figure("send to a following receiver's line, p50", following, None),
        _figure("send to a following receiver's line, p99", following, None, p99=True),
    ]


def rates(small: Pair, rounds: Rounds) -> list[Figure]:
    """Measure durable sends per second: one process at a time, eight at a time, one SDK connection."""
    flooders = {stage.home.bus: _flooders(stage) for stage in (small.palaver, small.hcom)}
    palaver: dict[str, list[float]] = {"one": [], "many": [], "sdk": []}
    hcom: dict[str, list[float]] = {"one": [], "many": []}
    for _ in range(rounds.repeats):
        for kind, seats in (("one", 1), ("many", _FLOODERS)):
            for stage, taken in ((small.palaver, palaver), (small.hcom, hcom)):
                command = stage.home.send(SINK, "one of many")
                taken[kind].append(flood_rate(flooders[stage.home.bus][:seats], command, rounds.flood))
        palaver["sdk"].append(rounds.sdk / small.palaver.home.sdk_sends(rounds.sdk, (SINK,)))
    for seats_of in flooders.values():
        for seat in seats_of:
            seat.close()
    return _rate_figures(palaver, hcom, rounds)


def _rate_figures(
    palaver: dict[str, list[float]], hcom: dict[str, list[float]], rounds: Rounds
) -> list[Figure]:
    ours = {kind: statistics.median(values) for kind, values in palaver.items()}
    theirs = {kind: statistics.median(values) for kind, values in hcom.items()}
    best = max(theirs.values())
    n = rounds.flood * rounds.repeats
    at_least_3 = Goal(limit=3, is_at_most=False)
    at_least_50 = Goal(limit=50, is_at_most=False)
    return [
        Figure("sends, 1 process at a time", "/s", n, ours["one"], theirs["one"], at_least_3),
        Figure(f"sends, {_FLOODERS} processes at a time", "/s", n, ours["many"], theirs["many"], at_least_3),
        Figure(
            "sends on one SDK connection, pipelined; hcom: its best rate",
            "/s",
            rounds.sdk * rounds.repeats,
            ours["sdk"],
            best,
            at_least_50,
        ),
    ]


def memory(empty_mb: float, full_mb: float, rounds: Rounds) -> tuple[Amount, Growth]:
    """Return the resident memory of the daemon. hcom has no daemon to compare it with."""
    amount = Amount("resident memory of the daemon, empty", "MB", empty_mb, _DAEMON_LIMIT_MB)
    growth = Growth(
        f"resident memory of the daemon, {rounds.events:,} events", "MB", 1, (empty_mb, full_mb), None, _FLAT
    )
    return amount, growth


def _both(
    small: Pair, big: Pair, act: Act, rounds: Rounds
) -> tuple[tuple[Sample, Sample], tuple[Sample, Sample]]:
    samples = in_turn(
        {
            "palaver small": act(small.palaver),
            "hcom small": act(small.hcom),
            "palaver big": act(big.palaver),
            "hcom big": act(big.hcom),
        },
        rounds.wall,
        rounds.warm_up,
    )
    return (
        (samples["palaver small"], samples["palaver big"]),
        (samples["hcom small"], samples["hcom big"]),
    )


def _figure(name: str, samples: dict[str, Sample], goal: Goal | None, *, p99: bool = False) -> Figure:
    ours, theirs = samples["palaver"], samples["hcom"]
    values = (ours.p99, theirs.p99) if p99 else (ours.median, theirs.median)
    return Figure(name, "ms", ours.n, *values, goal)


def _growth(name: str, palaver: tuple[Sample, Sample], hcom: tuple[Sample, Sample]) -> Growth:
    ours, theirs = ((before.median, after.median) for before, after in (palaver, hcom))
    return Growth(name, "ms", palaver[0].n, ours, theirs, _FLAT)


def _flooders(stage: Stage[Home]) -> list[Seat]:
    return [stage.home.seat(f"flood{number}") for number in range(_FLOODERS)]
