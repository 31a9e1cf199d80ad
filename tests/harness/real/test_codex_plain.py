"""Codex started without `pal` after `pal install codex`: wake-ups, and separate messages per thread."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.stage import run_as_person, set_approvals
from tests.harness.real.codex_server import Server, app_server, looked
from tests.harness.real.codex_stage import CodexStage, ask_first, bus_call, codex_stage, shell_call
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed

from palaver.holder.codex import MODULE, shared_server

pytestmark = pytest.mark.harness

EVERY_HOOK = "hooks.state"


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home with a running bus, and a Codex for which `pal install` was run."""
    with codex_stage(installed("codex")) as stage:
        stage.home.ok("install", "codex", "--yes")
        yield stage


def run(codex: CodexStage, flow: Callable[[CodexStage, Server], Coroutine[Any, Any, None]]) -> None:
    """Run a test with the server that all plain Codex sessions share, and with trusted hooks."""

    async def all_of_it() -> None:
        socket = shared_server(codex.home.environment)
        async with app_server(codex, path=socket) as server:
            await trust(codex, server)
            await flow(codex, server)

    asyncio.run(all_of_it())


async def trust(codex: CodexStage, server: Server) -> None:
    """Trust the hooks, as Codex does after a person has reviewed them."""
    listed = json.loads(await server.answer("hooks/list", cwds=[str(codex.project)]))
    states = {one["key"]: {"trusted_hash": one["currentHash"]} for one in listed["data"][0]["hooks"]}
    assert listed["data"][0]["warnings"] == []
    edit = {"keyPath": EVERY_HOOK, "value": states, "mergeStrategy": "upsert"}
    await server.answer("config/batchWrite", edits=[edit])


def agents(codex: CodexStage) -> list[str]:
    return [one["name"] for one in codex.home.ok("list", "--json").lines if one["harness"] == "codex"]


def companions(codex: CodexStage) -> list[int]:
    """Return the companions of sessions of this account."""
    mark = b"HOME=" + os.fsencode(codex.account)
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if MODULE.encode() in words and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


async def begin(codex: CodexStage, server: Server, **given: object) -> tuple[str, str]:
    """Begin a session that is on the bus and can be woken; return its thread and its name."""
    known = set(agents(codex))
    thread = await server.begin(**given)
    codex.script.add(reply("hello"))
    await server.turn(thread, "hello")
    await looked(lambda: set(agents(codex)) - known)
    (name,) = set(agents(codex)) - known
    await looked(lambda: "native" in codex.gates(name))
    return thread, name


def test_idle_session_is_woken(codex: CodexStage) -> None:
    run(codex, _wake)
    codex.until(lambda: not companions(codex))


async def _wake(codex: CodexStage, server: Server) -> None:
    thread, name = await begin(codex, server)
    luna = await asyncio.to_thread(codex.friend)

    seq = await asyncio.to_thread(send, luna, f"@{name}", "--", "nonce-4711")

    await server.until("turn/completed", thread, 2)
    assert "nonce-4711" in codex.script.main[-1].conversation
    receipt = await asyncio.to_thread(codex.until_seen, seq)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    await looked(lambda: codex.state(name)[0] == "idle")
    assert len(companions(codex)) == 1


def test_sessions_of_one_server_never_get_each_others_messages(codex: CodexStage) -> None:
    run(codex, _two)


async def _two(codex: CodexStage, server: Server) -> None:
    found = [await begin(codex, server) for _ in range(2)]
    luna = await asyncio.to_thread(codex.friend)
    before = len(codex.script.main)

    for _, name in found:
        await asyncio.to_thread(send, luna, f"@{name}", "--", f"only for {name}")
    for thread, _ in found:
        await server.until("turn/completed", thread, 2)

    asked = [one.conversation for one in codex.script.main[before:]]
    names = [name for _, name in found]
    for own, other in (names, names[::-1]):
        (mine,) = [one for one in asked if f"You are {own} on Palaver" in one]
        assert f"only for {own}" in mine
        assert f"only for {other}" not in mine
    assert len(companions(codex)) == 2


def test_hooks_of_two_sessions_deliver_to_the_right_one(codex: CodexStage) -> None:
    run(codex, _two_busy)


async def _two_busy(codex: CodexStage, server: Server) -> None:
    found = [await begin(codex, server) for _ in range(2)]
    luna = await asyncio.to_thread(codex.friend)
    for pid in companions(codex):
        os.kill(pid, 9)  # only hooks are left
    for _, name in found:
        await looked(lambda name=name: "native" not in codex.gates(name))  # type: ignore[misc]
    for _, name in found:
        await asyncio.to_thread(send, luna, f"@{name}", "--", f"only for {name}")

    for (thread, own), (_, other) in (found, found[::-1]):
        codex.script.add(reply("", shell_call("echo work")), reply("done"))
        await server.turn(thread, "go on")

        asked = codex.script.main[-1].conversation
        assert f"only for {own}" in asked
        assert f"only for {other}" not in asked


def test_request_is_decided_by_a_person_from_elsewhere(codex: CodexStage) -> None:
    codex.home.ok("down")
    set_approvals(codex.home)
    codex.home.ok("up")
    run(codex, _ask)


async def _ask(codex: CodexStage, server: Server) -> None:
    thread, name = await begin(codex, server, approvalPolicy="on-request", sandbox="workspace-write")
    made = codex.project / "made.txt"
    codex.script.add(reply("may I?", ask_first(f"touch {made}")), reply("so be it"))
    await server.start(thread, "make it")
    await looked(lambda: any(one["id"] for one in codex.home.ok("pending", "--json").lines))
    (shown,) = codex.home.ok("pending", "--json").lines

    result = await asyncio.to_thread(run_as_person, codex.home, "approve", shown["id"])

    assert (shown["agent"], shown["tool"], result.status) == (name, "Bash", 0)
    await server.until("turn/completed", thread, 2)
    assert made.exists()


def test_unjoined_thread_does_not_speak_as_another_thread(codex: CodexStage) -> None:
    asyncio.run(_unjoined(codex))


async def _unjoined(codex: CodexStage) -> None:
    work = codex.project / "work"
    work.mkdir()
    luna = await asyncio.to_thread(codex.friend)
    async with app_server(codex) as server:  # its hooks are not trusted, so no thread joins by a hook
        one, other = await server.begin(), await server.begin()

        async def call(thread: str, name: str, **given: object) -> str:
            codex.script.add(reply("", bus_call(name, **given), awaits=codex.tools_sign), reply("read"))
            await server.turn(thread, "call it")
            return codex.script.main[-1].conversation.replace("\\", "")

        await call(one, "join_path", context_path=str(work))
        (neighbour,) = await asyncio.to_thread(agents, codex)

        refused = await call(other, "send", to="@luna", text="from whom?")

        assert '"error":"who_are_you"' in refused
        assert "call join_path first" in refused
        assert '"error":"who_are_you"' in await call(other, "inbox")
        assert await asyncio.to_thread(agents, codex) == [neighbour]

        await call(other, "join_path", context_path=str(work))
        await call(other, "send", to="@luna", text="from me")
        (own,) = set(await asyncio.to_thread(agents, codex)) - {neighbour}

    (message,) = luna.ok("recv", "--json").lines
    assert (message["from"], message["text"]) == (own, "from me")
