"""Files of a home that are removed or replaced while the daemon runs."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import Home, new_home, run_as_person, wait_until

from palaver.log.storage import FILE_NAME

PYTHON_CLIENT = "import sys; from palaver.app.thin.client import main; sys.exit(main())"
FILES = [FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"]


@pytest.fixture(params=["c", "python"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A running bus, used by one of the two clients."""
    if request.param == "c":
        with new_home() as home:
            home.start_daemon()
            yield home
        return
    script = tmp_path / "pal"
    script.write_text(f'#!/bin/sh\n"exec" "{sys.executable}" "$0" "$@"\n{PYTHON_CLIENT}\n')
    script.chmod(0o755)
    with new_home(str(script)) as home:
        home.ok("up")
        yield home


def send(bus: Home, text: str) -> None:
    bus.ok("send", "--", text)


def daemon_log(bus: Home) -> str:
    return (bus.path / "daemon.log").read_text()


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """Replace the file with a copy."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


@pytest.mark.parametrize("harm", [remove, replace])
@pytest.mark.parametrize("name", FILES)
def test_nothing_is_accepted_after_a_log_file_was_removed_or_replaced(
    bus: Home, name: str, harm: Callable[[Path], None]
) -> None:
    send(bus, "before")
    harm(bus.path / name)

    refused = [bus.pal("send", "--json", "--", f"after {number}") for number in range(3)]

    what = "removed" if harm is remove else "replaced"
    for one in refused:
        assert (one.status, one.error["error"]) == (1, "storage_failed")
        assert f"{name} was {what} while the bus was running" in one.error["message"]
        assert "'pal down' and then 'pal up'" in one.error["message"]
    wait_until(lambda: f"{name} was {what}" in daemon_log(bus))


@pytest.mark.parametrize("name", FILES)
def test_acknowledged_events_survive_a_removed_file(bus: Home, name: str) -> None:
    send(bus, "before")
    (bus.path / name).unlink()
    assert bus.pal("send", "--", "after").status == 1

    bus.ok("down")
    bus.ok("up")
    send(bus, "again")

    assert bus.texts() == ["before", "again"] or bus.texts() == ["before", "after", "again"]


@pytest.mark.parametrize("name", FILES)
def test_acknowledged_events_survive_a_removed_file_and_a_kill(bus: Home, name: str) -> None:
    send(bus, "before")
    (bus.path / name).unlink()
    wait_until(lambda: "earlier events are on disk" in daemon_log(bus))

    bus.kill()
    bus.ok("up")

    assert bus.texts()[:1] == ["before"]


def test_truncated_write_ahead_log_is_detected(bus: Home) -> None:
    send(bus, "before")
    os.truncate(bus.path / f"{FILE_NAME}-wal", 0)

    refused = bus.pal("send", "--", "after")

    assert refused.status == 1
    assert f"{FILE_NAME}-wal was cut" in refused.err


def test_queries_report_why_they_fail(bus: Home) -> None:
    (bus.path / FILE_NAME).unlink()

    refused = bus.pal("events", "--all")

    assert refused.status == 1
    assert f"{FILE_NAME} was removed" in refused.err
    assert not (bus.path / FILE_NAME).exists()


@pytest.mark.parametrize("name", ["daemon.sock", "adopt.sock"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_removed_socket_is_created_again(bus: Home, name: str, is_replaced: bool) -> None:
    path = bus.path / name
    before = path.stat().st_ino
    path.rename(bus.spare_path())  # kept, so that its inode is not reused
    if is_replaced:
        path.touch()

    wait_until(lambda: path.is_socket() and path.stat().st_ino != before)

    send(bus, "hello")
    assert bus.texts() == ["hello"]


def test_commands_work_after_the_socket_was_removed(either: Home) -> None:
    pid = either.pid
    (either.path / "daemon.sock").unlink()

    report = either.ok("status", "--json").json

    assert report["pid"] == pid


def test_down_stops_a_daemon_whose_socket_was_removed(either: Home) -> None:
    pid = either.pid
    (either.path / "daemon.sock").unlink()

    report = either.ok("down", "--json").json

    assert report == {"pid": pid, "stopped": True}
    assert (either.path / "down").exists()


@pytest.mark.parametrize("is_json", [True, False])
def test_down_ends_a_daemon_that_does_not_listen(either: Home, is_json: bool) -> None:
    pid = either.pid
    os.kill(pid, signal.SIGSTOP)  # It cannot create its socket again.
    (either.path / "daemon.sock").unlink()
    down = either.start("down", *(["--json"] if is_json else ["--home", str(either.path)]))
    wait_until(lambda: is_asked_to_end(pid))

    os.kill(pid, signal.SIGCONT)
    out, err = down.communicate(timeout=either.limit_s)

    assert (down.returncode, err) == (0, b"")
    if is_json:
        assert json.loads(out) == {"pid": pid, "stopped": True}
    else:
        up = f"pal up --home {either.path}"
        assert out.decode() == f"the bus is stopped; nothing is lost, '{up}' starts it again\n"
    assert (either.path / "down").exists()


def test_command_reports_a_daemon_that_does_not_listen(either: Home) -> None:
    pid = either.pid
    os.kill(pid, signal.SIGSTOP)
    (either.path / "daemon.sock").unlink()

    refused = either.pal("list")

    os.kill(pid, signal.SIGCONT)
    assert refused.status == 1
    assert refused.err == (
        f"pal: the daemon (process {pid}) runs, but does not listen on {either.path}/daemon.sock: "
        "'pal down' ends it, and 'pal up' starts another\n"
    )


def test_failed_start_does_not_lift_the_stop(either: Home) -> None:
    either.ok("down")
    (either.path / "config.toml").write_text("nonsense = 1\n")

    refused = [either.pal("up"), either.pal("up", "--foreground"), run_as_person(either, "whoami")]
    (either.path / "config.toml").unlink()
    script = either.pal("list")

    assert [one.status for one in refused] == [1, 1, 1]
    assert all("nonsense" in one.err for one in refused)
    assert (script.status, script.err) == (
        1,
        "pal: the bus was stopped with 'pal down'; 'pal up' starts it again\n",
    )
    either.ok("up")
    assert not (either.path / "down").exists()


def test_failed_socket_creation_is_logged_once_and_tried_again(bus: Home) -> None:
    def lines(name: str, words: str) -> int:
        log_lines = (bus.path / "daemon.log").read_text().splitlines()
        return sum(name in line and words in line for line in log_lines)

    for name in ("daemon.sock", "adopt.sock"):  # The second one is noticed by a later look.
        (bus.path / name).unlink()
        (bus.path / name).mkdir()
        wait_until(lambda: lines(name, "cannot be created again") == 1)  # noqa: B023 - it is called here
    for name in ("daemon.sock", "adopt.sock"):
        (bus.path / name).rmdir()
    for name in ("adopt.sock", "daemon.sock"):
        wait_until(lambda: lines(name, "it is created again") == 1)  # noqa: B023 - it is called here

    assert [lines(name, "cannot be created again") for name in ("daemon.sock", "adopt.sock")] == [1, 1]
    bus.ok("status")


def is_asked_to_end(pid: int) -> bool:
    """Return whether SIGTERM is pending for a stopped process."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [line.split()[1] for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    return any(int(mask, 16) & 1 << signal.SIGTERM - 1 for mask in masks)
