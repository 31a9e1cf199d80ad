"""Filters, presets and ids of subscriptions and watches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.envelope import Event
from palaver.protocol.events import Filter
from palaver.protocol.query import Query
from palaver.protocol.subscriptions import (
    COLLISION,
    PRESETS,
    Subscription,
    filter_words,
    format_watch_id,
    is_collision_hit,
    is_hit,
    is_system,
    parse_watch_id,
    preset_filter,
    query_of,
    subscription_id,
)

agents = st.from_regex(r"([a-z][a-z_-]{0,8}-)?[a-z][a-z0-9_]{0,8}(:[A-Z]{4})?", fullmatch=True)


def event(type: str = "status", sender: str = "nova", seq: int = 57, **payload: object) -> Event:
    return Event(seq=seq, id="id", type=type, sender=sender, to=(), ts=0, device="TEST", payload=payload)


def sub(preset: str = "", seq: int = 0, **filters: tuple[str, ...]) -> Subscription:
    return Subscription(id="a1b2c3", owner="luna", filter=Filter(**filters), preset=preset, seq=seq)


@given(agents, st.integers(1, 10**15 - 1))
def test_id_of_a_watch_survives_formatting_and_parsing(agent: str, request: int) -> None:
    assert parse_watch_id(format_watch_id(agent, request)) == (agent, request)


@pytest.mark.parametrize(
    "text", ["", "a1b2c3", "w42", "w42-", "w-nova", "w0-nova", "w042-nova", "w4x-nova", "x1-a"]
)
def test_other_id_is_not_a_watch(text: str) -> None:
    assert parse_watch_id(text) is None


def test_subscription_id_is_the_end_of_its_ulid() -> None:
    assert subscription_id("01ARZ3NDEKTSV4RRFFQ69G5FAV") == "9g5fav"


@pytest.mark.parametrize(
    ("preset", "hit", "miss"),
    [
        ("idle", event(state="idle"), event(state="active")),
        ("blocked", event(state="blocked"), event(state="idle")),
        ("stopped", event("agent.bye"), event(state="exited")),
    ],
)
def test_preset_finds_the_state_it_is_named_after(preset: str, hit: Event, miss: Event) -> None:
    wanted = Subscription(id="a1b2c3", owner="luna", filter=preset_filter(preset, ["nova"]), preset=preset)

    assert is_hit(wanted, hit)
    assert not is_hit(wanted, miss)


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(BadRequest, match=", ".join(PRESETS)):
        preset_filter("busy")


def test_filter_and_its_query_contain_the_same_words() -> None:
    names = Filter.__struct_fields__
    wanted = Filter(**{name: (name,) for name in names})

    query = query_of(wanted, 7)

    assert filter_words(wanted) == list(names)
    assert query == Query(**{name: (name,) for name in names}, after=7)  # type: ignore[arg-type]  # the same fields


def test_hit_is_newer_than_its_subscription() -> None:
    assert is_hit(sub(seq=56, types=("status",)), event(seq=57))
    assert not is_hit(sub(seq=57, types=("status",)), event(seq=57))


def test_event_of_a_system_sender_is_not_a_hit() -> None:
    written = event(sender="[pal-events]")

    assert is_system(written)
    assert not is_system(event())
    assert not is_hit(sub(types=("status",)), written)


def test_message_held_by_a_brake_is_not_a_hit_but_a_foreign_held_field_is() -> None:
    wanted = sub(senders=("nova",))

    assert is_hit(wanted, event("message", text="x"))
    assert not is_hit(wanted, event("message", text="x", held="60 a minute"))
    assert is_hit(wanted, event("lock", held="main"))


@pytest.mark.parametrize(
    ("action", "wanted", "is_told"),
    [
        ("started", sub(agents=("nova",)), False),
        ("stopped", sub(agents=("nova",)), False),
        ("stopped", sub(types=("life",)), True),
        ("ready", sub(agents=("nova",)), True),
    ],
)
def test_echo_of_hello_or_bye_is_a_hit_only_by_its_type(
    action: str, wanted: Subscription, is_told: bool
) -> None:
    assert is_hit(wanted, event("life", action=action)) is is_told


@pytest.mark.parametrize(
    ("wanted", "is_told"),
    [
        (sub(types=("status",)), False),
        (sub(agents=("@Luna",)), True),
        (sub(senders=("luna",)), True),
        (sub(agents=("nova",)), False),
    ],
)
def test_owner_is_notified_of_itself_only_by_name(wanted: Subscription, is_told: bool) -> None:
    assert is_hit(wanted, event(sender="luna")) is is_told


def test_collision_is_a_hit_when_any_of_its_edits_passes_the_filter() -> None:
    edits = (event(sender="luna", seq=9, file="x"), event(sender="nova", seq=8, file="x"))

    assert is_collision_hit(sub(COLLISION, seq=8), edits)
    assert is_collision_hit(sub(COLLISION, agents=("nova",)), edits)
    assert not is_collision_hit(sub(COLLISION, agents=("kira",)), edits)
    assert not is_collision_hit(sub(COLLISION, seq=9), edits)
    assert not is_collision_hit(sub(types=("status",)), edits)
    assert not is_hit(sub(COLLISION), edits[0])
    assert preset_filter(COLLISION) == Filter(types=("status",))
