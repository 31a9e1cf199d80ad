"""One companion per session, tested with real processes."""

import os
import subprocess

import pytest

from palaver.errors import BadRequest
from palaver.identity.process import Process, read_process
from palaver.services.agents import CompanionBook


def process(pid: int) -> Process:
    found = read_process(pid)
    assert found is not None
    return found


def test_a_session_has_at_most_one_live_companion() -> None:
    book = CompanionBook()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as first:
        one = process(first.pid)
        book.take("codex", "t1", one)

        book.take("codex", "t1", one)
        book.take("opencode", "t1", process(os.getpid()))
        book.take("codex", "t2", process(os.getpid()))
        with pytest.raises(BadRequest, match=f"already has a companion: process {first.pid}"):
            book.take("codex", "t1", process(os.getpid()))

    book.take("codex", "t1", process(os.getpid()))

    with pytest.raises(BadRequest):
        book.take("codex", "t1", one)
