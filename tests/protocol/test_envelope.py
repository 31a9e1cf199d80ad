import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.errors import BadRequest
from palaver.ids import is_ulid
from palaver.protocol.envelope import (
    Draft,
    Event,
    decode_draft,
    decode_event,
    draft_of_import,
    encode_event,
    event_from,
    matches_recipient,
)

_VECTORS = Path(__file__).parent.parent / "vectors"

texts = st.text(st.characters(exclude_categories=["Cs"]))
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
int64 = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)
payloads = st.dictionaries(texts, values, max_size=4)
events = st.builds(
    Event,
    seq=int64,
    id=words,
    type=words,
    sender=words,
    to=st.lists(texts).map(tuple),
    ts=int64,
    device=texts.filter(bool),
    payload=payloads,
    by=st.none() | texts,
    delivered_to=st.lists(texts).map(tuple),
    imported=st.integers(0, 2**63 - 1),
    sent_ts=st.none() | int64,
)
envelopes = st.builds(
    Draft,
    type=words,
    id=words,
    sender=words,
    to=st.lists(texts).map(tuple),
    ts=int64,
    payload=payloads,
)


@given(envelopes)
def test_envelope_survives_encoding_and_decoding(envelope: Draft) -> None:
    assert Draft.from_json(envelope.to_json()) == envelope


@given(events)
def test_event_survives_encoding_and_decoding(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


@given(events)
def test_event_is_one_line(event: Event) -> None:
    assert b"\n" not in encode_event(event)


@given(st.binary() | texts)
def test_input_that_is_not_an_envelope_is_a_bad_request(text: str | bytes) -> None:
    with pytest.raises(BadRequest):
        Draft.from_json(text)


def test_envelope_is_encoded_in_the_order_of_its_fields() -> None:
    envelope = Draft(type="t", id="i", sender="luna", to=("@workers", "@claude-*"), ts=5, payload={"a": 1})

    text = envelope.to_json()

    assert text == (
        '{"v":1,"type":"t","id":"i","from":"luna","to":["@workers","@claude-*"],"ts":5,"payload":{"a":1}}'
    )


def test_event_is_encoded_in_the_order_of_its_fields() -> None:
    event = Event(
        type="t",
        id="i",
        sender="luna",
        to=("@workers",),
        ts=5,
        payload={"a": 1},
        seq=7,
        device="BOXE",
        by="human",
        delivered_to=("nova",),
    )

    line = encode_event(event)

    assert line.decode() == event.to_json()
    assert line == (
        b'{"v":1,"type":"t","id":"i","from":"luna","to":["@workers"],"ts":5,"payload":{"a":1},"seq":7,'
        b'"device":"BOXE","by":"human","delivered_to":["nova"]}'
    )


def test_empty_fields_are_left_out() -> None:
    envelope = Draft(type="t", id="i", sender="luna")
    event = Event(type="t", id="i", sender="luna", ts=0, seq=0, device="")

    assert list(json.loads(envelope.to_json())) == ["v", "type", "id", "from", "ts"]
    assert list(json.loads(event.to_json())) == ["v", "type", "id", "from", "ts", "seq"]


@given(events)
def test_stored_envelope_is_read_as_its_event(event: Event) -> None:
    assert Draft.from_json(event.to_json()) == event


def test_envelope_with_only_its_seq_is_read_as_an_event() -> None:
    stored = Draft.from_json('{"v":1,"type":"t","id":"i","from":"a","seq":7}')

    assert stored == Event(type="t", id="i", sender="a", seq=7)
    assert stored.to_json() == '{"v":1,"type":"t","id":"i","from":"a","ts":0,"seq":7}'


@given(events)
def test_envelope_to_be_stored_has_no_field_that_only_the_broker_may_set(event: Event) -> None:
    draft = decode_draft(encode_event(event))

    assert (draft.seq, draft.by, draft.delivered_to, draft.imported, draft.sent_ts) == (
        None,
        None,
        (),
        0,
        None,
    )
    assert (draft.type, draft.id, draft.sender) == (event.type, event.id, event.sender)
    assert (draft.to, draft.ts, draft.payload) == (event.to, event.ts, event.payload)


def test_new_envelope_has_its_own_id_and_time() -> None:
    made = [Draft.new("task.create", "luna", {"title": "x"}, ["@workers"]) for _ in range(100)]

    assert len({envelope.id for envelope in made}) == 100
    assert all(is_ulid(envelope.id) and envelope.ts > 0 for envelope in made)
    assert made[0].to == ("@workers",)
    assert made[0].payload == {"title": "x"}


def test_new_broadcast_envelope_has_neither_recipients_nor_payload() -> None:
    envelope = Draft.new("agent.bye", "luna")

    assert (envelope.to, envelope.payload, envelope.seq) == ((), {}, None)


@pytest.mark.parametrize(
    ("type_", "sender", "field"), [("", "luna", "type"), ("t", "", "from"), ("", "", "type")]
)
def test_new_envelope_needs_the_same_fields_as_a_decoded_one(type_: str, sender: str, field: str) -> None:
    with pytest.raises(BadRequest, match=f"`{field}` is empty"):
        Draft.new(type_, sender, None)


@pytest.mark.parametrize("row", json.loads((_VECTORS / "envelope_decode.json").read_text()))
def test_bad_envelope_is_refused_by_the_name_of_its_field(row: dict[str, str | None]) -> None:
    with pytest.raises(BadRequest) as caught:
        Draft.from_json(row["text"] or "")

    assert f"`{row['field']}`" in str(caught.value) or row["field"] is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"v":2,"type":"t","id":"i","from":"a"}', "`v`"),
        ('{"v":true,"type":"t","id":"i","from":"a"}', "$.v"),
        ('{"type":"t","id":"i","from":"a"}', "`v`"),
        ('{"v":1,"type":"","id":"i","from":"a"}', "`type`"),
        ('{"v":1,"type":"t","id":"","from":"a"}', "`id`"),
        ('{"v":1,"type":"t","id":"i","from":""}', "`from`"),
        ('{"v":1,"type":"t","id":"i","from":"a","to":"b"}', "$.to"),
        ('{"v":1,"type":"t","id":"i","from":"a","ts":"now"}', "$.ts"),
        ('{"v":1,"type":"t","id":"i","from":"a","ts":9223372036854775808}', "$.ts"),
        ('{"v":1,"type":"t","id":"i","from":"a","payload":[1]}', "$.payload"),
        ('{"v":1,"type":"t","id":"i","from":"a","payload":' + '{"a":' * 100_000, "recursion"),
    ],
)
def test_wrong_field_is_named(text: str, field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Draft.from_json(text)

    assert field in str(caught.value)


def test_null_or_missing_or_unknown_fields_are_ignored() -> None:
    text = (
        b'{"v":1,"type":"t","id":"i","from":"a","to":null,"ts":null,"payload":null,"seq":null,"colour":"red"}'
    )

    assert Draft.from_json(text) == Draft(type="t", id="i", sender="a")


@pytest.mark.parametrize(("field", "rest"), [("seq", ',"device":"BOXE"'), ("device", ',"seq":1')])
def test_event_without_its_seq_or_device_is_refused(field: str, rest: str) -> None:
    line = f'{{"v":1,"type":"t","id":"i","from":"a"{rest}}}'.encode()

    with pytest.raises(BadRequest, match=field):
        decode_event(line)


def test_draft_keeps_every_field_when_it_gets_its_seq() -> None:
    draft = Draft(type="t", sender="luna", payload={"a": 1}, to=("nova",), id="i", ts=3, by="human")

    event = event_from(draft, 9, "BOXE")

    assert event == Event(
        seq=9,
        id="i",
        type="t",
        sender="luna",
        to=("nova",),
        ts=3,
        device="BOXE",
        payload={"a": 1},
        by="human",
    )


@pytest.mark.parametrize("row", json.loads((_VECTORS / "recipient_matching.json").read_text()))
def test_envelope_matches_the_recipients_of_its_tokens(row: dict[str, object]) -> None:
    to = row["to"]
    envelope = Draft(type="t", id="i", sender="ann", to=tuple(to) if isinstance(to, list) else ())

    assert matches_recipient(envelope, str(row["name"]), str(row["role"])) is row["expected"]


def test_empty_token_does_not_match_even_an_empty_name() -> None:
    assert not matches_recipient(Draft(type="t", id="i", sender="ann", to=("",)), "", "worker")


def test_new_ids_rise_within_a_millisecond_and_in_several_threads() -> None:
    def make(_: int) -> list[str]:
        return [Draft.new("x", "luna").id for _ in range(200)]

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(make, range(8)))
    last = Draft.new("x", "luna").id

    assert all(first < second for ids in made for first, second in pairwise(ids))
    assert len({id_ for ids in made for id_ in ids}) == 8 * 200
    assert last > max(id_ for ids in made for id_ in ids)


def test_new_envelope_takes_one_recipient_without_a_list() -> None:
    assert Draft.new("x", "luna", to="nova").to == ("nova",)


def test_new_envelope_with_a_wrong_field_is_refused_by_its_name() -> None:
    with pytest.raises(BadRequest, match="`payload`"):
        Draft.new("x", "luna", [1])  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="`to`"):
        Draft.new("x", "luna", to=[1])  # type: ignore[list-item]


@given(envelopes, int64)
def test_stored_envelope_leaves_as_it_came_in(envelope: Draft, now: int) -> None:
    # The broker adds rooms and paths: the channel that an envelope was written in.
    envelope = replace(envelope, to=tuple(one for one in envelope.to if one[:1] != "#" and "/" not in one))
    channel = ("#attic", "irc/local/#dev")
    to = (*envelope.to, *channel)
    draft = replace(
        envelope, type=f"x.{envelope.type}", to=to, ts=now, sent_ts=envelope.ts, delivered_to=("nova",)
    )

    event = event_from(draft, 7, "BOXE")

    assert event.ts == now
    assert decode_event(encode_event(event)).envelope == replace(envelope, type=draft.type)
    assert event_from(draft_of_import(event), 9, "MABU").envelope == event.envelope


@pytest.mark.parametrize("type_", ["task.create", "task.update", "task.complete"])
def test_envelope_of_a_task_has_no_field_that_the_bus_added(type_: str) -> None:
    sent: dict[str, object] = {"task_id": "t", "title": "x", "assignee": "nova", "own": [1]}
    added = {} if type_ == "task.complete" else {"assignees": ["nova"]}

    event = Event(type=type_, id="i", sender="luna", seq=1, payload={**sent, **added}, sent_ts=5)

    assert event.envelope == Draft(type=type_, id="i", sender="luna", ts=5, payload=sent)


@pytest.mark.parametrize(
    ("type_", "payload", "left"),
    [
        (
            "message",
            {
                "text": "hi",
                "scope": "mentions",
                "delivered_to": ["nova"],
                "priority": "normal",
                "intent": None,
            },
            {"text": "hi"},
        ),
        (
            "message",
            {"text": "", "command": "run", "payload": [1], "path": "a/b", "thread": "t", "held": "why"},
            {"command": "run", "payload": [1], "path": "a/b", "thread": "t"},
        ),
        ("message", {"text": "hi", "priority": "interrupt"}, {"text": "hi", "priority": "interrupt"}),
        ("agent.hello", {"runtime": "py", "version": "", "role": "operator"}, {"runtime": "py"}),
        ("agent.bye", {"reason": "left"}, {}),
        ("agent.bye", {"reason": "done"}, {"reason": "done"}),
    ],
)
def test_envelope_has_the_payload_fields_of_its_sender(
    type_: str, payload: dict[str, object], left: dict[str, object]
) -> None:
    event = Event(type=type_, id="i", sender="luna", seq=1, ts=3, payload=payload)

    assert (event.envelope.payload, event.envelope.ts) == (left, 3)


@pytest.mark.parametrize(
    ("to", "left"),
    [
        ((), ()),
        (("@all",), ("@all",)),
        (("@workers", "nova"), ("@workers", "nova")),
        (("@claude-*",), ("@claude-*",)),
        (("#attic",), ("nova", "api-nova")),
        (("luna", "nova"), ("nova", "api-nova")),
        (("agent/nova",), ("nova", "api-nova")),
    ],
)
def test_addresses_that_are_not_tokens_of_the_wire_become_names(
    to: tuple[str, ...], left: tuple[str, ...]
) -> None:
    payload: dict[str, object] = {"text": "hi", "delivered_to": ["nova", "api-nova"]}
    event = Event(type="message", id="i", sender="luna", seq=1, to=to, payload=payload)

    assert event.envelope.to == left
