"""The store of the dashboard: snapshots, changes, and lists that are kept in order."""

import random

from msgspec.structs import replace
from tests.app.ui.fake_link import agent, entry, snapshot

from palaver.app.ui.store import SORTS, AgentOrder, SortedKeys, Store
from palaver.client.view_link import BusAway
from palaver.protocol.views import AgentsPage, Changes, ConversationRow, Counts


def filled(*names: str) -> Store:
    store = Store()
    store.apply(snapshot(*map(agent, names)))
    return store


def test_sorted_keys_equal_a_sorted_list_after_random_changes() -> None:
    chance = random.Random(1)
    keys, expected = SortedKeys(), dict[str, int]()

    for _ in range(2000):
        key = f"k{chance.randrange(60)}"
        if chance.random() < 0.3:
            keys.drop(key)
            expected.pop(key, None)
        else:
            expected[key] = chance.randrange(9)
            keys.put(key, (expected[key],))

    ordered = sorted(expected, key=lambda key: (expected[key], key))
    assert list(keys) == ordered
    assert [keys.find(key) for key in ordered] == list(range(len(ordered)))
    assert keys.find("missing") == -1


def test_agent_list_after_random_changes_equals_a_list_built_anew() -> None:
    chance = random.Random(2)
    store = Store()
    store.apply(snapshot(*(agent(f"a{number}") for number in range(30))))
    store.agent_list.arrange(sort="state")
    store.agent_list.fold("a1")

    for seq in range(11, 800):
        number = chance.randrange(40)
        row = agent(f"a{number}", chance.choice(["idle", "active", "blocked"]), seq=seq)
        row = replace(row, parent=f"a{number % 3}" if number > 20 else "", has_left=chance.random() < 0.2)
        store.apply(Changes(after=seq - 1, seq=seq, agents=(row,)))

    fresh = AgentOrder(store.agents)
    fresh.fold("a1")
    fresh.arrange(sort="state")
    assert store.agent_list.names() == fresh.names()


def test_every_sort_orders_all_agents() -> None:
    store = filled("luna", "nova", "kai")

    for sort in SORTS:
        store.agent_list.arrange(sort=sort)

        assert sorted(store.agent_list.names()) == ["kai", "luna", "nova"]


def test_sub_agents_are_folded_until_asked_for() -> None:
    store = Store()
    store.apply(snapshot(agent("luna"), agent("luna_reviewer_1", parent="luna"), agent("nova")))

    folded = store.agent_list.names()
    store.agent_list.fold("luna")

    assert folded == ["luna", "nova"]
    assert store.agent_list.names() == ["luna", "luna_reviewer_1", "nova"]
    assert store.agent_list.depth("luna_reviewer_1") == 1


def test_filter_finds_folded_sub_agents_and_keeps_working_for_new_rows() -> None:
    store = Store()
    store.apply(snapshot(agent("luna"), agent("luna_reviewer_1", parent="luna"), agent("nova")))

    store.agent_list.arrange(words="REVIEW")
    store.apply(Changes(after=10, seq=11, agents=(agent("reviewer", seq=11), agent("kai", seq=11))))

    assert store.agent_list.names() == ["luna_reviewer_1", "reviewer"]


def test_parents_in_a_circle_do_no_harm() -> None:
    store = Store()

    store.apply(snapshot(agent("luna", parent="nova"), agent("nova", parent="luna"), agent("kai")))
    store.agent_list.fold_all()
    store.apply(Changes(after=10, seq=11, agents=(agent("luna", "active", seq=11, parent="nova"),)))

    assert "kai" in store.agent_list.names()


def test_older_row_never_replaces_a_newer_one() -> None:
    store = filled("luna")

    store.apply(Changes(after=10, seq=12, agents=(agent("luna", "active", seq=12),)))
    store.add_agents(AgentsPage(seq=11, total=1, rows=(agent("luna", "idle", seq=11),)))

    assert store.agents["luna"].state == "active"


def test_pages_complete_a_snapshot_and_remove_what_is_no_more() -> None:
    store = filled("luna", "nova", "old")

    store.apply(snapshot(agent("luna"), total=2, seq=20))
    before = sorted(store.agents)
    store.add_agents(AgentsPage(seq=20, total=2, rows=(agent("nova"),)))

    assert before == ["luna", "nova", "old"]
    assert sorted(store.agents) == ["luna", "nova"]
    assert store.agent_list.names() == ["luna", "nova"]


def test_attention_is_ordered_by_age_and_settled_entries_go() -> None:
    store = Store()
    store.apply(snapshot(attention=[entry("held/7", since=5), entry("request/3", since=2)]))

    store.apply(Changes(after=10, seq=11, attention=(entry("permission/ab", since=3),), settled=("held/7",)))

    assert list(store.attention_list) == ["request/3", "permission/ab"]
    assert sorted(store.attention) == ["permission/ab", "request/3"]


def test_conversations_are_ordered_newest_first() -> None:
    store = filled()
    for key, seq in (("#a", 1), ("#b", 2), ("#a", 3)):
        row = ConversationRow(key=key, kind="room", title=key, seq=seq, ts=0)
        store.apply(Changes(after=10, seq=10 + seq, talks=(row,)))

    assert list(store.talk_list) == ["#a", "#b"]


def test_rows_stay_while_the_bus_is_away() -> None:
    store = filled("luna")

    store.apply(BusAway())

    assert store.is_away
    assert store.agent_list.names() == ["luna"]
    assert store.bus_text == "bus away"


def test_top_line_says_that_the_bus_starts_or_upgrades_its_log() -> None:
    new, known = Store(), filled("luna")

    known.apply(BusAway(upgraded=40))

    assert (new.bus_text, known.bus_text) == ("bus starting", "bus upgrading 40 %")


def test_counts_come_from_the_newest_record() -> None:
    store = filled("luna")

    store.apply(Changes(after=10, seq=11, counts=Counts(agents={"active": 1}, attention=4)))

    assert store.counts.attention == 4
    assert store.seq == 11


def test_bus_without_agents_is_empty() -> None:
    assert filled().is_empty
    assert not filled("luna").is_empty
    assert not Store().is_empty
