"""More than a thousand events a second in one room, with twenty followers: nothing lost, nothing twice."""

from tests.daemon.crew import Crew
from tests.daemon.flood import flood
from tests.daemon.stage import Home

EVENTS = 3000


async def test_twenty_followers_receive_every_event_once_and_in_order(bus: Home) -> None:
    folder = Crew(bus).folder

    sent, seen, _ = await flood(bus.client, bus.path, folder, count=EVENTS, commands=8, lines=6, waits=6)

    assert len(sent) == EVENTS + 1
    assert len(seen) == 20
    for follower in seen:
        assert follower.places == sent
