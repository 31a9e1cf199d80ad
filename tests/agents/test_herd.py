"""Many terminal agents whose moods change at random, mail of every priority, and a daemon that is killed.

The small one is part of the suite. `HERD=50,2000,3` in the environment makes it fifty agents, two thousand
messages and three deaths of the daemon.
"""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.agents.herd import HEAD, INLINE_LIMIT, LOOKS, Herd, Scripted, herds, until
from tests.daemon.stage import finish

AGENTS, MESSAGES, DEATHS = map(int, os.environ.get("HERD", "8,120,1").split(","))
PRIORITIES = ("normal", "normal", "idle", "idle-first", "interrupt")
SENDERS = 4
BACKLOG = 12
"""Messages for each agent that may be under way; then the senders wait."""
LIMIT_S = 60.0 + MESSAGES / 10


@dataclass(frozen=True, slots=True)
class Post:
    """One message of the many."""

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
    """Wait until so many messages came to all of them together."""
    until(lambda: count_sent(herd.agents) >= count, limit_s=LIMIT_S)


def count_sent(agents: list[Scripted]) -> int:
    return sum(agent.record.read_bytes().count(b"\nsent ") for agent in agents)


def send_all(herd: Herd, posts: list[Post]) -> None:
    """Send everything, from several processes at once, and never too far ahead."""

    def send_some(share: list[Post]) -> None:
        for post in share:
            until_sent(herd, post.number - BACKLOG * len(herd.agents))
            send(herd, post)

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send_some, (posts[part::SENDERS] for part in range(SENDERS))))


def kill_now_and_then(herd: Herd) -> None:
    """Kill the daemon when a part of the mail has come, and again; whoever needs one starts it anew."""
    for death in range(1, DEATHS + 1):
        until_sent(herd, MESSAGES * death // (DEATHS + 1))
        herd.home.kill()


def number_of(text: str) -> int:
    """Which message a line in a terminal is; a long one lies in the file that it names."""
    body = text.removeprefix(HEAD)
    assert body != text, text
    if body.startswith("Read "):
        body = Path(body.removeprefix("Read ").strip()).read_text()
    return int(body[1:6])


def test_every_message_comes_once_and_in_order_and_never_into_a_dialog_or_a_draft(herd: Herd) -> None:
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
    """Every line was exactly one message, and every file is exactly its text."""
    bodies = {post.number: post.body for post in mine}
    for text in agent.sent():
        body = bodies[number_of(text)]
        if len(body) <= INLINE_LIMIT:
            assert text == HEAD + body
        else:
            assert Path(text.removeprefix(f"{HEAD}Read ").strip()).read_text() == f"{body}\n"
    assert len(list((herd.home.path / "messages" / agent.name).iterdir())) == len(mine)


def check_order(herd: Herd, posts: list[Post]) -> None:
    """Within a priority the first goes first; of those that are idle first, the newest that was there."""
    places = places_of(herd, posts)
    free_since = free_before_submission(herd)
    for agent in herd.agents:
        came = [number_of(text) for text in agent.sent()]
        for priority in ("interrupt", "normal", "idle"):
            order = [places[number] for number in came if posts[number].priority == priority]
            assert order == sorted(order), (agent.name, priority)
        newest = [places[number] for number in came if posts[number].priority == "idle-first"]
        for at, place in enumerate(newest):
            passed_over = [other for other in newest[at + 1 :] if place < other < free_since[place]]
            assert passed_over == [], (agent.name, place)


def places_of(herd: Herd, posts: list[Post]) -> dict[int, int]:
    """The place of every message in the log."""
    numbers = {post.body: post.number for post in posts}
    found = {}
    for event in herd.home.events("--type", "message"):
        if (number := numbers.get(event["payload"]["text"])) is not None:
            found[number] = event["seq"]
    return found


def free_before_submission(herd: Herd) -> dict[int, int]:
    """When the lane became free that then took a message: what was there by then was there to be chosen."""
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
