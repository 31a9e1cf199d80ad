"""`pal doctor` with the real client: the daemon reports its checks, the client checks harnesses."""

from pathlib import Path

from tests.daemon.stage import Home, finish


def pretend(home: Home, name: str, script: str) -> dict[str, str]:
    """Put a fake harness on the PATH. Return the environment in which it is found."""
    folder = home.path.parent / "programs"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{home.environment['PATH']}"}


def test_each_check_and_each_harness_is_an_object(bus: Home) -> None:
    found = pretend(bus, "claude", "echo 0.0.1")

    report = bus.ok("doctor", "--json", env=found).lines

    assert all(one["ok"] for one in report)
    assert len([one for one in report if one["kind"] == "check"]) > 4
    claude = next(one for one in report if one["kind"] == "harness" and one["harness"] == "claude")
    assert (claude["version"], claude["path"]) == ("0.0.1", str(bus.path.parent / "programs/claude"))


def test_doctor_says_how_the_client_was_built(bus: Home) -> None:
    report = [one for one in bus.pal("doctor", "--json").lines if one["kind"] == "check"]

    builds = [one["check"] for one in report if one["check"].startswith("client: ")]
    assert len(builds) == 1
    assert builds[0].startswith(("client: native, static ", "client: native, dynamic", "client: Python"))


def test_text_contains_both_and_the_exit_status_counts_both(bus: Home) -> None:
    found = pretend(bus, "claude", "echo 0.0.1")

    well = bus.ok("doctor", "--harness", "claude", env=found).out
    bus.path.chmod(0o755)
    ill = bus.pal("doctor", "--harness", "claude", env=found)

    assert "ok   home " in well
    assert "look claude 0.0.1 (" in well
    assert ill.status == 1


def test_self_test_reports_a_harness_that_does_not_start_and_cleans_up(bus: Home) -> None:
    temporary = bus.path.parent / "tmp"
    temporary.mkdir()
    found = pretend(bus, "claude", 'test "$1" = --version && echo 0.0.1 || exit 3')
    arguments = ("doctor", "--self-test", "--harness", "claude", "--json")

    process = bus.start(*arguments, env={**found, "TMPDIR": str(temporary)})
    result = finish(process, limit_s=100)

    assert result.status == 1
    (claude,) = [one for one in result.lines if one["kind"] == "harness"]
    assert not claude["self_test"]["starts"]["ok"]
    assert claude["self_test"]["starts"]["advice"]
    assert "idle" not in claude["self_test"]
    assert list(temporary.iterdir()) == []
    marks = [entry for entry in Path("/proc").glob("[0-9]*") if _is_of(entry, str(temporary))]
    assert marks == []


def _is_of(entry: Path, folder: str) -> bool:
    try:
        return f"PALAVER_HOME={folder}".encode() in (entry / "environ").read_bytes()
    except OSError:
        return False
