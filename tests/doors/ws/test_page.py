"""The page docs/websocket.md lists every type, code and push of the code."""

import inspect
import re

from tests.docs.pages import first_cells, page, sections

from palaver.doors.http import websocket
from palaver.doors.http.websocket import PING_EVERY_S, SocketLimits
from palaver.services.paths import DEFAULT_MESSAGES, LIMIT_MESSAGES

SECTIONS = sections(page("websocket.md"), "##")


def test_page_has_exactly_the_requests_of_the_code() -> None:
    assert first_cells(SECTIONS["Requests"]) == [websocket.PING, *websocket.REQUESTS]


def test_page_has_exactly_the_fields_that_are_read() -> None:
    """Each field that a handler reads is in the table, and each field of the table is read."""
    read = set(re.findall(r'(?:text|optional|_whole|get)\(\s*"(\w+)"', inspect.getsource(websocket))) - {
        *("type", "token", "reqId"),
        *("code", "reason", "text"),  # of the messages of ASGI
        *("limit", "fromTime", "toTime"),
    }
    listed = set()
    for row in re.findall(r"^\| `[\w.]+` \|([^|]*)\|", SECTIONS["Requests"], re.MULTILINE):
        listed |= set(re.findall(r"`(\w+)`", row))

    assert listed == read


def test_page_has_every_close_code() -> None:
    codes = {value for value in vars(websocket).values() if isinstance(value, int) and 1000 <= value < 5000}

    listed = {
        int(cell) for cell in re.findall(r"^\| (\d{4}) \|", SECTIONS["How a connection ends"], re.MULTILINE)
    }

    assert listed == codes


def test_page_has_the_limits() -> None:
    limits, text = SocketLimits(), page("websocket.md")

    assert f"within {limits.auth_s:.0f} seconds" in text
    assert f"every {PING_EVERY_S:.0f} seconds" in text
    assert f"more than {limits.frames:,} frames or {limits.waiting_bytes // 2**20} MiB" in text
    assert f"while {limits.unidentified} connections" in text
    assert f"{DEFAULT_MESSAGES} by default, at most {LIMIT_MESSAGES:,}" in text
