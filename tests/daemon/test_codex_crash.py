"""`kill -9` of the daemon while a message is in transit to the holder of a Codex: it arrives once."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from tests.app.person import holders_of
from tests.daemon.stage import Home, run_as_person, run_script_as_person, wait_until

REPOSITORY = Path(__file__).parents[2]
SIZE = 90_000
MANY = 5
"""Messages of this size in one offer exceed a socket's buffer: the remainder is lost with the daemon."""


class Codex:
    """A stand-in for Codex, held by a real holder on a real bus."""

    def __init__(self, bus: Home) -> None:
        self.bus = bus
        self.texts = bus.path.parent / "texts"
        folder = bus.path.parent / "bin"
        folder.mkdir()
        program = shlex.join([sys.executable, "-m", "tests.holder.codex_stand_in"])
        words = f"PYTHONPATH={shlex.quote(str(REPOSITORY))} exec {program}"
        (folder / "codex").write_text(f'#!/bin/sh\n{words} "$@"\n')
        (folder / "codex").chmod(0o755)
        path = f"{folder}:{bus.environment['PATH']}"
        started = run_script_as_person(
            bus, "pal codex --name nova --detach", env={"PATH": path, "CODEX_TEXTS": str(self.texts)}
        )
        assert started.out == "nova\n", started
        wait_until(lambda: self.gates() == {"terminal": "native", "native": ""})

    def gates(self) -> dict[str, str]:
        found = self.bus.ok("status", "nova", "--json").json.get("gates") or []
        return {gate["lane"]: gate["reason"] or "" for gate in found}

    def state(self, seq: int) -> str:
        (receipt,) = self.bus.ok("receipts", str(seq), "--json").json["receipts"]
        return str(receipt["state"])

    def taken(self, text: str) -> int:
        """Return how many times a text was passed to the model."""
        lines = self.texts.read_text().splitlines() if self.texts.exists() else []
        return sum(text in json.loads(line) for line in lines)


def send(bus: Home, text: str) -> int:
    return int(bus.ok("send", "@nova", "--json", "--", text).json["seq"])


@pytest.mark.parametrize("size", [0, SIZE], ids=["whole", "cut off"])
def test_messages_between_the_daemon_and_the_holder_arrive_once(bus: Home, size: int) -> None:
    codex = Codex(bus)
    (holder,) = holders_of(bus.path)
    run_as_person(bus, "pause", "nova")
    texts = [f"text {number} ".ljust(size, ".") for number in range(MANY)]
    seqs = [send(bus, text) for text in texts]
    os.kill(holder, signal.SIGSTOP)
    try:
        run_as_person(bus, "unpause", "nova")
        wait_until(lambda: {codex.state(seq) for seq in seqs} == {"submitted"})
        bus.kill()
    finally:
        os.kill(holder, signal.SIGCONT)

    bus.ok("up")

    wait_until(lambda: {codex.state(seq) for seq in seqs} == {"seen"})
    last = send(bus, "the last one")
    wait_until(lambda: codex.state(last) == "seen")
    assert [codex.taken(text) for text in (*texts, "the last one")] == [1] * (MANY + 1)
