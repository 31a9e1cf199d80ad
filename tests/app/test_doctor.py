"""The doctor in the client's own process, with fake programs."""

import json
from pathlib import Path

import pytest

from palaver.app.doctor import PROGRAMS, DoctorOrder, account_for, doctor, look_at


def pretend(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo '2.1.325 (Claude Code)'", "2.1.325"),
        ("echo codex-cli 0.166.0-alpha.1", "0.166.0-alpha.1"),
        ("echo nothing", ""),
        ("echo 1.2.3 >&2; exit 1", ""),
    ],
)
def test_version_of_a_program_is_read(tmp_path: Path, script: str, version: str) -> None:
    path = pretend(tmp_path, "claude", script)

    assert look_at("claude", str(path), {"PATH": "/bin"}).version == version


def test_program_that_cannot_run_is_still_found(tmp_path: Path) -> None:
    path = tmp_path / "claude"
    path.write_bytes(b"\0")
    path.chmod(0o755)

    assert look_at("claude", str(path), {}).version == ""
    assert look_at("claude", str(path), {}).trouble


def test_version_printed_with_a_failure_is_ignored(tmp_path: Path) -> None:
    path = pretend(tmp_path, "claude", "echo 1.2.3; exit 3")

    found = look_at("claude", str(path), {"PATH": "/bin"})

    assert (found.version, found.trouble) == ("", "'--version' ended with status 3")


def test_findings_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(tmp_path, "codex", "echo 0.0.1")
    checks: list[dict[str, object]] = [{"ok": True, "check": "home", "advice": None}]

    status = doctor(DoctorOrder(checks=checks, is_json=True), {"PATH": f"{tmp_path}:/nowhere"})

    home, one = map(json.loads, capsys.readouterr().out.splitlines())
    assert (status, home) == (0, {"kind": "check", **checks[0]})
    assert (one["kind"], one["ok"], one["harness"], one["version"]) == ("harness", True, "codex", "0.0.1")
    assert "has not been tested" in one["known"]


def test_problem_of_the_bus_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks: list[dict[str, object]] = [{"ok": False, "check": "home", "advice": "mend it"}]

    status = doctor(DoctorOrder(checks=checks), {"PATH": str(tmp_path)})

    assert status == 1
    assert capsys.readouterr().out == "ok   no harness on your PATH (claude, codex, opencode, gemini)\n"


@pytest.mark.parametrize("is_json", [False, True])
def test_missing_requested_harness_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_json: bool
) -> None:
    order = DoctorOrder(checks=[], harnesses=("gemini",), is_json=is_json)

    assert doctor(order, {"PATH": str(tmp_path)}) == 1
    assert "gemini" in capsys.readouterr().out


@pytest.mark.parametrize("harness", PROGRAMS)
def test_account_knows_only_the_scripted_model(harness: str) -> None:
    account = account_for(harness, "http://127.0.0.1:9", "/p")

    texts = " ".join([*account.files.values(), *account.environment.values()])
    assert "http://127.0.0.1:9" in texts
    assert texts.count("://") == texts.count("http://127.0.0.1:9")
