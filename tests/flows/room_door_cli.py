"""The command line as a door to rooms: a shell for each agent, and a `pal` command for every tool."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.flows.door import Refused
from tests.flows.room_door import Answer
from tests.flows.shell import Shell

Words = list[str]


class CliRoomSeat:
    """An agent in its shell."""

    def __init__(self, shell: Shell, name: str) -> None:
        self._shell = shell
        self.name = name

    async def ask(self, tool: str, **arguments: Any) -> Answer:
        words, read = _TOOLS[tool]
        return read(await self.lines(*words(arguments)))

    async def lines(self, *words: str) -> list[Answer]:
        """Run a `pal` command and return the printed objects."""
        result = await self._shell.run("pal", *words)
        if result.status not in (0, 3):
            error = json.loads(result.err)
            raise Refused(error["error"], error.get("details", {}))
        return [json.loads(line) for line in result.out.splitlines()]


class CliRooms:
    """Real shells and the real `pal`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._shells: list[Shell] = []

    async def join(self, name: str, harness: str = "") -> CliRoomSeat:
        shell = Shell(self._home)
        self._shells.append(shell)
        await shell.open()
        seat = CliRoomSeat(shell, name)
        await seat.lines("join", "--name", name, *(["--harness", harness] if harness else []), "--json")
        return seat

    async def close(self) -> None:
        for shell in self._shells:
            await shell.close()


def _wait(given: Answer) -> Words:
    limit_ms = given.get("max_wait_ms", 4_000)
    verb = ["wait", "--timeout", f"{limit_ms}ms"] if limit_ms else ["claim"]
    return ["stick", *verb, "--room", given["room_id"], "--json"]


def _owner(verb: str, given: Answer, *more: str) -> Words:
    lease, turn = given["lease_id"], str(given["expected_turn_id"])
    return ["stick", verb, *more, "--room", given["room_id"], "--lease", lease, "--turn", turn, "--json"]


def _handing(verb: str, given: Answer) -> Words:
    more = ["--handoff", json.dumps(given["handoff"])]
    return _owner(verb, given, *([given["to_agent_id"]] if "to_agent_id" in given else []), *more)


def _kick(given: Answer) -> Words:
    force = ["--force"] if given.get("force") else []
    return ["room", "kick", given["target_agent_id"], *force, "--room", given["room_id"], "--json"]


def _send(given: Answer) -> Words:
    to = given.get("to_agent_id", [])
    hint = ["--interrupt"] if given.get("delivery_hint") == "interrupt" else []
    targets = [to] if isinstance(to, str) else to
    return ["send", *targets, "--room", given["room_id"], *hint, "--json", "--", given["body"]]


def _notes(given: Answer) -> Words:
    more = ["--all"] if given.get("include_resolved") else []
    more += ["--after", given["after_note_id"]] if "after_note_id" in given else []
    more += ["--limit", str(given["limit"])] if "limit" in given else []
    return ["note", "list", *more, "--room", given["room_id"], "--json"]


def _history(given: Answer) -> Words:
    seq = str(given.get("after_event_seq", 0))
    return ["events", "--room", given["room_id"], "--after", seq, "--json"]


def _one(lines: list[Answer]) -> Answer:
    (found,) = lines
    return found


def _sent(lines: list[Answer]) -> Answer:
    found = _one(lines)
    return {**found, "event_seq": found["seq"], "event_id": found["id"]}


def _events(lines: list[Answer]) -> Answer:
    """Return the history in the form of the tools, with the fields that the flows use."""
    events = [
        {
            "event_seq": line["seq"],
            "event_id": line["id"],
            "event_type": "message_sent" if line["type"] == "message" else line["type"],
            "from_agent_id": line["payload"].get("from", line["from"]),
            "payload": {**line["payload"], "body": line["payload"].get("text")},
        }
        for line in lines
    ]
    return {"events": events, "cursor_event_seq": events[-1]["event_seq"] if events else 0}


_TOOLS: Final[dict[str, tuple[Callable[[Answer], Words], Callable[[list[Answer]], Answer]]]] = {
    "join_path": (
        lambda given: [
            *("room", "join", given["context_path"], "--json"),
            *(["--new"] if given.get("force_new") else []),
        ],
        _one,
    ),
    "list_rooms": (
        lambda given: ["room", "list", given["context_path"], "--json"],
        lambda lines: {"rooms": lines},
    ),
    "get_room_state": (lambda given: ["room", "state", "--room", given["room_id"], "--json"], _one),
    "leave_room": (lambda given: ["room", "leave", "--room", given["room_id"], "--json"], _one),
    "kick_member": (_kick, _one),
    "wait_for_turn": (_wait, _one),
    "heartbeat": (lambda given: _owner("heartbeat", given), _one),
    "release_stick": (lambda given: _handing("release", given), _one),
    "pass_stick": (lambda given: _handing("pass", given), _one),
    "takeover_stick": (
        lambda given: [
            *("stick", "takeover", "--reason", given["reason"], "--turn", str(given["expected_turn_id"])),
            *("--room", given["room_id"], "--json"),
        ],
        _one,
    ),
    "send_message": (_send, _sent),
    "get_room_events": (_history, _events),
    "add_note": (
        lambda given: ["note", "add", "--room", given["room_id"], "--json", "--", given["body"]],
        _one,
    ),
    "list_notes": (_notes, lambda lines: {"notes": lines}),
    "resolve_note": (
        lambda given: ["note", "resolve", given["note_id"], "--room", given["room_id"], "--json"],
        _one,
    ),
    "inbox": (lambda given: ["inbox", "--json"], lambda lines: {"messages": lines}),
}
