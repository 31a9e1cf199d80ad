"""Sending, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, caller

from palaver.broker.context import SYSTEM_CALLER, Sent
from palaver.errors import (
    AmbiguousRecipient,
    BadRequest,
    BadText,
    IdTaken,
    MessageTooLarge,
    NotAllowed,
    NotFound,
    UnknownRecipient,
)
from palaver.protocol.agents import BeginSubagent, Caller, Standing
from palaver.protocol.bundles import CreateBundle
from palaver.protocol.requests import Leave, Notify, Send
from palaver.state.agents import read_unread

ULID = "01HF7YAT00ABCDEFGHJKMNPQRS"


async def sent(bus: Bus, asking: Caller, request: Send, key: bytes | None = None) -> Sent:
    outcome = await bus.broker.submit(asking, request, key=key)
    assert isinstance(outcome, Sent)
    return outcome


async def test_message_to_a_name_is_stored_with_its_recipients(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    bundle = await bus.submit(luna, CreateBundle(title="PR 1"))
    assert bundle is not None
    bundle_id = bundle.payload["bundle_id"]

    event = await bus.send(luna, "hello", "@nova", intent="request", thread="pr-1", bundle_id=bundle_id)

    assert (event.type, event.sender, event.to) == ("message", "luna", ("@nova",))
    assert event.payload == {
        "text": "hello",
        "scope": "mentions",
        "mentions": ["nova"],
        "sender_kind": "instance",
        "delivered_to": ["nova"],
        "intent": "request",
        "thread": "pr-1",
        "bundle_id": bundle_id,
    }
    assert bus.texts("nova") == ["hello"]
    assert read_unread(bus.log.rows, "nova") == 1


async def test_message_with_an_unknown_bundle_is_refused(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    with pytest.raises(NotFound, match="there is no bundle:7f3q9x2m"):
        await bus.send(luna, "hello", "@nova", bundle_id="7f3q9x2m")

    assert bus.texts("nova") == []


async def test_message_to_all_goes_to_all_other_present_agents(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await bus.join("kira", is_here=False)

    event = await bus.send(luna, "hello", "@all")

    assert event.payload["scope"] == "broadcast"
    assert event.payload["mentions"] == []
    assert event.payload["delivered_to"] == ["nova"]


async def test_mentions_in_a_text_are_recipients_only_on_request(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    with_them = await bus.send(luna, "@nova please", has_mentions=True)
    without = await bus.send(luna, "@nova please", "@kira")

    assert with_them.payload["delivered_to"] == ["nova"]
    assert without.payload["delivered_to"] == ["kira"]


async def test_message_to_the_human_is_taken_by_the_human(bus: Bus) -> None:
    luna = await bus.join("luna")

    event = await bus.send(luna, "done", "@human")
    taken = bus.texts("human")
    await bus.ack(HUMAN, event.seq)

    assert taken == ["done"]
    assert bus.state(event, "human") == "seen"


async def test_unknown_name_stores_nothing(bus: Bus) -> None:
    luna = await bus.join("luna")
    last = bus.log.last()

    with pytest.raises(UnknownRecipient):
        await bus.send(luna, "hello", "@nova")

    assert bus.log.last() == last


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"text": ""}, BadRequest),
        ({"text": "a\x00b"}, BadText),
        ({"text": "x" * 100_001}, MessageTooLarge),
        ({"intent": "plead"}, BadRequest),
        ({"intent": "ack"}, BadRequest),
        ({"priority": "urgent"}, BadRequest),
        ({"thread": "x" * 65}, BadRequest),
        ({"reply_to": "99"}, NotFound),
        ({"reply_to": "?"}, BadRequest),
        ({"expires_in_ms": -1}, BadRequest),
        ({"expires_in_ms": 10**12}, BadRequest),
        ({"id": "mine"}, BadRequest),
    ],
)
async def test_bad_message_is_refused(bus: Bus, fields: dict[str, object], error: type[Exception]) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    with pytest.raises(error):
        await sent(bus, luna, Send(**{"text": "hello", "to": ("@nova",), **fields}))  # type: ignore[arg-type]  # one field at a time


async def test_observer_cannot_write(bus: Bus) -> None:
    watcher = await bus.join("watcher", role="observer")

    with pytest.raises(NotAllowed):
        await bus.send(watcher, "hello")


async def test_dry_run_returns_the_recipients_and_stores_nothing(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    outcome = await sent(bus, luna, Send(text="hello", to=("@nova", "@observers"), is_dry_run=True))

    assert (outcome.event, outcome.delivered_to) == (None, ("nova",))
    assert outcome.empty_groups == ("@observers",)
    assert bus.texts("nova") == []


async def test_path_without_a_match_is_stored_and_reported(bus: Bus) -> None:
    luna = await bus.join("luna")

    outcome = await sent(bus, luna, Send(text="hello", to=("ticket/7",)), key=b"k" * 16)
    again = await sent(bus, luna, Send(text="hello", to=("ticket/7",)), key=b"k" * 16)

    assert outcome.dead == again.dead == ("ticket/7",)
    assert outcome.event is not None
    assert outcome.event.payload["path"] == "ticket/7"


async def test_normal_priority_is_not_stored_in_the_payload(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    normal = await bus.send(luna, "a", "@nova", priority="normal")
    urgent = await bus.send(luna, "b", "@nova", priority="interrupt")

    assert "priority" not in normal.payload
    assert urgent.payload["priority"] == "interrupt"
    assert bus.texts("nova") == ["b", "a"]


async def test_same_id_again_is_the_same_message(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first = await bus.send(luna, "hello", "@nova", id=ULID)

    again = await sent(bus, luna, Send(text="hello", to=("@nova",), id=ULID))
    other = await sent(bus, nova, Send(text="mine", to=("@luna",), id=ULID))

    assert (again.event, again.is_repeat, again.delivered_to) == (first, True, ("nova",))
    assert not other.is_repeat
    assert bus.texts("nova") == ["hello"]


async def test_same_id_with_different_content_is_refused(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    request = Send(text="hello", to=("@nova",), id=ULID, expires_in_ms=60_000)
    first = await sent(bus, luna, request)
    bus.clock.advance(1)

    again = await sent(bus, luna, request)
    for changed in (
        Send(text="other", to=("@nova",), id=ULID),
        Send(text="hello", to=("@human",), id=ULID),
        Send(text="hello", to=("@nova",), id=ULID, intent="request"),
    ):
        with pytest.raises(IdTaken, match="a different event"):
            await sent(bus, luna, changed)

    assert again.event == first.event
    assert bus.texts("nova") == ["hello"]


async def test_same_request_key_has_the_same_result(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    request = Send(text="hello", to=("@nova",))

    first = await sent(bus, luna, request, key=b"k" * 16)
    second = await sent(bus, luna, request, key=b"k" * 16)

    assert first == second
    assert bus.texts("nova") == ["hello"]


async def test_completed_request_is_not_refused_after_the_directory_changed(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    request = Send(text="hello", to=("no",))
    first = await sent(bus, luna, request, key=b"k" * 16)
    await bus.join("nomi")

    second = await sent(bus, luna, request, key=b"k" * 16)
    with pytest.raises(AmbiguousRecipient):
        await sent(bus, luna, request, key=b"m" * 16)

    assert second == first


async def test_reply_goes_only_to_the_author_in_the_same_thread(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.join("luna", tag="api")
    asked = await bus.send(luna, "well?", "@nova", intent="request", thread="pr-1")

    answer = await bus.send(nova, "yes", reply_to=f"#{asked.seq}", intent="ack")

    assert answer.payload["delivered_to"] == ["luna"]
    assert (answer.payload["thread"], answer.payload["reply_to"]) == ("pr-1", str(asked.seq))
    entry = bus.entry(asked, "nova")
    assert entry is not None
    assert (entry.state, entry.answer) == ("answered", answer.seq)
    assert bus.texts("nova") == ["well?"]  # it was never taken: a reply does not mark it as read


async def test_reply_with_recipients_goes_to_them(bus: Bus) -> None:
    luna, nova, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    asked = await bus.send(luna, "well?", "@nova")

    answer = await bus.send(nova, "ask kira", "@kira", reply_to=str(asked.seq))

    assert answer.payload["delivered_to"] == ["kira"]


async def test_reply_to_the_human_reaches_the_human(bus: Bus) -> None:
    nova = await bus.join("nova")
    asked = await bus.send(HUMAN, "well?", "@nova")

    answer = await bus.send(nova, "yes", reply_to=asked.id)

    assert answer.payload["delivered_to"] == ["human"]


async def test_reply_to_the_bus_needs_a_recipient(bus: Bus) -> None:
    nova = await bus.join("nova")
    from_bus = await bus.submit(SYSTEM_CALLER, Notify(to="nova", text="x", cause="c", kind="k"))
    assert from_bus is not None

    with pytest.raises(UnknownRecipient):
        await bus.send(nova, "yes", reply_to=str(from_bus.seq))


@pytest.mark.parametrize("intent", ["inform", "ack"])
async def test_message_that_asks_for_nothing_is_not_acknowledged(bus: Bus, intent: str) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    asked = await bus.send(luna, "well?", "@nova", intent="request")
    reply_to = {"reply_to": str(asked.seq)} if intent == "ack" else {}
    original = await bus.send(nova, "so it is", "@luna", intent=intent, **reply_to)

    with pytest.raises(BadRequest, match="needs no ack"):
        await bus.send(luna, "thanks", reply_to=str(original.seq), intent="ack")


async def test_harness_agent_must_confirm_a_message_to_many(bus: Bus) -> None:
    claude = caller(bus.agent((await bus.join("luna", harness="claude")).name), harness="claude")
    for number in range(6):
        await bus.join(f"w{number}")

    with pytest.raises(BadRequest, match="--yes"):
        await sent(bus, claude, Send(text="hello", to=("@all",)))
    confirmed = await sent(bus, claude, Send(text="hello", to=("@all",), is_confirmed=True))
    dry = await sent(bus, claude, Send(text="hello", to=("@all",), is_dry_run=True))
    by_program = await sent(bus, HUMAN, Send(text="hello", to=("@all",)))

    assert len(confirmed.delivered_to) == len(dry.delivered_to) == 6
    assert len(by_program.delivered_to) == 7


async def test_expiring_message_carries_its_expiry_time(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    event = await bus.send(luna, "hello", "@nova", expires_in_ms=60_000)

    assert event.payload["expires"] == bus.clock.now_ms() + 60_000


async def test_agent_that_left_still_gets_messages_to_its_name(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.submit(nova, Leave())
    bus.present.discard("nova")

    await bus.send(luna, "hello", "nova")

    assert bus.texts("nova") == ["hello"]


async def test_notice_of_the_bus_is_written_once_per_cause(bus: Bus) -> None:
    await bus.join("nova")
    notice = Notify(to="nova", text="#1 expired", cause=ULID, kind="expired")

    first, second = await bus.submit(SYSTEM_CALLER, notice), await bus.submit(SYSTEM_CALLER, notice)

    assert first == second
    assert first is not None
    assert (first.sender, first.payload["sender_kind"]) == ("[pal-events]", "system")
    assert bus.texts("nova") == ["#1 expired"]


async def test_notice_of_a_collision_names_its_event_agents_and_file(bus: Bus) -> None:
    await bus.join("nova")

    event = await bus.submit(
        SYSTEM_CALLER,
        Notify(to="nova", text="x", cause=ULID, kind="k", event=7, agents=("luna", "nova"), file="a.py"),
    )

    assert event is not None
    fields = {name: event.payload[name] for name in ("event", "agents", "file")}
    assert fields == {"event": 7, "agents": ["luna", "nova"], "file": "a.py"}


async def test_guest_can_write(bus: Bus) -> None:
    await bus.join("nova")
    guest = Caller(name="ann", standing=Standing.GUEST, kind="external")

    event = await bus.send(guest, "hello", "@nova")

    assert event.payload["sender_kind"] == "external"


async def test_sends_made_together_have_their_own_outcomes_in_order(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    watcher = await bus.join("watcher", role="observer")
    await bus.send(luna, "known", "@nova", id=ULID)
    requests = [
        (luna, Send(text="first", to=("@nova",))),
        (luna, Send(text="lost", to=("@nobody",))),
        (watcher, Send(text="not allowed", to=("@nova",))),
        (luna, Send(text="known", to=("@nova",), id=ULID)),
        (luna, Send(text="other", to=("@nova",), id=ULID)),
        (luna, Send(text="second", to=("@nova",))),
    ]

    first, lost, refused, repeat, other, second = await bus.broker.submit_sends(requests)

    assert isinstance(first, Sent)
    assert isinstance(second, Sent)
    assert (first.delivered_to, second.delivered_to) == (("nova",), ("nova",))
    assert isinstance(lost, UnknownRecipient)
    assert isinstance(refused, NotAllowed)
    assert isinstance(repeat, Sent)
    assert repeat.is_repeat
    assert isinstance(other, IdTaken)
    assert bus.texts("nova") == ["known", "first", "second"]


async def test_sends_that_are_all_refused_write_nothing(bus: Bus) -> None:
    luna = await bus.join("luna")
    before = bus.log.last()

    (outcome,) = await bus.broker.submit_sends([(luna, Send(text="", to=("@luna",)))])

    assert isinstance(outcome, BadRequest)
    assert bus.log.last() == before


# Recipients that have left, and answers that name no message


async def test_request_to_an_agent_that_left_notifies_before_it_returns(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova", argv=("sleep", "9"))
    await bus.submit(nova, Leave())

    outcome = await sent(bus, luna, Send(text="?", to=("@nova",), intent="request"))
    by_person = await sent(bus, HUMAN, Send(text="hello", to=("@nova",)))
    planned = await sent(bus, luna, Send(text="?", to=("@nova",), intent="request", is_dry_run=True))

    assert outcome.event is not None
    (one,) = outcome.exited
    assert (one.agent, one.state, one.since, one.resumable) == (
        "nova",
        "exited",
        bus.agent("nova").since,
        False,
    )
    assert [one.resumable for one in by_person.exited] == [True]
    assert planned.exited == outcome.exited
    assert bus.texts("luna") == [f"@luna nova is now stopped (request #{outcome.event.seq})"]


async def test_ended_subagent_is_not_resumable(bus: Bus) -> None:
    await bus.join("luna")
    begun = BeginSubagent(parent="luna", key="k", type="reviewer")
    await bus.broker.submit(SYSTEM_CALLER, begun)
    await bus.submit(caller(bus.agent("luna_reviewer_1")), Leave())

    outcome = await sent(bus, HUMAN, Send(text="hello", to=("@luna_reviewer_1",)))

    assert [(one.agent, one.resumable) for one in outcome.exited] == [("luna_reviewer_1", False)]


async def test_direct_message_back_answers_the_only_open_request(bus: Bus) -> None:
    luna, nova, kira = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    request = await bus.send(luna, "?", "@nova", intent="request")
    await bus.send(kira, "?", "@nova", intent="request")
    await bus.ack(nova, request.seq)

    to_both = await bus.send(nova, "!", "@luna", "@kira")
    answer = await bus.send(nova, "!", "@luna")
    later = await bus.send(nova, "!", "@luna")

    assert answer.payload["answers"] == request.seq
    assert "answers" not in to_both.payload
    assert "answers" not in later.payload
    entry = bus.entry(request, "nova")
    assert entry is not None
    assert (entry.state, entry.answer, entry.implied) == ("answered", answer.seq, True)


async def test_old_requests_do_not_prevent_an_answer(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.send(luna, "?", "@nova", intent="request")
    bus.clock.advance(24 * 3600 + 1)
    request = await bus.send(luna, "?", "@nova", intent="request")
    await bus.ack(nova, request.seq)

    answer = await bus.send(nova, "!", "@luna")

    assert answer.payload["answers"] == request.seq


async def test_message_before_the_request_was_read_does_not_answer_it(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    request = await bus.send(luna, "?", "@nova", intent="request")

    before = await bus.send(nova, "by the way", "@luna")
    bus.member_presence.known.add(("nova", request.seq))
    answer = await bus.send(nova, "!", "@luna")

    assert "answers" not in before.payload
    assert answer.payload["answers"] == request.seq


async def test_reply_to_a_script_is_stored_and_answers_its_message(bus: Bus) -> None:
    nova = await bus.join("nova")
    request = await bus.send(SCRIPT, "?", "@nova", intent="request")

    replies = [await bus.send(nova, "!", *to, reply_to=str(request.seq)) for to in ((), ("@script",))]

    assert [event.payload["delivered_to"] for event in replies] == [[], []]
    assert [event.to for event in replies] == [("script",), ("script",)]
    assert bus.state(request, "nova") == "answered"
    with pytest.raises(BadRequest, match="--reply-to ID alone answers its message"):
        await bus.send(nova, "!", "@script")


# Messages without recipients


async def test_message_without_recipients_is_refused_except_from_a_script(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    for asking in (luna, HUMAN):
        with pytest.raises(BadRequest, match="name one, or @all"):
            await bus.send(asking, "hello")

    assert (await bus.send(SCRIPT, "hello")).payload["scope"] == "broadcast"
    assert bus.texts("nova") == ["hello"]


@pytest.mark.parametrize("text", ["nova", " Nova ", "@nova", "nov", "n", "all", "human"])
async def test_script_does_not_broadcast_a_single_name(bus: Bus, text: str) -> None:
    await bus.join("nova")
    await bus.join("nina")

    with pytest.raises(BadRequest, match="is a recipient, and the text is missing"):
        await bus.send(SCRIPT, text)


@pytest.mark.parametrize("text", ["done", "src/nova", "nova is here", "x" * 200])
async def test_script_broadcasts_other_texts(bus: Bus, text: str) -> None:
    await bus.join("nova")

    await bus.send(SCRIPT, text)

    assert bus.texts("nova") == [text]


async def test_message_to_a_thread_goes_to_its_participants(bus: Bus) -> None:
    luna, nova, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    begun = BeginSubagent(parent="luna", key="k", type="reviewer")
    await bus.broker.submit(SYSTEM_CALLER, begun)
    await bus.send(luna, "1", "@nova", "@luna_reviewer_1", thread="t")
    await bus.send(SCRIPT, "2", "@luna", thread="t")
    await bus.send(nova, "3", "@human", thread="t")
    await bus.submit(caller(bus.agent("luna_reviewer_1")), Leave())

    event = await bus.send(luna, "4", thread="t")

    assert event.payload["delivered_to"] == ["nova", "human"]
    assert (event.to, event.payload["scope"]) == (("nova", "human"), "mentions")


async def test_thread_without_other_participants_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="the thread t is new"):
        await bus.send(luna, "1", thread="t")
    await bus.send(luna, "2", "@luna", thread="t")
    with pytest.raises(BadRequest, match="the thread t has no other participants"):
        await bus.send(luna, "3", thread="t")


async def test_agent_in_a_harness_confirms_a_message_to_a_large_thread(bus: Bus) -> None:
    luna = caller(bus.agent((await bus.join("luna", harness="claude")).name), harness="claude")
    names = [f"@n{number}" for number in range(6)]
    for name in names:
        await bus.join(name[1:])
    await bus.send(luna, "1", *names, thread="t")

    with pytest.raises(BadRequest, match="this would go to 6 agents"):
        await bus.send(luna, "2", thread="t")

    assert (await bus.send(luna, "3", thread="t", is_confirmed=True)).payload["text"] == "3"


@pytest.mark.parametrize("text", [" ", "\n\t"])
async def test_blank_text_is_refused(bus: Bus, text: str) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")

    with pytest.raises(BadRequest, match="the message is empty"):
        await bus.send(luna, text, "@nova")
