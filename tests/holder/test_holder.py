"""The holder, with real processes in real terminals and a fake daemon that the test controls."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from tests.holder.spooled import read_reports
from tests.holder.stage import Attached, Stage, children_of, is_running, parent_of, script, wait_until

from palaver.errors import NotYou, PalaverError
from palaver.holder.agent_socket import LIMIT_CALLERS, AgentServer, SocketControl, listen, socket_path
from palaver.home import connect_socket

MARKED = {
    "PALAVER_SEAT": "another",
    "PALAVER_HTTP": "1",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_SESSION_ID": "s",
    "CODEX_THREAD_ID": "t",
    "COLUMNS": "13",
    "KEPT": "é",
}

NOT_YOU = {"error": "not_you", "message": "no", "details": {"claimed": "luna", "actual": "another holder"}}


# The agent's process and environment


async def test_agent_has_its_own_session_terminal_and_clean_environment(stage: Stage, tmp_path: Path) -> None:
    await stage.start(script("surroundings", str(tmp_path / "found")), env=MARKED)
    person = await stage.attach()
    await person.until_shown(b"written")

    found = json.loads((tmp_path / "found").read_text())

    assert found["pid"] == found["session"] == found["group"] == found["foreground"] == stage.child
    assert found["umask"] == 0o022
    assert found["cwd"] == str(stage.home)
    assert found["environment"]["KEPT"] == "é"
    palaver = {name: value for name, value in found["environment"].items() if name.startswith("PALAVER")}
    assert palaver == {"PALAVER_HOME": str(stage.home), "PALAVER_SEAT": "seat-mark"}
    assert not {"CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "COLUMNS"} & set(
        found["environment"]
    )
    assert found["descriptors"] == ["0", "1", "2", "3"]  # the last one is the listing itself


async def test_agent_ignores_and_blocks_no_signal(stage: Stage) -> None:
    await stage.start(["sh", "-c", "grep -E 'SigBlk|SigIgn' /proc/self/status; echo done; read x"])
    person = await stage.attach()

    await person.until(lambda: b"done" in person.shown)

    masks = re.findall(rb"Sig(Blk|Ign):\s*([0-9a-f]{16})", person.shown)
    anybody_can_set = sum(1 << number - 1 for number in signal.valid_signals())
    assert {name: int(mask, 16) & anybody_can_set for name, mask in masks} == {b"Blk": 0, b"Ign": 0}


async def test_agent_starts_only_after_its_hold_is_confirmed(stage: Stage, tmp_path: Path) -> None:
    stage.daemon.silent.add("hold")
    starting = asyncio.create_task(stage.start(script("surroundings", str(tmp_path / "found"))))
    await stage.daemon.heard("hold")
    assert not (tmp_path / "found").exists()

    stage.daemon.silent.clear()
    await stage.daemon.close()
    await stage.daemon.open()
    await starting

    first, second = [one for one in stage.daemon.said if one["op"] == "hold"]
    assert (first["ticket"], first["secret"], first["pid"]) == (
        second["ticket"],
        second["secret"],
        second["pid"],
    )
    await wait_until((tmp_path / "found").exists)


async def test_refused_hold_starts_nothing_and_raises_the_reason(stage: Stage, tmp_path: Path) -> None:
    stage.daemon.refusals["hold"] = {
        "error": "not_you",
        "message": "no",
        "details": {"name": "a", "you": "b"},
    }

    with pytest.raises(PalaverError) as caught:
        await stage.start(script("surroundings", str(tmp_path / "found")))

    assert caught.value.code == NotYou.code
    await wait_until(lambda: not is_running(stage.child))
    assert not (tmp_path / "found").exists()


async def test_agent_keeps_running_when_another_holder_takes_its_name(stage: Stage) -> None:
    await stage.start(script("lines"))
    person = await stage.attach()
    await person.until_shown(b"ready")
    holder, child = stage.holder, stage.child

    stage.daemon.refusals["hold"] = NOT_YOU
    await stage.daemon.close()
    await stage.daemon.open()
    error = await person.control_of("error")
    await stage.daemon.heard("hold", count=2)
    await person.press(b"still here\r")
    await person.until_shown(b"got 'still here'")
    later = await stage.attach()
    state = await later.control_of("state")

    log = (stage.home / "agents" / "holder.log").read_text()
    assert (error["error"], error["about"]) == ("not_you", "bus")
    assert error["message"] == "luna belongs to another process on the bus now: no more messages arrive here"
    assert state["detail"] == "not on the bus"
    assert "luna keeps running without the bus: not_you: " in log
    assert is_running(child)

    os.kill(child, signal.SIGKILL)

    assert (await later.control_of("exited"))["signal"] == signal.SIGKILL
    await wait_until(lambda: not is_running(holder))
    assert read_reports(str(stage.home)) == []
    assert len([one for one in stage.daemon.said if one["op"] == "hold"]) == 2


async def test_holder_of_an_ended_agent_exits_when_another_holder_has_its_name(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.until_ready()
    holder = stage.holder
    stage.daemon.refusals["hold"] = NOT_YOU
    await stage.daemon.close()

    os.kill(stage.child, signal.SIGKILL)
    await stage.daemon.open()

    await wait_until(lambda: not is_running(holder))
    assert not [one for one in stage.daemon.said if one["op"] == "leave"]


async def test_program_that_cannot_run_leaves_with_the_reason(stage: Stage) -> None:
    with pytest.raises(PalaverError, match=r"/no/such/program cannot be run: No such file or directory"):
        await stage.start(["/no/such/program"])

    assert (await stage.daemon.heard("leave"))["reason"] == "could not be started"
    await wait_until(lambda: not socket_path(str(stage.home), "luna").exists())


async def test_socket_of_a_live_holder_is_not_replaced(stage: Stage) -> None:
    await stage.start(script("lines"))

    with pytest.raises(PalaverError, match="luna is taken"):
        await stage.start(script("lines"))

    first = next(one["pid"] for one in stage.daemon.said if one["op"] == "hold")
    assert is_running(first)
    client = stage.connect()
    await client.send(b'{"type":"status"}\n')
    assert (await client.reply())["agent"]["pid"] == first


# The socket


async def test_status_describes_the_agent(stage: Stage) -> None:
    await stage.start(script("lines"), cols=100, rows=30)

    reply = await stage.ask(type="status")

    agent = reply["agent"]
    assert reply["ok"] is True
    assert (agent["name"], agent["pid"], agent["cols"], agent["rows"]) == ("luna", stage.child, 100, 30)
    assert agent["state"] in ("starting", "idle")  # `idle` if the status was requested late
    assert agent["command"][-1].endswith("lines.py")
    assert agent["harness"] is None


async def test_status_names_the_harness_of_the_agent(stage: Stage) -> None:
    stage.daemon.harness = "aider"
    await stage.start(script("lines"))

    reply = await stage.ask(type="status")

    assert reply["agent"]["harness"] == "aider"


async def test_socket_is_accessible_to_its_owner_only(stage: Stage) -> None:
    await stage.start(script("lines"))

    path = socket_path(str(stage.home), "luna")

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"type":"nope"}', "unknown request type: nope"),
        (b"hello?", "the request cannot be read"),
        (b'{"type":"send","priority":"urgent","body":"x"}', "invalid priority: urgent"),
        (b'{"type":"show","message_id":"nothing"}', "nothing"),
    ],
)
async def test_impossible_request_is_refused_with_a_sentence(stage: Stage, line: bytes, error: str) -> None:
    stage.daemon.refusals["receipts"] = {"error": "not_found", "message": "no such message: nothing"}
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    client = stage.connect()

    await client.send(line + b"\n")

    reply = await client.reply()
    assert reply["ok"] is False
    assert error in reply["error"]


async def test_send_is_forwarded_with_its_descriptor_to_the_daemon(stage: Stage) -> None:
    await stage.start(script("lines"))

    reply = await stage.ask(type="send", priority="normal", body="hello", thread="t")

    assert reply == {"ok": True, "message_id": "01KSENT", "seq": 7}
    (passed,) = stage.daemon.passed
    assert (passed["do"], passed["name"]) == ("read", "luna")
    assert passed["request"] == {"type": "send", "priority": "normal", "body": "hello", "thread": "t"}


@pytest.mark.parametrize("kind", ["send", "attach", "stop", "hook_event"])
async def test_request_that_needs_an_identity_is_refused_without_a_daemon(stage: Stage, kind: str) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    (stage.home / "down").touch()
    await stage.daemon.close()

    reply = await stage.ask(type=kind, body="x", cols=80, rows=24)

    assert reply["ok"] is False
    assert "the bus is not running" in reply["error"]
    assert is_running(stage.child)


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        ("attach", {"name": "nova", "standing": "operator", "kind": "instance"}),
        ("attach", {"name": "nova", "standing": "human", "kind": "instance"}),
        ("attach", {"name": "script", "standing": "human", "kind": "script"}),
        ("stop", {"name": "nova", "standing": "worker", "kind": "instance"}),
        ("hook_event", {"name": "nova", "standing": "human", "kind": "instance"}),
    ],
)
async def test_caller_without_the_required_standing_is_refused(
    stage: Stage, kind: str, who: dict[str, str]
) -> None:
    await stage.start(script("lines"))
    stage.daemon.who = {"ok": True, **who}

    reply = await stage.ask(type=kind, cols=80, rows=24)

    assert reply["ok"] is False
    assert " requires " in reply["error"]
    assert is_running(stage.child)


async def test_operator_can_stop_the_agent(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    stage.daemon.who = {"ok": True, "name": "boss", "standing": "operator", "kind": "instance"}

    reply = await stage.ask(type="stop")

    assert reply["ok"] is True
    assert (await stage.daemon.heard("leave"))["reason"].startswith(("killed by SIG", "exited with"))


# Attaching


async def test_attached_viewer_can_use_the_terminal(stage: Stage) -> None:
    await stage.start(script("lines"))
    person = await stage.attach()

    await person.until_shown(b"ready")
    await person.press(b"hello\r")

    await person.until_shown(b"got 'hello'")


async def test_attach_and_first_frame_in_one_write_are_both_processed(stage: Stage) -> None:
    await stage.start(script("lines"))
    person = stage.connect()

    request = b'{"type":"attach","cols":80,"rows":24}\n'
    await person.send(request + b"\x00\x00\x00\x00\x06hello\r")

    assert (await person.reply())["ok"] is True
    await person.until_shown(b"got 'hello'")


async def test_frame_over_the_limit_is_refused_by_its_header(stage: Stage) -> None:
    await stage.start(script("lines"))
    bad, good = await stage.attach(), await stage.attach()

    await bad.send(b"\x00" + (10 * 1024 * 1024 + 1).to_bytes(4, "big"))

    assert (await bad.control_of("error"))["error"] == "message_too_large"
    await wait_until(lambda: bad.connection.fileno() >= 0)
    await good.press(b"hello\r")
    await good.until_shown(b"got 'hello'")


async def test_largest_frame_is_accepted_while_the_program_does_not_read(stage: Stage) -> None:
    await stage.start(script("deaf"))
    person, other = await stage.attach(), await stage.attach()
    await person.until_shown(b"ready")

    await person.send(b"\x00" + (10 * 1024 * 1024).to_bytes(4, "big") + b"x" * (10 * 1024 * 1024 - 1) + b"\r")
    os.kill(stage.child, signal.SIGUSR1)

    await other.until_shown(b"read 10485760")


async def test_unknown_frame_types_and_controls_change_nothing(stage: Stage) -> None:
    await stage.start(script("lines"))
    person = await stage.attach()

    await person.send(b"\x07\x00\x00\x00\x03abc")
    await person.control(type="dance")
    await person.send(b"\x01\x00\x00\x00\x02no")
    await person.press(b"hello\r")

    await person.until_shown(b"got 'hello'")
    assert [one["error"] for one in person.controls if one["type"] == "error"] == ["bad_request"] * 2


async def test_late_viewer_gets_the_screen_with_its_colours_and_modes(stage: Stage, tmp_path: Path) -> None:
    await stage.start(script("keys", str(tmp_path / "record"), "paste"))
    first = await stage.attach()
    await first.until_shown(b"\x1b[?2004h")

    second = await stage.attach()

    await second.until_shown(b"ready")
    assert b"\x1b[?2004h" in second.shown


async def test_viewer_that_never_reads_blocks_nothing_and_is_redrawn_later(stage: Stage) -> None:
    await stage.start(script("flood", "20"))
    lazy, busy = await stage.attach(), await stage.attach()

    await busy.press(b"\r")
    await busy.until_shown(b"flooded")

    await lazy.until_shown(b"flooded")
    assert len(lazy.shown) < 4 * 1024 * 1024
    assert b"\x1b[2J" in lazy.shown[-20_000:]


async def test_program_that_never_reads_blocks_nothing(stage: Stage) -> None:
    await stage.start(script("deaf"))
    person = await stage.attach()
    await person.until_shown(b"ready")

    await person.press(b"x" * 200_000 + b"\r")

    assert (await stage.ask(type="status"))["ok"] is True
    os.kill(stage.child, signal.SIGUSR1)
    await person.until_shown(b"read 200001")


async def test_terminal_has_the_size_of_the_latest_resize(stage: Stage) -> None:
    await stage.start(script("size"), cols=80, rows=24)
    person = await stage.attach(80, 24)
    await person.until_shown(b"size 80x24")

    await person.control(type="resize", cols=120, rows=2)
    await person.control(type="resize", cols=120, rows=40)

    await person.until_shown(b"size 120x40")
    assert b"120x2\r" not in person.shown
    other = await stage.attach(90, 20)
    await other.until_shown(b"size 90x20")
    assert (await stage.ask(type="status"))["agent"]["cols"] == 90


async def test_closed_terminal_only_detaches(stage: Stage) -> None:
    await stage.start(script("lines"))
    person = await stage.attach()
    await person.until_shown(b"ready")

    person.close()

    back = await stage.attach()
    await back.press(b"still there\r")
    await back.until_shown(b"got 'still there'")


# The keyboard


async def test_one_viewer_has_the_keyboard_and_messages_wait_meanwhile(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    first, second = await stage.attach(), await stage.attach()

    await first.control(type="passthrough", on=True)
    await stage.daemon.heard("gate", paused=True)
    await second.control(type="passthrough", on=True)
    assert "another terminal has the keyboard" in (await second.control_of("error"))["message"]
    await second.press(b"not mine\r")
    await first.press(b"mine\r")
    await first.until_shown(b"got 'mine'")

    assert b"not mine" not in first.shown


async def test_keyboard_can_be_taken_over_and_its_owner_is_notified(stage: Stage) -> None:
    await stage.start(script("lines"))
    first, second = await stage.attach(), await stage.attach()
    await first.control(type="passthrough", on=True)
    await first.until(lambda: any(one.get("passthrough") == "own" for one in first.controls))

    await second.control(type="passthrough", on=True, take=True)

    await first.until(lambda: any(one.get("passthrough") == "other" for one in first.controls))
    await second.until(lambda: any(one.get("passthrough") == "own" for one in second.controls))


async def test_messages_continue_after_the_keyboard_owner_is_killed(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    owner = await stage.attach()
    await owner.control(type="passthrough", on=True)
    await stage.daemon.heard("gate", paused=True)

    owner.close()

    await stage.daemon.until(lambda: "paused" not in stage.daemon.last("gate"))


async def test_ended_session_does_not_remove_the_agent_of_a_running_program(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    await stage.hook("SessionEnd")
    ended = (await stage.ask(type="status"))["agent"]
    await stage.hook("UserPromptSubmit")
    await stage.daemon.heard("status", state="active")

    assert (ended["state"], ended["detail"]) == ("exited", "session_end")
    assert {one["state"] for one in stage.daemon.said if one["op"] == "status"} <= {
        "starting",
        "idle",
        "active",
    }


# The end


@pytest.mark.parametrize("status", [0, 3, 255])
async def test_exit_status_reaches_viewers_and_the_daemon(stage: Stage, status: int) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    person = await stage.attach()

    await person.press(b"exit %d\r" % status)

    assert (await person.control_of("exited"))["status"] == status
    assert (await stage.daemon.heard("leave"))["reason"] == f"exited with {status}"
    await wait_until(lambda: not socket_path(str(stage.home), "luna").exists())


async def test_killed_program_reports_its_signal(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    person = await stage.attach()
    holder = stage.holder

    os.kill(stage.child, signal.SIGKILL)

    exited = await person.control_of("exited")
    assert (exited["status"], exited["signal"]) == (137, 9)
    assert (await stage.daemon.heard("leave"))["reason"] == "killed by SIGKILL"
    await wait_until(lambda: not is_running(holder))


async def test_last_output_of_a_program_is_shown(stage: Stage) -> None:
    await stage.start(["sh", "-c", "read x; printf 'one\\ntwo\\nlast words'"])
    person = await stage.attach()

    await person.press(b"\r")
    await person.control_of("exited")

    assert b"last words" in person.shown


async def test_killed_holder_ends_its_agent_and_frees_its_socket(
    stage: Stage,
) -> None:
    await stage.start(script("lines"))
    child, holder = stage.child, stage.holder

    os.kill(holder, signal.SIGKILL)

    await wait_until(lambda: not is_running(child))
    assert socket_path(str(stage.home), "luna").exists()
    assert await stage.start(script("lines")) == "luna"
    assert (await stage.ask(type="status"))["agent"]["pid"] == stage.child


async def test_terminated_holder_ends_its_agent_and_reports(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")

    os.kill(stage.holder, signal.SIGTERM)

    assert (await stage.daemon.heard("leave"))["reason"].startswith(("killed by", "exited with"))


async def test_orphans_of_the_agent_are_reaped(stage: Stage) -> None:
    await stage.start(script("orphan"))
    person = await stage.attach()
    await person.until_shown(b"left")
    holder, child = stage.holder, stage.child
    (orphan,) = [pid for pid in children_of(holder) if pid != child]
    assert parent_of(orphan) == holder

    await person.press(b"end it\r")

    await wait_until(lambda: not Path(f"/proc/{orphan}").exists())
    assert is_running(child)


async def test_shell_jobs_can_be_stopped_and_resumed(stage: Stage) -> None:
    await stage.start(["bash", "--norc", "--noprofile", "-i"], env={"PS1": "$ "})
    person = await stage.attach()

    await person.until_shown(b"$")
    await person.press(b"echo is'' there; cat\r")
    await person.until_shown(b"is there")
    await person.press(b"once\r")
    await person.until(lambda: person.shown.count(b"once") >= 2)
    await person.press(b"\x1a")
    await person.until_shown(b"Stopped")
    person.shown = b""
    await person.press(b"fg\r")
    await person.until_shown(b"cat")
    await person.press(b"twice\r")

    await person.until(lambda: person.shown.count(b"twice") >= 2)


# Restarts of the daemon


async def test_restarted_daemon_gets_the_same_agent_again(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    await stage.daemon.close()
    await stage.daemon.open()

    again = await stage.daemon.heard("hold", count=2)
    first = await stage.daemon.heard("hold")
    assert (again["name"], again["secret"], again["pid"]) == ("luna", first["secret"], first["pid"])
    assert "ticket" not in again
    await stage.daemon.heard("lane", count=2)
    assert stage.daemon.last("status")["state"] == "idle"
    await stage.daemon.until(lambda: stage.daemon.said[-1]["op"] == "gate" and stage.daemon.said[-1]["open"])


async def test_exit_without_a_daemon_is_stored_in_a_file(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    secret = (await stage.daemon.heard("hold"))["secret"]
    (stage.home / "down").touch()
    await stage.daemon.close()

    os.kill(stage.child, signal.SIGKILL)

    await wait_until(lambda: read_reports(str(stage.home)))
    ((path, report),) = read_reports(str(stage.home))
    assert (report.name, report.secret, report.reason) == ("luna", secret, "killed by SIGKILL")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_daemon_that_returns_after_the_exit_receives_it(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    (stage.home / "down").touch()
    await stage.daemon.close()

    os.kill(stage.child, signal.SIGKILL)
    await wait_until(lambda: not is_running(stage.child))
    (stage.home / "down").unlink()
    await stage.daemon.open()

    assert (await stage.daemon.heard("leave"))["reason"] == "killed by SIGKILL"


async def test_silent_callers_are_dropped_in_favour_of_active_ones(stage: Stage) -> None:
    await stage.start(script("lines"))
    silent = [stage.connect() for _ in range(LIMIT_CALLERS)]

    status = await stage.ask(type="status")

    assert status["ok"] is True
    assert (await silent[0].reply())["error"] == "no request came in time: send it at once, in one line"


async def test_caller_that_sends_nothing_is_disconnected(tmp_path: Path) -> None:
    listener = listen(tmp_path / "x.sock")
    holder_control = cast("SocketControl", None)
    server = asyncio.create_task(AgentServer("", "x", listener, holder_control, request_limit_s=0.01).run())
    caller = Attached(connect_socket(tmp_path / "x.sock"))

    refused = await caller.reply()

    assert refused["ok"] is False
    server.cancel()
    listener.close()
    caller.close()


def rss_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def test_unread_keys_are_discarded_with_their_viewer(stage: Stage) -> None:
    await stage.start(script("deaf"))
    person = await stage.attach()
    await person.until_shown(b"ready")
    sending = asyncio.create_task(person.press(b"x" * (10 * 1024 * 1024)))
    await wait_until(sending.done)

    person.close()
    os.kill(stage.child, signal.SIGUSR1)
    other = await stage.attach()
    await other.press(b"\r")

    await other.until_shown(b"read ")
    assert rss_bytes(stage.holder) < 60 * 1024 * 1024


def test_holder_does_not_import_large_unused_modules() -> None:
    code = "import sys, palaver.holder.main; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)

    assert not {"sqlite3", "palaver.daemon", "starlette", "mcp"} & set(loaded.stdout.split())
