"""How the daemon ends: running requests finish first, waiting ones are released, and `down` is permanent."""

import asyncio
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.daemon.stage import Home, finish, wait_until
from tests.daemon.wires import LinesWire, ThinWire, frame, request
from tests.limits import LIMIT_S
from tests.processes import end_process, wait_for_end

from palaver.clock import SystemClock
from palaver.config import load
from palaver.daemon.daemon import Daemon, GuardedTasks, end_all_tasks
from palaver.home import prepare_home
from palaver.log.sqlite import SqliteLog
from palaver.state.fold import apply

CLOSING_TEXT = "pal: the bus was stopped with 'pal down'; 'pal up' starts it again\n"
PATIENCE_S = 4 * LIMIT_S


def waiting(home: Home, count: int) -> list[subprocess.Popen[bytes]]:
    """Start clients that wait for mail of nova. All of them are waiting on return."""
    clients = [
        home.start("recv", "--wait", "--as", "nova", "--from", "nobody", "--json") for _ in range(count)
    ]
    wait_until(lambda: len(connections(home)) >= count)
    return clients


def connections(home: Home) -> list[str]:
    """Return the connections to the daemon's socket, as the system lists them."""
    with open("/proc/net/unix", encoding="utf-8") as table:
        path = str(home.path / "daemon.sock")
        return [line for line in table if line.rstrip().endswith(path) and line.split()[5] == "03"]


def test_down_stays_down_with_twenty_waiting_clients_and_each_learns_why(bus: Home) -> None:
    bus.shell().ok("join", "--name", "nova")
    clients = waiting(bus, 20)

    bus.ok("down")
    ended = [finish(client, limit_s=PATIENCE_S) for client in clients]

    assert [(one.status, one.out) for one in ended] == [(1, "")] * 20
    assert all("the bus was stopped with 'pal down'" in one.err for one in ended)
    assert not (bus.path / "daemon.sock").exists()


def test_down_returns_when_the_daemon_has_exited(bus: Home) -> None:
    pidfd = os.pidfd_open(bus.pid)

    bus.ok("down")

    wait_for_end(pidfd)
    os.close(pidfd)
    assert not (bus.path / "daemon.sock").exists()


def test_down_reports_its_result_in_both_forms(bus: Home) -> None:
    pid = bus.pid

    first = bus.ok("down", "--json")
    bus.ok("up")
    second = bus.ok("down")
    bus.ok("up")
    named = bus.ok("down", "--home", str(bus.path))

    assert first.json == {"pid": pid, "stopped": True}
    assert second.out == "the bus is stopped; nothing is lost, 'pal up' starts it again\n"
    assert named.out == f"the bus is stopped; nothing is lost, 'pal up --home {bus.path}' starts it again\n"


def test_follower_ends_with_a_sentence_when_the_bus_stops(bus: Home) -> None:
    follower = bus.start("events", "--all", "--follow", "--json")
    assert follower.stdout is not None
    assert b"daemon_started" in follower.stdout.readline()

    bus.ok("down")

    assert finish(follower).err == CLOSING_TEXT


def test_client_that_is_still_sending_ends_with_a_sentence(bus: Home) -> None:
    sender = bus.start("send", "--stdin", stdin=subprocess.PIPE)
    wait_until(lambda: bool(connections(bus)))

    bus.ok("down")
    ended = finish(sender)

    assert (ended.status, ended.err) == (1, CLOSING_TEXT)
    bus.ok("up")
    assert bus.texts() == []


def test_terminated_daemon_ends_with_status_0_and_leaves_no_socket(bus: Home) -> None:
    bus.ok("send", "before")

    bus.kill(signal.SIGTERM)

    assert not (bus.path / "daemon.sock").exists()
    assert "stopping: SIGTERM" in (bus.path / "daemon.log").read_text()
    assert bus.texts() == ["before"]


def test_daemon_of_a_replaced_home_leaves_the_socket_of_the_next_one(bus: Home) -> None:
    old = bus.pid
    bus.path.rename(bus.path.with_name("old"))
    bus.ok("up")

    end_process(old, signal.SIGTERM)

    assert bus.ok("status", "--json").json["pid"] == bus.pid != old
    assert (bus.path / "daemon.sock").exists()
    assert (bus.path / "adopt.sock").exists()


def test_waiting_clients_reconnect_when_the_daemon_is_terminated(bus: Home) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    reader = shell.begin("recv", "--wait", "--json")
    wait_until(lambda: bool(connections(bus)))

    bus.kill(signal.SIGTERM)
    bus.ok("send", "@nova", "--", "welcome back")

    assert reader.end().json["text"] == "welcome back"


def test_program_gets_its_responses_before_the_daemon_ends(bus: Home) -> None:
    with LinesWire(bus.path) as program:
        program.ask("join", name="luna")
        numbers = [program.tell("send", to=["@luna"], text=f"number {n}") for n in range(200)]

        bus.kill(signal.SIGTERM)
        answers = [line for line in iter(program.next_line, {}) if "ok" in line]

    texts = bus.texts()
    assert [line["req"] for line in answers] == numbers[: len(answers)]
    assert len(texts) == len(answers)


def test_silent_connection_does_not_delay_the_end(bus: Home) -> None:
    with ThinWire(bus.path) as mute, LinesWire(bus.path) as silent:
        assert silent.ask("whoami")["ok"]["name"] == "script"
        mute.send(frame(b"R")[:3])

        bus.ok("down")

        assert mute.is_closed()
        assert silent.next_line() == {}


def test_log_file_is_rotated_when_it_has_grown_large(home: Home) -> None:
    home.ok("up", env={"PALAVER_LOG_MAX_BYTES": "2000"})

    for number in range(30):
        home.pal("show", str(1000 + number))

    files = {path.name: path.stat().st_size for path in home.path.glob("daemon.log*")}
    assert set(files) == {"daemon.log", "daemon.log.1"}
    assert all(0 < size <= 2000 for size in files.values())


def test_refusal_is_one_line_in_the_log_file(bus: Home) -> None:
    bus.pal("send", "@nobody\nINFO forged", "--", "x")

    lines = (bus.path / "daemon.log").read_text().splitlines()

    assert sum("refused send" in line for line in lines) == 1
    assert not any(line.startswith("INFO forged") for line in lines)


FIRST = {
    "command": b"PAL1" + request("list"),
    "pump": b"PALM" + request("mcp"),
    "lines": b'{"op":"whoami"}\n',
}


@pytest.mark.parametrize("door", FIRST)
async def test_request_after_the_end_of_all_tasks_is_left_to_the_next_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, door: str
) -> None:
    home = prepare_home(tmp_path / "home")
    log = await SqliteLog.open(home, apply=apply, clock=SystemClock())
    async with GuardedTasks() as tasks:
        with ExitStack() as closing:
            doors = await Daemon(home, load(home, {}), SystemClock())._open(log, tasks, closing)
            reader, writer = await asyncio.open_unix_connection(home / "daemon.sock")
            answers, questions = await asyncio.open_unix_connection(home / "daemon.sock")
            questions.write(b"{}\n")
            assert await answers.readline()  # The connection before it is accepted too.
            questions.close()
            doors.unix.shut()
            await doors.unix.close(None)
        end_all_tasks()

    writer.write(FIRST[door])

    assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
    assert [record.message for record in caplog.records] == []
    writer.close()
    await log.close()
