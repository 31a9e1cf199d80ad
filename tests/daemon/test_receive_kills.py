"""A follower is ended two hundred times during twenty thousand events: by SIGKILL, and by SIGTERM."""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.daemon.stage import Home, JsonLine, Result, finish, new_home
from tests.daemon.wires import LinesWire

ENDS = 200
EVENTS = 20_000
AT_ONCE = EVENTS // ENDS
CONSUMER = ("--type", "message", "--consumer", "ci", "--all", "--json")


@pytest.fixture
def home() -> Iterator[Home]:
    """A bus with a consumer that has its first cursor."""
    with new_home() as made:
        made.start_daemon()
        made.pal("events", "--wait", "0.01", *CONSUMER)
        yield made


def shown_with_ends(home: Home, number: signal.Signals) -> list[tuple[Result, list[JsonLine]]]:
    """Send all events and end a follower at a random point in each batch. Return the output of each."""
    chance, shown = random.Random(int(number)), []
    with LinesWire(home.path) as program:
        for turn in range(ENDS):
            follower = home.start("events", "--follow", *CONSUMER)
            for one in range(AT_ONCE):
                program.tell("send", text=str(turn * AT_ONCE + one))
            shown.append(ended_after(follower, number, partial(has_lines, chance.randint(1, AT_ONCE))))
            for _ in range(AT_ONCE):
                assert "ok" in program.next_line()
        program.ask("send", text="the end")
    last = home.start("events", "--follow", *CONSUMER)
    return [*shown, ended_after(last, signal.SIGTERM, lambda seen: b"the end" in seen)]


def ended_after(
    follower: subprocess.Popen[bytes], number: signal.Signals, is_enough: Callable[[bytes], bool]
) -> tuple[Result, list[JsonLine]]:
    """Read until `is_enough`, end the follower, and return its whole output."""
    assert follower.stdout is not None
    seen = b""
    while not is_enough(seen):
        piece = os.read(follower.stdout.fileno(), 1 << 16)
        assert piece, "the follower ended by itself"
        seen += piece
    follower.send_signal(number)
    ended = finish(follower)
    return ended, whole_lines(seen.decode() + ended.out)


def has_lines(count: int, seen: bytes) -> bool:
    return seen.count(b"\n") >= count


def whole_lines(text: str) -> list[JsonLine]:
    """Return the complete lines: the last line of a killed process may be partial."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def counted(shown: list[tuple[Result, list[JsonLine]]]) -> Counter[str]:
    return Counter(line["id"] for _, lines in shown for line in lines)


def test_repeatedly_killed_follower_leaves_no_gap(home: Home) -> None:
    shown = shown_with_ends(home, signal.SIGKILL)

    assert [ended.status for ended, _ in shown[:-1]] == [-signal.SIGKILL] * ENDS
    assert counted(shown).keys() == {event["id"] for event in home.events("--type", "message")}
    assert len(counted(shown)) == EVENTS + 1


def test_follower_ended_by_sigterm_leaves_no_gap_and_no_repeat(home: Home) -> None:
    shown = shown_with_ends(home, signal.SIGTERM)

    assert [ended.status for ended, _ in shown[:-1]] == [0] * ENDS
    for ended, lines in shown[:-1]:
        assert ended.err == f"cursor_event_seq={lines[-1]['seq']}\n"
    assert set(counted(shown).values()) == {1}
    texts = [line["payload"]["text"] for _, lines in shown for line in lines]
    assert texts == [*map(str, range(EVENTS)), "the end"]
