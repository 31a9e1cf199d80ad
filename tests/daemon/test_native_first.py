"""After a crash of the daemon a harness's native lane reconnects before anything is typed in its terminal."""

import os
import shlex
import signal
import sys

import pytest
from tests.daemon.stage import Home, run_script_as_person, wait_until, write_settings
from tests.holder.stage import PROGRAMS
from tests.limits import LIMIT_S


@pytest.fixture
def monitor(bus: Home) -> int:
    """Start a program that looks like Claude Code and has a monitor. Return the monitor's process."""
    folder = bus.path.parent / "bin"
    folder.mkdir()
    record, orders, monitors, lines = (folder / name for name in ("record", "orders", "monitors", "lines"))
    os.mkfifo(orders)
    words = [sys.executable, "-ISE", str(PROGRAMS / "moods.py"), str(record), str(orders), "framed"]
    (folder / "claude").write_text(
        f"#!/bin/sh\npal monitor >{lines} &\necho $! >{monitors}\nexec {shlex.join(words)}\n"
    )
    (folder / "claude").chmod(0o755)
    path = f"{folder}:{bus.environment['PATH']}"
    started = run_script_as_person(bus, "pal claude --name nova --detach", env={"PATH": path})
    assert started.out == "nova\n", started
    wait_until(lambda: record.exists() and "mood" in record.read_text())
    orders.write_text("idle\n")
    wait_until(lambda: gates(bus) == {"native": "", "terminal": ""})
    return int(monitors.read_text())


def gates(bus: Home) -> dict[str, str]:
    found = bus.ok("status", "nova", "--json").json.get("gates") or []
    return {gate["lane"]: gate["reason"] or "" for gate in found}


def receipt(bus: Home, seq: int) -> dict[str, object]:
    (found,) = bus.ok("receipts", str(seq), "--json").json["receipts"]
    return dict(found)


def test_reconnecting_monitor_gets_the_message_instead_of_the_terminal(bus: Home, monitor: int) -> None:
    write_settings(bus, native_wait_s=round(LIMIT_S))  # A busy machine may need more than the default.
    os.kill(monitor, signal.SIGSTOP)
    try:
        bus.kill()
        bus.ok("up")
        wait_until(lambda: "terminal" in gates(bus))
        seq = int(bus.ok("send", "@nova", "--json", "--", "who brings this?").json["seq"])
    finally:
        os.kill(monitor, signal.SIGCONT)

    wait_until(lambda: receipt(bus, seq)["state"] == "seen")
    assert receipt(bus, seq)["lane"] == "native"


def test_without_its_monitor_the_message_is_typed_eventually(bus: Home, monitor: int) -> None:
    os.kill(monitor, signal.SIGKILL)
    bus.kill()
    bus.ok("up")

    seq = int(bus.ok("send", "@nova", "--json", "--", "who brings this?").json["seq"])

    wait_until(lambda: receipt(bus, seq)["state"] == "seen")
    assert receipt(bus, seq)["lane"] == "terminal"
