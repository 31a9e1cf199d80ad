"""Readers use the typed content of an event: string-keyed reads of payloads do not spread."""

import ast

from tools.measure_code import payload_reads, read_modules, reads_in

LIMIT = 0
"""String-keyed reads of payloads that are left. It only goes down."""


def test_reads_are_found_in_every_form() -> None:
    source = """
def read(event, payload):
    first = event.payload["a"]
    field, other = event.payload.get, event.payload
    return field("b"), other.get("c"), "d" in payload, (event.payload or {}).get("e"), payload.items()
"""

    assert len(reads_in(ast.parse(source))) == 5


def test_payloads_are_read_by_key_in_the_codec_only() -> None:
    found = payload_reads(read_modules())

    assert len(found) <= LIMIT, "\n".join(found)
