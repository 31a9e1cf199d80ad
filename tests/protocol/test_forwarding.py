"""Requests that holders forward: parsing the bytes and formatting the replies."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, NotYou
from palaver.protocol.agent_socket import (
    ReadFor,
    SendRequest,
    forwarded_request_from_json,
    ok_line,
    read_for_from_json,
    refusal_line,
)


def test_send_request_has_the_keys_of_the_agent_socket() -> None:
    request = {
        "type": "send",
        "priority": "idle",
        "from": "nova",
        "body": "x",
        "raw": True,
        "cols": 0,
        "rows": 0,
    }
    read = forwarded_request_from_json(json.dumps(request).encode())

    assert read == SendRequest(type="send", priority="idle", sender="nova", body="x", raw=True)


def test_holder_states_only_whose_socket_it_is() -> None:
    assert read_for_from_json(b'{"do": "read", "name": "luna"}') == ReadFor(name="luna")


@given(st.binary(max_size=60))
def test_any_input_is_parsed_or_refused(line: bytes) -> None:
    with suppress(BadRequest):
        assert isinstance(read_for_from_json(line), ReadFor)
    with suppress(BadRequest):
        assert isinstance(forwarded_request_from_json(line), SendRequest)


def test_each_reply_is_one_line() -> None:
    assert json.loads(ok_line(message_id="01", seq=7)) == {"ok": True, "message_id": "01", "seq": 7}
    refusal = refusal_line(NotYou("nova", "luna"))
    assert refusal.endswith(b"\n")
    assert json.loads(refusal)["code"] == "not_you"
    assert json.loads(refusal)["ok"] is False


@pytest.mark.parametrize("line", [b"{}", b'{"do": "send", "name": "luna"}', b'{"do": "read"}'])
def test_missing_fields_are_refused(line: bytes) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        read_for_from_json(line)
