"""Slow imports while the event loop keeps running."""

import asyncio
import gc
import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

from palaver.doors.mcp.pump import Loader, quietly
from palaver.doors.mcp.server import McpSession


async def test_event_loop_runs_during_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def slow() -> type[McpSession]:
        assert may_end.wait(LIMIT_S)
        return McpSession

    monkeypatch.setattr("palaver.doors.mcp.pump._import_session", slow)
    loading = asyncio.create_task(Loader().session_class())
    await asyncio.sleep(0)

    may_end.set()  # set by the event loop, so the loop was not blocked

    assert await loading is McpSession


def test_interpreter_settings_are_restored_after_an_import() -> None:
    before = sys.getswitchinterval()

    assert quietly(lambda: (sys.getswitchinterval() < before, gc.isenabled())) == (True, False)
    assert (sys.getswitchinterval(), gc.isenabled()) == (before, True)


def test_interpreter_settings_are_restored_after_a_failed_import() -> None:
    before = sys.getswitchinterval()

    def broken() -> None:
        raise ImportError("no such thing")

    with pytest.raises(ImportError):
        quietly(broken)

    assert (sys.getswitchinterval(), gc.isenabled()) == (before, True)


def test_interpreter_settings_are_restored_after_overlapping_imports() -> None:
    before = sys.getswitchinterval()
    first_begun, second_begun = threading.Event(), threading.Event()
    first_may_end, second_may_end = threading.Event(), threading.Event()

    def load(begun: threading.Event, may_end: threading.Event) -> bool:
        begun.set()
        return may_end.wait(LIMIT_S)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(quietly, lambda: load(first_begun, first_may_end))
        assert first_begun.wait(LIMIT_S)
        second = pool.submit(quietly, lambda: load(second_begun, second_may_end))
        assert second_begun.wait(LIMIT_S)
        first_may_end.set()
        assert first.result(LIMIT_S)
        second_may_end.set()
        assert second.result(LIMIT_S)

    try:
        assert (sys.getswitchinterval(), gc.isenabled()) == (before, True)
    finally:
        sys.setswitchinterval(before)


def test_new_modules_are_left_out_of_garbage_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_for_this_test.py").write_text("kept = [[]]\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.get_freeze_count()

    try:
        loaded = quietly(lambda: importlib.import_module("module_for_this_test"))

        assert gc.get_freeze_count() > before
        assert not any(one is loaded.kept for one in gc.get_objects())
    finally:
        gc.unfreeze()
        del sys.modules["module_for_this_test"]


def test_modules_that_are_loaded_already_change_no_garbage_collection() -> None:
    before = gc.get_freeze_count()

    quietly(lambda: None)

    assert gc.get_freeze_count() == before
