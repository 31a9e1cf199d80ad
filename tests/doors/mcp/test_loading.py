"""Slow imports, beside a loop that goes on."""

import asyncio
import gc
import sys
import threading

import pytest
from tests.limits import LIMIT_S

from palaver.doors.mcp.loading import Loader, quietly
from palaver.doors.mcp.session import Session


async def test_the_loop_goes_on_while_something_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def slow() -> type[Session]:
        assert may_end.wait(LIMIT_S)
        return Session

    monkeypatch.setattr("palaver.doors.mcp.loading._import_session", slow)
    loading = asyncio.create_task(Loader().session_class())
    await asyncio.sleep(0)

    may_end.set()  # by the loop itself, which therefore was not held up

    assert await loading is Session


def test_the_interpreter_is_as_it_was_afterwards() -> None:
    before = sys.getswitchinterval()

    assert quietly(lambda: (sys.getswitchinterval() < before, gc.isenabled())) == (True, False)
    assert (sys.getswitchinterval(), gc.isenabled()) == (before, True)


def test_an_import_that_fails_leaves_the_interpreter_as_it_was() -> None:
    before = sys.getswitchinterval()

    def broken() -> None:
        raise ImportError("no such thing")

    with pytest.raises(ImportError):
        quietly(broken)

    assert (sys.getswitchinterval(), gc.isenabled()) == (before, True)
