"""Every notice is sent exactly once, whenever the daemon restarts."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import HUMAN, open_memory
from tests.reactors.conftest import Watched, watched_bus

from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.requests import Send
from palaver.protocol.subscriptions import IDLE
from palaver.state.watches import read_subscriptions

steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["@nova", "@kira", "@all"])),
        st.tuples(
            st.sampled_from(["see", "idle", "active", "leave", "join"]), st.sampled_from(["nova", "kira"])
        ),
        st.tuples(st.just("reply"), st.sampled_from(["nova", "kira"])),
        st.tuples(st.just("restart"), st.sampled_from(["", "a", "ab", "abcd"])),
    ),
    max_size=25,
)


async def take(watched: Watched, luna: Caller, agents: dict[str, Caller], verb: str, word: str) -> None:
    """Take one step; a restart waits one loop iteration per character of its word."""
    bus = watched.bus
    if verb == "ask":
        await watched.ask(luna, word)
    elif verb == "restart":
        for _ in word:
            await asyncio.sleep(0)
        watched.watches.close()
        watched.start()
    elif verb == "see":
        await bus.ack(agents[word], *(event.seq for event in await watched.events("message")))
    elif verb in ("idle", "active"):
        await watched.status(agents[word], verb)
    elif verb == "leave" and not bus.agent(word).left:
        await watched.leave(agents[word])
    elif verb == "join" and bus.agent(word).left:
        await bus.join(word)
    elif verb == "reply":
        messages = await watched.events("message")
        asked = [event for event in messages if event.payload.get("intent") == "request"]
        for request in asked[-1:]:
            await bus.broker.submit(agents[word], Send(text="yes", reply_to=str(request.seq)))


def owed(events: list[Event]) -> dict[tuple[str, int], bool]:
    """Return for each due watch whether its sender must be notified, because there is no answer yet."""
    is_open: dict[tuple[str, int], bool] = {}
    due: dict[tuple[str, int], bool] = {}
    left: set[str] = set()
    for event in events:
        left = left | {event.sender} if event.type == "agent.bye" else left
        left = left - {event.sender} if event.type == "agent.hello" else left
        names = event.payload.get("delivered_to", ())
        if event.payload.get("intent") == "request" and isinstance(names, list):
            is_open |= {(name, event.seq): False for name in names}
            due |= {(name, event.seq): True for name in names if name in left}
        if (sent_seq := event.payload.get("reply_to")) is not None:
            is_open.pop((event.sender, int(str(sent_seq))), None)
            if (event.sender, int(str(sent_seq))) in due:
                due[event.sender, int(str(sent_seq))] = False
        if event.type == "delivery":
            seqs = event.payload["messages"]
            assert isinstance(seqs, list)
            is_open |= {(event.sender, seq): True for seq in seqs if (event.sender, seq) in is_open}
        for (name, seq), is_seen in is_open.items():
            goes_idle = event.type == "status" and event.payload["state"] == "idle" and is_seen
            if name == event.sender and (goes_idle or event.type == "agent.bye"):
                due.setdefault((name, seq), True)
    return due


@given(steps)
def test_notices_are_sent_exactly_once_despite_restarts(day: list[tuple[str, str]]) -> None:
    async def live() -> None:
        async with watched_bus(open_memory, None) as watched:  # type: ignore[arg-type]  # kept in memory
            luna = await watched.bus.join("luna")
            agents = {name: await watched.bus.join(name) for name in ("nova", "kira")}
            states = await watched.subscribe(luna, agents=("nova",), types=("status", "agent.bye"))
            once = await watched.subscribe(
                HUMAN, agents=("nova",), statuses=("idle",), preset=IDLE, once=True
            )
            for verb, word in day:
                await take(watched, luna, agents, verb, word)
            await watched.settled()

            events = await watched.events()
            notices = [event for event in events if event.sender == "[pal-events]"]
            fired = [event.payload["watch"] for event in notices if "watch" in event.payload]
            due = owed(events)
            for (agent, request), must in due.items():
                assert int(must) <= fired.count({"agent": agent, "request": request}) <= 1
            assert all((watch["agent"], watch["request"]) in due for watch in fired)  # type: ignore[index]  # as written
            hits = [event.payload["event"] for event in notices if event.payload.get("sub") == states.id]
            found = [e.seq for e in events if e.type in ("status", "agent.bye") and e.sender == "nova"]
            assert sorted(map(str, hits)) == sorted(map(str, found))
            idle = [e.seq for e in events if e.sender == "nova" and e.payload.get("state") == "idle"]
            hits = [event.payload["event"] for event in notices if event.payload.get("sub") == once.id]
            assert hits == idle[:1]
            removed = [event for event in events if event.type == "sub.removed"]
            assert len(removed) == len(hits)
            assert [one.id for one in read_subscriptions(watched.bus.log.rows) if one.spent] == []

    asyncio.run(live())
