"""Mail for an agent in a terminal: when it is offered, in which order, and a person's commands."""

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from tests.daemon.holder import FakeHolder, PersonsHolder, ticket_of, words_of
from tests.daemon.stage import (
    Home,
    Result,
    Shell,
    check_output,
    run_as_person,
    run_script_as_person,
    wait_until,
)
from tests.limits import LIMIT_S


@pytest.fixture
def luna(bus: Home) -> Iterator[FakeHolder]:
    """An agent that a holder owns, with a closed lane."""
    with FakeHolder(bus) as holder:
        yield holder.hold(ticket_of(words_of(bus, "run", "--name", "luna", "--", "bash"))).open_lane(
            is_open=False
        )


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def receipt(home: Home, text: str, name: str = "luna") -> dict[str, Any]:
    """Return the receipt of the message with this text."""
    (seq,) = [e["seq"] for e in home.events("--type", "message") if e["payload"]["text"] == text]
    (line,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    assert line["name"] == name
    found: dict[str, Any] = line
    return found


def send(shell: Shell, text: str, *options: str) -> None:
    shell.ok("send", "@luna", *options, "--", text)


def test_nothing_is_offered_before_the_gate_opens(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    send(nova, "hello")
    assert receipt(bus, "hello")["state"] == "queued"

    luna.gate(open=True)

    assert luna.take() == "hello"
    assert receipt(bus, "hello")["state"] == "seen"


def test_each_waiting_message_has_its_own_file(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    texts = [f"{number} {'x' * 400}" for number in range(10)]
    for text in texts:
        send(nova, text)

    folder = bus.path / "messages" / "luna"
    wait_until(lambda: folder.exists() and len([*folder.glob("*.md")]) == len(texts))
    assert sorted(file.read_text().removesuffix("\n") for file in folder.glob("*.md")) == texts
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert {event["state"] for event in (receipt(bus, text) for text in texts)} == {"queued"}


def test_priorities_are_offered_in_order_one_at_a_time(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    order = ["idle", "idle-first", "normal", "interrupt"]
    for word in order:
        for number in (1, 2):
            send(nova, f"{word} {number}", "--priority", word)

    luna.gate(open=True)
    taken = [luna.take() for _ in range(8)]

    assert taken == [
        "interrupt 1",
        "interrupt 2",
        "normal 1",
        "normal 2",
        "idle-first 2",
        "idle-first 1",
        "idle 1",
        "idle 2",
    ]


def test_busy_agent_gets_normal_mail_and_the_rest_when_idle(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    luna.ok("status", state="active")
    send(nova, "later", "--priority", "idle")
    send(nova, "now")
    luna.gate(open=True)

    assert luna.take() == "now"
    send(nova, "now too")
    assert luna.take() == "now too"
    luna.ok("status", state="idle")
    assert luna.take() == "later"


def test_paused_lane_lets_interrupts_through(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    luna.gate(open=True, paused=True, reason="passthrough")
    send(nova, "normal")
    send(nova, "stop!", "--interrupt")

    assert luna.take() == "stop!"
    luna.gate(open=True)
    assert luna.take() == "normal"


def test_deferred_message_is_offered_again_when_the_gate_opens(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    luna.gate(open=True)
    send(nova, "hello")

    luna.answer(luna.offered(), "deferred", reason="a person types")
    assert receipt(bus, "hello")["state"] == "queued"
    luna.gate(open=False, reason="draft")
    luna.gate(open=True)

    assert luna.take() == "hello"


def test_interrupt_during_a_dialog_is_held_and_offered_afterwards(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    luna.gate(open=False, reason="dialog")
    send(nova, "waits")
    send(nova, "stop!", "--interrupt")
    notice = nova.ok("recv", "--wait", "--timeout", "30", "--json").json

    assert (notice["from"], "is held for luna: a dialog is open" in notice["text"]) == ("[pal-events]", True)
    held = receipt(bus, "stop!")
    assert (held["state"], held["reason"], receipt(bus, "waits")["state"]) == ("held", "dialog", "queued")
    luna.gate(open=True)
    assert [luna.take(), luna.take()] == ["stop!", "waits"]


def test_sender_is_notified_once_however_often_a_dialog_opens(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    luna.gate(open=False, reason="dialog")
    send(nova, "stop!", "--interrupt")
    nova.ok("recv", "--wait", "--timeout", "30")
    luna.gate(open=True)
    luna.answer(luna.offered(), "deferred", reason="dialog")
    luna.gate(open=False, reason="dialog")
    wait_until(lambda: receipt(bus, "stop!")["state"] == "held")

    luna.gate(open=True)

    assert luna.take() == "stop!"
    assert nova.ok("recv", "--json").lines == []


def test_hold_by_a_dialog_survives_the_daemon(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    luna.gate(open=False, reason="dialog")
    send(nova, "stop!", "--interrupt")
    wait_until(lambda: receipt(bus, "stop!")["state"] == "held")
    bus.kill()
    bus.start_daemon()

    luna.again()
    luna.open_lane(is_open=False)
    luna.gate(open=False, reason="dialog")
    wait_until(lambda: receipt(bus, "stop!")["state"] == "held")
    luna.gate(open=True)

    assert luna.take() == "stop!"


def test_message_held_by_a_dialog_is_queued_again_when_the_agent_exits(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    luna.gate(open=False, reason="dialog")
    send(nova, "stop!", "--interrupt")
    wait_until(lambda: receipt(bus, "stop!")["state"] == "held")

    luna.gate(open=False, reason="exited")

    wait_until(lambda: receipt(bus, "stop!")["state"] == "queued")
    assert receipt(bus, "stop!")["reason"] == "the agent has ended"


def test_offer_that_is_open_when_the_daemon_dies_is_settled_by_the_holder(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    luna.gate(open=True)
    send(nova, "one")
    offer = luna.offered()
    assert receipt(bus, "one")["state"] == "submitted"
    bus.kill()
    bus.start_daemon()

    luna.again()
    luna.open_lane(outcomes=[{"messages": [offer["message"]["seq"]], "answer": "seen"}])
    send(nova, "two")

    assert luna.take() == "two"
    assert receipt(bus, "one")["state"] == "seen"


def test_each_message_comes_once_and_in_order_over_many_crashes(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    words = ["normal", "idle", "interrupt", "idle-first"]
    for number in range(20):
        send(nova, f"{words[number % 4]} {number:02}", "--priority", words[number % 4])
    taken: list[str] = []
    outcomes: list[dict[str, Any]] = []
    luna.gate(open=True)
    while len(taken) < 20:
        offer = luna.offered()
        taken.append(offer["message"]["text"])
        if len(taken) in (3, 9, 15):  # typed, and the daemon dies before the report
            outcomes = [{"messages": [offer["message"]["seq"]], "answer": "seen"}]
            bus.kill()
            bus.start_daemon()
            luna.again()
            luna.open_lane(outcomes=outcomes)
        else:
            luna.answer(offer)

    by_word = {word: sorted(text for text in taken if text.rpartition(" ")[0] == word) for word in words}
    order = ["interrupt", "normal", "idle-first", "idle"]
    by_word["idle-first"].reverse()
    assert taken == [text for word in order for text in by_word[word]]
    assert len(set(taken)) == 20
    states = {receipt(bus, text)["state"] for text in taken}
    assert states == {"seen"}


# Pause


def test_only_operators_and_people_can_pause(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    luna.gate(open=True)
    refused = nova.pal("pause", "luna", "--json")
    check_output(run_as_person(bus, "pause", "luna"))
    send(nova, "normal")
    send(nova, "stop!", "--interrupt")

    assert luna.take() == "stop!"
    assert bus.ok("status", "luna", "--json").json["paused"] is True
    check_output(run_as_person(bus, "unpause", "luna"))
    assert luna.take() == "normal"
    assert refused.error["error"] == "not_allowed"
    paused = bus.events("--type", "agent.paused", "--type", "agent.unpaused")
    assert [(e["type"], e["from"], e["payload"]) for e in paused] == [
        ("agent.paused", "human", {"agent": "luna"}),
        ("agent.unpaused", "human", {"agent": "luna"}),
    ]


def test_pause_survives_the_daemon(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    check_output(run_as_person(bus, "pause", "luna"))
    bus.kill()
    bus.start_daemon()
    luna.again()
    luna.open_lane()
    send(nova, "normal")
    send(nova, "stop!", "--interrupt")

    assert luna.take() == "stop!"


# Raw


_T = TypeVar("_T")


def at_once(this: Callable[[], Result], other: Callable[[], _T]) -> tuple[Result, _T]:
    """Run two functions at the same time and return both results."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        return this(), done.result(LIMIT_S)


def send_keys(home: Home, keys: str, *options: str) -> Result:
    return run_as_person(home, "send", "luna", "--raw", *options, "--", keys)


def stored_seqs(home: Home) -> list[int]:
    return [event["seq"] for event in home.events("--type", "message") if "raw" in event["payload"]]


def raw_bytes(offer: dict[str, Any]) -> bytes:
    return base64.b64decode(offer["message"]["raw"])


def test_person_types_exact_bytes_despite_a_dialog_and_a_pause(bus: Home, luna: FakeHolder) -> None:
    luna.gate(open=False, reason="dialog")
    check_output(run_as_person(bus, "pause", "luna"))

    def type_them() -> dict[str, Any]:
        offer = luna.offered()
        luna.answer(offer, evidence="Do you want to proceed?\n> 1. Yes")
        return offer

    keys = "printf '\\033[A\\003\\377y' | pal send luna --raw --stdin"
    sent, offer = at_once(lambda: run_script_as_person(bus, keys), type_them)

    assert (sent.status, sent.out) == (0, f"typed #{offer['message']['seq']} into luna\n"), sent
    assert raw_bytes(offer) == b"\x1b[A\x03\xffy"
    assert offer["message"]["text"] == "\\x1b[A\\x03\\xffy"
    assert offer["message"]["priority"] == "interrupt"
    (seen,) = [e for e in bus.events("--type", "delivery") if e["payload"]["state"] == "seen"]
    assert seen["payload"]["evidence"] == "Do you want to proceed?\n> 1. Yes"


def test_keys_can_be_given_on_the_command_line(bus: Home, luna: FakeHolder) -> None:
    def type_them() -> bytes:
        offer = luna.offered()
        luna.answer(offer)
        return raw_bytes(offer)

    sent, typed = at_once(lambda: send_keys(bus, "y\r", "--json"), type_them)

    assert typed == b"y\r"
    assert (sent.status, sent.json["delivered_to"], sent.json["state"]) == (0, ["luna"], "seen")


def test_agents_and_scripts_cannot_type_keys(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    by_agent = nova.pal("send", "luna", "--raw", "--json", "--", "y")
    by_script = bus.pal("send", "luna", "--raw", "--json", "--", "y")
    by_itself = luna.run("pal send luna --raw --json -- y")
    in_a_name = run_as_person(bus, "send", "luna", "--raw", "--as", "nova", "--json", "--", "y")

    refusals = [by_agent, by_script, by_itself, in_a_name]
    assert [refused.error["error"] for refused in refusals] == ["not_allowed"] * 4
    assert bus.texts() == []


@pytest.mark.parametrize("target", ["nova", "luna,nova", "@all"])
def test_keys_go_into_exactly_one_terminal_of_a_holder(
    bus: Home, luna: FakeHolder, nova: Shell, target: str
) -> None:
    refused = run_as_person(bus, "send", *target.split(","), "--raw", "--json", "--", "y")

    assert refused.status in (1, 2)
    assert bus.texts() == []


def test_keys_that_the_holder_refuses_are_not_retried(bus: Home, luna: FakeHolder) -> None:
    def refuse() -> None:
        luna.answer(luna.offered(), "refused", reason="a shell is in the foreground")

    sent, _ = at_once(lambda: send_keys(bus, "y"), refuse)

    assert (sent.status, sent.out) == (1, "")
    assert sent.err.startswith("pal: nothing was typed into luna: #"), sent
    assert sent.err.endswith("was refused (a shell is in the foreground)\n"), sent
    refused = receipt(bus, "y")
    assert (refused["state"], refused["reason"]) == ("refused", "a shell is in the foreground")
    notice = run_as_person(bus, "recv", "--wait", "--timeout", "30", "--json").json
    assert "was refused for luna: a shell" in notice["text"]
    assert luna.run("pal recv --json").lines == []


def test_keys_are_never_read_as_mail(bus: Home, luna: FakeHolder) -> None:
    luna.ok("leave", reason="x")
    with PersonsHolder(bus, "resume", "luna") as again:
        again.hold(again.ticket, secret="t" * 32)

        def read_and_type() -> list[Any]:
            again.tell_status(again.next_push())
            wait_until(lambda: bus.texts() == ["y"])
            read = again.run("pal recv --json").lines
            again.open_lane().take()
            return read

        sent, read = at_once(lambda: send_keys(bus, "y"), read_and_type)

        check_output(sent)
        assert read == []


def test_keys_that_are_not_typed_in_time_expire(bus: Home, luna: FakeHolder) -> None:
    with FakeHolder(bus) as nova:
        nova.hold(ticket_of(words_of(bus, "run", "--name", "nova", "--", "bash")), secret="t" * 32)

        sent = run_as_person(bus, "send", "nova", "--raw", "--expires", "0.05", "--json", "--", "y")
        result = run_as_person(bus, "send", "nova", "--raw", "--expires", "0.05", "--", "y")

    assert (sent.status, sent.json["state"]) == (1, "expired")
    assert (result.status, result.out) == (1, "")
    assert result.err == f"pal: nothing was typed into nova: #{stored_seqs(bus)[-1]} expired\n"


def test_keys_without_a_report_before_the_agent_ends_are_unconfirmed(bus: Home, luna: FakeHolder) -> None:
    def leave() -> None:
        luna.offered()
        luna.ok("leave", reason="killed by SIGKILL")
        luna.wire.close()

    sent, _ = at_once(lambda: send_keys(bus, "y", "--json"), leave)

    assert (sent.status, sent.json["state"], sent.json["unconfirmed"]) == (1, "submitted", True)


def test_keys_with_the_same_id_are_typed_once_and_reported_as_repeated(bus: Home, luna: FakeHolder) -> None:
    own = ("--id", "01K0ABCDEFGHJKMNPQRSTVWXYZ")
    first, _ = at_once(lambda: send_keys(bus, "y", *own), luna.take)

    second = send_keys(bus, "y", *own)

    (seq,) = stored_seqs(bus)
    assert check_output(first).out == f"typed #{seq} into luna\n"
    assert check_output(second).out == f"#{seq} was typed before, into luna\n"


def test_keys_with_the_id_of_a_text_are_refused(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    own = ("--id", "01K0ABCDEFGHJKMNPQRSTVWXYZ")
    seq = check_output(run_as_person(bus, "send", "luna", "nova", *own, "--json", "--", "text")).json["seq"]

    result = send_keys(bus, "y", *own)

    assert result.status == 1
    assert f"is taken: you used it for #{seq}, a different event; nothing was stored" in result.err


def test_dry_run_of_keys_does_not_wait(bus: Home, luna: FakeHolder) -> None:
    result = send_keys(bus, "y", "--dry-run")

    assert check_output(result).out == "would go to luna\n"


# Notices for the next session


def test_next_session_receives_the_seqs_of_unconfirmed_messages(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    send(nova, "hello")
    luna.gate(open=True)
    seq = luna.offered()["message"]["seq"]
    luna.ok("leave", reason="killed by SIGKILL")

    with PersonsHolder(bus, "resume", "luna") as again:
        again.hold(again.ticket, secret="t" * 32).open_lane()
        again.ok("status", state="idle")
        reply = again.take()

    assert reply == f"delivered to you before, but maybe not read: #{seq} ('pal show NUMBER' shows one)"
    assert receipt(bus, "hello")["unconfirmed"] is True


# Requests to a holder


def asked(holder: FakeHolder, verb: str) -> dict[str, Any]:
    push = holder.next_push()
    assert (push["push"], push["verb"], push["name"]) == ("control", verb, "luna"), push
    return push


def test_any_caller_can_see_the_screen(bus: Home, luna: FakeHolder) -> None:
    job = bus.start("peek", "luna", "--lines", "7", "--json")
    push = asked(luna, "peek")
    luna.ok("tell", ask=push["ask"], ok={"text": "$ ls\nREADME", "cols": 80, "rows": 24})

    out, _ = job.communicate(timeout=LIMIT_S)

    assert push["lines"] == 7
    assert json.loads(out) == {
        "agent": "luna",
        "name": "luna",
        "text": "$ ls\nREADME",
        "cols": 80,
        "rows": 24,
    }


def test_screen_text_cannot_control_the_terminal_of_the_viewer(bus: Home, luna: FakeHolder) -> None:
    job = bus.start("peek", "luna")
    luna.ok("tell", ask=asked(luna, "peek")["ask"], ok={"text": "a\x1b[2Jb\nc"})

    out, _ = job.communicate(timeout=LIMIT_S)

    assert b"\x1b" not in out
    assert out.count(b"\n") == 2


def test_person_stops_an_agent_and_sees_the_progress(bus: Home, luna: FakeHolder) -> None:
    def hold() -> None:
        push = asked(luna, "stop")
        luna.ok("tell", ask=push["ask"], done=False, message="asked it to quit")
        luna.ok("leave", reason="exited with 0")
        luna.ok("tell", ask=push["ask"], ok={"reason": "exited with 0"})

    result = run_during(hold, lambda: run_as_person(bus, "stop", "luna", "--json"))

    assert result.json == {"agent": "luna", "name": "luna", "reason": "exited with 0"}
    assert "luna: asked it to quit" in result.err


def run_during(other: Callable[[], None], this: Callable[[], Result]) -> Result:
    """Run a command while the holder acts: the command waits for the holder."""
    return at_once(this, other)[0]


def test_holder_may_disconnect_after_its_exit_report(bus: Home, luna: FakeHolder) -> None:
    def hold() -> None:
        asked(luna, "kill")
        luna.ok("leave", reason="killed by SIGKILL")
        luna.wire.close()

    result = run_during(hold, lambda: run_as_person(bus, "kill", "luna", "--json"))

    assert result.json == {"agent": "luna", "name": "luna", "reason": "killed by SIGKILL"}


def test_stop_waits_for_a_holder_that_reconnects_to_report_the_exit(bus: Home, luna: FakeHolder) -> None:
    def hold() -> None:
        asked(luna, "stop")
        luna.again()
        asked(luna, "stop")
        luna.again()
        luna.ok("leave", reason="exited with 0")
        luna.wire.close()

    result = run_during(hold, lambda: run_as_person(bus, "stop", "luna", "--json"))

    assert result.json == {"agent": "luna", "name": "luna", "reason": "exited with 0"}


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_first_stop_or_kill_after_a_daemon_start_waits_for_the_holder(
    bus: Home, luna: FakeHolder, verb: str
) -> None:
    bus.kill()
    bus.start_daemon()

    def hold() -> None:
        bus.ok("list")
        bus.ok("list")  # the command is on its way before the holder is back
        luna.again()
        push = asked(luna, verb)
        luna.ok("leave", reason="killed by SIGKILL")
        luna.ok("tell", ask=push["ask"], ok={"reason": "killed by SIGKILL"})

    result = run_during(hold, lambda: run_as_person(bus, verb, "luna", "--json"))

    assert result.json == {"agent": "luna", "name": "luna", "reason": "killed by SIGKILL"}


def test_first_peek_after_a_daemon_start_waits_for_the_holder(bus: Home, luna: FakeHolder) -> None:
    bus.kill()
    bus.start_daemon()
    job = bus.start("peek", "luna")
    bus.ok("list")

    luna.again()

    push = asked(luna, "peek")
    luna.ok("tell", ask=push["ask"], ok={"text": "$ ls", "cols": 80, "rows": 24})
    assert job.communicate(timeout=LIMIT_S)[0] == b"$ ls\n"


def test_first_keys_after_a_start_wait_for_the_holder_and_stay_hidden(bus: Home, luna: FakeHolder) -> None:
    bus.kill()
    bus.start_daemon()

    def hold() -> None:
        bus.ok("list")
        bus.ok("list")  # the command is on its way before the holder is back
        luna.again()
        push = asked(luna, "status")
        luna.ok("tell", ask=push["ask"], ok={"secret": True})
        luna.open_lane(is_open=False)
        luna.answer(luna.offered())

    check_output(run_during(hold, lambda: send_keys(bus, "hunter2")))

    (message,) = [event for event in bus.events("--type", "message") if "raw" in event["payload"]]
    assert "hunter2" not in json.dumps(message)


def test_failure_of_a_holder_is_reported(bus: Home, luna: FakeHolder) -> None:
    def hold() -> None:
        push = asked(luna, "stop")
        luna.ok("tell", ask=push["ask"], error="bad_request", message="it cannot be stopped now")

    result = run_during(hold, lambda: run_as_person(bus, "stop", "luna", "--json"))

    assert result.error == {"error": "bad_request", "message": "it cannot be stopped now"}


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_worker_cannot_stop_or_kill_agents(bus: Home, luna: FakeHolder, nova: Shell, verb: str) -> None:
    assert nova.pal(verb, "luna", "--json").error["error"] == "not_allowed"
    assert run_as_person(bus, verb, "nova", "--json").error["error"] == "not_found"


def test_status_of_an_agent_shows_queue_gates_and_size(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    send(nova, "one")
    send(nova, "two", "--priority", "idle")
    luna.gate(open=False, reason="draft")
    job = bus.start("status", "luna", "--json")
    luna.ok("tell", ask=asked(luna, "status")["ask"], ok={"cols": 120, "rows": 40, "last_activity": 7})

    status = json.loads(job.communicate(timeout=LIMIT_S)[0])

    assert status["queue"] == {"interrupt": 0, "normal": 1, "idle-first": 0, "idle": 1, "held": 0}
    assert (status["cols"], status["rows"], status["last_activity"]) == (120, 40, 7)
    assert status["gates"] == [{"lane": "terminal", "open": False, "paused": False, "reason": "draft"}]
    assert status["pid"] == luna.child.pid
    assert {"state", "since", "paused", "present"} <= status.keys()


def test_holder_that_never_answers_blocks_no_other_request(bus: Home, luna: FakeHolder) -> None:
    status = bus.ok("status", "luna", "--json").json

    assert (status["cols"], status["rows"]) == (80, 24)


def test_caller_is_notified_when_the_holder_disconnects(bus: Home, luna: FakeHolder) -> None:
    job = bus.start("peek", "luna", "--json")
    asked(luna, "peek")
    luna.wire.close()

    _, err = job.communicate(timeout=LIMIT_S)

    assert "exited before it replied" in json.loads(err)["message"]


def test_open_offer_after_a_crash_is_answered_on_the_next_lane(
    bus: Home, luna: FakeHolder, nova: Shell
) -> None:
    luna.gate(open=True)
    send(nova, "one")
    seq = luna.offered()["message"]["seq"]
    send(nova, "two")
    bus.kill()
    bus.start_daemon()
    luna.again()

    opened = luna.ok("lane", kind="terminal", remembers=True, carrying=[seq])
    luna.lane = opened["lane"]
    luna.gate(open=True)
    luna.answer(opened)

    assert luna.take() == "two"
    assert receipt(bus, "one")["state"] == "seen"


# Expected replies


def remind_soon(bus: Home, luna: FakeHolder) -> None:
    """Restart with a daemon that leaves little time between reminders."""
    (bus.path / "config.toml").write_text("remind_after_s = 1\n")
    bus.kill()
    bus.start_daemon()
    luna.again()
    luna.open_lane()


def test_idle_recipient_is_reminded_until_it_replies(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    remind_soon(bus, luna)
    send(nova, "which one?", "--expects-reply")
    seq = luna.offered()
    luna.answer(seq)
    sent_seq = seq["message"]["seq"]

    for count in (1, 2):
        luna.ok("status", state="active")
        luna.ok("status", state="idle")
        text = luna.take()
        assert f"your answer to #{sent_seq} (reminder {count} of 3)" in text
    luna.ok("status", state="active")
    luna.run(f"pal send @nova --reply-to {sent_seq} -- this one")
    luna.ok("status", state="idle")
    send(nova, "thanks")

    assert luna.take() == "thanks"


def test_reminders_survive_the_daemon_and_end_after_three(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    remind_soon(bus, luna)
    send(nova, "which one?", "--expects-reply")
    luna.take()
    for _ in range(3):
        luna.ok("status", state="active")
        bus.kill()
        bus.start_daemon()
        luna.again()
        luna.open_lane()
        luna.ok("status", state="idle")
        assert "reminder" in luna.take()
    luna.ok("status", state="active")
    luna.ok("status", state="idle")

    notice = nova.ok("recv", "--wait", "--timeout", "30", "--json").json

    assert "has not answered" in notice["text"]
    assert "no more reminders" in notice["text"]
    send(nova, "forget it")
    assert luna.take() == "forget it"


def test_sender_is_notified_when_the_recipient_stops(bus: Home, luna: FakeHolder, nova: Shell) -> None:
    luna.gate(open=True)
    send(nova, "which one?", "--expects-reply")
    luna.take()

    luna.ok("leave", reason="exited with 1")

    notice = nova.ok("recv", "--wait", "--timeout", "30", "--json").json
    assert "@nova luna has stopped without answering" in notice["text"]


def test_script_cannot_expect_a_reply(bus: Home, luna: FakeHolder) -> None:
    refused = bus.pal("send", "@luna", "--expects-reply", "--json", "--", "x")

    assert refused.error["error"] == "who_are_you"


@pytest.mark.parametrize("word", ["", "urgent", "Normal", "idle_first"])
def test_priority_must_be_spelled_exactly(bus: Home, luna: FakeHolder, word: str) -> None:
    assert bus.pal("send", "@luna", "--priority", word, "--", "x").status == 2


def test_list_of_one_agent_includes_its_queue(luna: FakeHolder, nova: Shell) -> None:
    send(nova, "now")
    send(nova, "later", "--priority", "idle")

    (found,) = luna.ok("list", agent="luna")["agents"]

    assert found["name"] == "luna"
    assert found["queue"] == {"interrupt": 0, "normal": 1, "idle-first": 0, "idle": 1, "held": 0}
    assert luna.ok("list", agent="nobody")["agents"] == []
