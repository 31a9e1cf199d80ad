"""Many terminal agents with random moods, messages of every priority, and a daemon that is killed.

The suite runs a small herd. `HERD=50,2000,3` in the environment means fifty agents, two thousand messages and
three deaths of the daemon.
"""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.daemon.stage import finish
from tests.holder.herd import HEAD, INLINE_LIMIT, LOOKS, Herd, Scripted, herds, until

AGENTS, MESSAGES, DEATHS = map(int, os.environ.get("HERD", "8,120,1").split(","))
PRIORITIES = ("normal", "normal", "idle", "idle-first", "interrupt")
SENDERS = 4
BACKLOG = 12
"""Messages per agent that may be in transit; beyond that the senders wait."""
LIMIT_S = 60.0 + MESSAGES / 10


@dataclass(frozen=True, slots=True)
class Post:
    """One of the sent messages."""

    number: int
    agent: Scripted
    priority: str
    body: str


@pytest.fixture
def herd(tmp_path: Path) -> Iterator[Herd]:
    with herds(tmp_path) as made:
        yield made


def make_posts(agents: list[Scripted], chance: random.Random) -> list[Post]:
    posts = []
    for number in range(MESSAGES):
        body = f"m{number:05} " + "é" * chance.choice((3, 40, 200, INLINE_LIMIT - 7, INLINE_LIMIT - 6))
        posts.append(Post(number, agents[number % len(agents)], chance.choice(PRIORITIES), body))
    return posts


def send(herd: Herd, post: Post) -> None:
    words = ["send", f"@{post.agent.name}", "--priority", post.priority, "--", post.body]
    sent = finish(herd.home.start(*words), limit_s=LIMIT_S)
    assert sent.status == 0, sent


def until_sent(herd: Herd, count: int) -> None:
    """Wait until `count` messages have arrived, over all agents."""
    until(lambda: count_sent(herd.agents) >= count, limit_s=LIMIT_S)


def count_sent(agents: list[Scripted]) -> int:
    return sum(agent.record.read_bytes().count(b"\nsent ") for agent in agents)


def send_all(herd: Herd, posts: list[Post]) -> None:
    """Send everything from several processes at once, at most `BACKLOG` messages ahead."""

    def send_some(share: list[Post]) -> None:
        for post in share:
            until_sent(herd, post.number - BACKLOG * len(herd.agents))
            send(herd, post)

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send_some, (posts[part::SENDERS] for part in range(SENDERS))))


def kill_now_and_then(herd: Herd) -> None:
    """Kill the daemon after each share of the messages; the next process that needs a daemon starts one."""
    for death in range(1, DEATHS + 1):
        until_sent(herd, MESSAGES * death // (DEATHS + 1))
        herd.home.kill()


def number_of(text: str) -> int:
    """Return the number of the message in a terminal line, which names the file of a long one."""
    body = text.removeprefix(HEAD)
    assert body != text, text
    if body.startswith("Read "):
        body = Path(body.removeprefix("Read ").strip()).read_text()
    return int(body[1:6])


def test_messages_arrive_once_in_order_and_never_in_a_dialog_or_draft(herd: Herd) -> None:
    chance = random.Random(5)
    for number in range(AGENTS):
        herd.start(LOOKS[number % len(LOOKS)])
    agents = herd.agents
    posts = make_posts(agents, chance)
    for number, agent in enumerate(agents):
        agent.order(f"random {number}")
    herd.begin_drafts([agent for agent in agents if agent.look == "framed"])

    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(send_all, herd, posts)
        killing = pool.submit(kill_now_and_then, herd)
        until(lambda: killing.done() and sending.done(), limit_s=LIMIT_S)
        killing.result()
        sending.result()
    for agent in agents:
        agent.calm()
    herd.end_drafts()
    until_sent(herd, MESSAGES)

    for agent in agents:
        mine = [post for post in posts if post.agent is agent]
        came = [number_of(text) for text in agent.sent()]
        assert sorted(came) == [post.number for post in mine], agent.name
        check_texts(herd, agent, mine)
        assert agent.keys("dialog", "starting") == b"", agent.name
        assert agent.drafts_disturbed() == [], agent.name
        if agent.look == "framed":
            assert agent.keys("compacting") == b"", agent.name
        begun = {mood for text, mood in agent.begun() if posts[number_of(text)].priority.startswith("idle")}
        assert begun <= {"idle", "changing"}, agent.name
    check_order(herd, posts)


def check_texts(herd: Herd, agent: Scripted, mine: list[Post]) -> None:
    """Check that every line is exactly one message, and every file exactly its text."""
    bodies = {post.number: post.body for post in mine}
    for text in agent.sent():
        body = bodies[number_of(text)]
        if len(body) <= INLINE_LIMIT:
            assert text == HEAD + body
        else:
            assert Path(text.removeprefix(f"{HEAD}Read ").strip()).read_text() == f"{body}\n"
    assert len(list((herd.home.path / "messages" / agent.name).iterdir())) == len(mine)


def check_order(herd: Herd, posts: list[Post]) -> None:
    """Check the order: oldest first within a priority, but newest first for `idle-first`."""
    positions = places_of(herd, posts)
    free_since = free_before_submission(herd)
    for agent in herd.agents:
        came = [number_of(text) for text in agent.sent()]
        for priority in ("interrupt", "normal", "idle"):
            order = [positions[number] for number in came if posts[number].priority == priority]
            assert order == sorted(order), (agent.name, priority)
        newest = [positions[number] for number in came if posts[number].priority == "idle-first"]
        for at, index in enumerate(newest):
            passed_over = [other for other in newest[at + 1 :] if index < other < free_since[index]]
            assert passed_over == [], (agent.name, index)


def places_of(herd: Herd, posts: list[Post]) -> dict[int, int]:
    """Return the seq of every message."""
    numbers = {post.body: post.number for post in posts}
    found = {}
    for event in herd.home.events("--type", "message"):
        if (number := numbers.get(event["payload"]["text"])) is not None:
            found[number] = event["seq"]
    return found


def free_before_submission(herd: Herd) -> dict[int, int]:
    """Return for each message the seq at which its lane became free: it could choose from earlier ones."""
    free: dict[str, int] = {}
    found: dict[int, int] = {}
    for event in herd.home.events("--type", "delivery"):
        report = event["payload"]
        assert not report.get("unconfirmed"), event
        if report["state"] == "submitted":
            found |= dict.fromkeys(report["messages"], free.get(report["agent"], 0))
        else:
            free[report["agent"]] = event["seq"]
    return found
