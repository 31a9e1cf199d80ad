"""A daemon that cannot serve says so: out of descriptors, or stopped. No caller waits without a message."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.daemon.stage import Home, check_output, run_as_person, wait_until
from tests.daemon.wires import LinesWire, connect
from tests.limits import LIMIT_S

FEW_FILES = 112
PYTHON_CLIENT = "import sys; from palaver.app.thin.client import main; sys.exit(main())"


@pytest.fixture
def small(home: Home) -> Home:
    """A bus whose daemon may open only a few files."""
    script = f'ulimit -n {FEW_FILES}; exec "$@"'
    check_output(home.pal("up", before=["bash", "-c", script, "-"]))
    return home


def test_caller_is_refused_with_a_sentence_when_descriptors_run_out(small: Home) -> None:
    with ExitStack() as stack:
        for _ in range(FEW_FILES // 2):
            stack.enter_context(connect(small.path))

        refused = small.pal("list")
        with LinesWire(small.path) as wire:
            wire.tell("whoami")
            line = wire.next_line()

    assert refused.status == 1
    assert "too many open files" in refused.err
    assert "too many open files" in line["message"]
    wait_until(lambda: small.pal("list").status == 0)


def test_running_out_of_descriptors_does_not_flood_the_log(small: Home) -> None:
    with ExitStack() as stack:
        for _ in range(2 * FEW_FILES):
            stack.enter_context(connect(small.path))
        refused = small.pal("list")

    assert "too many open files" in refused.err
    wait_until(lambda: small.pal("list").status == 0)
    assert (small.path / "daemon.log").read_text().count("no file descriptors are left") <= 1


@pytest.fixture
def silent(home: Home) -> Iterator[Home]:
    """A bus whose daemon was stopped by a signal."""
    home.start_daemon()
    pid = home.pid
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T")
    yield home
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "python"])
def test_client_reports_a_stopped_daemon_and_continues_to_wait(silent: Home, is_native: bool) -> None:
    command = [silent.client] if is_native else [sys.executable, "-c", PYTHON_CLIENT]
    process = subprocess.Popen(
        [*command, "whoami"],
        env=silent.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None

    errors = process.stderr.readline().decode()
    is_waiting = process.poll() is None
    os.kill(silent.pid, signal.SIGCONT)
    out, rest = process.communicate(timeout=LIMIT_S)

    assert errors == (
        f"pal: the daemon (process {silent.pid}) is stopped and does not answer; still waiting. "
        f"'kill -CONT {silent.pid}' continues it\n"
    )
    assert is_waiting
    assert (process.returncode, rest) == (0, b"")
    assert out


def http_door(home: Home) -> socket.socket:
    where = urlsplit(home.ok("status", "--json").json["doors"]["http"])
    assert where.hostname is not None
    assert where.port is not None
    return socket.create_connection((where.hostname, where.port), timeout=LIMIT_S)


def test_http_connections_without_a_request_are_limited(bus: Home) -> None:
    check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0"))
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(http_door(bus))
        with http_door(bus) as late:
            answer = late.recv(65536)

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"try again" in answer


def replies_to(home: Home, request: bytes) -> bytes:
    """Send bytes to the HTTP door; return all bytes that it sends before it closes the connection."""
    with http_door(home) as raw:
        raw.sendall(request)
        return b"".join(iter(lambda: raw.recv(65536), b""))


def test_request_that_is_not_http_is_refused_in_json(bus: Home) -> None:
    check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0"))

    head, _, body = replies_to(bus, b"no HTTP\r\n\r\n").partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert json.loads(body)["error"] == "bad_request"


def test_invalid_body_after_a_response_gets_no_second_response(bus: Home) -> None:
    check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0"))
    head = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    with http_door(bus) as raw:
        raw.sendall(head)
        first = raw.recv(65536)
        raw.sendall(b"not a chunk\r\n")
        rest = b"".join(iter(lambda: raw.recv(65536), b""))

    assert first.startswith(b"HTTP/1.1 401 ")
    assert b"HTTP/1.1" not in rest
    assert "Traceback" not in (bus.path / "daemon.log").read_text()


def test_http_head_must_arrive_in_time(bus: Home) -> None:
    check_output(run_as_person(bus, "up", "--http", "127.0.0.1:0"))
    with http_door(bus) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n")

        assert slow.recv(65536) == b""
