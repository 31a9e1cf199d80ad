"""Tools that an agent runs in its own terminal: their questions are never answered with messages."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.holder.stage import Stage, script, wait_until

from palaver.terminal.processes import is_waiting

READING = "bash -c 'echo asking; read -p \"> \" x; echo GOT=$x'"
ASKING = (
    'python3 -c \'import os; f = os.open(chr(47) + "dev/tty", 2); os.write(f, b"who> "); os.read(f, 99)\''
)


class Refusing(BaseHTTPRequestHandler):
    """A git server that requires authentication."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def git_server() -> Iterator[tuple[str, list[str]]]:
    """Serve a repository that asks for a user name; yield its address and the received credentials."""
    asked: list[str] = []
    handler = type("Handler", (Refusing,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/x.git", asked
        finally:
            server.shutdown()
            thread.join()


async def start_agent(stage: Stage, *how: str) -> None:
    """Start an agent that runs tools, and let it take one message, which proves its composer."""
    environment = {"HOME": str(stage.home), "GIT_TERMINAL_PROMPT": "1", "GIT_CONFIG_NOSYSTEM": "1"}
    await stage.start(script("shelling", *how), env=environment)
    await stage.daemon.heard("lane")
    await stage.open_gate()
    stage.daemon.offer(1, "hello")
    assert (await stage.daemon.heard("answer", offer=1))["answer"] == "seen"


async def run_tool(stage: Stage, tool: str, asks: bytes) -> None:
    """Have a person run a tool in the agent's terminal, and wait for its question."""
    person = await stage.attach()
    await person.press(b"!%s\r" % tool.encode())
    await person.until_shown(asks)
    person.close()


async def offer_refused(stage: Stage, reason: str, *, priority: str = "normal") -> None:
    count = len([one for one in stage.daemon.said if one["op"] == "gate" and one.get("reason") == reason])
    await stage.daemon.heard("gate", count=max(count, 1), reason=reason)
    stage.daemon.offer(2, "not for a tool", priority=priority)
    answer = await stage.daemon.heard("answer", offer=2)
    assert (answer["answer"], answer["reason"]) == ("deferred", reason)


async def test_git_asking_for_a_user_name_gets_no_message(stage: Stage) -> None:
    with git_server() as (address, asked):
        await start_agent(stage)

        await run_tool(stage, f"git clone {address}", b"Username for")
        await offer_refused(stage, "tool")

        person = await stage.attach()
        await person.press(b"me\r")
        await person.until_shown(b"Password for")
        await person.press(b"x\r")
        await person.until_shown(b"ended with 128")
        assert asked[0] == ""
        assert "bm90" not in "".join(asked)


@pytest.mark.parametrize(
    ("tool", "asks"),
    [
        ("ssh-keygen", b"Enter file in which to save the key"),
        ("vi -u NONE page", b"page"),
        (READING, b"asking\r\n> "),
        (ASKING, b"who> "),
    ],
    ids=["ssh-keygen", "vi", "read", "dev-tty"],
)
@pytest.mark.parametrize("how", ["", "async", "session"])
async def test_tool_of_the_agent_gets_no_message(stage: Stage, how: str, tool: str, asks: bytes) -> None:
    if shutil.which(tool.split()[0]) is None:
        pytest.skip(f"{tool.split()[0]} is not installed here")
    if how == "session" and tool == ASKING:
        pytest.skip("a session of its own has no /dev/tty")
    await start_agent(stage, *([how] if how else []))

    await run_tool(stage, tool, asks)

    await offer_refused(stage, "tool")
    screen = await stage.ask(type="peek")
    assert "not for a tool" not in str(screen)


async def test_interrupt_does_not_reach_a_tool_of_the_agent(stage: Stage) -> None:
    await start_agent(stage)

    await run_tool(stage, "bash -c 'read -p name: x; echo GOT=$x'", b"name:")

    await offer_refused(stage, "tool", priority="interrupt")


async def test_person_answers_a_tool_with_raw_keys_and_messages_continue(stage: Stage) -> None:
    await start_agent(stage)
    await run_tool(stage, "bash -c 'read -p name: x; echo GOT=$x'", b"name:")
    await offer_refused(stage, "tool")
    person = await stage.attach()

    stage.daemon.offer(3, "", raw="bWUN", priority="interrupt")

    await person.until_shown(b"GOT=me")
    await stage.daemon.until(lambda: stage.daemon.last("gate")["open"])
    stage.daemon.offer(4, "again")
    assert (await stage.daemon.heard("answer", offer=4))["answer"] == "seen"


async def test_upgraded_holder_still_knows_which_process_is_the_agent(stage: Stage) -> None:
    await start_agent(stage)
    await run_tool(stage, READING, b"asking\r\n> ")
    await offer_refused(stage, "tool")

    os.kill(stage.holder, signal.SIGUSR2)
    await stage.daemon.heard("lane", count=2)

    await stage.daemon.until(lambda: stage.daemon.last("gate").get("lane") == 2)
    assert stage.daemon.last("gate")["reason"] == "tool"


async def take_next(stage: Stage, number: int) -> None:
    await stage.daemon.until(lambda: stage.daemon.last("gate")["open"])
    stage.daemon.offer(number, "again")
    assert (await stage.daemon.heard("answer", offer=number))["answer"] == "seen"


async def test_process_that_execs_another_program_stays_the_agent(stage: Stage) -> None:
    await start_agent(stage)
    person = await stage.attach()

    await person.press(b"exec\r")
    await person.until(lambda: person.shown.count(b"ready") >= 2)

    await stage.daemon.heard("gate", count=2, open=True)
    await take_next(stage, 2)


async def test_child_of_a_launcher_is_the_agent_and_so_is_its_successor(stage: Stage) -> None:
    launching = "import subprocess, sys\nwhile True: subprocess.call(sys.argv[1:])"
    await stage.start([*script("shelling")[:1], "-I", "-c", launching, *script("shelling")], prompt="> ")
    await stage.daemon.heard("lane")
    await stage.open_gate()
    await take_next(stage, 1)
    person = await stage.attach()

    await person.press(b"\r")
    await person.until(lambda: person.shown.count(b"ready") >= 2)

    await stage.daemon.heard("gate", count=2, open=True)
    await take_next(stage, 2)


async def test_agent_that_reads_in_a_new_child_each_time_gets_its_messages(stage: Stage) -> None:
    await start_agent(stage, "fork")

    await take_next(stage, 2)


async def test_tool_of_a_known_harness_gets_no_message_below_its_composer(
    stage: Stage, tmp_path: Path
) -> None:
    stage.daemon.harness = "claude"
    orders, number, got = tmp_path / "orders", tmp_path / "number", tmp_path / "got"
    os.mkfifo(orders)
    await stage.start(script("moods", str(tmp_path / "record"), str(orders), "framed"))
    await stage.daemon.heard("lane")
    await stage.until_ready()
    with orders.open("w", buffering=1) as pipe:
        pipe.write("idle\n")
        await stage.daemon.heard("gate", open=True)

        pipe.write(f"run bash -c 'exec </dev/tty; echo $$ >{number}; read x; echo $x >{got}'\n")
        await wait_until(lambda: number.exists() and number.read_text().endswith("\n"))
        await wait_until(lambda: is_waiting(int(number.read_text()), ""))
        stage.daemon.offer(2, "not for a tool")

    answer = await stage.daemon.heard("answer", offer=2)
    assert (answer["answer"], answer["reason"]) == ("deferred", "tool")
    await stage.daemon.heard("gate", open=False, reason="tool")
    stage.daemon.offer(3, "", raw="bWUK", priority="interrupt")
    await wait_until(lambda: got.exists() and got.read_text() == "me\n")
    await stage.daemon.until(lambda: stage.daemon.last("gate")["open"])


@pytest.mark.parametrize("how", ["child", "orphan"])
async def test_tool_that_reads_before_the_first_composer_gets_no_message(
    stage: Stage, tmp_path: Path, how: str
) -> None:
    stage.daemon.harness = "claude"
    orders, number, got = tmp_path / "orders", tmp_path / "number", tmp_path / "got"
    os.mkfifo(orders)
    await stage.start(script("moods", str(tmp_path / "record"), str(orders), "framed"))
    await stage.daemon.heard("lane")
    await stage.until_ready()
    with orders.open("w", buffering=1) as pipe:
        command = f"bash -c 'exec </dev/tty; echo $$ >{number}; read x; echo $x >{got}'"
        # The shell that started the second one ends at once.
        pipe.write(f"start exec {command}\n" if how == "child" else f"run {command} &\n")
        await wait_until(lambda: number.exists() and number.read_text().endswith("\n"))
        await wait_until(lambda: is_waiting(int(number.read_text()), ""))

        pipe.write("idle\n")
        await stage.daemon.heard("gate", open=False, reason="tool")
        stage.daemon.offer(2, "not for a tool")
        answer = await stage.daemon.heard("answer", offer=2)
        assert (answer["answer"], answer["reason"]) == ("deferred", "tool")

        os.kill(int(number.read_text()), signal.SIGKILL)
        await stage.daemon.until(lambda: stage.daemon.last("gate")["open"])
        assert not got.exists()
