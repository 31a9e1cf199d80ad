"""What holders pass on, read from bytes and answered in lines."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.adopted_wire import (
    SendFor,
    SendRequest,
    WhoIs,
    adopted_from_json,
    ok_line,
    refusal_line,
)
from palaver.errors import BadRequest, NotYou


def test_a_send_has_the_keys_of_the_agents_socket() -> None:
    request = {
        "type": "send",
        "priority": "idle",
        "from": "nova",
        "body": "x",
        "raw": True,
        "cols": 0,
        "rows": 0,
    }
    line = json.dumps({"do": "send", "name": "luna", "request": request}).encode()

    read = adopted_from_json(line)

    wanted = SendRequest(type="send", priority="idle", sender="nova", body="x", raw=True)
    assert read == SendFor(name="luna", request=wanted)


def test_a_question_has_only_a_name() -> None:
    assert adopted_from_json(b'{"do": "who", "name": "luna"}') == WhoIs(name="luna")


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_refused(line: bytes) -> None:
    with suppress(BadRequest):
        assert isinstance(adopted_from_json(line), SendFor | WhoIs)


def test_answers_are_one_line_each() -> None:
    assert json.loads(ok_line(message_id="01", seq=7)) == {"ok": True, "message_id": "01", "seq": 7}
    refusal = refusal_line(NotYou("nova", "luna"))
    assert refusal.endswith(b"\n")
    assert json.loads(refusal)["code"] == "not_you"
    assert json.loads(refusal)["ok"] is False


@pytest.mark.parametrize("line", [b"{}", b'{"do": "send", "name": "luna"}', b'{"do": "who"}'])
def test_what_is_missing_is_named(line: bytes) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        adopted_from_json(line)
