"""A person's newer client replaces the daemon; any other client is served. A newer log is left unchanged."""

import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import Home, check_output, new_home, run_as_person
from tests.daemon.wires import ThinWire

from palaver.log.storage import FILE_NAME

ROOT = Path(__file__).parents[2]

NEWER = "99.0.0"

PYTHON_OF_LATER = f"""\
import runpy, sys
import palaver.version
palaver.version.__version__ = {NEWER!r}
module = sys.argv[sys.argv.index("-m") + 1]
sys.argv = [module, *sys.argv[sys.argv.index("-m") + 2 :]]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def newer_home() -> Iterator[Path]:
    """A newer Palaver: a client with that version, and next to it the Python with its daemon."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to build a newer client with")
    with new_home() as home:
        directory = home.path.parent
        program = directory / "later.py"
        program.write_text(PYTHON_OF_LATER)
        python = directory / "python3"
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {program} "$@"\n')
        python.chmod(0o755)
        sources = sorted(map(str, (ROOT / "native").glob("*.c")))
        options = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-D_DARWIN_C_SOURCE", f'-DPAL_VERSION="{NEWER}"']
        subprocess.run(["cc", *options, *sources, "-o", str(directory / "pal")], check=True)
        yield directory


@pytest.fixture
def newer(newer_home: Path) -> str:
    return str(newer_home / "pal")


def test_newer_client_of_a_person_replaces_the_daemon(bus: Home, newer: str) -> None:
    first = bus.pid

    found = check_output(run_as_person(bus, "status", "--json", client=newer)).json

    assert found["version"] == NEWER
    assert found["pid"] == bus.pid != first


def test_newer_client_with_an_older_package_says_what_to_do(bus: Home, newer: str) -> None:
    refused = run_as_person(bus, "status", client=newer, env={"PALAVER_PYTHON": sys.executable})

    assert refused.status == 1
    assert refused.err == (
        f"pal: this pal is {NEWER}, and the package that {sys.executable} starts is older: "
        "reinstall Palaver there, so that both have the same version\n"
    )


def test_command_that_only_the_newer_daemon_knows_reaches_it(bus: Home, newer: str) -> None:
    first = bus.pid

    refused = run_as_person(bus, "frobnicate", client=newer)

    assert refused.status == 2
    assert bus.pid != first


def test_followers_continue_when_the_daemon_is_replaced(bus: Home, newer: str) -> None:
    follower = bus.shell().begin("events", "--follow", "--after", "0", "--type", "message", "--json")
    bus.ok("send", "first")
    assert '"first"' in follower.line()  # it starts in parallel, and has begun

    check_output(run_as_person(bus, "status", client=newer))
    bus.ok("send", "after")

    assert '"after"' in follower.line()


def test_down_of_a_newer_client_stops_the_old_daemon_and_starts_none(bus: Home, newer: str) -> None:
    check_output(run_as_person(bus, "down", client=newer))

    assert not (bus.path / "daemon.sock").exists()


def test_help_of_a_newer_client_replaces_nothing(bus: Home, newer: str) -> None:
    first = bus.pid

    shown = [
        check_output(run_as_person(bus, *words, client=newer)) for words in (["help"], ["send", "--help"])
    ]

    assert all("pal" in one.out for one in shown)
    assert bus.ok("status", "--json").json["pid"] == first


def test_newer_client_of_a_script_is_served_by_the_older_daemon(bus: Home, newer: str) -> None:
    found = check_output(bus.shell().begin_script(f"{newer} status --json").end()).json

    assert found["version"] != NEWER
    assert found["pid"] == bus.pid


def test_older_client_of_a_person_is_served(bus: Home) -> None:
    found = check_output(run_as_person(bus, "status", "--json")).json

    assert found["pid"] == bus.pid


@pytest.mark.parametrize("version", ["0.0.1", "99.0.0", "no version", ""])
def test_script_is_served_whatever_version_it_states(bus: Home, version: str) -> None:
    with ThinWire(bus.path) as wire:
        wire.ask("whoami", "--json", version=version)
        status, out, _ = wire.answer()

    assert status == 0
    assert b'"script"' in out


def test_daemon_refuses_a_log_of_a_newer_schema_and_says_so(bus: Home) -> None:
    bus.ok("send", "kept")
    bus.ok("down")
    change_schema(bus, 99)

    refused = bus.pal("up")

    assert refused.status == 1
    assert refused.err.startswith(
        "pal: the daemon did not start: the log has schema 99, but this Palaver supports only "
    )


def test_refused_log_is_left_unchanged(bus: Home) -> None:
    bus.ok("send", "kept")
    bus.ok("down")
    known = change_schema(bus, 99)
    bus.pal("up")

    change_schema(bus, known)
    bus.ok("up")

    assert bus.texts() == ["kept"]


def change_schema(home: Home, version: int) -> int:
    """Write another schema number into the log. Return the previous one."""
    connection = sqlite3.connect(home.path / FILE_NAME)
    before: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    return before
