"""The HTTP door, open or closed. Its libraries are imported only when it is opened."""

import asyncio
import socket
from typing import TYPE_CHECKING

from palaver.config import Settings
from palaver.doors.mcp.pump import quietly
from palaver.doors.tcp_door import (
    HTTP,
    Address,
    RunningServer,
    StartServer,
    TcpDoor,
    allowed_names,
    check_reach,
)

if TYPE_CHECKING:
    from palaver.doors.http.listening import Listening
    from palaver.services.services import Services


class HttpDoor(TcpDoor):
    """The HTTP door."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        super().__init__(HTTP)
        self._tasks = tasks

    async def _prepare(self, wanted: Address, settings: Settings) -> StartServer:
        check_reach(wanted, is_remote=bool(settings.http_remote))
        # In a thread, because the libraries take a while to load and the loop must not wait.
        listening_class = await asyncio.to_thread(quietly, _import_listening)

        async def start(services: "Services", listener: socket.socket, address: Address) -> RunningServer:
            names = allowed_names(address, settings.http_hosts)
            listening = listening_class(services, names, listener, self._tasks)
            await listening.start()
            return RunningServer(scheme="http", stop=listening.stop)

        return start


def _import_listening() -> "type[Listening]":
    from palaver.doors.http.listening import Listening

    return Listening
