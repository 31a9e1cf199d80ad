"""The native lane of an OpenCode that `pal` runs, made from the stored address of its server."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palaver.agents.bus import Bus
from palaver.agents.net.http_client import HttpClient
from palaver.agents.opencode.lane import OpenCodeLane
from palaver.agents.opencode.place import read_place, write_holder, write_told
from palaver.agents.work import Spawn
from palaver.clock import Clock
from palaver.harness.opencode_launch import Began

_logger: Final = logging.getLogger("palaver.holder")


def opencode_lane(
    path: Path,
    bus: Bus,
    *,
    spawn: Spawn,
    on_word: Callable[[], None],
    on_change: Callable[[], None],
    clock: Clock | None = None,
) -> OpenCodeLane:
    """Return the lane for a stored address, and write the agent's name into its instructions.

    If the address cannot be read, the lane is over from the start. If the instructions cannot be written,
    that is only logged.
    """
    place = read_place(path)
    server = HttpClient(place.port, place.user, place.password) if place else HttpClient(0, "", "")
    began = place.began if place else Began()
    made = OpenCodeLane(server, began, bus, spawn=spawn, on_word=on_word, on_change=on_change, clock=clock)
    made.is_over = place is None
    if bus.held is not None:
        try:
            write_holder(path)
            write_told(path, bus.held.name)
        except OSError as error:
            _logger.warning("%s gets no instructions about the bus: %s", bus.held.name, error)
    return made
