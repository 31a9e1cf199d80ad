"""The examples of the SDK run, against a daemon of their own, and its page leaves nothing out."""

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
    """What a program with a bus of its own needs; the bus is stopped in the end."""
    with tempfile.TemporaryDirectory(prefix="pal-docs-") as folder:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = {**kept, "PALAVER_HOME": f"{folder}/home"}
        yield environment
        run("-m", "palaver.cli.thin", "down", environment=environment)


def run(*arguments: str, environment: Environment) -> subprocess.CompletedProcess[str]:
    """Run Python, which starts the bus when nobody listens."""
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def without_numbers(text: str) -> str:
    """They depend on what the bus has seen before."""
    return re.sub(r"#\d+", "#", text)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"at {page('sdk.md').index(example)}")
def test_every_example_compiles(example: str) -> None:
    assert compile(example, "docs/sdk.md", "exec")


def test_the_first_example_prints_what_the_page_says(environment: Environment) -> None:
    said = blocks(page("sdk.md"), "text")[0]

    ended = run("-c", EXAMPLES[0], environment=environment)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert without_numbers(ended.stdout) == without_numbers(said)


@pytest.mark.parametrize("example", EXAMPLES[1:], ids=lambda example: f"at {page('sdk.md').index(example)}")
def test_every_other_example_runs(example: str, environment: Environment) -> None:
    ended = run("-c", example, environment=environment)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_sdk_page_names_all_that_a_connection_and_its_values_offer() -> None:
    text = page("sdk.md")

    methods = [name for name in vars(palaver.Connection) if not name.startswith("_")]
    values = [*palaver.Message.__dataclass_fields__, *palaver.Event.__dataclass_fields__]
    for kind in (palaver.Receipt, palaver.Delivery, palaver.Agent):
        values += kind.__struct_fields__

    inner = {"acknowledge", "answer"}  # how a message reaches its connection
    assert [name for name in methods if f"`{name}" not in text] == []
    assert [name for name in values if name not in inner and f"`{name}" not in text] == []


def test_the_sdk_page_names_all_that_outsiders_may_use() -> None:
    promised = page("sdk.md").rpartition("What `import palaver` offers")[2]

    assert sorted(re.findall(r"`(\w+)`", promised)) == sorted(palaver.__all__)
