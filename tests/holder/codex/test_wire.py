"""Messages to an app-server: only requests and notifications, so its own requests can never be answered."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.harness.codex import threads as wire


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        message = wire.message_from_json(data)
    except BadRequest:
        return

    assert isinstance(message, wire.CodexMessage)


def test_every_written_message_names_a_method() -> None:
    call = json.loads(wire.to_json(wire.CodexRequest(id=1, method="turn/start", params={})))
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
def test_question_is_distinguished_from_notifications_and_replies(line: bytes, is_question: bool) -> None:
    assert wire.message_from_json(line).is_question is is_question


def test_turn_is_steered_only_by_its_id() -> None:
    method, params = wire.steer_turn("t", "turn-1", "hello", "key")

    assert method == "turn/steer"
    assert params["expectedTurnId"] == "turn-1"
    assert params["clientUserMessageId"] == "key"
    assert params["input"] == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize(
    ("fields", "is_ours"),
    [({}, True), ({"ephemeral": True}, False), ({"parentThreadId": "t0"}, False)],
)
def test_only_threads_of_a_person_are_ours(fields: dict[str, object], is_ours: bool) -> None:
    raw = json.dumps({"thread": {"id": "t", "createdAt": 5, **fields}}).encode()

    thread = wire.result_as(msgspec.Raw(raw), wire.ThreadRead).thread

    assert (thread.is_ours, thread.last_used) == (is_ours, 5)


def test_reply_of_another_form_is_refused() -> None:
    with pytest.raises(BadRequest):
        wire.result_as(msgspec.Raw(b'{"data": 7}'), wire.LoadedThreads)
