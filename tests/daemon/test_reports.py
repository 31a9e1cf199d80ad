"""The exit report of a holder that found no daemon: the next daemon reads it."""

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import holders_of
from tests.daemon.holder import SECRET, FakeHolder, ticket_of, words_of
from tests.daemon.stage import PAL, Home, new_home, wait_until
from tests.holder.spooled import read_reports
from tests.holder.stage import PROGRAMS
from tests.processes import end_process

from palaver.holder.agent import write_report
from palaver.protocol.events import ExitReport, Outcome

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


def test_new_daemon_learns_how_an_agent_ended_while_none_ran(home: Home) -> None:
    home.ok("run", "--detach", "--name", "luna", "--", PYTHON, "-I", str(PROGRAMS / "lines.py"))
    pid = home.ok("status", "luna", "--json").json["pid"]
    home.ok("down")
    end_process(pid, 9)
    wait_until(lambda: bool(read_reports(str(home.path))))
    wait_until(lambda: not holders_of(home.path))

    home.ok("up")

    wait_until(lambda: not read_reports(str(home.path)))
    (bye,) = home.events("--type", "agent.bye")
    assert bye["payload"]["reason"] == "killed by SIGKILL"


def test_report_with_a_wrong_secret_is_ignored(home: Home) -> None:
    home.ok("run", "--detach", "--name", "luna", "--", PYTHON, "-I", str(PROGRAMS / "lines.py"))
    home.ok("down")
    write_report(str(home.path), ExitReport(name="luna", secret=hashlib.md5(b"x").hexdigest(), reason="lies"))
    write_report(
        str(home.path),
        ExitReport(
            name="nobody", secret="s", reason="lies", outcomes=(Outcome(messages=(1,), answer="seen"),)
        ),
    )
    (home.path / "agents" / "odd.report.json").write_text("{")

    home.ok("up")

    wait_until(lambda: not list((home.path / "agents").glob("*.report.json")))
    assert home.events("--type", "agent.bye") == []
    assert [agent["name"] for agent in home.ok("list", "--json").lines] == ["luna"]


def test_report_contains_the_delivery_outcomes_of_a_sub_agent(home: Home) -> None:
    with FakeHolder(home) as holder:
        holder.hold(ticket_of(words_of(home, "run", "--name", "luna", "--", "bash")))
        child = holder.ok("sub_begin", key="t1", type="reviewer")["name"]
        lane = holder.ok("lane", name=child, kind="native")["lane"]
        holder.ok("gate", lane=lane, open=True)
        seqs = [home.ok("send", "--json", f"@{child}", "--", "look here").json["seq"]]
        assert holder.offered()["message"]["seq"] == seqs[0]
        home.kill(signal.SIGKILL)
        own = Outcome(messages=tuple(seqs), answer="seen", name=child)
        other = Outcome(messages=tuple(seqs), answer="refused", name="nobody")
        report = ExitReport(name="luna", secret=SECRET, reason="left", outcomes=(own, other))
        (home.path / "agents").mkdir(mode=0o700, exist_ok=True)
        write_report(str(home.path), report)

        home.ok("up")

        wait_until(lambda: not read_reports(str(home.path)))
        (receipt,) = home.ok("receipts", str(seqs[0]), "--json").json["receipts"]
        assert (receipt["state"], receipt.get("unconfirmed")) == ("seen", None)
