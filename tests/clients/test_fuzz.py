"""The fuzzer of the C client: it repeats its cases, and notices a client that crashes or hangs."""

from pathlib import Path

import pytest
from tests.clients.fuzz import DEFAULT_SEED, Case, make_case, run_case

REPLY = b"H\0\0\0\5whole"


def hook(*pieces: bytes) -> Case:
    return Case(arguments=("hook", "claude", "Stop"), stdin=b"", pieces=pieces)


def broken_client(folder: Path, script: str) -> Path:
    client = folder / "pal"
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)
    return client


def test_a_case_depends_only_on_seed_and_number() -> None:
    cases = [make_case(DEFAULT_SEED, number) for number in range(50)]

    assert cases == [make_case(DEFAULT_SEED, number) for number in range(50)]
    assert len({case.pieces for case in cases}) > 30
    assert {case.arguments[0] for case in cases} >= {"hook", "mcp"}


def test_client_survives_the_first_cases(compiled: Path) -> None:
    findings = [run_case(compiled, make_case(DEFAULT_SEED, number)) for number in range(20)]

    assert findings == [""] * 20


def test_whole_reply_of_a_hook_is_no_finding(compiled: Path) -> None:
    assert run_case(compiled, hook(REPLY[:7], REPLY[7:])) == ""


@pytest.mark.parametrize(
    ("script", "finding"),
    [
        ("kill -SEGV $$", "it ended with status -11"),
        ("echo 'ERROR: AddressSanitizer: x' >&2; exit 99", "it ended with status 99"),
        ("echo 'pal.c:1: runtime error: x' >&2", "it ended with status 0"),
        ("exit 1", "a hook ended with status 1"),
        ("printf other", "a hook wrote b'other'"),
    ],
)
def test_fuzzer_notices_a_broken_client(tmp_path: Path, script: str, finding: str) -> None:
    assert run_case(broken_client(tmp_path, script), hook(REPLY)).startswith(finding)


def test_status_that_the_daemon_orders_is_no_finding(compiled: Path) -> None:
    case = Case(arguments=("list",), stdin=b"", pieces=(b"Q\0\0\0\1c",))

    assert run_case(compiled, case) == ""


def test_fuzzer_notices_a_client_that_hangs(tmp_path: Path) -> None:
    client = broken_client(tmp_path, "exec sleep 60")

    assert run_case(client, hook(REPLY), limit_s=0.2) == "it did not end in 0.2 s"
