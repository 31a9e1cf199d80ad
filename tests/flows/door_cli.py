"""The command line as a door: every agent is a persistent shell that runs `pal`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.flows.door import Letter, Refused, Sent, Step
from tests.flows.shell import Result, Shell
from tests.limits import LIMIT_S

from palaver.protocol.envelope import Draft


class CliSeat:
    """An agent in its shell; at a terminal, the human."""

    def __init__(self, shell: Shell, name: str) -> None:
        self._shell = shell
        self.name = name

    async def pal(self, *words: str) -> Result:
        """Run a command; raise its refusal."""
        result = await self._shell.run("pal", *words)
        if result.status not in (0, 3):
            error = json.loads(result.err)
            raise Refused(error["error"], error.get("details", {}))
        return result

    async def _read(self, *words: str) -> list[Any]:
        return _lines(await self.pal(*words, "--json"))

    async def send(
        self,
        to: Sequence[str],
        text: str,
        *,
        intent: str = "",
        thread: str = "",
        reply_to: str = "",
        priority: str = "",
        expires_ms: int = 0,
        id: str = "",
        dry_run: bool = False,
    ) -> Sent:
        options = {
            "--intent": intent,
            "--thread": thread,
            "--reply-to": reply_to,
            "--priority": priority,
            "--expires": f"{expires_ms / 1000:f}" if expires_ms else "",
            "--id": id,
        }
        words = [word for name, value in options.items() if value for word in (name, value)]
        if dry_run:
            words.append("--dry-run")
        (found,) = _lines(await self.pal("send", *words, *to, "--json", "--", text))
        return Sent(
            seq=found.get("seq", 0),
            id=found.get("id", ""),
            to=tuple(found["to"]),
            delivered_to=tuple(found["delivered_to"]),
            empty_groups=tuple(found.get("empty_groups", ())),
            dead=tuple(found.get("dead", ())),
            exited=tuple(one["agent"] for one in found.get("exited", ())),
            is_repeat=found.get("repeat", False),
        )

    async def take(self) -> list[Letter]:
        letters: list[Letter] = []
        while found := await self._read("recv"):
            letters += [Letter(fields=fields) for fields in found]
        return letters

    async def wait(self) -> list[Letter]:
        return [
            Letter(fields=fields) for fields in await self._read("recv", "--wait", "--timeout", f"{LIMIT_S}")
        ]

    async def look(self) -> list[Letter]:
        return [Letter(fields=fields) for fields in await self._read("recv", "--peek")]

    async def receipts(self, message: str) -> list[Step]:
        (found,) = await self._read("receipts", message)
        return [
            Step(
                name=line["name"],
                state=line["state"],
                lane=line.get("lane", ""),
                grade=line.get("grade", ""),
                answer=line.get("answer", 0),
                wait="{code}: {text}; {moves}".format(**line["wait"]) if "wait" in line else "",
            )
            for line in found["receipts"]
        ]

    async def leave(self) -> None:
        await self.pal("leave", "--json")

    async def put(self, envelope: Draft) -> Sent:
        raise NotImplementedError

    async def take_fence(self) -> str:
        return (await self.pal("recv")).out


class CliDoor:
    """Real shells and the real `pal`."""

    offers = frozenset({"fence"})

    def __init__(self, home: Path) -> None:
        self._home = home
        self._shells: list[Shell] = []

    async def join(self, name: str, *, role: str = "worker") -> CliSeat:
        seat = CliSeat(await self._shell(), name)
        await seat.pal("join", "--name", name, "--role", role, "--json")
        return seat

    async def come_back(self, name: str) -> CliSeat:
        seat = CliSeat(await self._shell(), name)
        await seat.pal("join", "--as", name, "--json")
        return seat

    async def human(self) -> CliSeat:
        """Return the person, at a terminal."""
        return CliSeat(await self._shell(at_terminal=True), "human")

    async def _shell(self, *, at_terminal: bool = False) -> Shell:
        shell = Shell(self._home)
        await shell.open(at_terminal=at_terminal)
        self._shells.append(shell)
        return shell

    async def close(self) -> None:
        for shell in self._shells:
            await shell.close()


def _lines(result: Result) -> list[Any]:
    # Not `splitlines`: a text may contain other characters that it treats as line ends.
    return [json.loads(line) for line in result.out.split("\n") if line]
