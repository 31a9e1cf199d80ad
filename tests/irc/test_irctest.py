"""The IRC door passes the tests of irctest (github.com/progval/irctest, MIT licence), except those listed.

irctest is a program for tests, and not on PyPI in a current version. The tests use a checkout of it: the
folder in the variable IRCTEST, or `~/.cache/palaver-irctest`. Without one they are skipped.

    git clone https://github.com/progval/irctest ~/.cache/palaver-irctest
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.irc.irctest_exceptions import EXCEPTIONS

ROOT = Path(__file__).parents[2]
CHECKOUT = Path(os.environ.get("IRCTEST") or Path.home() / ".cache" / "palaver-irctest")

MODULES = (
    "account_tag",
    "away",
    "away_notify",
    "buffering",
    "cap",
    "chathistory",
    "connection_registration",
    "echo_message",
    "extended_join",
    "isupport",
    "join",
    "labeled_responses",
    "list",
    "message_tags",
    "messages",
    "monitor",
    "multiline",
    "names",
    "part",
    "pingpong",
    "quit",
    "sasl",
    "topic",
    "utf8",
    "who",
    "whois",
)

NOT_OURS = "not Sable"
"""Tests of the history server of one other program."""

LIMIT_S = 1200
"""For all tests of a module, each with its own daemon."""

needs_irctest = pytest.mark.skipif(
    not (CHECKOUT / "irctest" / "server_tests").is_dir(),
    reason=f"IRCTEST WAS NOT RUN: there is no checkout of github.com/progval/irctest in {CHECKOUT}",
)


def run_module(module: str, report: Path) -> subprocess.CompletedProcess[str]:
    """Run one module of irctest against the door, in the folder of its checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PALAVER_"))}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *("-p", "no:asyncio", "-p", "no:randomly", "-m", NOT_OURS, "--tb=short", f"--junitxml={report}"),
            *("--controller", "tests.irc.irctest_controller", f"irctest/server_tests/{module}.py"),
        ],
        cwd=CHECKOUT,
        env={
            **kept,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": tempfile.gettempdir(),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def outcomes(report: Path) -> Iterator[tuple[str, str]]:
    """Yield each test of a report with an empty text if it passed, else with the text of irctest."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module, test_class = case.attrib["classname"].split(".")[-2:]
        found = [case.find(kind) for kind in ("failure", "error", "skipped")]
        failures = [f"{one.tag}: {one.get('message')} {one.text}" for one in found if one is not None]
        yield f"{module}.{test_class}.{case.attrib['name']}", "; ".join(failures)


def key_of(test: str) -> str | None:
    """Return the key of the exception that covers a test, or None. An exact key comes first."""
    if test in EXCEPTIONS:
        return test
    return next((key for key in EXCEPTIONS if key[-1] == "*" and test.startswith(key[:-1])), None)


def is_allowed(test: str, failure: str) -> bool:
    """Return whether a test passed and must, or did not pass as an exception says."""
    key = key_of(test)
    return not failure if key is None else bool(failure) and EXCEPTIONS[key].says in failure


@needs_irctest
@pytest.mark.parametrize("module", MODULES)
def test_door_passes_irctest_except_where_listed(module: str, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"

    done = run_module(module, report)

    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    results = dict(outcomes(report))
    assert results, done.stdout[-4000:]
    wrong = {test: output or "passes now" for test, output in results.items() if not is_allowed(test, output)}
    unused = {key for key in EXCEPTIONS if key.startswith(f"{module}.")} - {key_of(test) for test in results}
    assert (wrong, unused) == ({}, set()), "\n".join(
        [*(f"{test}: {output[:2000]}" for test, output in wrong.items()), *unused, done.stdout[-20_000:]]
    )


def test_every_exception_is_of_a_tested_module_and_has_a_reason() -> None:
    assert {key.partition(".")[0] for key in EXCEPTIONS} <= set(MODULES)
    assert all(len(one.because) > 20 and one.because.endswith(".") for one in EXCEPTIONS.values())
