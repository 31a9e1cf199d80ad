"""The sub-agents of an OpenCode, against a daemon that says yes."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
from tests.agents.opencode.test_lane import QuietBus

from palaver.agents.net.http_client import Server
from palaver.agents.opencode.children import Children
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.opencode.texts import Texts
from palaver.agents.opencode.wire import Said
from palaver.client import request as said


class NamingBus(QuietBus):
    """Gives every sub-agent a name, and every lane a number."""

    def ask(self, request: said.Request) -> "asyncio.Future[msgspec.Raw]":
        self.mention(request)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        match request:
            case said.SubBegin():
                answer.set_result(
                    msgspec.Raw(f'{{"name":"{request.name or "nova"}_{request.type}_1"}}'.encode())
                )
            case said.Lane():
                answer.set_result(msgspec.Raw(b'{"lane":7}'))
            case _:
                answer.set_result(msgspec.Raw(b"{}"))
        return answer


class Stage:
    """Sessions, and the sub-agents that are made of them."""

    def __init__(self) -> None:
        self.bus = NamingBus()
        self.sessions = Sessions(only="a")
        self.names: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        texts = Texts(Server(0, "", ""), self.sessions, lambda key: None)
        self.children = Children(
            self.bus,
            self.sessions,
            texts,
            spawn=self._spawn,
            on_change=lambda: None,
            on_child=self.names.__setitem__,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    async def hear(self, *words: Said) -> None:
        """Take in events, and wait until what they came to is told."""
        for one in words:
            self.sessions.hear(one)
        self.children.look()
        while self._tasks:
            await asyncio.wait(self._tasks)
            self._tasks = {task for task in self._tasks if not task.done()}

    def told(self, kind: type[said.Request]) -> list[said.Request]:
        return [one for one in self.bus.told if isinstance(one, kind)]


def begun(session: str, parent: str, kind: str) -> tuple[Said, Said]:
    info = {"id": session, "parentID": parent, "agent": kind}
    return Said("session.created", {"info": info}), status(session, "busy")


def status(session: str, kind: str) -> Said:
    return Said("session.status", {"sessionID": session, "status": {"type": kind}})


async def test_one_begins_with_its_work_and_ends_with_it() -> None:
    stage = Stage()

    await stage.hear(*begun("b", "a", "general"))

    assert stage.told(said.SubBegin) == [said.SubBegin(key="b", type="general")]
    assert stage.names == {"b": "nova_general_1"}
    assert stage.children.name_of("b") == "nova_general_1"
    assert said.Lane(kind="native", name="nova_general_1") in stage.bus.told
    assert said.Status(name="nova_general_1", state="active", detail="thinking") in stage.bus.told

    await stage.hear(status("b", "idle"))

    assert stage.told(said.SubEnd) == [said.SubEnd(key="b", reason="done")]
    assert stage.children.name_of("b") == ""


async def test_one_that_started_another_stands_before_it() -> None:
    stage = Stage()

    await stage.hear(*begun("c", "b", "deep"), *begun("b", "a", "general"))

    assert stage.told(said.SubBegin) == [
        said.SubBegin(key="b", type="general"),
        said.SubBegin(name="nova_general_1", key="c", type="deep"),
    ]

    await stage.hear(status("b", "idle"), status("c", "idle"))

    assert [one.key for one in stage.told(said.SubEnd) if isinstance(one, said.SubEnd)] == ["c", "b"]


async def test_another_daemon_is_told_of_those_that_live() -> None:
    stage = Stage()
    await stage.hear(*begun("b", "a", "general"))
    stage.bus.told.clear()

    stage.children.connected()
    await stage.hear()

    assert stage.told(said.SubBegin) == [said.SubBegin(key="b")]
    assert said.Lane(kind="native", name="nova_general_1") in stage.bus.told
    assert stage.told(said.Status) != []


async def test_without_the_agent_nobody_is_begun() -> None:
    stage = Stage()
    await stage.hear(*begun("b", "a", "general"))

    stage.children.close()
    await stage.hear(*begun("c", "a", "general"))

    assert len(stage.told(said.SubBegin)) == 1
    assert stage.children.is_at_rest
