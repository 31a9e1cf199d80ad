"""The Log screen of the real program while the daemon is killed under load: no gap and no repeat."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from tests.app.ui.terminals import ScreenPerson
from tests.daemon.stage import Home, new_home

import palaver

KILLS = 20
_ROW = re.compile(r"[> ] #(\d+) ")


@pytest.fixture
def bus() -> Iterator[Home]:
    with new_home() as home:
        home.start_daemon()
        yield home


@pytest.fixture
def person(bus: Home) -> Iterator[ScreenPerson]:
    """A person at the screen Log of a terminal that is higher than the events between two kills."""
    opened = ScreenPerson(bus, cols=100, rows=200)
    opened.run("pal ui")
    opened.sees("bus up")
    opened.press(b"5")
    opened.sees("[5 Log]", "daemon_started")
    yield opened
    opened.close()


def seqs_on(person: ScreenPerson) -> list[int]:
    return [int(found[1]) for line in person.lines if (found := _ROW.match(line)) is not None]


async def test_log_screen_has_no_gap_and_no_repeat_while_the_daemon_is_killed(
    bus: Home, person: ScreenPerson
) -> None:
    known = seqs_on(person)[-1]

    async with palaver.connect("luna", home=bus.path) as luna:
        for number in range(KILLS):
            sending = [asyncio.create_task(luna.send("@luna", f"text {number}-{step}")) for step in range(20)]
            await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(bus.kill)
            sent = [(await one).seq for one in sending]
            sent.append((await luna.send("@luna", f"end of {number}")).seq)

            def is_complete(wanted: list[int] = sent, before: int = known) -> bool:
                seqs = seqs_on(person)
                is_whole = bool(seqs) and seqs == list(range(seqs[0], seqs[-1] + 1)) and seqs[0] <= before + 1
                return is_whole and set(wanted) <= set(seqs) and "bus up" in person.text

            await asyncio.to_thread(
                person.sees_that, is_complete, f"every event from #{known} to #{max(sent)}, once"
            )
            known = seqs_on(person)[-1]

    starts = [event for event in bus.events("--type", "life") if "daemon_started" in str(event)]
    assert len(starts) == KILLS + 1
