"""Commands of the dashboard, and the link and the commands of the tests against the real ones."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.ui.fake_link import FakeCommands, FakeLink, agent, snapshot
from tests.daemon.stage import Home, new_home

from palaver.app.ui.app import BusLink
from palaver.app.ui.commands import PalCommand, Result, needs_terminal, pal_line
from palaver.client.view_link import ViewLink
from palaver.protocol.views import AgentsPage, AskAgents, Snapshot


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as opened:
        yield opened


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("attach luna", True),
        ("chat", True),
        ("claude --name luna", True),
        ("claude --detach", False),
        ("claude --help", False),
        ("run -- bash", True),
        ("run --detach -- bash", False),
        ("run -- tool --detach", True),
        ("config edit", True),
        ("config list", False),
        ("list", False),
    ],
)
def test_commands_that_read_keys_get_the_terminal(line: str, *, expected: bool) -> None:
    assert needs_terminal(["pal", *line.split()]) is expected


def test_line_is_quoted_as_a_person_would_type_it() -> None:
    assert pal_line(["pal", "send", "@luna", "--", "it's; done"]) == "pal send @luna -- 'it'\"'\"'s; done'"


def test_result_in_one_sentence() -> None:
    assert Result(0, "first\nlast\n", "").sentence == "last"
    assert Result(1, "", "pal: refused\nadvice\n").sentence == "refused"
    assert Result(0, "", "").sentence == "done"
    assert Result(3, "", "").sentence == "failed with status 3"
    assert Result(0, "sent\n", "pal: but look\nmore\n").hint == "but look"
    assert Result(0, "", "pal: only this\n").hint == ""
    assert Result(1, "half\n", "pal: refused\n").hint == ""


async def test_command_returns_output_errors_and_status(home: Home) -> None:
    commands = PalCommand(str(home.path), home.environment, home.client)

    version = await commands.run(["pal", "--version"])
    refused = await commands.run(["pal", "nonsense"])

    assert (version.status, version.out.startswith("pal "), version.err) == (0, True, "")
    assert (refused.status, refused.out) == (2, "")
    assert "nonsense" in refused.err


async def test_program_or_folder_that_is_missing_is_an_error_and_not_a_crash(
    home: Home, tmp_path: Path
) -> None:
    missing = PalCommand(str(home.path), {}, str(tmp_path / "pal"))
    commands = PalCommand(str(home.path), home.environment, home.client)

    assert (await missing.run(["pal", "list"])).err == "No such file or directory"
    assert (await commands.run(["pal", "--version"], cwd=str(tmp_path / "gone"))).status == 1
    assert (await commands.run(["pal", "a\0b"])).status == 1


async def test_cancelled_command_ends(home: Home) -> None:
    home.start_daemon()
    commands = PalCommand(str(home.path), home.environment, home.client)
    running = asyncio.ensure_future(commands.run(["pal", "events", "--follow"]))
    await asyncio.sleep(0)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.fixture(params=["real", "fake"])
def link(request: pytest.FixtureRequest, home: Home) -> BusLink:
    """Both links, to a bus with one agent."""
    if request.param == "real":
        home.start_daemon()
        home.shell().ok("join", "--name", "luna")
        return ViewLink(str(home.path))
    fake = FakeLink(snapshot(agent("luna")))
    fake.answers[AskAgents] = lambda question: AgentsPage(seq=10, total=1, rows=(agent("luna"),))
    return fake


async def test_both_links_keep_the_same_promises(link: BusLink) -> None:
    records = link.records()
    first = await anext(records)
    page = await link.ask(AskAgents(), AgentsPage)
    await link.acknowledge([])
    await link.close()

    assert isinstance(first, Snapshot)
    assert [row.name for row in first.agents] == [row.name for row in page.rows] == ["luna"]
    assert [record async for record in records] == []


@pytest.mark.parametrize(("fake", "real"), [(FakeLink, ViewLink), (FakeCommands, PalCommand)])
def test_fakes_have_the_parameters_of_the_real_parts(fake: type, real: type) -> None:
    for name in ("records", "ask", "acknowledge", "close", "run", "run_in_terminal"):
        if hasattr(real, name):
            assert list(inspect.signature(getattr(fake, name)).parameters) == [
                *inspect.signature(getattr(real, name)).parameters
            ]
