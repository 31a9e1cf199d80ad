"""A snapshot of member presence: taken once, and constant afterwards."""

from tests.fakes import FakeMemberPresence

from palaver.domain.stick import Sight, Unattended, take_facts

ROOM = "repo-abcd"


def test_snapshot_contains_everything_known_of_a_member() -> None:
    kept = FakeMemberPresence({"ann"})
    kept.started_ms = 5
    kept.gone["ann"], kept.seen["ann"], kept.idle["ann"] = 1, 2, 3
    kept.active.add("ann")
    kept.tokens["ann"] = 7
    kept.beats[ROOM, "ann"], kept.waits[ROOM, "ann"] = 4, 6
    kept.waiting.add((ROOM, "ann"))
    kept.parked.add((ROOM, "ann"))

    facts = take_facts(kept, 9, ROOM, ["ann", "bob"])

    assert (facts.now_ms, facts.started_ms) == (9, 5)
    assert facts.of("bob") == Sight()
    assert facts.of("ann") == Sight(
        is_present=True,
        is_active=True,
        gone_since_ms=1,
        token_ms=7,
        seen_ms=2,
        idle_since_ms=3,
        beat_ms=4,
        last_wait_ms=6,
        is_waiting=True,
        is_parked=True,
    )


def test_snapshot_does_not_change_when_a_member_leaves() -> None:
    present = {"ann"}
    facts = take_facts(FakeMemberPresence(present), 9, ROOM, ["ann"])

    present.clear()

    assert facts.of("ann").is_present


def test_name_outside_the_snapshot_is_away() -> None:
    facts = take_facts(FakeMemberPresence({"ann"}), 9, ROOM, [])

    assert facts.of("ann") == Sight()


def test_without_a_source_members_are_present_or_not_and_never_wait() -> None:
    nothing = Unattended({"ann"}.__contains__)

    facts = take_facts(nothing, 9, ROOM, ["ann", "bob"])

    assert facts.sights == {"ann": Sight(is_present=True), "bob": Sight()}
    assert not nothing.may_know("ann", 1)
