"""The token that a pump keeps for the next daemon: it round-trips, and foreign content is ignored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.mcp.pump import PumpToken
from palaver.doors.tools import ToolWait

HANDSHAKE: dict[str, object] = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "nova"}}
_seqs = st.integers(0, 2**53)
_waits = st.dictionaries(st.integers(1, 2**32 - 1), st.builds(ToolWait, until_ms=_seqs, seq=_seqs))


@given(st.none() | st.just(HANDSHAKE), _waits)
def test_token_survives_being_written_and_read_back(
    handshake: dict[str, object] | None, waits: dict[int, ToolWait]
) -> None:
    token = PumpToken()
    token.handshake = handshake
    for number, wait in waits.items():
        token.begin(number, wait)

    again = PumpToken(token.to_bytes())

    assert again.handshake == handshake
    assert {number: again.wait(number) for number in waits} == waits


def test_token_with_only_a_handshake_is_accepted() -> None:
    token = PumpToken(json.dumps(HANDSHAKE).encode())

    assert (token.handshake, token.wait(1)) == (HANDSHAKE, None)


def test_settled_wait_is_not_kept() -> None:
    token = PumpToken()
    token.begin(7, ToolWait(until_ms=1, seq=2))

    token.settle(7)
    token.settle(8)

    assert token.to_bytes() == b"{}"


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff", b"[]", b'{"palaver/waits":5}', b'{"palaver/waits":{"x":{"until_ms":1}}}']
)
def test_foreign_content_is_an_empty_token(content: bytes | None) -> None:
    token = PumpToken(content)

    assert (token.handshake, token.wait(1)) == (None, None)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(content: bytes) -> None:
    assert PumpToken(content).wait(1) is None
