"""Doors to paths: at each of them an agent routes messages and takes those that reach it.

A new door joins the suite with a driver: one class for the door, one for an agent that uses it.
"""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from tests.flows.door import Refused
from tests.flows.door_cli import CliDoor, CliSeat
from tests.flows.room_door import HttpRooms, McpRooms, McpSeat

import palaver
from palaver.errors import PalaverError


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A routed message as its recipient reads it, independent of its wire format."""

    sender: str
    path: str
    command: str
    payload: object
    source: str = "internal"
    external_id: str | None = None


class PathSeat(Protocol):
    """An agent that uses a door."""

    name: str

    async def route(
        self, path: str, command: str = "", payload: object = None, source: str = "", external_id: str = ""
    ) -> Mapping[str, Any]:
        """Route a message and return the result as the door writes it, or raise Refused."""
        ...

    async def take(self) -> list[Routed]:
        """Return the waiting messages."""
        ...


class PathDoor(Protocol):
    """One door to the paths of one home."""

    async def join(self, name: str) -> PathSeat:
        """Join an agent."""
        ...

    async def close(self) -> None:
        """Disconnect all agents of this door."""
        ...


def given(**fields: object) -> dict[str, Any]:
    """Return the fields that are not empty: the others have defaults at each door."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


def flat_routed(fields: Mapping[str, Any]) -> Routed:
    """Return a message from the flat object that `pal recv` and `inbox` print."""
    return Routed(
        sender=fields["from"],
        path=fields["path"],
        command=fields["command"],
        payload=fields["payload"],
        source=fields["source"],
        external_id=fields.get("external_id"),
    )


# --------------------
# The SDK, and with it the JSON lines of the Unix socket.


class SdkPathSeat:
    """A connection of this process."""

    def __init__(self, me: palaver.Connection) -> None:
        self.me = me
        self.name = me.name

    async def route(
        self, path: str, command: str = "", payload: object = None, source: str = "", external_id: str = ""
    ) -> Mapping[str, Any]:
        fields = given(command=command, payload=payload, source=source, external_id=external_id)
        try:
            result = await self.me.route(path, **fields)
        except PalaverError as error:
            raise Refused(error.code, error.details) from error
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
        return found

    async def take(self) -> list[Routed]:
        return [
            Routed(
                sender=one.sender,
                path=one.path,
                command=one.command,
                payload=one.payload,
                source=one.source,
                external_id=one.external_id,
            )
            for one in await self.me.receive()
        ]


class SdkPaths:
    """Connections in this process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ends = AsyncExitStack()

    async def join(self, name: str) -> SdkPathSeat:
        return SdkPathSeat(await self._ends.enter_async_context(palaver.connect(name, home=self._home)))

    async def close(self) -> None:
        await self._ends.aclose()


# --------------------
# The command line.


class CliPathSeat:
    """An agent in its shell."""

    def __init__(self, seat: CliSeat) -> None:
        self._seat = seat
        self.name = seat.name

    async def route(
        self, path: str, command: str = "", payload: object = None, source: str = "", external_id: str = ""
    ) -> Mapping[str, Any]:
        written = "" if payload is None else json.dumps(payload)
        options = {
            "--command": command,
            "--payload": written,
            "--source": source,
            "--external-id": external_id,
        }
        words = [word for name, value in options.items() if value for word in (name, value)]
        (line,) = (await self._seat.pal("route", path, *words, "--json")).out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    async def take(self) -> list[Routed]:
        return [flat_routed(letter.fields) for letter in await self._seat.take()]


class CliPaths:
    """Real shells and the real `pal`."""

    def __init__(self, home: Path) -> None:
        self._door = CliDoor(home)

    async def join(self, name: str) -> CliPathSeat:
        return CliPathSeat(await self._door.join(name))

    async def close(self) -> None:
        await self._door.close()


# --------------------
# MCP: the pump, and HTTP.


class McpPathSeat:
    """A model with tools. It sees its messages with `inbox`."""

    def __init__(self, seat: McpSeat) -> None:
        self._seat = seat
        self.name = seat.name

    async def route(
        self, path: str, command: str = "", payload: object = None, source: str = "", external_id: str = ""
    ) -> Mapping[str, Any]:
        fields = given(command=command, payload=payload, source=source, external_id=external_id)
        found = await self._seat.ask("route_message", to=path, **fields)
        assert ("hint" in found) == found["unmatched"]
        found.pop("hint", None)
        return found

    async def take(self) -> list[Routed]:
        return [flat_routed(message) for message in (await self._seat.ask("inbox"))["messages"]]


class McpPaths:
    """`pal mcp`, the pump that a harness starts."""

    def __init__(self, home: Path) -> None:
        self._door = McpRooms(home)

    async def join(self, name: str) -> McpPathSeat:
        return McpPathSeat(await self._door.join(name))

    async def close(self) -> None:
        await self._door.close()


class HttpPaths:
    """`/mcp` of the HTTP door."""

    def __init__(self, home: Path) -> None:
        self._door = HttpRooms(home)

    async def join(self, name: str) -> McpPathSeat:
        return McpPathSeat(await self._door.join(name))

    async def close(self) -> None:
        await self._door.close()
