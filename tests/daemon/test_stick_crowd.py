"""Twenty real processes compete for one stick while some are killed at random."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.crew import Crew
from tests.daemon.stage import Home, Job, JsonLine, Shell, write_settings

CROWD = 20
KILLS = 8
TURNS_AFTERWARDS = 30
QUICK = {
    "room_heartbeat_s": 1,
    "room_claim_s": 1,
    "room_waiter_grace_s": 1,
}
"""Short times, so that their effects occur during the test; no assertion depends on them."""

WORKER = """
cd "$1" && pal join --name "$2" >&2 && pal room join >&2 || exit 1
RANDOM=$3
hand_over='{"status": "done", "next_action": "go on"}'
while :; do
    if turn=$(pal stick wait --timeout 20s --json); then
        echo "$turn" >>"$1/$2"
        if [ $((RANDOM % 3)) = 0 ]; then
            pal stick pass "w$((RANDOM % 24))" --handoff "$hand_over" ||
                pal stick release --handoff "$hand_over"
        else
            pal stick release --handoff "$hand_over"
        fi
    else
        pal stick takeover --reason "it is free to take" --json >>"$1/$2"
    fi
done >/dev/null 2>&1
"""


class Worker:
    """An agent that only takes its turn and passes the stick on."""

    def __init__(self, home: Home, folder: Path, name: str, seed: int) -> None:
        self.name = name
        self._given = folder / name
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-c", WORKER, "worker", str(folder), name, str(seed)],
            env=home.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def kill(self) -> None:
        """End it and its current request."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def given(self) -> list[JsonLine]:
        """Return the turns it received; the last line may be incomplete after a kill."""
        if not self._given.exists():
            return []
        whole = [line for line in self._given.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [turn for line in whole if (turn := json.loads(line))["status"] == "your_turn"]


class Grants:
    """The turns as the room's events report them, in order."""

    def __init__(self, shell: Shell) -> None:
        self._stream: Job = shell.begin(
            *(
                "events",
                "--follow",
                "--room",
                "shop",
                "--type",
                "claim",
                "--type",
                "takeover",
                "--all",
                "--json",
            )
        )

    def next_holder(self) -> str:
        """Wait for the next turn and return its owner; it must come within the time limit of a test."""
        return holder(json.loads(self._stream.line()))


@pytest.fixture
def crowd(home: Home) -> Iterator[list[Worker]]:
    """Every started worker; those still running are ended with the test."""
    started: list[Worker] = []
    yield started
    for worker in started:
        try:
            worker.kill()
        except ProcessLookupError:
            continue


def holder(event: JsonLine) -> str:
    """Return the agent whose turn an event begins."""
    return str(event["to"][0] if event["type"] == "claim" else event["from"])


@pytest.mark.parametrize("seed", [7])
def test_each_turn_has_one_owner_while_many_members_compete_and_die(
    home: Home, crowd: list[Worker], seed: int
) -> None:
    write_settings(home, **QUICK)
    home.start_daemon()
    crew, draw = Crew(home), random.Random(seed)
    crew.member("onlooker", "claude")  # The room must exist before the test follows its events.
    folder = crew.folder
    crowd += [Worker(home, folder, f"w{number}", draw.randrange(30_000)) for number in range(CROWD)]
    living = {worker.name: worker for worker in crowd}
    grants = Grants(home.shell())

    for number in range(KILLS):
        for _ in range(draw.randint(2, 12)):
            has_it = grants.next_holder()
        name = has_it if number % 2 and has_it in living else draw.choice(sorted(living))
        living.pop(name).kill()
        fresh = Worker(home, folder, f"w{CROWD + number}", draw.randrange(30_000))
        living[fresh.name] = fresh
        crowd.append(fresh)
    afterwards = {grants.next_holder() for _ in range(TURNS_AFTERWARDS)}

    # Nothing is stuck: after the last kill the stick moves on, among more than two members.
    assert len(afterwards & living.keys()) >= 5
    events = home.events("--room", "shop")
    check_one_owner(events)
    # The turns that each worker received are the stored ones.
    decided = {
        event["payload"]["turn_id"]: (holder(event), event["payload"]["lease_id"])
        for event in events
        if event["type"] in ("claim", "takeover")
    }
    reported = [
        (turn["turn_id"], (worker.name, turn["lease_id"])) for worker in crowd for turn in worker.given()
    ]
    assert len({turn for turn, _ in reported}) == len(reported)
    assert len(reported) > TURNS_AFTERWARDS
    late = max(decided)
    assert [pair for pair in reported if pair[0] <= late and decided[pair[0]] != pair[1]] == []


def check_one_owner(events: list[JsonLine]) -> None:
    """Check that each turn is granted once, to one member, while no other member has the stick."""
    owner, turn = "", 0
    for event in events:
        payload = event["payload"]
        match event["type"]:
            case "claim":
                assert (owner, payload["turn_id"]) == ("", turn + 1), event
                owner, turn = holder(event), turn + 1
            case "takeover":
                assert payload["turn_id"] == turn + 1, event
                assert event["to"][0] != holder(event), event
                owner, turn = holder(event), turn + 1
            case "release" | "pass":
                assert owner, event
                assert event["from"] in (owner, "[pal-events]"), event
                assert payload["turn_id"] == turn, event
                owner = ""
            case "member_left" if payload.get("from", event["from"]) == owner:
                owner = ""
