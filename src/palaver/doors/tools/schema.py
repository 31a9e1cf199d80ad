"""The parameters of a tool, and their JSON Schema. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["text", "texts", "number", "flag", "object"]
"""`texts` is one text or a list of them."""

_TYPES: Final[dict[Kind, dict[str, object]]] = {
    "text": {"type": "string"},
    "texts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One parameter of a tool."""

    name: str
    kind: Kind = "text"
    help: str = ""
    optional: bool = False
    choices: tuple[str, ...] = ()
    schema: dict[str, object] | None = None
    """A more detailed schema than that of the kind."""


def input_schema(params: Sequence[Param]) -> dict[str, object]:
    """Return the JSON Schema of the parameters of a tool."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {param.name: _schema(param) for param in params},
    }
    if required := [param.name for param in params if not param.optional]:
        schema["required"] = required
    return schema


def _schema(param: Param) -> dict[str, object]:
    schema = dict(param.schema or _TYPES[param.kind])
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.help:
        schema["description"] = param.help
    return schema
