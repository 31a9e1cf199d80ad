"""Attacks on the ticket of `pal run`: a worker tries to use the right of a person."""

import json
import shlex
import sys

import pytest
from tests.daemon.holder import PersonsHolder
from tests.daemon.stage import Home, Shell, check_output, run_script_as_person

_WATCH_ARGUMENTS = """\
import os, sys
home, told = sys.argv[1:]
found = set()
print("ready", flush=True)
while not os.path.exists(told):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
            same = home.encode() in open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            continue
        if same and b"__run" in words and b"--" in words:
            found.add(b" ".join(words[words.index(b"__run"):words.index(b"--")]).decode())
print("\\n".join(sorted(found)))
"""

_CLAIM = """\
import json, os, socket, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
order = {"req": 1, "op": "hold", "ticket": sys.argv[2], "pid": child.pid, "secret": "s" * 32}
wire.sendall(json.dumps(order).encode() + b"\\n")
print(wire.makefile().readline(), flush=True)
child.kill()
"""


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def test_no_process_shows_a_ticket_in_its_arguments(bus: Home, nova: Shell) -> None:
    """Promise: only a person can give a role above worker; no agent reads the right to it from /proc."""
    program, reported = bus.spare_path(), bus.spare_path()
    program.write_text(_WATCH_ARGUMENTS)
    words = [sys.executable, "-I", str(program), str(bus.path), str(reported)]
    watching = nova.begin_script(shlex.join(words))
    assert watching.line() == "ready"

    run = "for n in 1 2 3; do pal run --detach --name boss$n --role operator -- sleep 600; done"
    check_output(run_script_as_person(bus, run))
    reported.touch()

    found = watching.end().out.split()
    assert "__run" in found  # the command line was visible
    assert "--ticket" not in found
    check_output(run_script_as_person(bus, "for n in 1 2 3; do pal kill boss$n; done"))


def test_worker_cannot_use_the_ticket_of_a_person(bus: Home, nova: Shell) -> None:
    """Promise: a ticket is valid only for the process that requested it, even if another one tries first."""
    program = bus.spare_path()
    program.write_text(_CLAIM)
    with PersonsHolder(bus, "run", "--name", "boss", "--role", "operator", "--", "bash") as holder:
        words = [sys.executable, "-I", str(program), str(bus.path / "daemon.sock"), holder.ticket]

        stolen = nova.begin_script(shlex.join(words)).end()

        assert json.loads(stolen.out)["error"] == "not_found"
        assert holder.hold(holder.ticket).held["role"] == "operator"
