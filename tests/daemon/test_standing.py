"""No caller can raise its standing at any door."""

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.daemon.stage import Home, Shell, check_output, new_home, run_as_person, run_script_as_person
from tests.daemon.wires import LinesWire, ThinWire

from palaver.domain.rights import RESERVED_FAMILIES, RESERVED_TYPES

LOOK_TWICE = """\
import json, socket, subprocess, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
lines = wire.makefile("rw")
for _ in range(2):
    lines.write('{"op": "whoami"}\\n')
    lines.flush()
    print(json.loads(lines.readline())["ok"]["name"], flush=True)
    subprocess.run(["pal", "leave"], check=False, capture_output=True)
"""


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A shell that has joined as nova, a worker."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


@pytest.fixture
def boss(bus: Home) -> dict[str, Any]:
    """An operator, created by a person in a terminal that was closed afterwards. The result of its join."""
    return check_output(run_as_person(bus, "join", "--name", "boss", "--role", "operator", "--json")).json


def test_person_is_the_human_and_may_assign_a_role(bus: Home) -> None:
    found = run_script_as_person(
        bus, "pal whoami --json; pal join --name boss --role operator >/dev/null; pal whoami --json"
    ).lines

    assert [(line["name"], line["standing"]) for line in found] == [("human", "human"), ("boss", "operator")]


@pytest.mark.parametrize("role", ["operator", "orchestrator"])
def test_script_cannot_join_with_a_role_above_worker(bus: Home, role: str) -> None:
    refused = bus.shell().pal("join", "--name", "boss", "--role", role, "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert bus.ok("list", "-v", "--json").lines == []


def test_program_cannot_join_with_a_role_above_its_own(bus: Home, nova: Shell) -> None:
    with LinesWire(bus.path) as program:
        refused = program.ask("join", name="boss", role="operator")

    assert refused["error"] == "not_allowed"
    assert [line["name"] for line in bus.ok("list", "-v", "--json").lines] == ["nova"]


def test_agent_cannot_join_under_another_name(bus: Home, nova: Shell) -> None:
    refused = [
        nova.pal("join", "--name", "boss", "--role", "operator", "--json"),
        nova.pal("join", "--name", "luna", "--json"),
        nova.pal("join", "--as", "luna", "--json"),
    ]

    assert [one.error["error"] for one in refused] == ["already_joined"] * 3
    assert "nova" in refused[0].error["message"]


def test_process_below_an_agent_can_be_another_agent_without_more_rights(bus: Home, nova: Shell) -> None:
    inner = "bash --norc -c 'pal join --name inner --role {role} --pid $$ --json; pal whoami --json'"

    refused = nova.begin_script(inner.format(role="operator")).end()
    joined = nova.begin_script(inner.format(role="worker")).end()

    assert "not_allowed" in refused.err
    assert [line["name"] for line in refused.lines] == ["nova"]
    assert [line["name"] for line in joined.lines] == ["inner", "inner"]
    assert bus.ok("status", "inner", "--json").json["by"] == "nova"


def test_seat_cannot_be_taken_at_the_process_of_another_caller(bus: Home, nova: Shell) -> None:
    other = bus.shell()
    foreign = [1, bus.pid, nova.process.pid, 2**22 - 1, 0]

    refused = [other.pal("join", "--name", "luna", "--pid", str(pid), "--json") for pid in foreign]

    assert [one.status for one in refused] == [1] * len(foreign)
    assert {one.error["error"] for one in refused} == {"bad_request"}
    assert [line["name"] for line in bus.ok("list", "-v", "--json").lines] == ["nova"]


def test_agent_cannot_act_as_another(bus: Home, nova: Shell) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")

    refused = [
        nova.pal(*words, "--as", "luna", "--json")
        for words in (["send", "x"], ["recv"], ["ack", "2"], ["leave"], ["whoami"], ["status", "set", "idle"])
    ]

    assert [one.error["error"] for one in refused] == ["not_you"] * 6
    assert bus.texts() == []


def test_script_may_act_for_a_worker_and_it_is_logged(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@all", "--as", "nova", "--", "in its name")

    (event,) = bus.events("--type", "message")

    assert (event["from"], event["by"]) == ("nova", "script")


def test_script_cannot_act_for_an_operator(bus: Home, boss: dict[str, Any]) -> None:
    refused = [bus.pal(*words, "--as", "boss", "--json") for words in (["send", "x"], ["recv"], ["join"])]

    assert [one.error["error"] for one in refused] == ["not_allowed", "not_allowed", "name_taken"]
    assert bus.texts() == []


def test_name_in_use_is_refused_to_other_callers(bus: Home, nova: Shell) -> None:
    refused = [
        bus.shell().pal("join", "--name", "nova", "--json"),
        bus.shell().pal("join", "--as", "nova", "--json"),
        run_as_person(bus, "join", "--name", "nova", "--json"),
    ]

    assert [one.error["error"] for one in refused] == ["name_taken"] * 3
    assert nova.ok("whoami", "--json").json["name"] == "nova"


def test_used_name_needs_the_human_or_an_explicit_script(bus: Home, nova: Shell) -> None:
    bus.ok("send", "@nova", "--", "for nova")
    nova.ok("leave")
    other, outright = bus.shell(), bus.shell()
    other.ok("join", "--name", "luna")

    refused = bus.shell().pal("join", "--name", "nova", "--json")
    by_agent = other.begin_script("bash --norc -c 'pal join --as nova --pid $$ --json; true'").end()
    taken = outright.ok("join", "--as", "nova", "--json").json

    assert refused.error["error"] == "name_taken"
    assert "name_taken" in by_agent.err
    assert (taken["name"], taken["unread"]) == ("nova", 1)


def test_forged_seat_mark_lowers_and_never_raises_the_standing(bus: Home, boss: dict[str, Any]) -> None:
    forged = {"PALAVER_SEAT": boss["seat"]}

    script = bus.ok("whoami", "--json", env=forged).json
    person = run_as_person(bus, "whoami", "--json", env=forged).json
    unknown = run_as_person(bus, "whoami", "--json", env={"PALAVER_SEAT": "nonsense"}).json

    assert [found["standing"] for found in (script, person)] == ["worker", "worker"]
    assert (unknown["name"], unknown["standing"]) == ("script", "worker")


def test_forged_mark_on_the_wire_does_not_raise_the_standing(bus: Home, boss: dict[str, Any]) -> None:
    with ThinWire(bus.path) as client:
        client.ask("whoami", "--json", environment=[f"PALAVER_SEAT={boss['seat']}", "PALAVER_ROLE=operator"])
        _, out, _ = client.answer()

    assert b'"worker"' in out


def test_forged_session_of_a_present_agent_gives_no_seat_and_no_rights(
    bus: Home,
) -> None:
    session = {"CLAUDE_CODE_SESSION_ID": "session-1", "CLAUDECODE": "1"}
    claude = bus.shell(env=session)
    claude.ok("join", "--name", "lead")

    forger = bus.shell(env=session)
    seen = forger.ok("whoami", "--json").json
    joined = forger.pal("join", "--name", "lead", "--json")

    assert seen["standing"] == "worker"
    assert joined.status == 1
    assert claude.ok("whoami", "--json").json["name"] == "lead"


@pytest.mark.parametrize("mark", ["CLAUDECODE", "GEMINI_CLI", "CODEX_SANDBOX", "OPENCODE"])
def test_harness_in_a_terminal_is_not_the_human(bus: Home, mark: str) -> None:
    found = run_as_person(bus, "whoami", "--json", env={mark: "1"}).json

    assert (found["name"], found["standing"]) == ("script", "worker")


def test_process_started_by_a_harness_without_its_marks_is_not_the_human(bus: Home) -> None:
    script = "bash --norc -c 'env -u CLAUDECODE pal whoami --json; true'"

    found = run_script_as_person(bus, script, env={"CLAUDECODE": "1"}).json

    assert found["standing"] == "worker"


def test_harness_below_an_operator_has_the_rights_of_a_worker(bus: Home) -> None:
    claude = bus.spare_path() / "claude"
    claude.parent.mkdir()
    claude.write_text("#!/bin/bash\nCLAUDECODE=1 pal whoami --json\n")
    claude.chmod(0o755)
    script = f"pal join --name boss --role operator >/dev/null; pal whoami --json; {claude}"

    found = run_script_as_person(bus, script).lines

    assert [line["standing"] for line in found] == ["operator", "worker"]


def test_observer_reads_and_cannot_write(bus: Home) -> None:
    script = "pal join --name eve --role observer >/dev/null; pal list >/dev/null; pal send --json hello"

    refused = run_script_as_person(bus, script)

    assert "not_allowed" in refused.err
    assert bus.texts() == []


def test_commands_of_the_human_are_refused_to_agents_and_scripts(bus: Home, nova: Shell) -> None:
    sent = bus.ok("send", "@nova", "--json", "--", "x").json["seq"]

    refused = [one.pal("redeliver", str(sent), "--json") for one in (bus, nova)]

    assert [one.error["error"] for one in refused] == ["not_allowed"] * 2


# Envelopes


def envelope(type_: str, sender: str = "luna", payload: dict[str, object] | None = None) -> dict[str, object]:
    id_ = f"{type_}-{sender}"
    return {"v": 1, "type": type_, "id": id_, "from": sender, "to": ["luna"], "payload": payload or {}}


def test_envelope_in_another_name_is_refused(bus: Home, nova: Shell) -> None:
    with LinesWire(bus.path) as program:
        program.ask("join", name="luna")

        refused = [
            program.ask("put", envelope=envelope("x.report", sender))["error"]
            for sender in ("nova", "human", "[pal-events]", "script", "LUNA", "luna ", "@luna")
        ]

    assert refused == ["not_you"] * 7
    assert bus.events("--type", "x.report") == []


@pytest.mark.parametrize("type_", [*sorted(RESERVED_TYPES), *(f"{family}x" for family in RESERVED_FAMILIES)])
def test_envelope_of_a_reserved_type_is_refused(shared: LinesWire, type_: str) -> None:
    refused = shared.ask("put", envelope=envelope(type_, payload={"state": "idle"}))

    assert refused["error"] == "reserved_type"


@pytest.fixture(scope="module")
def shared() -> Iterator[LinesWire]:
    """One connection that has joined as luna, for requests that are all refused."""
    with new_home() as home:
        home.start_daemon()
        with LinesWire(home.path) as program:
            program.ask("join", name="luna")
            yield program


def test_hello_envelope_changes_the_runtime_and_not_the_identity(bus: Home) -> None:
    with LinesWire(bus.path) as program:
        program.ask("join", name="luna")
        agent = {"name": "luna", "base": "luna", "role": "operator"}
        payload: dict[str, object] = {"runtime": "x", "version": "9", "agent": agent}
        program.ask("put", envelope=envelope("agent.hello", payload=payload))

        assert program.ask("whoami")["ok"]["standing"] == "worker"
        assert bus.ok("status", "luna", "--json").json["role"] == "worker"


def test_script_cannot_put_hello_or_bye_envelopes(bus: Home) -> None:
    with LinesWire(bus.path) as program:
        refused = [
            program.ask("put", envelope=envelope(type_, "script"))["error"]
            for type_ in ("agent.hello", "agent.bye")
        ]

    assert refused == ["who_are_you"] * 2


def test_message_envelope_gets_sender_fields_from_the_bus(bus: Home, nova: Shell) -> None:
    with LinesWire(bus.path) as program:
        program.ask("join", name="luna")
        claimed = {"sender_kind": "human", "delivered_to": ["boss"], "dead": ["x"], "expires": 1}
        put = envelope("message", payload={"text": "hello", **claimed})
        program.ask("put", envelope={**put, "to": ["nova"]})

    received = nova.ok("recv", "--json").json

    assert (received["from"], received["sender_kind"], received["delivered_to"]) == (
        "luna",
        "instance",
        ["nova"],
    )


# A connection that stays open


def test_connection_of_an_agent_that_has_left_loses_its_identity(bus: Home, nova: Shell) -> None:
    program = bus.spare_path()
    program.write_text(LOOK_TWICE)

    seen = nova.begin_script(shlex.join([sys.executable, str(program), str(bus.path / "daemon.sock")])).end()

    assert seen.out.split() == ["nova", "script"]


def test_name_taken_over_by_another_connection_is_lost_to_the_first(bus: Home) -> None:
    with LinesWire(bus.path) as first, LinesWire(bus.path) as second:
        first.ask("join", name="luna")
        bus.ok("leave", "--as", "luna")
        second.ask("join", name="luna")

        assert first.ask("send", text="x", to=["@luna"])["error"] == "who_are_you"
        assert second.ask("whoami")["ok"]["name"] == "luna"


def test_secret_of_a_join_restores_the_name(bus: Home) -> None:
    with LinesWire(bus.path) as first:
        secret = first.ask("join", name="luna")["ok"]["secret"]
        with LinesWire(bus.path) as other:
            refused = other.ask("join", name="luna", secret="guessed")

    with LinesWire(bus.path) as again:
        back = again.ask("join", name="luna", secret=secret)["ok"]

    assert refused["error"] == "name_taken"
    assert back["name"] == "luna"
    assert len(bus.events("--type", "agent.hello")) == 1
