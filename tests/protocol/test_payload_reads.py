"""Readers use the typed content of an event: string-keyed reads of payloads do not spread."""

import ast
from collections.abc import Iterator
from pathlib import Path

import palaver

ROOT = Path(palaver.__file__).parent
CODEC = {
    "protocol/envelope.py",  # lines and the marker of lost content
    "protocol/events.py",  # structs
    "protocol/redaction.py",  # the stored payload without its text
    "log/records.py",  # rows: the columns and the searched text of any payload
}
"""Files that convert between stored payloads and typed content."""
OTHER_PAYLOADS = {
    "app/chat/page.py",
    "app/thin/client.py",
    "harness/codex/transcript.py",
    "holder/control.py",
    "log/repair.py",
    "protocol/thin.py",
}
"""Files whose payloads are not those of events: frames, hook input, and the transcripts of a harness."""

LIMIT = 0
"""String-keyed reads of payloads that are left. It only goes down."""


def reads_in(source: str) -> list[str]:
    """Return every expression that reads a key of something named `payload`, or of an alias of it."""
    found: dict[int, str] = {}
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            aliases = {"payload"}
            for target, value in _assignments(function):
                if _is_payload(value, aliases) or _is_get(value, aliases):
                    aliases.add(target)
            for node in ast.walk(function):
                if _is_read(node, aliases):
                    found[id(node)] = ast.unparse(node)
    return [*found.values()]


def _assignments(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def _is_payload(node: ast.expr, aliases: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "payload"
    if isinstance(node, ast.BoolOp):
        return any(_is_payload(value, aliases) for value in node.values)
    return isinstance(node, ast.Name) and node.id in aliases


def _is_get(node: ast.expr, aliases: set[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "get" and _is_payload(node.value, aliases)


def _is_read(node: ast.AST, aliases: set[str]) -> bool:
    if isinstance(node, ast.Call):
        is_alias = isinstance(node.func, ast.Name) and node.func.id in aliases
        return is_alias or _is_get(node.func, aliases)
    if isinstance(node, ast.Subscript):
        is_key = isinstance(node.ctx, ast.Load) and not isinstance(node.slice, ast.Slice)
        return is_key and _is_payload(node.value, aliases)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return _is_payload(node.comparators[0], aliases)
    return False


def test_reads_are_found_in_every_form() -> None:
    source = """
def read(event, payload):
    first = event.payload["a"]
    field, other = event.payload.get, event.payload
    return field("b"), other.get("c"), "d" in payload, (event.payload or {}).get("e"), payload.items()
"""

    assert len(reads_in(source)) == 5


def test_payloads_are_read_by_key_in_the_codec_only() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {read}"
        for path in sorted(ROOT.rglob("*.py"))
        if str(path.relative_to(ROOT)) not in CODEC | OTHER_PAYLOADS
        for read in reads_in(path.read_text())
    ]

    assert len(found) <= LIMIT, "\n".join(found)
