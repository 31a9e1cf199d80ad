"""What OpenCode itself asks leave for: a person's own word answers it where that is wanted, else nobody."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import JsonLine, run_as_person, set_approvals
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed
from tests.harness.real.opencode_installed_stage import InstalledStage, installed_stage
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

pytestmark = pytest.mark.harness


@pytest.fixture
def opencode() -> Iterator[OpenCodeStage]:
    """A bus in which agents wait for a person's word."""
    with opencode_stage(installed("opencode")) as stage:
        stage.home.ok("down")
        set_approvals(stage.home)
        stage.home.ok("up")
        yield stage


def asked(opencode: OpenCodeStage) -> JsonLine:
    """Have it ask leave to make a file, and give what is shown of that."""
    opencode.script.add(reply("", opencode.asking_to_make(opencode.project / "made.txt")), reply("so be it"))
    opencode.start("--prompt", "make it")
    return shown(opencode)


def shown(opencode: OpenCodeStage) -> JsonLine:
    opencode.until(lambda: any(one["id"] for one in opencode.home.ok("pending", "--json").lines))
    (line,) = opencode.home.ok("pending", "--json").lines
    return line


def test_what_a_person_allows_is_done_once(opencode: OpenCodeStage) -> None:
    line = asked(opencode)
    made = opencode.project / "made.txt"
    assert (line["agent"], line["tool"], line["harness"]) == ("nova", "edit", "opencode")
    assert line["text"] == f"edit: {made}"
    assert "+x" in str(line["input"])
    assert not made.exists()

    said = run_as_person(opencode.home, "approve", str(line["id"]))

    assert (said.status, said.err) == (0, "")
    opencode.until(made.exists)
    opencode.until_idle()
    assert opencode.home.ok("pending", "--json").lines == []

    again = opencode.project / "again.txt"
    opencode.script.add(reply("", opencode.asking_to_make(again)), reply("not so"))
    send(opencode.friend(), "@nova", "--", "and once more")
    second = shown(opencode)
    assert second["id"] != line["id"]
    assert not again.exists()
    run_as_person(opencode.home, "deny", str(second["id"]))
    opencode.until_idle()
    assert not again.exists()


def test_an_agent_cannot_answer_for_itself(opencode: OpenCodeStage) -> None:
    line = asked(opencode)

    refused = opencode.friend().pal("approve", str(line["id"]), "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert not (opencode.project / "made.txt").exists()


def test_what_is_answered_at_its_terminal_is_asked_no_more(opencode: OpenCodeStage) -> None:
    line = asked(opencode)
    person = opencode.sit_down(last=b"Reject")

    opencode.answer_dialog(person)

    opencode.until((opencode.project / "made.txt").exists)
    opencode.until(lambda: opencode.home.ok("pending", "--json").lines == [])
    late = run_as_person(opencode.home, "deny", str(line["id"]), "--json")
    assert (late.status, late.error["error"]) == (1, "not_found")


def test_without_the_bus_the_dialog_stays(opencode: OpenCodeStage) -> None:
    asked(opencode)
    before = opencode.until_drawn()

    opencode.home.kill()
    set_approvals(opencode.home, is_on=False)
    opencode.home.ok("up")

    opencode.until(lambda: "native" in opencode.gates())
    opencode.until(lambda: opencode.state()[0] == "blocked")
    assert opencode.dialog() == before
    (line,) = opencode.home.ok("pending", "--json").lines
    assert (line["id"], line["answerable"]) == (None, False)  # this one answers nobody: it was not told to


def test_a_session_started_without_pal_is_answered_alike() -> None:
    with installed_stage(installed("opencode")) as opencode:
        opencode.home.ok("down")
        set_approvals(opencode.home)
        opencode.home.ok("up")
        made = opencode.project / "made.txt"
        opencode.script.add(reply("", opencode.asking_to_make(made)), reply("so be it"))
        person = opencode.open_terminal("--prompt", "make it", sign="Allow once")
        line = shown(opencode)
        assert isinstance(opencode, InstalledStage)
        assert "Allow once" in opencode.shown(person)

        said = run_as_person(opencode.home, "approve", str(line["id"]))

        assert (said.status, said.err) == (0, "")
        opencode.until(made.exists)
