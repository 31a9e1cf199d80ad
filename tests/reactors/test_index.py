"""The index finds the same subscriptions as a full scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.protocol.envelope import Event
from palaver.protocol.events import Filter
from palaver.protocol.subscriptions import COLLISION, Subscription, is_hit
from palaver.reactors.subscriptions import SubscriptionIndex

names = st.sampled_from(["luna", "nova", "@Nova", "api-kira", "human", ""])
types = st.sampled_from(["message", "message_sent", "status", "agent.bye", "life", "build", ""])
states = st.sampled_from(["idle", "listening", "blocked", "exited", "inactive"])
words = st.sampled_from(["a", "b", "request", "src/x.py"])


def some(word: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.one_of(st.just(()), st.lists(word, min_size=1, max_size=2).map(tuple))


filters = st.builds(
    Filter,
    types=some(types),
    agents=some(names),
    senders=some(names),
    to=some(names),
    mentions=some(names),
    targets=some(names),
    threads=some(words),
    rooms=some(words),
    intents=some(words),
    files=some(st.one_of(words, st.sampled_from(["src/*", "*.py", "?", "[ab]", "["]))),
    tools=some(words),
    replies_to=some(words),
    participants=some(names),
    statuses=some(states),
)
# Most combined filters match nothing; filters with one or two fields do match.
single = st.sampled_from(Filter.__struct_fields__[1:]).flatmap(
    lambda field: filters.map(lambda made: Filter(types=made.types, **{field: getattr(made, field)}))
)
odd = st.one_of(st.none(), st.integers(), st.lists(st.one_of(names, st.integers()), max_size=3), words)
payloads = st.fixed_dictionaries(
    {},
    optional={
        "agent": st.one_of(names, odd),
        "to": st.one_of(names, odd),
        "delivered_to": st.one_of(st.lists(names, max_size=3), odd),
        "mentions": st.one_of(st.lists(names, max_size=3), odd),
        "thread": odd,
        "room": odd,
        "intent": odd,
        "file": odd,
        "tool": odd,
        "reply_to": odd,
        "state": st.one_of(states, odd),
        "held": st.sampled_from(["too often", ""]),
        "action": st.just("stopped"),
    },
)
events = st.builds(
    Event,
    seq=st.integers(1, 20),
    id=st.just("id"),
    type=types,
    sender=names,
    to=some(names),
    ts=st.just(0),
    device=st.just("TEST"),
    payload=payloads,
    delivered_to=some(names),
)


def made(number: int, wanted: Filter, preset: str = "") -> Subscription:
    owner = ("luna", "nova")[number % 2]
    return Subscription(id=f"s{number}", owner=owner, filter=wanted, preset=preset, seq=number)


@given(
    st.lists(st.one_of(filters, single), max_size=12),
    st.lists(events, max_size=8),
    st.sets(st.integers(0, 11)),
)
def test_index_finds_the_same_subscriptions_as_a_full_scan(
    wanted: list[Filter], happened: list[Event], gone: set[int]
) -> None:
    index = SubscriptionIndex()
    everyone = [made(number, one) for number, one in enumerate(wanted)]
    for subscription in everyone:
        index.put(subscription)
    for number in gone:
        index.drop(f"s{number}")

    left = [one for one in everyone if one.seq not in gone]

    assert len(index) == len(left)
    for event in happened:
        assert index.hits(event) == [one for one in left if is_hit(one, event)]


def test_alias_of_the_message_type_is_not_an_event_type() -> None:
    index = SubscriptionIndex()
    asked = made(0, Filter(types=("message_sent", "")))
    index.put(asked)
    called = replace(message(), type="message_sent")

    assert (index.hits(message()), index.hits(called)) == ([asked], [])
    assert (is_hit(asked, message()), is_hit(asked, called)) == (True, False)


@given(st.lists(filters, max_size=6))
def test_index_is_empty_after_all_subscriptions_are_dropped(wanted: list[Filter]) -> None:
    index = SubscriptionIndex()
    for number, one in enumerate(wanted):
        index.put(made(number, one))

    for number in range(len(wanted)):
        index.drop(f"s{number}")

    assert vars(index) == vars(SubscriptionIndex())


def message(**payload: object) -> Event:
    fields = {"thread": "pr-7", "intent": "request", "delivered_to": ["nova"], "state": "idle"}
    return Event(
        seq=5000, id="id", type="message", sender="kira", to=(), ts=0, device="TEST", payload=fields | payload
    )


@pytest.mark.parametrize("field", Filter.__struct_fields__)
def test_matching_one_of_a_thousand_similar_subscriptions_is_found(field: str) -> None:
    alike = Filter(types=("message",), agents=("nova",), threads=("pr-7",), intents=("request",))
    index = SubscriptionIndex()
    for number in range(1000):
        index.put(made(number, replace(alike, **{field: (f"word{number}",)})))

    index.put(made(1000, alike))

    assert [one.id for one in index.hits(message())] == ["s1000"]


def test_equal_filters_in_different_forms_are_separate_subscriptions() -> None:
    index = SubscriptionIndex()
    index.put(made(1, Filter(types=("message",), agents=("nova", "@Luna"))))
    index.put(made(2, Filter(types=("message_sent",), agents=("luna", "nova"))))

    index.drop("s1")

    assert [one.id for one in index.hits(message())] == ["s2"]


def test_subscription_put_again_replaces_the_first() -> None:
    index = SubscriptionIndex()
    index.put(made(1, Filter(types=("build",))))

    for _ in range(2):
        index.put(made(1, Filter(types=("status",))))

    assert len(index) == 1
    build = Event(seq=2, id="id", type="build", sender="ci", to=(), ts=0, device="TEST", payload={})
    assert index.hits(build) == []


def test_collision_subscriptions_are_kept_apart() -> None:
    index = SubscriptionIndex()
    late, early = made(2, Filter(types=("status",)), COLLISION), made(1, Filter(types=("status",)), COLLISION)
    index.put(late)
    index.put(early)
    status = Event(seq=3, id="id", type="status", sender="nova", to=(), ts=0, device="TEST", payload={})

    assert index.collisions() == [early, late]
    assert index.hits(status) == []

    index.drop(late.id)

    assert index.collisions() == [early]
