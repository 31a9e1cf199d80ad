"""Attacks with views of the bus that an agent opens."""

import json
import socket
from contextlib import ExitStack
from typing import Any

from tests.daemon.stage import Home
from tests.limits import LIMIT_S

from palaver.doors.lines_ops import LIMIT_FOREIGN_VIEWS


def open_view(home: Home, stack: ExitStack) -> dict[str, Any]:
    """Open a view that is not read after its first line; return that line."""
    connected = stack.enter_context(socket.socket(socket.AF_UNIX))
    connected.settimeout(LIMIT_S)
    connected.connect(str(home.path / "daemon.sock"))
    connected.sendall(b'{"req":1,"op":"view"}\n')
    with connected.makefile("rb") as file:
        found: dict[str, Any] = json.loads(file.readline())
        return found


def test_script_cannot_fill_the_daemon_with_views(bus: Home) -> None:
    """Promise: views of agents use little memory together."""
    with ExitStack() as stack:
        opened = [open_view(bus, stack) for _ in range(LIMIT_FOREIGN_VIEWS)]

        refused = open_view(bus, stack)

    assert all("ok" in one for one in opened)
    assert refused["error"] == "bad_request"
