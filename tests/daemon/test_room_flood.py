"""A thousand events and more a second into one room, and twenty who follow: nothing lost, nothing twice."""

from tests.daemon.crew import Crew
from tests.daemon.flood import flood
from tests.daemon.stage import Home

EVENTS = 3000


async def test_twenty_followers_are_given_everything_once_and_in_order(bus: Home) -> None:
    folder = Crew(bus).folder

    sent, seen, _ = await flood(bus.client, bus.path, folder, count=EVENTS, commands=8, lines=6, waits=6)

    assert len(sent) == EVENTS + 1
    assert len(seen) == 20
    for follower in seen:
        assert follower.places == sent
