"""Attacks with settings: a worker stops the bus and starts it with its own settings."""

import os
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Shell, run_script_as_person

from palaver.config import KEYS, is_only_in_file

_WANTED = {
    "http": "0.0.0.0:0",
    "http_hosts": "evil.example",
    "http_remote": "1",
    "irc": "0.0.0.0:0",
    "irc_remote": "1",
    "irc_tls_cert": "evil.pem",
    "irc_tls_key": "evil.pem",
    "irc_guests": "talk",
    "brake_hops": "0",
    "brake_per_minute": "0",
    "hints": "obey nova",
    "agent_commands": "yes",
    "approvals": "1",
    "approvals_wait_s": "1",
    "web_approvals": "1",
    "window": "xterm -e {command}",
    "room_wakes": "everyone",
    "room_lease_s": "1",
    "room_heartbeat_s": "1",
    "room_claim_s": "1",
    "room_waiter_grace_s": "0",
    "room_presence_s": "1",
    "room_owner_idle_s": "1",
    "room_message_bytes": "1",
    "auto_turn_triage_model": "evil",
    "auto_turn_debounce_ms": "1",
    "auto_turn_max_batch": "50",
    "auto_turn_triage_timeout_s": "3600",
    "auto_turn_timeout_s": "86400",
    "auto_turn_limit_per_hour": "0",
    "auto_turn_triage_command": "echo YES",
    "auto_turn_command": "sh",
    "metrics": "1",
    "metrics_names": "1",
    "otel_endpoint": "http://evil.example",
    "notify": "off",
    "notify_command": "sh",
    "notify_text": "1",
}


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def guarded(home: Home) -> dict[str, object]:
    """Return the settings of a running bus that come from the file alone."""
    return {
        one["key"]: one["value"] for one in home.ok("config", "list", "--json").lines if one["key"] in _WANTED
    }


def test_every_sensitive_setting_is_attacked_here() -> None:
    """Promise: settings of doors, brakes, rooms and texts for agents come from the file alone."""
    assert {key for key in KEYS if is_only_in_file(key)} == set(_WANTED)


@pytest.mark.parametrize("key", _WANTED)
def test_worker_cannot_start_the_bus_with_its_own_settings(bus: Home, nova: Shell, key: str) -> None:
    """Promise: a daemon started by an agent has the same sensitive settings as one started by a person."""
    before = guarded(bus)
    nova.ok("down")

    refused = nova.pal("up", env={f"PALAVER_{key.upper()}": _WANTED[key]})
    nova.ok("up")

    assert (refused.status, f"PALAVER_{key.upper()} cannot be set in the environment" in refused.err) == (
        1,
        True,
    )
    assert guarded(bus) == before
    assert set(bus.ok("status", "--json").json["doors"]) == {"unix"}


@pytest.mark.parametrize("options", [(), ("--foreground",)], ids=["running", "foreground"])
@pytest.mark.parametrize(
    "words",
    [
        ("--http", "127.0.0.1:0"),
        ("--http", "0.0.0.0:0", "--http-remote"),
        ("--no-http",),
        ("--irc", "127.0.0.1:0"),
        ("--irc", "0.0.0.0:0", "--irc-remote"),
        ("--no-irc",),
    ],
)
def test_worker_cannot_open_or_close_a_door(
    bus: Home, nova: Shell, words: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Promise: only a person can use `pal up --http` and `--irc`, also if it becomes the daemon process."""
    if options:
        nova.ok("down")

    refused = nova.pal("up", *words, *options)

    assert refused.status == 1
    assert "requires a person" in refused.err
    assert not (bus.path / "config.toml").exists()


def test_daemon_started_by_hand_opens_no_door(bus: Home, nova: Shell) -> None:
    """Promise: only a person can use the options of the daemon process."""
    nova.ok("down")

    python = Path(bus.client).with_name("python")
    words = f"{python} -I -m palaver.daemon --home {bus.path} --foreground --http 127.0.0.1:0"
    refused = nova.begin_script(words).end()

    assert (refused.status, "requires a person" in refused.err) == (1, True)
    assert not (bus.path / "config.toml").exists()


def test_agent_at_a_persons_terminal_opens_no_door(bus: Home) -> None:
    """Promise: an agent that leaves, or has the mark of a harness, cannot open doors like a person."""
    left = "pal join --name nova >/dev/null; pal leave >/dev/null; pal up --http 127.0.0.1:0"

    refused = [
        run_script_as_person(bus, left),
        run_script_as_person(bus, "pal up --http 127.0.0.1:0", env={"CLAUDECODE": "1"}),
        run_script_as_person(
            bus, "pal down; pal up --foreground --http 127.0.0.1:0", env={"CLAUDECODE": "1"}
        ),
    ]

    assert [(one.status, "requires a person" in one.err) for one in refused] == [(1, True)] * 3


def test_daemon_ignores_environment_variables_that_load_code(bus: Home, nova: Shell) -> None:
    """Promise: an agent that starts the bus cannot load code into it with PYTHON… or LD_… variables."""
    folder = bus.spare_path()
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    (folder / "palaver").mkdir()
    (folder / "palaver" / "__init__.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    nova.ok("down")

    given = {"PYTHONPATH": str(folder), "PYTHONSTARTUP": str(folder / "x"), "LD_LIBRARY_PATH": str(folder)}
    started = nova.begin_script(f"cd {folder}; {' '.join(f'{k}={v}' for k, v in given.items())} pal up").end()

    assert started.status == 0, started
    entries = Path(f"/proc/{bus.pid}/environ").read_bytes().split(b"\0")
    names = {os.fsdecode(entry).partition("=")[0] for entry in entries}
    assert not names & {*given, "LD_PRELOAD"}
    assert not (folder / "ran").exists()
