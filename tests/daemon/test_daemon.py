"""The parts of the daemon that need no separate process."""

import asyncio
import os
from pathlib import Path

import pytest

from palaver.clock import SystemClock
from palaver.config import load
from palaver.daemon.daemon import DISK_HAS_ROOM, Daemon
from palaver.home import StartReport, file_system_of, prepare_home


def test_starter_of_the_daemon_receives_one_line_and_then_end_of_file() -> None:
    reader, writer = os.pipe()
    ready = StartReport(writer, is_foreground=False)

    ready.say("ok")
    ready.say("too late")

    with open(reader, "rb") as pipe:
        assert pipe.read() == b"ok\n"


def test_client_that_did_not_wait_causes_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    StartReport(writer, is_foreground=False).say("ok")


def test_foreground_daemon_prints_only_errors(capsys: pytest.CaptureFixture[str]) -> None:
    ready = StartReport(None, is_foreground=True)

    ready.say("ok")
    ready.say("no room")

    assert capsys.readouterr().err == "pal: no room\n"


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the system does not tell")
def test_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    assert file_system_of(Path("/proc/self/fd")) == "proc"
    assert file_system_of(Path("/")) != ""


@pytest.mark.parametrize("name", ["my share", "tab\tand\\slash", "page\fand\u2028line", "bytes\udcff"])
def test_file_system_of_a_mount_with_any_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mount = tmp_path.resolve() / name
    # As the kernel writes it.
    escaped = str(mount).replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011")
    table = f"1 0 0:1 / / rw shared:1 - ext4 root rw\n2 1 0:2 / {escaped} rw - nfs4 host:/a rw\n"
    monkeypatch.setattr(Path, "read_bytes", lambda path: os.fsencode(table))

    assert file_system_of(mount / "home") == "nfs4"
    assert file_system_of(tmp_path) == "ext4"


@pytest.mark.parametrize(
    ("reasons", "is_again"), [((DISK_HAS_ROOM,), True), ((DISK_HAS_ROOM, "SIGTERM"), False)]
)
def test_daemon_that_is_stopped_while_it_is_about_to_restart_ends(
    tmp_path: Path, reasons: tuple[str, ...], is_again: bool
) -> None:
    home = prepare_home(tmp_path / "home")

    async def run() -> bool:
        daemon = Daemon(home, load(home, {}), SystemClock())
        for reason in reasons:
            daemon.stop(reason)
        return await daemon.run(StartReport(None, is_foreground=False))

    assert asyncio.run(run()) is is_again
