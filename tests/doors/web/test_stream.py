"""The end of the page's stream of changes."""

import asyncio
from typing import Any, cast

import pytest
from tests.limits import LIMIT_S

from palaver.doors.web import page
from palaver.errors import Unavailable
from palaver.services.view_hub import OpenView, ViewHub, ViewRecord


class Hub:
    """A hub of one view, without records."""

    def forget(self, view: OpenView) -> None:
        """The view is closed."""

    def want_snapshot(self, view: OpenView) -> None:
        """No snapshot is made."""


class Stream:
    """One stream of changes, and the messages sent to its browser."""

    def __init__(self) -> None:
        self.view = OpenView(cast("ViewHub", Hub()), "me", 0, "")
        self.sent: list[Any] = []
        self.error: Exception | None = None
        self.task = asyncio.ensure_future(
            page._follow(self.view, self._receive, self._send, asyncio.Event(), lambda: None)
        )

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if self.error is not None and message.get("more_body"):
            raise self.error

    async def end(self) -> None:
        """Wait for the end of the stream."""
        async with asyncio.timeout(LIMIT_S):
            await self.task


async def test_failed_view_ends_the_response() -> None:
    stream = Stream()

    stream.view.fail(Unavailable("broken"))
    await stream.end()

    assert stream.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_closed_view_ends_the_response() -> None:
    stream = Stream()

    stream.view.close()
    await stream.end()

    assert stream.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_unexpected_error_is_not_swallowed() -> None:
    stream = Stream()
    stream.error = ValueError("a fault")
    stream.view.put(ViewRecord(seq=1, is_snapshot=True, data=b"{}"))

    with pytest.raises(ValueError, match="a fault"):
        await stream.end()
