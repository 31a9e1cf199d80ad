"""A holder and its agent: one identity that no other process can take, whatever happens to the daemon."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.holder import SECRET, FakeHolder, PersonsHolder, ticket_of, words_of, words_of_person
from tests.daemon.stage import Home, check_output, run_as_person, wait_until

PROGRAM = ("bash", "-c", "exec bash --norc")


@pytest.fixture
def luna(bus: Home) -> Iterator[FakeHolder]:
    """An agent that a holder owns."""
    with FakeHolder(bus) as holder:
        yield holder.hold(ticket_of(words_of(bus, "run", "--name", "luna", "--", *PROGRAM)))


def hellos(home: Home) -> list[str]:
    return [event["from"] for event in home.events("--type", "agent.hello")]


def test_client_receives_the_complete_command_to_run(bus: Home) -> None:
    command = ["claude", "--name", "x", "a b"]

    words = words_of(bus, "run", "--name", "luna", "--detach", "--json", "--", *command)

    options = ["--detach", "--name", "luna", "--harness", "claude", "--json"]
    assert words[:2] == ["__run", "--ticket"]
    assert words[3:] == [*options, "--", *command]


def test_child_and_its_descendants_are_the_agent(bus: Home, luna: FakeHolder) -> None:
    found = luna.run("pal whoami --json; bash -c 'pal whoami --json; true'")

    assert [line["name"] for line in found.lines] == ["luna", "luna"]
    assert luna.held["name"] == "luna"
    assert luna.held["seat"]


def test_process_in_a_terminal_of_a_holder_is_never_the_human(bus: Home, luna: FakeHolder) -> None:
    gone = luna.run("pal leave >/dev/null; pal whoami --json")

    assert gone.json["name"] == "script"
    assert gone.json["standing"] == "worker"


def test_name_is_assigned_if_none_was_chosen(bus: Home) -> None:
    with FakeHolder(bus) as holder:
        holder.hold(ticket_of(words_of(bus, "run", "--tag", "api", "--", "bash")))

        assert holder.held["name"].startswith("api-")
        assert holder.run("pal whoami --json").json["name"] == holder.held["name"]


def test_ticket_is_valid_once(bus: Home, luna: FakeHolder) -> None:
    ticket = ticket_of(words_of(bus, "run", "--", "bash"))
    with FakeHolder(bus) as first, FakeHolder(bus) as second:
        first.hold(ticket, secret="a" * 32)

        refused = second.ask("hold", ticket=ticket, pid=second.child.pid, secret="b" * 32)

        assert refused["error"] == "not_found"
        assert "pal run" in refused["message"]


def test_repeated_hold_with_the_same_secret_returns_the_same_name(bus: Home) -> None:
    ticket = ticket_of(words_of(bus, "run", "--", "bash"))
    with FakeHolder(bus) as holder:
        name = holder.hold(ticket).held["name"]

        holder.hold(ticket)

        assert holder.held["name"] == name
        assert hellos(bus) == [name]


def test_holder_can_hold_only_processes_that_it_started(bus: Home) -> None:
    ticket = ticket_of(words_of(bus, "run", "--", "bash"))
    stranger = bus.shell()
    with FakeHolder(bus) as holder:
        above = holder.ask("hold", ticket=ticket, pid=1)
        second = holder.ask("hold", ticket=ticket, pid=2**31 - 1)

        assert (above["error"], second["error"]) == ("bad_request", "not_found")
        holder.hold(ticket)  # it is still valid, because nothing was held
    assert stranger.pal("whoami", "--json").json["name"] == "script"


def test_agent_that_has_joined_is_not_held_by_another(bus: Home, luna: FakeHolder) -> None:
    ticket = ticket_of(words_of(bus, "run", "--", "bash"))

    refused = luna.ask("hold", ticket=ticket, pid=luna.child.pid, secret="another")

    assert refused["error"] == "already_joined"


def test_held_agent_is_resumed_only_with_the_secret(bus: Home, luna: FakeHolder) -> None:
    for secret in ("", "x", "0" * 32):
        refused = luna.ask("hold", name="luna", secret=secret, pid=luna.child.pid)
        assert refused["error"] == "not_you"

    joined = luna.ask("join", name="luna", secret=SECRET)

    assert joined["error"] == "name_taken"


def test_agent_keeps_its_name_when_the_daemon_is_killed(bus: Home, luna: FakeHolder) -> None:
    bus.kill()
    bus.start_daemon()

    luna.again()

    assert luna.held["name"] == "luna"
    assert luna.run("pal whoami --json").json["name"] == "luna"
    assert hellos(bus) == ["luna"]


def test_agent_keeps_its_name_when_the_holder_reconnects(bus: Home, luna: FakeHolder) -> None:
    before = luna.held

    luna.again()

    assert luna.held == before
    assert hellos(bus) == ["luna"]


def test_holder_reports_how_the_agent_ended(bus: Home, luna: FakeHolder) -> None:
    luna.child.send_signal(signal.SIGKILL)
    luna.child.wait()
    wait_until(lambda: not bus.ok("status", "luna", "--json").json["present"])

    luna.ok("leave", reason="killed by SIGKILL")

    (bye,) = bus.events("--type", "agent.bye")
    assert (bye["from"], bye["payload"]["reason"]) == ("luna", "killed by SIGKILL")


def test_exit_during_a_crash_is_reported_to_the_next_daemon(bus: Home, luna: FakeHolder) -> None:
    bus.kill()
    luna.child.kill()
    luna.child.wait()
    bus.ok("up")

    luna.again()
    luna.ok("leave", reason="killed by SIGKILL")

    (bye,) = bus.events("--type", "agent.bye")
    assert bye["payload"]["reason"] == "killed by SIGKILL"


def test_only_a_person_grants_a_role_above_worker(bus: Home) -> None:
    refused = bus.pal("run", "--role", "operator", "--json", "--", "bash")
    with PersonsHolder(bus, "run", "--name", "boss", "--role", "operator", "--", "bash") as holder:
        holder.hold(holder.ticket)

        assert (refused.status, refused.error["error"]) == (1, "not_allowed")
        assert holder.run("pal whoami --json").json["standing"] == "operator"


def test_name_in_use_is_refused_before_anything_runs(bus: Home, luna: FakeHolder) -> None:
    refused = bus.pal("run", "--name", "luna", "--json", "--", "bash")

    assert refused.error["error"] == "name_taken"


@pytest.mark.parametrize(
    "words", [("run",), ("run", "bash"), ("run", "--"), ("run", "bash", "--", "x"), ("run", "--", "")]
)
def test_command_to_run_must_follow_two_dashes(shared_bus: Home, words: tuple[str, ...]) -> None:
    assert shared_bus.pal(*words).status == 2


def test_hello_contains_the_command_and_not_the_environment(bus: Home, luna: FakeHolder) -> None:
    (hello,) = bus.events("--type", "agent.hello")

    agent = hello["payload"]["agent"]
    assert tuple(agent["argv"]) == PROGRAM
    assert agent["cwd"] == "/"
    assert "PALAVER" not in str(hello)


def test_resume_uses_the_same_command_and_name(bus: Home, luna: FakeHolder) -> None:
    running = run_as_person(bus, "resume", "luna", "--json")
    luna.ok("leave", reason="exited with 0")
    by_a_worker = bus.pal("resume", "luna", "--json")

    words = words_of_person(bus, "resume", "luna", "--detach")

    assert running.error["error"] == "name_taken"
    assert by_a_worker.error["error"] == "not_allowed"
    assert words[3:] == ["--detach", "--name", "luna", "--cwd", "/", "--", *PROGRAM]
    with PersonsHolder(bus, "resume", "luna", "--detach") as second:
        assert second.hold(second.ticket, secret="t" * 32).held["name"] == "luna"
        assert luna.ask("status", name="luna", state="idle")["error"] == "who_are_you"


def test_agent_that_was_not_started_with_run_cannot_be_resumed(bus: Home) -> None:
    bus.shell().ok("join", "--name", "nova")

    refused = run_as_person(bus, "resume", "nova", "--json")

    assert refused.error["error"] == "bad_request"


def test_only_a_person_can_attach_to_the_terminal(bus: Home, luna: FakeHolder) -> None:
    assert words_of_person(bus, "attach", "luna") == ["__attach", "luna"]
    assert bus.pal("attach", "luna", "--json").error["error"] == "not_allowed"
    bus.shell().ok("join", "--name", "nova")
    assert run_as_person(bus, "attach", "nova", "--json").error["error"] == "not_found"


def test_text_that_a_person_types_is_logged(bus: Home, luna: FakeHolder) -> None:
    luna.ok("typed", text="make it blue")
    refused = luna.ask("typed", text="a\x1b[2J")
    stranger = FakeHolder(bus)
    with stranger:
        nobody = stranger.ask("typed", text="x")

    (typed,) = [event for event in bus.events("--type", "life") if event["payload"]["action"] == "typed"]
    assert typed["payload"] == {"action": "typed", "agent": "luna", "text": "make it blue"}
    assert (typed["from"], typed["by"]) == ("luna", "human")
    assert (refused["error"], nobody["error"]) == ("bad_text", "not_found")


def test_daemon_reports_that_a_holder_is_not_connected(bus: Home, luna: FakeHolder) -> None:
    luna.wire.close()

    wait_until(lambda: bus.pal("peek", "luna", "--json").error["error"] == "not_found")

    check_output(bus.pal("status", "luna", "--json"))


def socket_of(home: Home, name: str, *, is_live: bool) -> tuple[Path, socket.socket]:
    """Create a socket at an agent's path; without `is_live` it is one that a killed holder left."""
    path = home.path / "agents" / f"{name}.sock"
    path.parent.mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    if is_live:
        listener.listen()
    return path, listener


@pytest.mark.parametrize("is_live", [False, True])
def test_socket_of_a_killed_holder_is_removed_with_its_agent(bus: Home, *, is_live: bool) -> None:
    with FakeHolder(bus) as holder:
        holder.hold(ticket_of(words_of(bus, "run", "--name", "luna", "--", *PROGRAM)))
        path, listener = socket_of(bus, "luna", is_live=is_live)
        holder.ok("leave", reason="killed by SIGKILL")

        with listener:
            assert path.exists() == is_live


def test_sockets_left_while_no_daemon_ran_are_removed_at_start(bus: Home, luna: FakeHolder) -> None:
    luna.ok("leave", reason="exited with 0")
    bus.kill(signal.SIGKILL)
    left, listener = socket_of(bus, "luna", is_live=False)
    other, stranger = socket_of(bus, "stranger", is_live=False)

    with listener, stranger:
        bus.ok("up")

        assert not left.exists()
        assert other.exists()


def test_less_detailed_screen_does_not_replace_a_stored_request(bus: Home, luna: FakeHolder) -> None:
    luna.ok("status", name="luna", state="blocked", detail="permission: Write: made.txt")
    bus.kill(signal.SIGKILL)
    bus.start_daemon()
    luna.again()

    luna.ok("status", name="luna", state="blocked", detail="permission")

    shown = bus.ok("status", "luna", "--json").json
    assert (shown["state"], shown["detail"]) == ("blocked", "permission: Write: made.txt")
    luna.ok("status", name="luna", state="blocked", detail="question")
    assert bus.ok("status", "luna", "--json").json["detail"] == "question"
