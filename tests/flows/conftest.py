"""Run each flow for every door that supports it, in its own home with a real daemon."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.flows.door import Door
from tests.flows.door_cli import CliDoor, CliSeat
from tests.flows.door_sdk import SdkDoor
from tests.flows.path_door import CliPaths, HttpPaths, McpPaths, PathDoor, SdkPaths
from tests.flows.room_door import HttpRooms, McpRooms, RoomDoor, SdkRooms
from tests.flows.room_door_cli import CliRooms
from tests.forked_daemons import fork_daemon
from tests.processes import end_processes_of

DOORS: Final[dict[str, Callable[[Path], Door]]] = {"cli": CliDoor, "sdk": SdkDoor}
ROOM_DOORS: Final[dict[str, Callable[[Path], RoomDoor]]] = {
    "cli": CliRooms,
    "sdk": SdkRooms,
    "mcp": McpRooms,
    "http": HttpRooms,
}
PATH_DOORS: Final[dict[str, Callable[[Path], PathDoor]]] = {
    "cli": CliPaths,
    "sdk": SdkPaths,
    "mcp": McpPaths,
    "http": HttpPaths,
}
_ROOM_OFFERS: Final[dict[str, set[str]]] = {
    "cli": set(),
    "sdk": {"events"},
    "mcp": {"events"},
    "http": {"events"},
}
_OFFERS: Final = {"cli": CliDoor.offers, "sdk": SdkDoor.offers}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "door" in metafunc.fixturenames:
        needs = getattr(metafunc.function, "needs", "")
        names = [name for name, offers in _OFFERS.items() if not needs or needs in offers]
        metafunc.parametrize("door", names, indirect=True)
    if "rooms" in metafunc.fixturenames:
        needs = getattr(metafunc.function, "needs", "")
        names = [name for name, offers in _ROOM_OFFERS.items() if not needs or needs in offers]
        metafunc.parametrize("rooms", names, indirect=True)
    if "paths" in metafunc.fixturenames:
        metafunc.parametrize("paths", PATH_DOORS, indirect=True)


@pytest.fixture
def home() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="pal-"))
    yield directory
    end_processes_of(directory)
    shutil.rmtree(directory, ignore_errors=True)  # an ending process may still write there


def start_daemon(home: Path, *, has_http: bool = False) -> None:
    """Start the daemon of a home, with HTTP on a free port if a door needs it."""
    if has_http:
        (home / "config.toml").write_text('http = "127.0.0.1:0"\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PALAVER_HOME": str(home)}
    fork_daemon(home, environment)


@pytest.fixture
async def door(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Door]:
    start_daemon(home)
    opened = DOORS[request.param](home)
    yield opened
    await opened.close()


@pytest.fixture
async def rooms(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[RoomDoor]:
    """Yield one door to the rooms of a home."""
    start_daemon(home, has_http=request.param == "http")
    opened = ROOM_DOORS[request.param](home)
    yield opened
    await opened.close()


@pytest.fixture
async def paths(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[PathDoor]:
    """Yield one door to the paths of a home."""
    start_daemon(home, has_http=request.param == "http")
    opened = PATH_DOORS[request.param](home)
    yield opened
    await opened.close()


@pytest.fixture
async def all_rooms(home: Path) -> AsyncIterator[dict[str, RoomDoor]]:
    """Yield every door to the rooms of one home, by name."""
    start_daemon(home, has_http=True)
    opened = {name: ROOM_DOORS[name](home) for name in ("http", "cli", "sdk", "mcp")}
    yield opened
    for door in opened.values():
        await door.close()


@pytest.fixture
def workspace() -> Iterator[Path]:
    """Yield a folder for several agents; it is inside no other room."""
    directory = Path(tempfile.mkdtemp(prefix="work-")).resolve()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)  # an ending process may still write there


@pytest.fixture
async def human(home: Path) -> AsyncIterator[CliSeat]:
    """Yield the person at a terminal, whichever door the agents use."""
    terminal = CliDoor(home)
    yield await terminal.human()
    await terminal.close()
