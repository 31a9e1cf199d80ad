"""What is said to an app-server: only questions and notices, so no answer can be given to its own."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.agents.codex import wire
from palaver.errors import BadRequest


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        said = wire.said_from_json(data)
    except BadRequest:
        return

    assert isinstance(said, wire.Said)


def test_all_that_can_be_written_names_a_method() -> None:
    call = json.loads(wire.to_json(wire.Call(id=1, method="turn/start", params={})))
    notice = json.loads(wire.to_json(wire.INITIALIZED))

    assert call == {"id": 1, "method": "turn/start", "params": {}}
    assert notice == {"method": "initialized"}


@pytest.mark.parametrize(
    ("line", "is_question"),
    [
        (b'{"id": 0, "method": "item/commandExecution/requestApproval", "params": {}}', True),
        (b'{"id": "a", "method": "x"}', True),
        (b'{"method": "turn/started", "params": {}}', False),
        (b'{"id": 3, "result": {}}', False),
    ],
)
def test_a_question_is_told_from_news_and_answers(line: bytes, is_question: bool) -> None:
    assert wire.said_from_json(line).is_question is is_question


def test_a_turn_is_steered_only_if_it_is_the_one() -> None:
    method, params = wire.steer_turn("t", "turn-1", "hello", "key")

    assert method == "turn/steer"
    assert params["expectedTurnId"] == "turn-1"
    assert params["clientUserMessageId"] == "key"
    assert params["input"] == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize(
    ("fields", "is_ours"),
    [({}, True), ({"ephemeral": True}, False), ({"parentThreadId": "t0"}, False)],
)
def test_only_what_a_person_works_in_is_ours(fields: dict[str, object], is_ours: bool) -> None:
    raw = json.dumps({"thread": {"id": "t", "createdAt": 5, **fields}}).encode()

    thread = wire.result_as(msgspec.Raw(raw), wire.ThreadRead).thread

    assert (thread.is_ours, thread.moment) == (is_ours, 5)


def test_an_answer_of_another_form_is_refused() -> None:
    with pytest.raises(BadRequest):
        wire.result_as(msgspec.Raw(b'{"data": 7}'), wire.Loaded)
