"""The caller's identity with real processes: shells, orphans, terminals, tmux, harness marks."""

import json
import os
import pty
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from tests.limits import LIMIT_S

from palaver.errors import AlreadyJoined, BadRequest, WhoAreYou
from palaver.harness.marks import MARKS, SEAT_MARK
from palaver.identity.caller import HUMAN, SCRIPT, Anchor, CallerClaim, CallerIdentifier
from palaver.identity.process import Process, boot_id, peer_of, read_process
from palaver.identity.seats import AgentTerminals, Holders, SeatIndex, seat_mark
from palaver.protocol.agents import Agent, Seat, Standing

_PROBE = """
import ctypes, json, os, signal, socket, sys
if "orphan" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    reading, writing = os.pipe()
    if os.fork():
        os.read(reading, 1)
        os._exit(0)
    ctypes.CDLL(None).prctl(1, signal.SIGUSR1)  # the system tells when the parent has ended
    os.write(writing, b"x")
    signal.sigwait([signal.SIGUSR1])
caller = socket.socket(socket.AF_UNIX)
caller.connect(sys.argv[1])
caller.sendall(json.dumps(dict(os.environ)).encode() + b"\\n")
caller.recv(1)
"""

_TAKE_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class _Visit:
    """A caller that has connected and stays connected."""

    chain: list[Process]
    claim: CallerClaim


class _Street:
    """A socket that callers connect to, and methods to start callers. Ends only processes that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ends = ExitStack()
        self._door = self._ends.enter_context(socket.socket(socket.AF_UNIX))
        self._door.settimeout(LIMIT_S)
        self._door.bind(str(folder / "s"))
        self._door.listen()
        (folder / "probe.py").write_text(_PROBE)
        self.python = folder / "python"  # A path that needs no quotes, wherever the checkout is.
        self.python.symlink_to(sys.executable)
        probe = [str(self.python), "-I", "-S", str(folder / "probe.py"), str(folder / "s")]
        self.probe = shlex.join(probe)
        self.environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "TERM": "dumb"}

    def close(self) -> None:
        self._ends.close()

    def run(self, script: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Run a shell script that has no terminal."""
        child = subprocess.Popen(
            ["/bin/sh", "-c", script],
            env=self.environment | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._ends.callback(child.wait)
        self._ends.callback(child.kill)
        return child

    def terminal(self, environment: Mapping[str, str] | None = None) -> "_Terminal":
        """Open a terminal with an interactive shell in it."""
        master, slave = pty.openpty()
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        number = os.fstat(slave).st_rdev
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, "/bin/bash", "--norc", "--noprofile", "-i"],
            env=self.environment | dict(environment or {}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self._ends.callback(child.wait)
        self._ends.callback(child.kill)
        self._ends.callback(os.close, master)
        return _Terminal(master, number, child.pid)

    def tmux(self, environment: Mapping[str, str] | None = None) -> None:
        """Start a separate tmux server with one pane that connects."""
        program = shutil.which("tmux")
        if program is None:
            pytest.skip("tmux is not installed: identity inside tmux is NOT tested here")
        tmux = [program, "-S", str(self.folder / "t"), "-f", "/dev/null"]
        settled = self.environment | dict(environment or {})
        self._ends.callback(
            subprocess.run, [*tmux, "kill-server"], env=settled, check=False, capture_output=True
        )
        subprocess.run([*tmux, "new-session", "-d", self.probe], env=settled, check=True)

    def visit(self) -> _Visit:
        """Wait for the next caller. It stays connected until this object is closed."""
        connection = self._ends.enter_context(self._door.accept()[0])
        connection.settimeout(LIMIT_S)
        with connection.makefile("rb") as lines:
            environment = json.loads(lines.readline())
        marks = {name: environment[name] for name in (*MARKS, SEAT_MARK) if name in environment}
        with peer_of(connection) as peer:
            return _Visit(_without_us(peer.chain()), CallerClaim(marks=marks))


@dataclass(frozen=True)
class _Terminal:
    """The far end of a pseudo-terminal: the person's keyboard."""

    master: int
    number: int
    shell: int

    def type(self, line: str) -> None:
        os.write(self.master, line.encode() + b"\n")


def _without_us(chain: list[Process]) -> list[Process]:
    """Leave out this test run and its ancestors, which may include a harness; the first process stays."""
    pids = [process.pid for process in chain]
    first = read_process(1)
    assert first is not None
    return [*chain[: pids.index(os.getpid())], first] if os.getpid() in pids else chain


@pytest.fixture
def street() -> Iterator[_Street]:
    # Not tmp_path: a socket address has to be short.
    with tempfile.TemporaryDirectory(prefix="pal") as folder:
        street = _Street(Path(folder))
        yield street
        street.close()


def _identifier(*agents: Agent) -> CallerIdentifier:
    return CallerIdentifier(SeatIndex(boot_id(), agents))


def _agent(
    name: str, process: Process, *, role: str = "worker", harness: str = "", session: str = "", key: str = ""
) -> Agent:
    seat = Seat(pid=process.pid, start=process.start, boot=boot_id(), key=key)
    return Agent(name=name, base=name, role=role, harness=harness, session=session, seat=seat)


def _joined(name: str, anchor: Anchor, *, role: str = "worker") -> Agent:
    return Agent(
        name=name, base=name, role=role, harness=anchor.harness, session=anchor.session, seat=anchor.seat
    )


# At a terminal


@pytest.mark.parametrize("line", ["{probe}", "echo x | {probe} | cat", "sh -c '{probe}; true'"])
def test_command_in_the_foreground_of_a_terminal_is_the_human(street: _Street, line: str) -> None:
    street.terminal().type(line.format(probe=street.probe))

    visit = street.visit()

    assert _identifier().who(visit.chain, visit.claim) == HUMAN


@pytest.mark.parametrize(
    "line",
    [
        "{probe} &",
        "nohup {probe} >/dev/null 2>&1 &",
        "setsid {probe}",
        "setsid {probe} </dev/tty",
        "{probe} orphan",
        "(nohup {probe} orphan >/dev/null 2>&1 &)",
        "sh -c '{probe} orphan; read wait'",
        "CLAUDECODE=1 {probe}",
        "CLAUDECODE=1 sh -c 'env -i {probe}; true'",
        "PALAVER_SEAT=stale {probe}",
    ],
    ids=[
        "background",
        "nohup",
        "setsid",
        "setsid-with-terminal-input",
        "orphan",
        "nohup-orphan",
        "orphan-in-the-foreground",
        "mark",
        "mark-cleared-on-the-way",
        "stale-seat-mark",
    ],
)
def test_caller_that_only_resembles_the_human_is_a_script(street: _Street, line: str) -> None:
    street.terminal().type(line.format(probe=street.probe))

    visit = street.visit()

    assert _identifier().who(visit.chain, visit.claim) == SCRIPT


def test_orphan_keeps_terminal_and_foreground_and_loses_its_parents(street: _Street) -> None:
    street.terminal().type(f"sh -c '{street.probe} orphan; read wait'")

    caller, *above = street.visit().chain

    assert caller.tty != 0
    assert caller.pgrp == caller.foreground
    assert caller.session not in [process.pid for process in above]


def test_harness_that_clears_every_mark_is_known_by_its_name(street: _Street) -> None:
    (street.folder / "claude").symlink_to("/bin/sh")
    street.terminal().type(f"{street.folder}/claude -c 'env -i {street.probe}; true'")

    visit = street.visit()

    assert _identifier().who(visit.chain, visit.claim) == SCRIPT


def test_caller_in_a_terminal_of_a_holder_is_not_the_human(street: _Street) -> None:
    terminal = street.terminal()
    terminal.type(street.probe)
    visit = street.visit()

    held = CallerIdentifier(SeatIndex(boot_id()), holder_ttys={terminal.number})

    assert held.who(visit.chain, visit.claim) == SCRIPT


def test_terminal_only_as_input_does_not_make_the_human(street: _Street) -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen(
        shlex.split(street.probe), env=street.environment, stdin=slave, start_new_session=True
    )
    visit = street.visit()

    caller = _identifier().who(visit.chain, visit.claim)

    assert caller == SCRIPT
    child.kill()
    child.wait()
    os.close(master)
    os.close(slave)


def test_parent_that_ended_before_the_check_makes_the_caller_a_script(street: _Street) -> None:
    street.terminal().type(street.probe)
    visit = street.visit()
    gone = replace(visit.chain[1], pid=2**22 + 1, session=0)

    caller = _identifier().who([visit.chain[0], gone, *visit.chain[1:]], visit.claim)

    assert caller == SCRIPT


# Why a caller is not a person


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{probe}", ""),
        ("{probe} &", "not in the foreground of a person's terminal"),
        ("CLAUDECODE=1 {probe}", "runs inside a harness"),
        ("CLAUDECODE=1 sh -c 'env -i {probe}; true'", "runs inside a harness"),
    ],
)
def test_caller_learns_why_it_is_not_a_person(street: _Street, line: str, sentence: str) -> None:
    street.terminal().type(line.format(probe=street.probe))
    visit = street.visit()

    found = _identifier().why_not_person(visit.chain, visit.claim)

    assert sentence in found
    assert bool(found) == bool(sentence)


def test_shell_that_is_or_was_an_agent_learns_to_use_a_new_one(street: _Street) -> None:
    terminal = street.terminal()
    terminal.type(street.probe)
    visit = street.visit()
    shell = next(process for process in visit.chain if process.pid == terminal.shell)
    luna = _agent("luna", shell)
    left = msgspec.structs.replace(luna, left=True)

    is_agent = _identifier(luna).why_not_person(visit.chain, visit.claim)
    was_agent = _identifier(luna, left).why_not_person(visit.chain, visit.claim)

    assert "belongs to the agent luna" in is_agent
    assert "in a new shell" in is_agent
    assert "This shell was an agent" in was_agent
    assert "open a new shell" in was_agent


# Below a holder


def _held(holder: Process, *others: Agent, role: str = "worker") -> CallerIdentifier:
    """Return an identifier with a holder that runs luna, in a process that never connects."""
    child = replace(holder, pid=2**22 + 1, ppid=holder.pid, start=holder.start + 1)
    luna = msgspec.structs.replace(_agent("luna", child, role=role), holder="hash")
    found = {child.pid: child, holder.pid: holder}
    holders = Holders(boot_id(), found.get, lambda pid: pid == holder.pid)
    holders.put(luna)
    return CallerIdentifier(SeatIndex(boot_id(), [luna, *others]), holders=holders)


@pytest.mark.parametrize("line", ["{probe}", "env -i {probe}", "CLAUDECODE=1 {probe}"])
def test_process_adopted_by_a_holder_is_its_agent_with_worker_rights(street: _Street, line: str) -> None:
    terminal = street.terminal()
    terminal.type(line.format(probe=street.probe))
    visit = street.visit()
    shell = next(process for process in visit.chain if process.pid == terminal.shell)

    caller = _held(shell, role="operator").who(visit.chain, visit.claim)

    assert (caller.name, caller.standing) == ("luna", Standing.WORKER)


def test_adopted_process_with_the_key_of_a_sub_agent_is_that_sub_agent(street: _Street) -> None:
    terminal = street.terminal()
    terminal.type(f"CODEX_THREAD_ID=a1 {street.probe}")
    visit = street.visit()
    shell = next(process for process in visit.chain if process.pid == terminal.shell)
    seat = Seat(pid=2**22 + 1, start=shell.start + 1, boot=boot_id(), key="a1")
    child = Agent(name="luna_x_1", base="luna_x_1", parent="luna", harness="codex", seat=seat, session="a1")

    identifier = _held(shell, child)

    assert identifier.who(visit.chain, visit.claim).name == "luna_x_1"
    assert identifier.who(visit.chain, replace(visit.claim, key="other")).name == "luna"


def test_process_below_another_holding_program_is_a_script(street: _Street) -> None:
    terminal = street.terminal()
    terminal.type(street.probe)
    visit = street.visit()
    identifier = _identifier()
    before = identifier.who(visit.chain, visit.claim)

    identifier.holders.meet(next(process for process in visit.chain if process.pid == terminal.shell))

    assert before == HUMAN
    assert identifier.who(visit.chain, visit.claim) == SCRIPT


def test_process_below_an_unknown_holder_is_not_the_human(street: _Street) -> None:
    package = street.folder / "palaver" / "holder"
    package.mkdir(parents=True)
    run = f"import subprocess; subprocess.run({shlex.split(street.probe)!r})"
    (package / "main.py").write_text(run)
    street.terminal().type(f"PYTHONPATH={street.folder} {street.python} -S -m palaver.holder.main")

    visit = street.visit()

    assert _identifier().who(visit.chain, visit.claim) == SCRIPT


def test_operator_program_that_holds_agents_has_worker_rights(street: _Street) -> None:
    child = street.run(f"sh -c '{street.probe}; true'; true")
    visit = street.visit()
    above = [process.pid for process in visit.chain].index(child.pid)
    identifier = _identifier(_agent("boss", visit.chain[above], role="operator"))
    itself = identifier.who(visit.chain, visit.claim)

    identifier.holders.meet(visit.chain[above - 1])

    assert itself.standing is Standing.OPERATOR
    assert identifier.who(visit.chain, visit.claim).standing is Standing.WORKER


def test_mark_below_a_holder_selects_only_agents_below_it(street: _Street) -> None:
    street.run(f"{street.probe} & {street.probe}; true")
    left, visit = street.visit(), street.visit()
    left_process, holder, outside = left.chain[0], visit.chain[1], read_process(os.getpid())
    assert outside is not None
    inner, nova = _agent("inner", left_process), _agent("nova", outside)
    unseated = Agent(name="kira", base="kira", harness="claude", session="s")
    identifier = _held(holder, inner, nova, unseated, role="observer")

    def who(marks: dict[str, str]) -> tuple[str, Standing]:
        caller = identifier.who(visit.chain, CallerClaim(marks=marks))
        return caller.name, caller.standing

    def mark(agent: Agent) -> dict[str, str]:
        assert agent.seat is not None
        return {SEAT_MARK: seat_mark(agent.seat, agent.name)}

    assert who(mark(inner)) == ("inner", Standing.OBSERVER)
    assert who(mark(nova)) == ("luna", Standing.OBSERVER)
    assert who({"CLAUDE_CODE_SESSION_ID": "s"}) == ("luna", Standing.OBSERVER)


def test_process_adopted_by_a_holder_sits_below_it_and_not_at_it(street: _Street) -> None:
    street.run(f"sh -c '{street.probe}; true'; true")
    visit = street.visit()
    inner, holder = visit.chain[1:3]

    anchor = _held(holder).anchor_of(visit.chain, visit.claim)

    assert anchor.seat.pid == inner.pid
    with pytest.raises(BadRequest, match="has exited"):
        _held(inner).anchor_of(visit.chain, visit.claim)
    with pytest.raises(BadRequest, match="not a parent of this process"):
        _held(inner).anchor_of(visit.chain, visit.claim, holder.pid)


# Without a terminal


@pytest.mark.parametrize(
    "script", ["{probe}", "sh -c '{probe}; true'; true", "{probe} & wait", "{probe} orphan"]
)
def test_caller_without_a_terminal_is_a_script(street: _Street, script: str) -> None:
    street.run(script.format(probe=street.probe))

    visit = street.visit()

    assert _identifier().who(visit.chain, visit.claim) == SCRIPT


def test_nested_shells_below_an_anchor_are_the_agent(street: _Street) -> None:
    child = street.run(f"sh -c 'sh -c \"{street.probe}; true\"; true'; true")
    visit = street.visit()
    anchor = next(process for process in visit.chain if process.pid == child.pid)

    caller = _identifier(_agent("luna", anchor)).who(visit.chain, visit.claim)

    assert (caller.name, caller.standing) == ("luna", Standing.WORKER)


def test_background_job_of_an_agent_is_the_agent(street: _Street) -> None:
    child = street.run(f"{street.probe} & wait")
    visit = street.visit()
    anchor = read_process(child.pid)
    assert anchor is not None

    assert _identifier(_agent("luna", anchor)).who(visit.chain, visit.claim).name == "luna"


def test_process_with_a_reused_pid_is_not_the_agent(street: _Street) -> None:
    street.run(f"{street.probe}; true")
    visit = street.visit()
    former = replace(visit.chain[1], start=visit.chain[1].start - 1)

    assert _identifier(_agent("luna", former)).who(visit.chain, visit.claim) == replace(
        SCRIPT, is_orphan=True
    )


@pytest.mark.parametrize(
    "script", ["{probe} orphan", "env -i sh -c '{probe}; true'; true"], ids=["orphan", "cleared"]
)
def test_seat_mark_identifies_a_process_without_anchor_or_environment(street: _Street, script: str) -> None:
    ours = read_process(os.getpid())
    assert ours is not None
    boss = _agent("boss", ours, role="operator")
    assert boss.seat is not None
    street.run(script.format(probe=street.probe), {SEAT_MARK: seat_mark(boss.seat, "boss")})

    visit = street.visit()
    caller = _identifier(boss).who(visit.chain, visit.claim)

    assert (caller.name, caller.standing) == ("boss", Standing.WORKER)


# In tmux


def test_pane_of_the_tmux_of_a_person_is_the_human(street: _Street) -> None:
    street.tmux()

    visit = street.visit()

    assert _identifier().who(visit.chain, visit.claim) == HUMAN


def test_pane_of_a_tmux_started_by_an_agent_belongs_to_the_agent(street: _Street) -> None:
    ours = read_process(os.getpid())
    assert ours is not None
    street.tmux({"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s1"})

    visit = street.visit()
    unknown = _identifier().who(visit.chain, visit.claim)
    known = _identifier(_agent("luna", ours, role="operator", harness="claude", session="s1"))
    caller = known.who(visit.chain, visit.claim)

    assert unknown == SCRIPT
    assert (caller.name, caller.standing) == ("luna", Standing.WORKER)


# A harness inside a harness, and several sessions in one process


def test_harness_inside_another_is_the_inner_one(street: _Street) -> None:
    inner = f"CODEX_THREAD_ID=x1; export CODEX_THREAD_ID; {street.probe}; true"
    (street.folder / "inner").write_text(inner)
    child = street.run(f"export CLAUDE_CODE_SESSION_ID=c1; {street.probe} & sh {street.folder}/inner & wait")
    visits = [street.visit(), street.visit()]
    outside, inside = sorted(visits, key=lambda visit: len(visit.chain))

    identifier = _identifier()
    outer = identifier.anchor_of(outside.chain, outside.claim)
    identifier.seats.put(_joined("outer", outer))
    nested = identifier.anchor_of(inside.chain, inside.claim)
    identifier.seats.put(_joined("inner", nested))

    assert (outer.harness, outer.session, outer.seat.pid) == ("claude", "c1", child.pid)
    assert (nested.harness, nested.session) == ("codex", "x1")
    assert identifier.who(outside.chain, outside.claim).name == "outer"
    assert identifier.who(inside.chain, inside.claim).name == "inner"


def test_sessions_of_one_process_are_separated_by_their_key(street: _Street) -> None:
    street.run(f"CODEX_THREAD_ID=x1 {street.probe} & CODEX_THREAD_ID=x2 {street.probe} & wait")
    identifier = _identifier()
    visits = [street.visit(), street.visit()]

    for visit in visits:
        anchor = identifier.anchor_of(visit.chain, visit.claim)
        identifier.seats.put(_joined(f"agent_{anchor.session}", anchor))

    assert visits[0].chain[1] == visits[1].chain[1]
    for visit in visits:
        session = visit.claim.marks["CODEX_THREAD_ID"]
        assert identifier.who(visit.chain, visit.claim).name == f"agent_{session}"
        with pytest.raises(WhoAreYou, match="agent_x1, agent_x2"):
            identifier.who(visit.chain, CallerClaim())
        assert identifier.who(visit.chain, CallerClaim(key="x3")).kind == "external"


def test_second_join_names_the_existing_agent(street: _Street) -> None:
    street.terminal().type(f"sh -c '{street.probe}; true'")
    visit = street.visit()
    identifier = _identifier()
    identifier.seats.put(_joined("luna", identifier.anchor_of(visit.chain, visit.claim)))

    with pytest.raises(AlreadyJoined, match="luna"):
        identifier.anchor_of(visit.chain, visit.claim)


@pytest.mark.parametrize(
    ("script", "standing"),
    [
        ("{probe}; true", Standing.OPERATOR),
        ("CODEX_THREAD_ID=x1 sh -c '{probe}; true'; true", Standing.OPERATOR),
        ("sh -c 'export CODEX_THREAD_ID=x1; {probe}; true'; true", Standing.OPERATOR),
        ("sh -c 'export CLAUDECODE=1; {probe}; true'; true", Standing.WORKER),
        ("sh -c 'export PALAVER_SEAT=luna; {probe}; true'; true", Standing.WORKER),
        ("{folder}/claude -c 'env -i {probe}; true'; true", Standing.WORKER),
    ],
    ids=[
        "plain",
        "own-marks",
        "own-harness-through-a-launcher",
        "another-inside",
        "another-seat",
        "another-by-name",
    ],
)
def test_harness_without_an_agent_has_no_operator_rights(
    street: _Street, script: str, standing: Standing
) -> None:
    (street.folder / "claude").symlink_to("/bin/sh")
    child = street.run(script.format(probe=street.probe, folder=street.folder))
    visit = street.visit()
    anchor = read_process(child.pid)
    assert anchor is not None

    caller = _identifier(_agent("boss", anchor, role="operator", harness="codex")).who(
        visit.chain, visit.claim
    )

    assert (caller.name, caller.standing) == ("boss", standing)


def test_harness_started_by_a_shell_of_an_operator_has_worker_rights(street: _Street) -> None:
    child = street.run(f"CLAUDECODE=1 sh -c '{street.probe}; true'; true")
    visit = street.visit()
    anchor = read_process(child.pid)
    assert anchor is not None

    caller = _identifier(_agent("boss", anchor, role="operator", harness="")).who(visit.chain, visit.claim)

    assert (caller.name, caller.standing) == ("boss", Standing.WORKER)


def test_ended_process_below_an_operator_counts_as_a_harness(street: _Street) -> None:
    street.run(f"{street.probe}; true")
    caller, anchor, *above = street.visit().chain
    gone = replace(anchor, pid=2**22 + 1)
    identifier = _identifier(_agent("boss", anchor, role="operator"))

    lowered = identifier.who([caller, gone, anchor, *above], CallerClaim())

    assert (lowered.name, lowered.standing) == ("boss", Standing.WORKER)


def test_anchor_itself_has_all_of_its_rights(street: _Street) -> None:
    street.run(street.probe, {"CLAUDECODE": "1"})
    visit = street.visit()

    caller = _identifier(_agent("boss", visit.chain[0], role="operator")).who(visit.chain, visit.claim)

    assert caller.standing is Standing.OPERATOR


# A session named by another process


def test_session_that_runs_a_second_time_is_not_the_first_one(street: _Street) -> None:
    (street.folder / "claude").symlink_to("/bin/sh")
    street.run(f"{street.folder}/claude -c '{street.probe}; true'; true", {"CLAUDE_CODE_SESSION_ID": "s1"})
    visit = street.visit()
    elsewhere = read_process(os.getpid())
    assert elsewhere is not None
    first = _agent("first", elsewhere, harness="claude", session="s1")
    identifier = _identifier(first)

    assert identifier.who(visit.chain, visit.claim).name == SCRIPT.name
    assert identifier.who(visit.chain, CallerClaim()).name == SCRIPT.name
    assert first.seat is not None
    by_seat = CallerClaim(marks={SEAT_MARK: seat_mark(first.seat, "first")})
    assert identifier.who(visit.chain, by_seat).name == "first"


def test_process_of_one_session_cannot_name_another_session(street: _Street) -> None:
    child = street.run(f"CODEX_THREAD_ID=x1 sh -c 'env -i {street.probe}; true'; true")
    anchor = read_process(child.pid)
    assert anchor is not None
    visit = street.visit()
    one = _agent("one", anchor, harness="codex", key="x1", session="x1")
    two = _agent("two", anchor, harness="codex", key="x2", session="x2")
    child_seat = _agent("one", anchor, key="c1").seat
    mine = msgspec.structs.replace(one, name="one_sub_1", parent="one", seat=child_seat)
    identifier = _identifier(one, two, mine)

    assert identifier.is_forged(visit.chain, CallerClaim(key="x2"))
    assert identifier.is_forged(visit.chain, CallerClaim(key="new"))
    assert not identifier.is_forged(visit.chain, CallerClaim(key="x1"))
    assert not identifier.is_forged(visit.chain, CallerClaim(key="c1"))
    assert not identifier.is_forged(visit.chain, CallerClaim())
    inside = CallerClaim(key="x1", marks={"CODEX_THREAD_ID": "c1"})
    assert identifier.is_forged(visit.chain, inside)
    assert not identifier.is_forged(visit.chain, inside, child="c1")
    assert not _identifier(two).is_forged(visit.chain, CallerClaim(key="x2"))
    assert not _identifier().is_forged(visit.chain, CallerClaim(key="x2"))


def test_marks_of_the_anchor_itself_are_not_forged(street: _Street) -> None:
    child = street.run(f"{street.probe}; true", {"CODEX_THREAD_ID": "x1"})
    anchor = read_process(child.pid)
    assert anchor is not None
    visit = street.visit()
    identifier = _identifier(*(_agent(key, anchor, harness="codex", key=key) for key in ("x1", "x2")))

    assert not identifier.is_forged(visit.chain, replace(visit.claim, key="x2"))


def test_session_without_a_key_cannot_be_forged(street: _Street) -> None:
    child = street.run(f"CLAUDE_CODE_SESSION_ID=before-clear {street.probe}; true")
    anchor = read_process(child.pid)
    assert anchor is not None
    visit = street.visit()
    luna = _agent("luna", anchor, harness="claude", session="before-clear")

    assert not _identifier(luna).is_forged(visit.chain, replace(visit.claim, key="after-clear"))


def test_caller_without_a_process_is_a_script() -> None:
    assert _identifier().who([], CallerClaim()) == replace(SCRIPT, is_orphan=True)


def test_terminal_that_an_agent_also_uses_is_not_of_the_human(street: _Street) -> None:
    terminal = street.terminal()
    terminal.type(street.probe)
    visit = street.visit()
    identifier = _identifier()
    before = identifier.who(visit.chain, visit.claim)

    other = visit.chain[0]
    identifier.agent_terminals = AgentTerminals(boot_id(), lambda pid: other)
    identifier.agent_terminals.put(_agent("luna", other))

    assert (before, identifier.who(visit.chain, visit.claim)) == (HUMAN, SCRIPT)


def test_only_the_person_makes_the_shell_of_a_terminal_an_agent(street: _Street) -> None:
    terminal = street.terminal()
    terminal.type(street.probe)
    person = street.visit()
    identifier = _identifier()
    shell = next(process for process in person.chain if process.pid == process.session)

    assert identifier.anchor_of(person.chain, person.claim, shell.pid).seat.pid == shell.pid
    with pytest.raises(BadRequest, match="only that person can make it an agent"):
        identifier.anchor_of(person.chain, CallerClaim(marks={"CLAUDECODE": "1"}), shell.pid)
