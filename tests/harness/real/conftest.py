"""Real harnesses with a scripted model. They are slow, and need the npm registry once.

`make test-harness` runs them; without PALAVER_HARNESS in the environment they are not collected.
"""

import os
from collections.abc import Generator, Iterator

import pytest
from tests.harness.real.claude_stage import ClaudeStage, claude_stage
from tests.harness.real.duo_stage import Duo
from tests.harness.real.harness_stage import HarnessStage
from tests.harness.real.install import NOT_TESTED, installed
from tests.harness.real.report import report_on

pytest.register_assert_rewrite("tests.harness.real.behaviours")

if not os.environ.get("PALAVER_HARNESS"):
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "harness: runs a real harness against a scripted model")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a report to a failed test, because its stage is removed afterwards."""
    report = yield
    if report.failed and call.when == "call":
        for given in getattr(item, "funcargs", {}).values():
            if isinstance(given, HarnessStage | Duo):
                report.sections.extend(report_on(given.home, given.scripts))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Print last which harnesses were not tested, because a skip is easily overlooked."""
    yield
    reasons = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    missing = sorted({f"{NOT_TESTED}{one.partition(NOT_TESTED)[2]}" for one in reasons if NOT_TESTED in one})
    for line in missing:
        terminalreporter.write_line(line.rstrip("')\""), red=True, bold=True)


@pytest.fixture
def claude() -> Iterator[ClaudeStage]:
    """A home with a running bus in which Claude Code can be started."""
    with claude_stage(installed("claude")) as stage:
        yield stage
