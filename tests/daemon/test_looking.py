"""Commands that only show the bus, while it is stopped: they say so and start nothing."""

import json

import pytest
from tests.daemon.stage import Home, check_output, run_as_person


@pytest.mark.parametrize("verb", ["status", "list", "events"])
def test_stopped_bus_stays_stopped_even_for_a_person(bus: Home, verb: str) -> None:
    bus.ok("down")

    shown = run_as_person(bus, verb)

    assert (shown.status, shown.out) == (1, "")
    assert shown.err == "pal: the bus was stopped with 'pal down'; 'pal up' starts it again\n"
    assert (bus.path / "down").exists()
    assert not (bus.path / "daemon.sock").exists()


def test_doctor_of_a_stopped_bus_says_so_and_checks_the_harnesses(bus: Home) -> None:
    bus.ok("down")

    shown, view = run_as_person(bus, "doctor"), run_as_person(bus, "doctor", "--json")

    assert (shown.status, view.status) == (1, 1)
    assert f"look the bus is not running (home {bus.path})" in shown.out
    assert "'pal up' starts it" in shown.out
    assert [(line["kind"], line["ok"]) for line in view.lines if line["kind"] != "harness"][-1] == (
        "check",
        False,
    )
    assert not (bus.path / "daemon.sock").exists()


def test_doctor_names_the_home_that_it_was_given(home: Home) -> None:
    other = home.path.parent / "other"

    missing = home.pal("doctor", "--home", str(other))
    home.ok("up", "--home", str(other))
    home.ok("down", "--home", str(other))
    stopped = home.pal("doctor", "--home", str(other))
    unnamed = home.pal("doctor")

    assert f"the home does not exist; 'pal up --home {other}' creates it\n" in missing.out
    assert f"'pal up --home {other}' starts it\n" in stopped.out
    assert "the home does not exist; 'pal up' creates it\n" in unnamed.out
    assert not home.path.exists()


def test_looking_at_a_home_that_does_not_exist_creates_nothing(home: Home) -> None:
    refused = home.pal("status", "--json")

    assert json.loads(refused.err)["error"] == "unavailable"
    assert not home.path.exists()
    home.ok("up")
    check_output(run_as_person(home, "status"))


@pytest.mark.parametrize("verb", ["list", "status", "events", "whoami", "join", "recv"])
def test_only_up_creates_a_folder_named_with_home(bus: Home, verb: str) -> None:
    folder = bus.path.parent / "none"

    refused = run_as_person(bus, verb, "--home", str(folder))

    assert refused.status == 1
    assert refused.err == (
        f"pal: {folder} does not exist; to create a bus there, run 'pal up --home {folder}'\n"
    )
    assert not folder.exists()


def test_looking_after_a_crash_starts_the_bus(bus: Home) -> None:
    bus.kill()

    assert "the bus is up" in bus.ok("status").out
