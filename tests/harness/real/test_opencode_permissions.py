"""Permission requests of OpenCode: decided by a person if approvals are on, and not at all otherwise."""

import json
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
    """A bus on which agents wait for the decision of a person."""
    with opencode_stage(installed("opencode")) as stage:
        stage.home.ok("down")
        set_approvals(stage.home)
        stage.home.ok("up")
        yield stage


def asked(opencode: OpenCodeStage) -> JsonLine:
    """Have it request permission to create a file, and return the view of the request."""
    opencode.script.add(reply("", opencode.asking_to_make(opencode.project / "made.txt")), reply("so be it"))
    opencode.start("--prompt", "make it")
    return shown(opencode)


def shown(opencode: OpenCodeStage) -> JsonLine:
    opencode.until(lambda: any(one["id"] for one in opencode.home.ok("pending", "--json").lines))
    (line,) = opencode.home.ok("pending", "--json").lines
    return line


def test_permission_is_valid_for_one_call(opencode: OpenCodeStage) -> None:
    line = asked(opencode)
    made = opencode.project / "made.txt"
    assert (line["agent"], line["tool"], line["harness"]) == ("nova", "edit", "opencode")
    assert line["text"] == f"edit: {made}"
    assert "+x" in str(line["input"])
    assert not made.exists()

    result = run_as_person(opencode.home, "approve", str(line["id"]))

    assert (result.status, result.err) == (0, "")
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


def asks_for_everything(opencode: OpenCodeStage) -> None:
    """Have it request permission for its shell and for tools of MCP servers."""
    settings = json.loads(opencode.settings.read_bytes())
    permission = {"palaver_*": "ask", "bash": "ask"}
    opencode.settings.write_text(json.dumps({**settings, "permission": permission}))


def test_mcp_call_and_command_are_shown_completely_and_decided(opencode: OpenCodeStage) -> None:
    asks_for_everything(opencode)
    luna = opencode.friend()
    given = {"to": "@luna", "text": "by a tool\nin two lines"}
    command = "cat <<X > made.txt\nnot so\nX"
    opencode.script.add(
        *opencode.bus_replies("send", **given), reply("", opencode.shell(command)), reply("so be it")
    )
    opencode.start("--prompt", "say it")
    first = shown(opencode)
    assert (first["tool"], first["input"]) == ("palaver_send", {"patterns": ["*"], "input": given})
    opencode.until(lambda: opencode.state() == ("blocked", "permission: palaver_send"))
    assert luna.ok("recv", "--peek").out == ""

    assert run_as_person(opencode.home, "approve", str(first["id"])).status == 0

    opencode.until(lambda: "in two lines" in luna.ok("recv", "--peek").out)
    opencode.until(lambda: "command" in str(opencode.home.ok("pending", "--json").lines))
    second = shown(opencode)
    assert (second["tool"], second["input"]["input"]["command"]) == ("bash", command)
    opencode.until(lambda: opencode.state()[1].startswith("permission: bash: cat <<X > made.txt"))

    assert run_as_person(opencode.home, "deny", str(second["id"])).status == 0

    opencode.until_idle()
    assert not (opencode.project / "made.txt").exists()
    assert opencode.home.ok("pending", "--json").lines == []


def test_with_approvals_off_a_dialog_stays_and_messages_wait() -> None:
    with opencode_stage(installed("opencode")) as opencode:
        asks_for_everything(opencode)
        luna = opencode.friend()
        opencode.script.add(*opencode.bus_replies("send", to="@luna", text="by a tool"), reply("so be it"))
        opencode.start("--prompt", "say it")
        opencode.until(lambda: opencode.state() == ("blocked", "permission: palaver_send"))
        opencode.until(lambda: "Call tool palaver_send" in opencode.screen())

        seq = send(luna, "@nova", "--", "a normal one")
        urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one")

        opencode.until(lambda: opencode.receipt(urgent)["state"] == "held")
        assert opencode.receipt(seq)["state"] == "queued"
        (line,) = opencode.home.ok("pending", "--json").lines
        assert (line["id"], line["answerable"]) == (None, False)
        assert "Call tool palaver_send" in opencode.screen()
        assert "by a tool" not in luna.ok("recv", "--peek").out

        opencode.give_leave()

        opencode.until(lambda: "by a tool" in luna.ok("recv", "--peek").out)
        opencode.until_seen(seq)
        opencode.until_seen(urgent)
        opencode.until_idle()
        assert opencode.all_told().count("a normal one") == 1


def test_agent_cannot_decide_a_request(opencode: OpenCodeStage) -> None:
    line = asked(opencode)

    refused = opencode.friend().pal("approve", str(line["id"]), "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert not (opencode.project / "made.txt").exists()


def test_request_decided_at_the_terminal_is_closed(opencode: OpenCodeStage) -> None:
    line = asked(opencode)
    person = opencode.sit_down(last=b"Reject")

    opencode.answer_dialog(person)

    opencode.until((opencode.project / "made.txt").exists)
    opencode.until(lambda: opencode.home.ok("pending", "--json").lines == [])
    late = run_as_person(opencode.home, "deny", str(line["id"]), "--json")
    assert (late.status, late.error["error"]) == (1, "not_found")


def test_dialog_stays_when_the_bus_restarts_without_approvals(opencode: OpenCodeStage) -> None:
    asked(opencode)
    before = opencode.until_drawn()

    opencode.home.kill()
    set_approvals(opencode.home, is_on=False)
    opencode.home.ok("up")

    opencode.until(lambda: "native" in opencode.gates())
    opencode.until(lambda: opencode.state()[0] == "blocked")
    assert opencode.until_drawn() == before
    (line,) = opencode.home.ok("pending", "--json").lines
    assert (line["id"], line["answerable"]) == (None, False)  # approvals are off in this daemon


def test_request_of_a_session_started_without_pal_is_decided() -> None:
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

        result = run_as_person(opencode.home, "approve", str(line["id"]))

        assert (result.status, result.err) == (0, "")
        opencode.until(made.exists)
