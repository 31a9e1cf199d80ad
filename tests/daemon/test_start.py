"""Which processes start the daemon, and which do not."""

import os
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.daemon.stage import NOBODY, Home, finish, run_as_person
from tests.daemon.wires import LinesWire
from tests.limits import LIMIT_S

PATIENCE_S = 4 * LIMIT_S
"""For twenty processes at once on a small machine."""


def test_first_command_starts_the_daemon_and_is_served_by_it(home: Home) -> None:
    home.ok("send", "@human", "--", "hello")

    found = home.ok("status", "--json").json
    assert found["pid"] == home.pid
    assert found["home"] == str(home.path)


def test_daemon_keeps_its_home_private(bus: Home) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [bus.path, *bus.path.iterdir()]}

    assert modes["home"] == 0o700
    assert modes["daemon.sock"] == 0o600
    assert all(mode & 0o077 == 0 for mode in modes.values()), modes


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_empty_folder_is_made_private_when_it_becomes_a_home(home: Home, mode: int) -> None:
    home.path.mkdir()
    home.path.chmod(mode)

    home.ok("up")

    assert home.path.stat().st_mode & 0o777 == 0o700


def test_home_that_was_opened_to_others_is_private_after_the_next_start(bus: Home) -> None:
    bus.ok("down")
    bus.path.chmod(0o777)

    bus.ok("up")

    assert bus.path.stat().st_mode & 0o777 == 0o700


def test_writable_folder_with_other_files_is_refused_as_a_home(home: Home) -> None:
    home.path.mkdir()
    (home.path / "letters").touch()
    home.path.chmod(0o777)

    refused = home.pal("up")

    assert refused.status == 1
    assert f"other users can write to {home.path}: 'chmod 700' it, or choose another home" in refused.err
    assert home.path.stat().st_mode & 0o777 == 0o777


def test_daemon_has_no_terminal_or_parent_or_caller_environment(home: Home) -> None:
    home.ok("up", env={"SECRET_TOKEN": "x", "PALAVER_SEAT": "x", "CLAUDECODE": "1"})

    environment = Path(f"/proc/{home.pid}/environ").read_bytes()
    session = os.getsid(home.pid)

    assert b"SECRET_TOKEN" not in environment
    assert b"PALAVER_SEAT" not in environment
    assert b"CLAUDECODE" not in environment
    assert session not in (os.getsid(0), 0)
    assert os.readlink(f"/proc/{home.pid}/cwd") == "/"


def test_twenty_clients_at_once_start_one_daemon(home: Home) -> None:
    clients = [home.start("up", "--json") for _ in range(20)]

    pids = {finish(client, limit_s=PATIENCE_S).json["pid"] for client in clients}

    assert pids == {home.pid}
    assert len(home.events("--type", "life")) == 1


def test_socket_of_a_dead_daemon_is_replaced(bus: Home) -> None:
    first = bus.pid
    bus.kill()
    assert (bus.path / "daemon.sock").exists()

    found = bus.ok("status", "--json").json

    assert found["pid"] == bus.pid != first


def test_stale_file_at_the_path_of_the_socket_is_replaced(home: Home) -> None:
    home.path.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(home.path / "daemon.sock"))
    left.close()

    found = home.ok("status", "--json").json

    assert found["pid"] == home.pid


def test_help_starts_nothing(home: Home) -> None:
    shown = [home.ok(*words).out for words in ([], ["help"], ["send", "--help"], ["-h"])]

    assert all("pal" in text for text in shown)
    assert not home.path.exists()


def test_down_starts_nothing_and_reports_that_nothing_runs(home: Home) -> None:
    ended = home.ok("down")

    assert ended.err == "pal: the bus is not running\n"
    assert not home.path.exists()


def test_hook_starts_nothing_and_prints_nothing(home: Home) -> None:
    ended = home.ok("hook", "claude", "PreToolUse")

    assert (ended.out, ended.err) == ("", "")
    assert not home.path.exists()


def test_script_does_not_start_the_bus_after_down(bus: Home) -> None:
    bus.ok("down")

    refused = bus.pal("status")

    assert refused.status == 1
    assert refused.err == "pal: the bus was stopped with 'pal down'; 'pal up' starts it again\n"
    assert not (bus.path / "daemon.sock").exists()


def test_up_starts_the_bus_after_down(bus: Home) -> None:
    bus.ok("down")

    bus.ok("up")

    assert bus.ok("status", "--json").json["pid"] == bus.pid


def test_any_command_of_a_person_starts_the_bus_after_down(bus: Home) -> None:
    bus.ok("down")

    found = run_as_person(bus, "whoami", "--json")

    assert found.status == 0, found
    assert found.json["name"] == "human"
    assert bus.ok("status", "--json").json["pid"] == bus.pid


def test_home_that_cannot_be_created_is_an_error_with_its_path(home: Home) -> None:
    home.path.parent.joinpath("file").touch()

    refused = home.pal("status", env={"PALAVER_HOME": str(home.path.parent / "file" / "home")})

    assert refused.status == 1
    assert "file/home" in refused.err


def test_unknown_setting_prevents_the_daemon_from_starting(home: Home) -> None:
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text('loglevel = "info"\n')

    refused = home.pal("status")

    assert refused.status == 1
    assert refused.err.startswith("pal: the daemon did not start: there is no setting 'loglevel'")
    assert "did not start: there is no setting 'loglevel'" in (home.path / "daemon.log").read_text()


@pytest.mark.parametrize("verb", ["up", "down"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_unknown_option_is_refused_before_anything_is_done(
    home: Home, verb: str, form: tuple[str, ...]
) -> None:
    home.path.mkdir(mode=0o700)
    if verb == "up":
        (home.path / "down").touch()

    refused = home.pal(verb, "--bogus", *form)

    assert refused.status == 2
    assert f"pal {verb} has no option '--bogus'" in refused.err
    assert refused.err.startswith('{"error": "usage"' if form else "pal: ")
    assert [one.name for one in home.path.iterdir()] == (["down"] if verb == "up" else [])


def test_invalid_address_is_refused_before_anything_is_done(home: Home) -> None:
    refused = home.pal("up", "--http", "nowhere at all")

    assert refused.status == 1
    assert "nowhere at all" in refused.err
    assert not home.path.exists()


def test_python_without_palaver_is_reported_to_the_client_and_in_the_log(home: Home) -> None:
    python = home.path.parent / "python"
    # With -S it finds no installed packages.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)

    refused = home.pal("whoami", env={"PALAVER_PYTHON": str(python)})

    assert refused.status == 1
    assert "No module named" in refused.err
    assert "No module named" in (home.path / "daemon.log").read_text()


def test_socket_that_cannot_be_created_is_reported_by_the_client(home: Home) -> None:
    (home.path / "daemon.sock").mkdir(parents=True)

    refused = home.pal("up")

    assert refused.status == 1
    assert refused.err.startswith("pal: the daemon did not start: ")
    assert "did not start" in (home.path / "daemon.log").read_text()


def test_foreground_daemon_is_the_process_of_the_client(home: Home) -> None:
    daemon = home.start("up", "--foreground")
    assert daemon.stderr is not None
    assert b"listening" in daemon.stderr.readline()

    found = home.ok("status", "--json").json
    daemon.terminate()

    assert found["pid"] == daemon.pid
    assert finish(daemon).status == 0


def test_foreground_home_that_is_not_a_directory_is_refused_with_advice(home: Home) -> None:
    file = home.path.with_name("file")
    file.touch()

    refused = home.pal("up", "--foreground", "--home", str(file))

    assert refused.status == 1
    assert refused.err == (
        f"pal: {file} cannot be the home of the bus (Not a directory): "
        "name a directory that can be written, with --home or PALAVER_HOME\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_foreground_home_that_is_not_writable_is_refused_with_advice(home: Home) -> None:
    home.path.mkdir(mode=0o755)
    program = f"""
import os, sys
from palaver.daemon.__main__ import main
os.setgid({NOBODY}), os.setuid({NOBODY})
sys.exit(main(["--home", {str(home.path)!r}, "--foreground"]))
"""

    refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert refused.returncode == 1
    assert refused.stderr.startswith(
        f"pal: {home.path} cannot be the home of the bus (Permission denied): name a directory"
    )


def test_second_foreground_daemon_reports_that_the_bus_runs(bus: Home) -> None:
    refused = bus.pal("up", "--foreground")

    assert (refused.status, refused.err) == (1, "pal: the bus is already running\n")


def test_second_daemon_reports_the_running_one_and_exits(bus: Home) -> None:
    reading, telling = os.pipe()
    with os.fdopen(reading) as word:
        command = [sys.executable, "-I", "-m", "palaver.daemon", "--home", str(bus.path)]

        second = subprocess.Popen([*command, "--ready-fd", str(telling)], pass_fds=[telling])
        os.close(telling)

        assert word.read() == "ok\n"
        assert second.wait(LIMIT_S) == 0
    assert bus.ok("status", "--json").json["pid"] == bus.pid


def test_wrong_option_in_the_foreground_is_a_usage_error(home: Home) -> None:
    refused = home.pal("up", "--foreground", "--wrong")

    assert refused.status == 2
    assert "--wrong" in refused.err
    assert not (home.path / "daemon.sock").exists()


def test_home_with_a_path_longer_than_a_socket_address_works(home: Home) -> None:
    home.path = home.path / ("deep" * 20) / ("deeper" * 20)

    home.ok("up")

    assert home.ok("status", "--json").json["home"] == str(home.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_client_of_another_user_is_refused_despite_open_modes(bus: Home) -> None:
    bus.path.chmod(0o755)
    (bus.path / "daemon.sock").chmod(0o666)

    refused = bus.pal("status", user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")

    assert refused.status == 1
    assert refused.err == f"pal: this bus belongs to user 0; you are user {NOBODY}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_program_of_another_user_is_refused_too(bus: Home) -> None:
    bus.path.chmod(0o755)
    (bus.path / "daemon.sock").chmod(0o666)
    with LinesWire(bus.path) as wire:
        os.seteuid(NOBODY)
        try:
            other = LinesWire(bus.path)
        finally:
            os.seteuid(0)

        with other:
            other.send(b'{"op": "whoami"}\n')
            line, end = other.next_line(), other.next_line()

        assert line["error"] == "not_allowed"
        assert end == {}
        assert wire.ask("whoami")["ok"]["name"] == "script"


def test_daemon_does_not_import_large_packages_before_they_are_used() -> None:
    code = "import sys, palaver.daemon.__main__; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)

    assert "palaver.daemon.daemon" in loaded.stdout.split()
    assert not {"starlette", "uvicorn", "mcp", "pyte"} & set(loaded.stdout.split())


def test_http_door_opens_without_the_mcp_sdk() -> None:
    code = "import sys, palaver.doors.http.listening; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)

    assert "uvicorn" in loaded.stdout.split()
    assert "mcp" not in loaded.stdout.split()


def test_modules_of_the_daemon_are_left_out_of_garbage_collections(home: Home) -> None:
    program = f"""
import atexit, gc, sys
from palaver.daemon.__main__ import main
atexit.register(lambda: print(gc.get_freeze_count()))
sys.exit(main(["--home", {str(home.path)!r}, "--ready-fd", sys.argv[1]]))
"""
    reading, telling = os.pipe()
    with os.fdopen(reading) as word:
        command = [sys.executable, "-c", program, str(telling)]
        daemon = subprocess.Popen(command, pass_fds=[telling], stdout=subprocess.PIPE, text=True)
        os.close(telling)
        assert word.read() == "ok\n"

    home.ok("down")

    frozen, _ = daemon.communicate(timeout=LIMIT_S)
    assert int(frozen) > len(sys.modules)
