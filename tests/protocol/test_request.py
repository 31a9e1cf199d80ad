"""Requests as values."""

import typing

import msgspec
import pytest

from palaver.protocol.requests import Request, Send

REQUESTS = typing.get_args(Request)


@pytest.mark.parametrize("kind", REQUESTS, ids=[kind.__name__ for kind in REQUESTS])
def test_request_is_a_frozen_value_with_named_fields(kind: type[msgspec.Struct]) -> None:
    config = kind.__struct_config__

    assert config.frozen
    assert set(kind.__struct_fields__) == {field.name for field in msgspec.structs.fields(kind)}
    with pytest.raises(TypeError):
        kind("by position")


@pytest.mark.parametrize("kind", REQUESTS, ids=[kind.__name__ for kind in REQUESTS])
def test_request_has_a_docstring(kind: type[msgspec.Struct]) -> None:
    assert kind.__doc__


def test_two_requests_with_the_same_fields_are_equal() -> None:
    assert Send(text="a", to=("nova",)) == Send(text="a", to=("nova",))
