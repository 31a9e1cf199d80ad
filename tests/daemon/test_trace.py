"""`pal trace` explains one message from the log, from delivery and from a real holder, also after a crash."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import holders_of
from tests.daemon.stage import PAL, Home, JsonLine, check_output, new_home, run_as_person, wait_until
from tests.holder.stage import PROGRAMS
from tests.processes import end_process

PYTHON = str(Path(PAL).with_name("python"))


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        made.start_daemon()
        try:
            yield made
        finally:
            for pid in holders_of(made.path):
                end_process(pid, 9)


def start(home: Home, name: str) -> None:
    home.ok("run", "--detach", "--name", name, "--", PYTHON, "-I", str(PROGRAMS / "lines.py"))


def send(home: Home, to: str) -> int:
    seq: int = home.ok("send", "--json", to, "--", "hello").json["seq"]
    return seq


def state(home: Home, seq: int) -> str:
    (receipt,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    return str(receipt["state"])


def steps(home: Home, seq: int, source: str) -> list[JsonLine]:
    return [line for line in home.ok("trace", str(seq), "--json").lines if line["source"] == source]


def in_order(found: list[JsonLine], *wanted: str) -> bool:
    """Return whether the steps come in this order, possibly with others between them."""
    left = iter(line["step"] for line in found)
    return all(step in left for step in wanted)


def test_every_step_of_a_typed_message_is_shown_also_after_a_crash(home: Home) -> None:
    start(home, "luna")
    seq = send(home, "@luna")
    wait_until(lambda: in_order(steps(home, seq, "holder"), "reported to the daemon"))
    home.kill(signal.SIGKILL)

    found = home.ok("trace", str(seq), "--json").lines

    assert [line["ts"] for line in found] == sorted(line["ts"] for line in found)
    assert in_order(steps(home, seq, "log"), "sent", "submitted", "seen")
    assert in_order(steps(home, seq, "delivery"), "offered", "answered seen")
    assert in_order(
        steps(home, seq, "holder"), "received", "keys pressed", "ended seen", "reported to the daemon"
    )
    assert all(line["agent"] in ("", "luna") for line in found)
    assert not any("hello" in str(line) for line in found)


def test_person_can_read_why_a_message_waits(home: Home) -> None:
    start(home, "luna")
    seq = send(home, "@luna")
    wait_until(lambda: state(home, seq) == "seen")

    shown = home.ok("trace", str(seq)).out

    assert "offered (terminal)" in shown
    assert "submitted (terminal)" in shown
    assert "lanes: terminal open" in shown


def test_message_that_no_lane_can_carry_is_explained(home: Home) -> None:
    shell = home.shell()
    shell.ok("join", "--name", "nova")
    seq = send(home, "@nova")

    waiting = home.ok("trace", str(seq)).out
    shell.ok("recv")
    read = home.ok("trace", str(seq), "--json").lines

    assert "no lane is open" in waiting
    assert [(line["step"], line["agent"]) for line in read if line["step"] != "status"] == [
        ("sent", ""),
        ("seen", "nova"),
    ]


def test_message_that_was_never_offered_is_not_in_hand_after_a_crash(home: Home) -> None:
    start(home, "luna")
    check_output(run_as_person(home, "pause", "luna"))
    seq = send(home, "@luna")
    home.kill(signal.SIGKILL)
    home.ok("up")
    wait_until(lambda: in_order(steps(home, seq, "delivery"), "lane opened"))
    check_output(run_as_person(home, "unpause", "luna"))
    wait_until(lambda: state(home, seq) == "seen")

    found = steps(home, seq, "delivery")

    assert [line["step"] for line in found if "still in progress" in line["step"]] == []
    assert in_order(found, "lane opened", "offered", "answered seen")


def test_number_of_pressed_keys_is_counted_in_words(home: Home) -> None:
    start(home, "luna")
    seq = send(home, "@luna")
    wait_until(lambda: in_order(steps(home, seq, "holder"), "ended seen"))

    pressed = [line["detail"] for line in steps(home, seq, "holder") if line["step"] == "keys pressed"]

    assert "1 byte" in pressed
    assert "1 bytes" not in pressed


def test_replies_and_notices_belong_to_the_trace(home: Home) -> None:
    luna, nova = home.shell(), home.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova")
    seq = luna.ok("send", "--json", "@nova", "--", "hello").json["seq"]
    nova.ok("recv")
    answer = nova.ok("send", "--json", "--reply-to", str(seq), "@luna", "--", "yes").json["seq"]

    found = home.ok("trace", str(seq), "--json").lines

    assert ("answered", f"#{answer}") in [(line["step"], line["detail"]) for line in found]


def test_unknown_message_is_refused(home: Home) -> None:
    refused = home.pal("trace", "999", "--json")

    assert refused.status == 1
    assert refused.error["error"] == "not_found"
