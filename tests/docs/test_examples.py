"""The SDK examples run with their own daemon, and the SDK page is complete."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from tests.docs.pages import blocks, page
from tests.limits import LIMIT_S

import palaver

EXAMPLES = blocks(page("sdk.md"), "python")

Environment = dict[str, str]


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    """The environment of a program with its own bus; the bus is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="pal-docs-") as folder:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = {**kept, "PALAVER_HOME": f"{folder}/home"}
        yield environment
        run("-m", "palaver.app.thin.client", "down", environment=environment)


def run(*arguments: str, environment: Environment) -> subprocess.CompletedProcess[str]:
    """Run Python, which starts the bus if it is not running."""
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def without_numbers(text: str) -> str:
    """Remove message numbers, which depend on earlier events."""
    return re.sub(r"#\d+", "#", text)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"at {page('sdk.md').index(example)}")
def test_every_example_compiles(example: str) -> None:
    assert compile(example, "docs/sdk.md", "exec")


def test_first_example_prints_the_output_of_the_page(environment: Environment) -> None:
    expected = blocks(page("sdk.md"), "text")[0]

    ended = run("-c", EXAMPLES[0], environment=environment)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert without_numbers(ended.stdout) == without_numbers(expected)


@pytest.mark.parametrize("example", EXAMPLES[1:], ids=lambda example: f"at {page('sdk.md').index(example)}")
def test_every_other_example_runs(example: str, environment: Environment) -> None:
    ended = run("-c", example, environment=environment)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_sdk_page_names_all_members_of_a_connection_and_its_values() -> None:
    text = page("sdk.md")

    methods = [name for name in vars(palaver.Connection) if not name.startswith("_")]
    values = [name for name in palaver.Message.__dataclass_fields__ if not name.startswith("_")]
    for kind in (palaver.Event, palaver.Receipt, palaver.Delivery, palaver.Agent):
        values += kind.__struct_fields__

    inner = {"acknowledge", "answer"}  # used by a message to reach its connection
    assert [name for name in methods if f"`{name}" not in text] == []
    assert [name for name in values if name not in inner and f"`{name}" not in text] == []


def test_sdk_page_names_the_whole_public_api() -> None:
    promised = page("sdk.md").rpartition("public names of `import palaver`")[2]

    assert sorted(re.findall(r"`(\w+)`", promised)) == sorted(palaver.__all__)
