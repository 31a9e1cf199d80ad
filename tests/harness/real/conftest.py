"""Real harnesses against a scripted model. They take long, and need the npm registry once.

`make test-harness` runs them; without PALAVER_HARNESS in the environment they are not even collected.
"""

import os
from collections.abc import Iterator

import pytest
from tests.harness.real.install import installed
from tests.harness.real.stage import ClaudeStage, claude_stage

if not os.environ.get("PALAVER_HARNESS"):
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "harness: runs a real harness against a scripted model")


@pytest.fixture
def claude() -> Iterator[ClaudeStage]:
    """A home in which the bus runs and Claude Code can be started."""
    with claude_stage(installed("claude")) as stage:
        yield stage
