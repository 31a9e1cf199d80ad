"""Transcripts of OpenCode: recorded ones, and unusual messages."""

import json

import pytest
from tests.harness.transcript_samples import opencode_lines, outline

from palaver.harness.opencode.output import OpencodeTranscript, opencode_folders

READER = OpencodeTranscript()


def message(role: str, *parts: object, **info: object) -> bytes:
    return json.dumps({"info": {"role": role, **info}, "parts": parts}).encode() + b"\n"


def test_session_with_tools_and_a_compaction_is_read() -> None:
    assert outline(READER, list(opencode_lines())) == [
        "user: list the files",
        "assistant: I look at the files first. | bash = notes.txt",
        "assistant: Two at once now. | bash = one two | read ! File not found: /home/pat/demo/missing.txt",
        "assistant: There are two lines in notes.txt: eins, zwei, über alles ✓.",
        "system: The conversation was compacted.",
        "system: demo title",
        "user: is that all? really?",
        "assistant: Yes, that is all.",
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            message("user", {"type": "text", "text": "file content", "synthetic": True}),
            ["system: file content"],
        ),
        (message("user", {"type": "text", "text": "x", "ignored": True}), []),
        (message("assistant", {"type": "step-start"}), []),
        (
            message("assistant", {"type": "tool", "tool": "ls", "state": {"status": "running"}}),
            ["assistant:  | ls = -"],
        ),
        (message("assistant", error={"name": "Aborted", "data": {}}), ["assistant: (error: Aborted)"]),
        (message("assistant", 5, "x", None), []),
        (b'{"info": [], "parts": {}}\n', []),
        (b"[]\n", []),
        (b'{"info": {"ro', []),
    ],
)
def test_each_kind_of_message_is_read(given: bytes, shown: list[str]) -> None:
    assert outline(READER, [given]) == shown


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/h"}, ["/h/.local/share/opencode/opencode.db", "/h/.local/share/opencode/opencode-*.db"]),
        ({"HOME": "/h", "XDG_DATA_HOME": "/d"}, ["/d/opencode/opencode.db", "/d/opencode/opencode-*.db"]),
        ({"HOME": "/h", "OPENCODE_DB": "/x/y.db"}, ["/x/y.db"]),
        ({"HOME": "/h", "OPENCODE_DB": "y.db"}, ["/h/.local/share/opencode/y.db"]),
        ({}, []),
    ],
)
def test_databases_are_searched_in_the_data_folder(environment: dict[str, str], expected: list[str]) -> None:
    assert list(map(str, opencode_folders("s", environment))) == expected
