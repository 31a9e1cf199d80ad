"""Requests on a line: the bytes of each, and values that cannot be encoded."""

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.lines.examples import LEAST, MOST

from palaver.errors import BadText, MessageTooLarge
from palaver.protocol.lines import Op, SendOp, op_to_json
from palaver.protocol.text import LIMIT_FRAME_BYTES


@pytest.mark.parametrize(("op", "line"), LEAST + MOST)
def test_request_has_exactly_these_bytes(op: Op, line: bytes) -> None:
    assert op_to_json(7, op) == line


def test_every_request_has_an_example_with_every_field() -> None:
    fields = {type(op): set(json.loads(line)) for op, line in MOST}

    assert fields == {kind: {"op", *kind.__struct_encode_fields__} for kind in get_args(Op)}


def test_every_request_has_an_example_with_its_required_fields() -> None:
    fields = {type(op): set(json.loads(line)) for op, line in LEAST}

    needed = {
        kind: {field.name for field in msgspec.structs.fields(kind) if field.required}
        for kind in get_args(Op)
    }
    assert fields == {kind: {"req", "op", *names} for kind, names in needed.items()}


def test_every_request_can_name_the_agent_it_is_made_for() -> None:
    assert all("name" in kind.__struct_encode_fields__ for kind in get_args(Op))


@given(st.text(), st.lists(st.text()))
def test_text_survives_encoding(text: str, to: list[str]) -> None:
    line = op_to_json(1, SendOp(text=text, to=tuple(to)))

    read = json.loads(line)
    assert b"\n" not in line
    assert (read["text"], read.get("to", [])) == (text, to)


def test_lone_surrogate_is_refused_with_its_position() -> None:
    with pytest.raises(BadText) as raised:
        op_to_json(1, SendOp(text="ab\ud800"))

    assert (raised.value.codepoint, raised.value.position) == (0xD800, 2)


def test_line_over_the_frame_limit_is_refused() -> None:
    with pytest.raises(MessageTooLarge) as raised:
        op_to_json(1, SendOp(text="x" * LIMIT_FRAME_BYTES))

    assert raised.value.limit_bytes == LIMIT_FRAME_BYTES
