"""Creating and ending subscriptions and the rights for it; on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, caller

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import BadRequest, BadText, MessageTooLarge, NotAllowed, NotFound, NotPerson, WhoAreYou
from palaver.ids import decode_ulid, encode_ulid
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import Filter
from palaver.protocol.query import Query
from palaver.protocol.requests import Leave, SetStatus
from palaver.protocol.subscriptions import (
    COLLISION,
    LIMIT_FILTER_WORDS,
    LIMIT_SAY_BYTES,
    FireSubscription,
    FireWatch,
    Retire,
    Subscribe,
    Subscription,
    Unsubscribe,
    subscription_id,
)
from palaver.state.watches import read_subscription, read_subscriptions, read_watches

STATUS = Filter(types=("status",))


async def subscribe(bus: Bus, asking: Caller, **fields: object) -> Subscription:
    made = await bus.submit(asking, Subscribe(**{"filter": STATUS, **fields}))  # type: ignore[arg-type]  # its fields
    assert made is not None
    found = read_subscription(bus.log.rows, str(made.payload["id"]))
    assert found is not None
    return found


def hit(made: Subscription, event: Event, **fields: object) -> FireSubscription:
    return FireSubscription(
        id=made.id,
        made=made.seq,
        event=event.seq,
        cause=event.id,
        text="x",
        **fields,  # type: ignore[arg-type]  # its fields
    )


async def test_subscription_belongs_to_its_caller_and_has_a_short_id(bus: Bus) -> None:
    luna = await bus.join("luna")

    event = await bus.submit(luna, Subscribe(filter=STATUS, once=True, text="look"))

    assert event is not None
    assert event.payload == {
        "id": event.id[-6:].lower(),
        "owner": "luna",
        "filter": {"types": ["status"]},
        "once": True,
        "text": "look",
    }
    assert (event.type, event.sender) == ("sub.added", "luna")


async def test_same_request_key_creates_one_subscription(bus: Bus) -> None:
    luna = await bus.join("luna")

    made = [await bus.submit(luna, Subscribe(filter=STATUS), key=b"k" * 16) for _ in range(2)]

    assert made[0] == made[1]
    assert len(list(read_subscriptions(bus.log.rows))) == 1


async def test_short_id_in_use_is_skipped(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = await bus.submit(luna, Subscribe(filter=STATUS))
    assert first is not None
    following = encode_ulid(decode_ulid(first.id) + 1)
    taken: dict[str, object] = {"id": subscription_id(following), "owner": "nova", "filter": {}}
    draft = Draft(type="sub.added", sender="nova", payload=taken, id="other", ts=0)
    await bus.log.commit(None, lambda rows: draft)

    second = await bus.submit(luna, Subscribe(filter=STATUS, once=True))

    assert second is not None
    assert second.id > following
    assert len({one.id for one in read_subscriptions(bus.log.rows)}) == 3


async def test_same_subscription_twice_is_one(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = await subscribe(bus, luna, text="look")

    again = await subscribe(bus, luna, text="look")
    by_person = await subscribe(bus, HUMAN, owner="luna", text="look")
    others = [await subscribe(bus, luna, text="other"), await subscribe(bus, HUMAN, text="look")]

    assert again == by_person == first
    assert len({first.id, *(one.id for one in others)}) == 3


async def test_order_of_the_values_makes_no_other_subscription(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = await subscribe(bus, luna, filter=Filter(types=("message", "status"), agents=("nova",)))

    again = await subscribe(bus, luna, filter=Filter(types=("status", "message"), agents=("nova",)))
    other = await subscribe(bus, luna, filter=Filter(types=("status", "message"), agents=("kira",)))

    assert again == first
    assert other.id != first.id


async def test_ended_subscription_can_be_made_again(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = await subscribe(bus, luna)
    await bus.submit(luna, Unsubscribe(id=first.id))

    again = await subscribe(bus, luna)

    assert again.seq > first.seq


async def test_text_of_a_subscription_is_sent_once_in_its_owners_name(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    made = await subscribe(bus, luna, send="@nova go on")
    cause = await bus.send(HUMAN, "x", "@luna")

    notices = [await bus.submit(SYSTEM_CALLER, hit(made, cause)) for _ in range(2)]

    (sent,) = await bus.log.read(Query(senders=("luna",), types=("message",)))
    assert (sent.to, sent.payload["text"], sent.by) == (("@nova",), "@nova go on", "[pal-events]")
    assert [one and one.payload["text"] for one in notices] == [f"x; sent #{sent.seq} to nova"] * 2


async def test_once_subscription_sends_its_text_for_one_event_only(bus: Bus) -> None:
    await bus.join("nova")
    made = await subscribe(bus, HUMAN, send="@nova go on", once=True)
    causes = [await bus.send(HUMAN, f"x{number}", "@nova") for number in range(2)]

    for cause in causes:
        await bus.submit(SYSTEM_CALLER, hit(made, cause))

    assert bus.texts("nova") == ["x0", "x1", "@nova go on"]


async def test_refused_text_of_a_subscription_is_reported_to_its_owner(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await subscribe(bus, luna, send="@nobody go on")
    cause = await bus.send(HUMAN, "x", "@luna")

    notice = await bus.submit(SYSTEM_CALLER, hit(made, cause))

    assert notice is not None
    assert "its text was not delivered: " in str(notice.payload["text"])


async def test_text_without_a_mention_is_not_sent_to_others(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await subscribe(bus, luna, send="go on")

    await bus.submit(SYSTEM_CALLER, hit(made, await bus.send(HUMAN, "x", "@luna")))

    assert await bus.log.read(Query(senders=("luna",), types=("message",))) == []


async def test_human_subscribes_for_any_agent(bus: Bus) -> None:
    await bus.join("luna")

    made = [await subscribe(bus, HUMAN, owner=name) for name in ("@Luna", "human")]

    assert [(one.owner, one.by) for one in made] == [("luna", "human"), ("human", "")]


async def test_agent_subscribes_only_for_itself_and_its_children(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.join("luna_reviewer", by=luna, has_link=True)

    child = await subscribe(bus, luna, owner="luna_reviewer")
    own = await subscribe(bus, luna, owner="luna")

    assert (child.owner, child.by, own.by) == ("luna_reviewer", "luna", "")
    for asking, owner in ((luna, "nova"), (nova, "luna_reviewer"), (luna, "human")):
        with pytest.raises(NotPerson):
            await subscribe(bus, asking, owner=owner)


async def test_script_subscribes_for_a_named_worker_and_never_for_itself(bus: Bus) -> None:
    await bus.join("luna")
    await bus.join("boss", role="operator")

    assert (await subscribe(bus, SCRIPT, owner="luna")).by == "script"
    for owner in ("", "script"):
        with pytest.raises(WhoAreYou):
            await subscribe(bus, SCRIPT, owner=owner)
    for owner in ("boss", "human"):
        with pytest.raises(NotPerson):
            await subscribe(bus, SCRIPT, owner=owner)


async def test_subscription_for_an_unknown_agent_is_refused(bus: Bus) -> None:
    await bus.join("luna")

    with pytest.raises(NotFound, match="did you mean luna"):
        await subscribe(bus, HUMAN, owner="lun")
    with pytest.raises(NotFound, match="pal list"):
        await subscribe(bus, HUMAN, owner="xyz")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"filter": Filter()}, BadRequest),
        ({"preset": "busy"}, BadRequest),
        ({"filter": Filter(agents=("x",) * (LIMIT_FILTER_WORDS + 1))}, BadRequest),
        ({"filter": Filter(threads=("\x1b",))}, BadText),
        ({"filter": Filter(threads=("x" * 2000,))}, MessageTooLarge),
        ({"text": "x" * (LIMIT_SAY_BYTES + 1)}, MessageTooLarge),
    ],
)
async def test_invalid_subscription_is_refused(
    bus: Bus, fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await subscribe(bus, HUMAN, **fields)

    assert list(read_subscriptions(bus.log.rows)) == []


async def test_collision_preset_needs_no_filter_and_is_open_to_observers(bus: Bus) -> None:
    observer = await bus.join("eye", role="observer")

    made = await subscribe(bus, observer, filter=Filter(), preset=COLLISION)

    assert (made.owner, made.preset, observer.standing) == ("eye", COLLISION, Standing.OBSERVER)


async def test_only_the_owner_and_the_human_end_a_subscription(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first, second = await subscribe(bus, luna), await subscribe(bus, luna, once=True)

    for asking in (nova, SCRIPT):
        with pytest.raises(NotAllowed, match="its owner or a person"):
            await bus.submit(asking, Unsubscribe(id=first.id))
    mine = await bus.submit(luna, Unsubscribe(id=first.id.upper()), key=b"k" * 16)
    again = await bus.submit(luna, Unsubscribe(id=first.id.upper()), key=b"k" * 16)
    theirs = await bus.submit(HUMAN, Unsubscribe(id=second.id))

    assert mine is not None
    assert mine == again
    assert theirs is not None
    assert mine.payload == {"id": first.id, "reason": "removed by luna"}
    assert theirs.payload == {"id": second.id, "reason": "removed by human"}
    assert list(read_subscriptions(bus.log.rows)) == []


async def test_watch_is_ended_by_the_agent_that_asked(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "?", "@nova", intent="request")
    id = f"w{request.seq}-nova"

    with pytest.raises(NotAllowed):
        await bus.submit(nova, Unsubscribe(id=id))
    removed = await bus.submit(luna, Unsubscribe(id=id))

    assert removed is not None
    assert removed.payload["id"] == id
    assert list(read_watches(bus.log.rows)) == []


@pytest.mark.parametrize("id", ["zzzzzz", "w7-nova", "", "w0-nova"])
async def test_unknown_subscription_cannot_be_ended(bus: Bus, id: str) -> None:
    with pytest.raises(NotFound):
        await bus.submit(HUMAN, Unsubscribe(id=id))


async def test_hit_is_written_once_per_event(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await subscribe(bus, luna)
    cause = await bus.send(HUMAN, "a", "@luna")

    first = await bus.submit(SYSTEM_CALLER, hit(made, cause, agents=("luna", "nova"), file="x"))
    again = await bus.submit(SYSTEM_CALLER, hit(made, cause))

    assert first is not None
    assert first == again
    assert (first.sender, first.to) == ("[pal-events]", ("luna",))
    assert first.payload == {
        "text": "x",
        "scope": "mentions",
        "mentions": ["luna"],
        "sender_kind": "system",
        "delivered_to": ["luna"],
        "intent": "inform",
        "sub": made.id,
        "event": cause.seq,
        "agents": ["luna", "nova"],
        "file": "x",
    }


async def test_once_subscription_reports_one_event_and_is_then_retired(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await subscribe(bus, luna, once=True)
    causes = [await bus.send(HUMAN, text, "@luna") for text in "ab"]
    too_early = await bus.submit(SYSTEM_CALLER, Retire(id=made.id))

    notices = [await bus.submit(SYSTEM_CALLER, hit(made, cause)) for cause in causes]
    with pytest.raises(NotFound):
        await bus.submit(luna, Unsubscribe(id=made.id))
    off = [await bus.submit(SYSTEM_CALLER, Retire(id=made.id)) for _ in "ab"]

    assert too_early is None
    assert [event is not None for event in notices] == [True, False]
    assert [event and event.payload["reason"] for event in off] == ["once", None]


async def test_hit_of_an_earlier_subscription_with_the_same_id_is_not_written(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await subscribe(bus, luna)
    cause = await bus.send(HUMAN, "a", "@luna")
    late = FireSubscription(id=made.id, made=made.seq - 1, event=cause.seq, cause=cause.id, text="x")

    assert await bus.submit(SYSTEM_CALLER, late) is None
    assert (
        await bus.submit(SYSTEM_CALLER, FireSubscription(id="z", made=1, event=1, cause="x", text="x"))
        is None
    )


async def test_watch_fires_only_when_due_and_once(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "?", "@nova", intent="request")
    fire = FireWatch(agent="nova", request=request.seq)
    too_early = await bus.submit(SYSTEM_CALLER, fire)
    await bus.submit(nova, Leave())

    notices = [await bus.submit(SYSTEM_CALLER, fire) for _ in "ab"]

    assert too_early is None
    assert [event and event.payload["text"] for event in notices] == [
        f"@luna nova is now stopped (request #{request.seq})",
        None,
    ]


@pytest.mark.parametrize(
    ("harness", "state", "is_read", "is_told"),
    [
        ("", "idle", True, True),
        ("", "active", True, True),
        ("", "idle", False, False),
        ("claude", "active", True, False),
        ("claude", "idle", True, True),
    ],
)
async def test_waiting_after_reading_a_request_counts_as_idle(
    bus: Bus, harness: str, state: str, is_read: bool, is_told: bool
) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova", harness=harness)
    await bus.submit(nova, SetStatus(state=state))
    request = await bus.send(luna, "?", "@nova", intent="request")
    if is_read:
        await bus.ack(nova, request.seq)

    fire = FireWatch(agent="nova", request=request.seq, is_waiting=True)
    notices = [await bus.submit(SYSTEM_CALLER, fire) for _ in "ab"]

    text = f"@luna nova is now idle (request #{request.seq})" if is_told else None
    assert [event and event.payload["text"] for event in notices] == [text, None]


@pytest.mark.parametrize(
    "request_",
    [
        Retire(id="x"),
        FireWatch(agent="nova", request=1),
        FireSubscription(id="x", made=1, event=1, cause="x", text="x"),
    ],
)
async def test_only_the_bus_fires_subscriptions_and_watches(bus: Bus, request_: Retire) -> None:
    with pytest.raises(NotAllowed):
        await bus.submit(HUMAN, request_)


async def test_event_records_the_caller_that_subscribes_for_another(bus: Bus) -> None:
    luna = await bus.join("luna")
    joined = bus.agent(luna.name)

    event = await bus.submit(caller(joined, by="script"), Subscribe(filter=STATUS))

    assert event is not None
    assert (event.sender, event.by) == ("luna", "script")
