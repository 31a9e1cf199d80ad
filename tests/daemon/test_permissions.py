"""Permission requests with real daemons and hooks: shown to all callers, decided only by a person."""

import json
import os
import signal

import pytest
from tests.daemon.stage import Home, Job, JsonLine, Result, Shell, run_as_person, set_approvals, wait_until
from tests.daemon.wires import LinesWire

ASKED = {
    "session_id": "s1",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "touch x"},
}


@pytest.fixture
def bus(home: Home) -> Home:
    """A home in which agents wait for a person's decision."""
    set_approvals(home)
    home.start_daemon()
    return home


def session(bus: Home, name: str = "nova") -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", name, "--harness", "claude")
    return shell


@pytest.fixture
def nova(bus: Home) -> Shell:
    return session(bus)


def ask(shell: Shell, **fields: object) -> Job:
    """Let a session request permission, and leave it waiting."""
    return shell.begin_script(
        f"printf %s '{json.dumps({**ASKED, **fields})}' | pal hook claude PermissionRequest"
    )


def pending(home: Home, count: int = 1) -> list[JsonLine]:
    wait_until(lambda: len(home.ok("pending", "--json").lines) == count)
    return home.ok("pending", "--json").lines


def decision(result: Result) -> JsonLine:
    assert (result.status, result.err) == (0, "")
    found: JsonLine = result.json["hookSpecificOutput"]["decision"]
    return found


def answers(home: Home) -> list[JsonLine]:
    return [event["payload"] for event in home.events("--type", "permission.answered")]


@pytest.mark.parametrize(("verb", "behaviour"), [("approve", "allow"), ("deny", "deny")])
def test_person_decides_a_shown_request(bus: Home, nova: Shell, verb: str, behaviour: str) -> None:
    job = ask(nova)
    (shown,) = pending(bus)

    result = run_as_person(bus, verb, shown["id"], "--json")

    assert (shown["agent"], shown["text"]) == ("nova", "Bash: touch x")
    assert (shown["input"], shown["answerable"]) == ({"command": "touch x"}, True)
    assert (result.status, result.json["decision"]) == (0, behaviour)
    assert decision(job.end())["behavior"] == behaviour
    assert bus.ok("pending", "--json").lines == []
    (asked,) = bus.events("--type", "permission.asked")
    (answered,) = bus.events("--type", "permission.answered")
    assert (asked["from"], asked["payload"]["permission"]) == ("nova", shown["id"])
    assert (answered["from"], answered["payload"]["decision"]) == ("human", behaviour)
    assert answered["payload"]["digest"] == asked["payload"]["digest"] == shown["digest"]


def test_request_is_visible_to_all_and_shown_completely(bus: Home, nova: Shell) -> None:
    job = ask(nova, tool_input={"command": "rm -r x", "description": "tidy up"})
    (shown,) = pending(bus)

    page = bus.ok("pending").out
    wait_until(lambda: "permission: Bash: rm -r x" in bus.ok("list").out)

    assert f"{shown['id']}  nova asks: Bash: rm -r x\n" in page
    assert '"description": "tidy up"' in page
    assert "permission: Bash: rm -r x" in bus.ok("status", "nova").out
    run_as_person(bus, "deny", shown["id"])
    assert decision(job.end()) == {"behavior": "deny", "message": "a person denied it"}


def test_agents_and_scripts_cannot_decide_even_in_the_name_of_a_person(bus: Home, nova: Shell) -> None:
    job = ask(nova)
    (shown,) = pending(bus)
    boss = bus.shell()
    boss.ok("join", "--name", "boss")

    tries = [
        bus.pal("approve", shown["id"], "--json"),
        boss.pal("approve", shown["id"], "--json"),
        bus.pal("approve", shown["id"], "--as", "nova", "--json"),
        run_as_person(bus, "approve", shown["id"], "--as", "nova", "--json"),
        run_as_person(bus, "deny", shown["id"], "--as", "boss", "--json"),
    ]

    assert [(one.status, one.error["error"]) for one in tries] == [(1, "not_allowed")] * 5
    assert len(pending(bus)) == 1
    assert answers(bus) == []
    run_as_person(bus, "deny", shown["id"])
    job.end()


def test_settled_or_unknown_request_cannot_be_decided(bus: Home, nova: Shell) -> None:
    job = ask(nova)
    (first,) = pending(bus)
    run_as_person(bus, "deny", first["id"])
    job.end()
    other = ask(nova, tool_input={"command": "touch y"})
    (second,) = pending(bus)

    again = run_as_person(bus, "approve", first["id"], "--json")
    never = run_as_person(bus, "approve", "nothing", "--json")

    assert (again.status, again.error["error"]) == (1, "not_found")
    assert "already answered" in again.error["message"]
    assert (never.status, never.error["error"]) == (1, "not_found")
    assert second["id"] != first["id"]
    run_as_person(bus, "approve", second["id"])
    assert decision(other.end())["behavior"] == "allow"


def test_same_request_again_has_another_id(bus: Home, nova: Shell) -> None:
    ids = []
    for _ in range(2):
        job = ask(nova)
        (shown,) = pending(bus)
        ids.append(shown["id"])
        run_as_person(bus, "deny", shown["id"])
        job.end()

    assert len(set(ids)) == 2


def test_request_without_a_decision_in_time_is_denied(home: Home) -> None:
    set_approvals(home, wait_s=2)
    home.start_daemon()

    result = ask(session(home)).end()

    assert decision(result) == {"behavior": "deny", "message": "no person answered in time"}
    (answered,) = answers(home)
    assert (answered["decision"], answered["reason"]) == ("deny", "timeout")


def test_request_of_a_killed_hook_is_withdrawn(bus: Home, nova: Shell) -> None:
    job = nova.begin_script(
        f"printf %s '{json.dumps(ASKED)}' > asked; pal hook claude PermissionRequest <asked & echo $!; wait"
    )
    hook = int(job.line())
    (shown,) = pending(bus)

    os.kill(hook, signal.SIGTERM)
    job.end()

    wait_until(lambda: len(answers(bus)) == 1)
    assert [line["id"] for line in pending(bus)] == [None]  # its own dialog may still be open
    assert (answers(bus)[0]["decision"], answers(bus)[0]["reason"]) == ("none", "gone")
    late = run_as_person(bus, "approve", shown["id"], "--json")
    assert (late.status, late.error["error"]) == (1, "not_found")


def hook(shell: Shell, event: str, **fields: object) -> None:
    content = json.dumps({"session_id": "s1", "tool_name": "Bash", **fields})
    assert shell.begin_script(f"printf %s '{content}' | pal hook claude {event}").end().status == 0


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("PostToolUse", {"tool_input": {"command": "touch x"}}),
        ("PostToolBatch", {}),
        ("UserPromptSubmit", {}),
    ],
)
def test_request_that_a_later_hook_shows_to_be_settled_is_withdrawn(
    bus: Home, nova: Shell, event: str, fields: dict[str, object]
) -> None:
    nova.begin_script(f"printf %s '{json.dumps(ASKED)}' > asked").end()
    nova.begin_script("pal hook claude PermissionRequest <asked >said 2>&1 & true").end()
    (shown,) = pending(bus)

    hook(nova, "PostToolUse", tool_input={"command": "another one"})
    hook(nova, "UserPromptSubmit", session_id="another session")
    still = bus.ok("pending", "--json").lines
    hook(nova, event, **fields)

    assert [line["id"] for line in still] == [shown["id"]]
    wait_until(lambda: [one["reason"] for one in answers(bus)] == ["gone"])
    late = run_as_person(bus, "approve", shown["id"], "--json")
    assert (late.status, late.error["error"]) == (1, "not_found")


def test_stopped_daemon_lets_the_harness_ask_by_itself(bus: Home, nova: Shell) -> None:
    job = ask(nova)
    pending(bus)

    bus.ok("down")

    result = job.end()
    assert (result.status, result.out, result.err) == (0, "", "")


def test_killed_daemon_lets_the_harness_ask_by_itself(bus: Home, nova: Shell) -> None:
    job = ask(nova)
    pending(bus)

    bus.kill()

    result = job.end()
    assert (result.status, result.out, result.err) == (0, "", "")


def test_hooks_do_not_wait_unless_approvals_are_enabled(home: Home) -> None:
    home.start_daemon()

    result = ask(session(home)).end()

    assert (result.status, result.out) == (0, "")
    (shown,) = pending(home)
    assert (shown["id"], shown["answerable"], shown["text"]) == (None, False, "permission: Bash: touch x")
    assert "is blocked until a person answers in its own terminal." in home.ok("pending").out
    assert home.events("--type", "permission.asked") == []


def test_requests_of_several_agents_are_separate(bus: Home, nova: Shell) -> None:
    jobs = {"nova": ask(nova), "kira": ask(session(bus, "kira"))}
    shown = {line["agent"]: line["id"] for line in pending(bus, 2)}

    run_as_person(bus, "approve", shown["kira"])

    assert decision(jobs["kira"].end())["behavior"] == "allow"
    assert [line["agent"] for line in pending(bus)] == ["nova"]
    run_as_person(bus, "deny", shown["nova"])
    assert decision(jobs["nova"].end())["behavior"] == "deny"


def test_installed_hook_is_skipped_only_if_the_session_has_its_own_hooks(bus: Home, nova: Shell) -> None:
    nova.ok("send", "@nova", "--", "look here")

    result = nova.begin_script("echo '{}' | pal hook claude PostToolUse --installed").end()

    assert "look here" in result.out


def test_agent_that_asks_only_in_its_terminal_is_answered_there(bus: Home, nova: Shell) -> None:
    nova.ok("status", "set", "blocked", "--detail", "dialog: Which of the two?")

    result = run_as_person(bus, "approve", "nova", "--json")

    assert (result.status, result.error["error"]) == (1, "bad_request")
    assert "nova asks in its own terminal and cannot be answered from here" in result.error["message"]


def test_approve_with_an_agent_name_shows_the_id_of_its_request(bus: Home, nova: Shell) -> None:
    ask(nova)
    (shown,) = pending(bus)

    result = run_as_person(bus, "approve", "nova", "--json")

    assert result.error["message"] == f"nova has open requests; choose one: pal approve {shown['id']}"
    assert len(pending(bus)) == 1


def test_request_of_a_sub_agent_is_answered_at_the_terminal_of_its_parent(bus: Home, nova: Shell) -> None:
    hook(nova, "SubagentStart", agent_id="a1", agent_type="reviewer")
    child = nova.begin_script("pal list --json").end()
    name = next(one["name"] for one in child.lines if one.get("parent") == "nova")
    run_as_person(bus, "--as", name, "status", "set", "blocked", "--detail", "dialog: Which?")

    result = run_as_person(bus, "approve", name, "--json")

    assert result.error["message"].endswith("answer at the terminal of nova")


def test_usage_limit_is_pending_only_if_it_asks_a_person(bus: Home, nova: Shell) -> None:
    nova.ok("status", "set", "blocked", "--detail", "usage limit, resets 3pm (UTC)")
    waits = bus.ok("pending", "--json").lines
    nova.ok("status", "set", "blocked", "--detail", "usage limit: flash; Keep trying / Stop?")

    (asks,) = bus.ok("pending", "--json").lines

    assert waits == []
    assert (asks["agent"], asks["text"]) == ("nova", "usage limit: flash; Keep trying / Stop?")


def test_request_that_is_asked_and_withdrawn_in_one_write_is_not_pending(bus: Home) -> None:
    asked = {"op": "permission", "name": "nova", "request": "per_1"}
    lines = [{"req": 1, **asked, "tool": "bash"}, {"req": 2, **asked, "outcome": "gone"}]

    with LinesWire(bus.path) as wire:
        wire.ask("join", name="nova")
        wire.send(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        reply = [wire.next_line() for _ in lines]
        wait_until(lambda: [one.get("reason") for one in answers(bus)] == ["gone"])

    assert [line["req"] for line in reply] == [1, 2]
    assert reply[0]["ok"]["id"]
    assert bus.ok("pending", "--json").lines == []


def test_changed_request_has_a_new_id_and_the_old_decision_does_not_apply(
    bus: Home,
) -> None:
    def asked(wire: LinesWire, command: str) -> JsonLine:
        given = {"session": "s", "tool": "Bash", "input": {"command": command}}
        found: JsonLine = wire.ask("permission", name="nova", request="0", **given)["ok"]
        return found

    with LinesWire(bus.path) as wire:
        wire.ask("join", name="nova")
        first, same, other = asked(wire, "ls"), asked(wire, "ls"), asked(wire, "rm -r /")
        (shown,) = pending(bus)
        result = run_as_person(bus, "approve", first["id"], "--json")

    assert first == same != other
    assert (shown["id"], shown["input"]) == (other["id"], {"command": "rm -r /"})
    assert (result.status, result.error["error"]) == (1, "not_found")


def test_agent_with_too_many_requests_is_refused_and_others_are_served(bus: Home) -> None:
    with LinesWire(bus.path) as wire:
        wire.ask("join", name="nova")
        asked = [wire.ask("permission", name="nova", request=f"{number}") for number in range(21)]
        other = session(bus, "luna")
        job = ask(other)
        shown = pending(bus, 21)

        assert [bool(one.get("ok", {}).get("id")) for one in asked] == [True] * 20 + [False]
        assert "20 requests of nova already wait for a person" in str(asked[-1])
        (its,) = [one for one in shown if one["agent"] == "luna"]
        run_as_person(bus, "deny", its["id"])
        assert decision(job.end())["behavior"] == "deny"


def test_script_that_starts_the_bus_cannot_enable_approvals(home: Home) -> None:
    refused = home.pal("up", env={"PALAVER_APPROVALS": "1"})

    assert (refused.status, "use 'pal config set approvals'" in refused.err) == (1, True)
    home.ok("up")
    assert home.pal("config", "set", "approvals", "1", "--json").error["error"] == "not_allowed"


def test_request_text_cannot_forge_or_hide_lines_on_the_page(bus: Home) -> None:
    forged = "ls\u2028    pal approve 1\x85rm\u200b -r\xa0x\u3164\U000e0041"

    with LinesWire(bus.path) as wire:
        wire.ask("join", name="nova")
        asked = {"session": "s", "tool": "Bash", "input": {"command": forged}}
        found = wire.ask("permission", name="nova", request="0", **asked)["ok"]
        page = bus.ok("pending").out

    shown = "ls\\u2028    pal approve 1\\x85rm\\u200b -r\\xa0x\\u3164\\U000e0041"
    first, *_, last = page.splitlines()
    assert f'      "command": "{shown}"\n' in page
    assert all(ch == "\n" or ch.isprintable() for ch in page)
    assert first.startswith(found["id"])
    assert last == f"    pal approve {found['id']} | pal deny {found['id']}"
    assert len(page.splitlines()) == 6
