"""Check the arguments of a tool call against its parameters. Pure.

A model may omit an optional parameter or pass null for it, and may write a whole number as 5.0. Every other
mismatch is refused with an error that names the expected type.
"""

from collections.abc import Mapping
from typing import Final

from palaver.doors.tools.schema import Kind, Param
from palaver.doors.tools.tools import Tool
from palaver.errors import BadRequest

_WANTED: Final[Mapping[Kind, str]] = {
    "text": "a string",
    "texts": "a string or a list of strings",
    "number": "a whole number",
    "flag": "true or false",
    "object": "an object",
}
_LIMIT_NUMBER: Final = 2**53


def checked_arguments(tool: Tool, given: Mapping[str, object] | None) -> dict[str, object]:
    """Return the given arguments of a call by name; raises BadRequest."""
    arguments = {name: value for name, value in (given or {}).items() if value is not None}
    known = {param.name: param for param in tool.params}
    for name in arguments:
        if name not in known:
            takes = ", ".join(known) or "nothing"
            raise BadRequest(f"{tool.name} has no parameter {name[:64]!r}; it takes {takes}")
    for param in tool.params:
        if param.name not in arguments and not param.optional:
            raise BadRequest(f"{tool.name} requires {param.name} ({_WANTED[param.kind]})")
    return {name: _checked(tool, known[name], value) for name, value in arguments.items()}


def _checked(tool: Tool, param: Param, value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _fits(param.kind, value):
        raise BadRequest(f"{param.name} of {tool.name} must be {_WANTED[param.kind]}")
    if param.choices and value not in param.choices:
        raise BadRequest(f"{param.name} of {tool.name} must be one of {', '.join(param.choices)}")
    return value


def _fits(kind: Kind, value: object) -> bool:
    if kind == "text":
        return _is_text(value)
    if kind == "texts":
        # The implementation checks an empty list: its meaning depends on the parameter.
        return _is_text(value) or (isinstance(value, list) and all(map(_is_text, value)))
    if kind == "number":
        return type(value) is int and -_LIMIT_NUMBER < value < _LIMIT_NUMBER
    if kind == "flag":
        return isinstance(value, bool)
    return isinstance(value, dict)


def _is_text(value: object) -> bool:
    """Return whether a value is a string that UTF-8 can encode: JSON may contain a lone surrogate."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
