"""Path subscriptions, sessions and the cleared list of dead letters in the fold."""

import msgspec
import pytest

from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.protocol.paths import LIMIT_SESSIONS, PathSubscription
from palaver.state import paths
from palaver.state.fold import apply
from palaver.state.paths import (
    count_path_subscriptions,
    has_most_sessions,
    is_subscribed,
    read_agent_session,
    read_agent_sessions,
    read_all_path_subscriptions,
    read_cleared,
    read_path_subscriptions,
    session_of_harness,
    session_used,
)


class Folded:
    """The rows after some events."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self._seq = 0

    def take(self, type: str, **payload: object) -> None:
        self._seq += 1
        event = Event(
            seq=self._seq,
            id=f"id{self._seq}",
            type=type,
            sender="luna",
            to=(),
            ts=self._seq * 10,
            device="BOXE",
            payload=payload,
        )
        self.rows.change(apply(self.rows, event))


@pytest.fixture
def folded() -> Folded:
    return Folded()


def test_subscriptions_are_listed_in_the_order_in_which_they_were_added(folded: Folded) -> None:
    for pattern in ("z/**", "a", "z/**"):
        folded.take("path.subscribed", agent="luna", pattern=pattern)
    folded.take("path.subscribed", agent="luna", session="mon", pattern="b")
    folded.take("path.subscribed", agent="luna_2", pattern="c")

    assert read_path_subscriptions(folded.rows, "luna") == (
        PathSubscription(pattern="z/**", added_at=10),
        PathSubscription(pattern="a", added_at=20),
    )
    assert count_path_subscriptions(folded.rows, "luna") == 3
    assert set(read_all_path_subscriptions(folded.rows)) == {
        ("luna", "z/**"),
        ("luna", "a"),
        ("luna+mon", "b"),
        ("luna_2", "c"),
    }


def test_all_subscriptions_are_read_page_by_page(folded: Folded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_AT_ONCE", 2)
    for number in range(5):
        folded.take("path.subscribed", agent="luna", pattern=f"p/{number}")

    assert len(list(read_all_path_subscriptions(folded.rows))) == 5


def test_removed_subscription_leaves_no_row(folded: Folded) -> None:
    folded.take("path.subscribed", agent="luna", pattern="a/b")
    for _ in range(2):
        folded.take("path.unsubscribed", agent="luna", pattern="a/b")

    assert not is_subscribed(folded.rows, "luna", "a/b")
    assert count_path_subscriptions(folded.rows, "luna") == 0
    assert [folded.rows.scan(table, "") for table in ("path", "path_count")] == [[], []]


def test_every_agent_has_the_session_main(folded: Folded) -> None:
    (found,) = read_agent_sessions(folded.rows, "luna")

    assert msgspec.to_builtins(found) == {
        "id": "main",
        "title": "",
        "isDefault": True,
        "subscriptions": (),
        "createdAt": 0,
        "lastUsedAt": 0,
    }


def test_main_is_as_old_as_its_agent(folded: Folded) -> None:
    folded.take("agent.hello", agent={"name": "luna", "base": "luna"}, runtime="", version="")

    found = read_agent_session(folded.rows, "luna", "main")

    assert found is not None
    assert (found.created_at, found.last_used_at) == (10, 10)


def test_all_sessions_of_an_agent_are_listed_also_above_the_limit(folded: Folded) -> None:
    for session in ("main", *(f"s{number}" for number in range(LIMIT_SESSIONS - 1))):
        folded.take("session.created", agent="luna", session=session)
    assert not has_most_sessions(folded.rows, "luna")

    for session in ("x", "y"):
        folded.take("session.created", agent="luna", session=session)
        assert has_most_sessions(folded.rows, "luna")

    assert len(read_agent_sessions(folded.rows, "luna")) == LIMIT_SESSIONS + 2


def test_subscription_of_a_missing_session_creates_it(folded: Folded) -> None:
    folded.take("path.subscribed", agent="luna", session="mon", pattern="a")
    folded.take("path.subscribed", agent="luna", session="mon", pattern="b")

    found = read_agent_session(folded.rows, "luna", "mon")

    assert found is not None
    assert (found.created_at, found.last_used_at, len(found.subscriptions)) == (10, 20, 2)
    assert [one.id for one in read_agent_sessions(folded.rows, "luna")] == ["main", "mon"]


def test_changed_session_keeps_its_time_and_its_subscriptions(folded: Folded) -> None:
    folded.take("session.created", agent="luna", session="mon", title="Monitor", harness_session="h1")
    folded.take("path.subscribed", agent="luna", session="mon", pattern="a")
    folded.take("session.created", agent="luna", session="mon", title="New", harness_session="h2")

    found = read_agent_session(folded.rows, "luna", "mon")

    assert found is not None
    assert (found.title, found.harness_session, found.created_at) == ("New", "h2", 10)
    assert len(found.subscriptions) == 1
    assert session_of_harness(folded.rows, "luna", "h2") == "mon"
    assert session_of_harness(folded.rows, "luna", "h1") == "main"
    assert session_of_harness(folded.rows, "luna", "") == "main"


def test_removed_session_takes_its_subscriptions_along(folded: Folded) -> None:
    folded.take("path.subscribed", agent="luna", pattern="a")
    folded.take("path.subscribed", agent="luna", session="mon", pattern="b")
    folded.take("session.removed", agent="luna", session="mon")

    assert read_agent_session(folded.rows, "luna", "mon") is None
    assert list(read_all_path_subscriptions(folded.rows)) == [("luna", "a")]
    assert count_path_subscriptions(folded.rows, "luna") == 1


def test_no_row_key_of_a_session_begins_like_the_rows_of_its_agent(folded: Folded) -> None:
    folded.take("session.created", agent="luna", session="mon")
    folded.take("path.subscribed", agent="luna", session="mon", pattern="b")
    folded.take("message", delivered_to=["luna+mon", "luna"], handled={"luna": ["mon"]}, path="b")

    keys = [key for table in ("path", "agent_session", "mail") for key, _ in folded.rows.scan(table, "")]

    assert [key for key in keys if key.startswith("luna/")] == [key for key in keys if "+" not in key]


def test_use_of_a_session_moves_its_time_and_never_back(folded: Folded) -> None:
    folded.take("session.created", agent="luna", session="mon")

    folded.rows.change(session_used(folded.rows, "luna+mon", 99))
    folded.rows.change(session_used(folded.rows, "luna+mon", 5))

    found = read_agent_session(folded.rows, "luna", "mon")
    assert found is not None
    assert found.last_used_at == 99
    assert session_used(folded.rows, "luna", 99) == []


def test_list_of_dead_letters_is_cleared_up_to_the_highest_seq(folded: Folded) -> None:
    assert read_cleared(folded.rows) == 0
    for up_to in (7, 5):
        folded.take("dead.cleared", up_to=up_to)

    assert read_cleared(folded.rows) == 7


def test_migrated_subscription_and_session_keep_their_times(folded: Folded) -> None:
    folded.take("session.created", agent="luna", session="mon", title="Team", created=3, used=4)
    folded.take("path.subscribed", agent="luna", session="mon", pattern="a", added=5)
    folded.take("path.subscribed", agent="luna", pattern="b", added=6)

    session = read_agent_session(folded.rows, "luna", "mon")

    assert session is not None
    assert (session.created_at, session.last_used_at) == (3, 5)
    assert session.subscriptions == (PathSubscription(pattern="a", added_at=5),)
    assert read_path_subscriptions(folded.rows, "luna") == (PathSubscription(pattern="b", added_at=6),)
