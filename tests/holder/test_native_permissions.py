"""Permission requests of a harness, reported to the bus, and the person's decision passed back while it is
pending.
"""

import asyncio

import msgspec
from tests.holder.nobody import Nobody
from tests.limits import LIMIT_S

from palaver.client.wire import ReplyLine
from palaver.harness.base import PermissionQuestion
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.native_lane import Permissions
from palaver.holder.tasks import Work
from palaver.protocol.lines import Op, PermissionOp

ASKED = PermissionQuestion(id=3, session="one", tool="Bash", given={"command": "ls"})


class HearingBus(HolderConnection):
    """Records the operations it receives."""

    def __init__(self) -> None:
        self.held = Held(name="nova")
        self.told: list[PermissionOp] = []
        self.is_there = True

    @property
    def is_connected(self) -> bool:
        return self.is_there

    def ask(self, request: Op) -> "asyncio.Future[msgspec.Raw]":
        raise AssertionError("nothing is asked")

    def mention(self, request: Op) -> None:
        assert isinstance(request, PermissionOp)
        self.told.append(request)


class Harness(Nobody):
    """Has the permission requests that the test chooses, and accepts decisions when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[str, PermissionQuestion] = {}
        self.replies: list[tuple[PermissionQuestion, bool]] = []
        self.taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def questions(self) -> dict[str, PermissionQuestion]:
        return self.now

    async def decide(self, question: PermissionQuestion, *, is_allowed: bool) -> bool:
        self.replies.append((question, is_allowed))
        return await self.taken


def _name_of(session: str) -> str:
    return "nova_sub_1" if session == "below" else ""


class Stage:
    """A harness with one permission request, and the bus that knows about it."""

    def __init__(self) -> None:
        self.bus, self.harness, self.work = HearingBus(), Harness(), Work()
        self.permissions = Permissions(self.bus, self.harness, spawn=self.work.spawn, name_of=_name_of)
        self.ask(ASKED)

    def ask(self, *asked: PermissionQuestion) -> None:
        self.harness.now = {one.request: one for one in asked}
        self.permissions.look()

    def decide(self, *, is_allowed: bool = True) -> None:
        self.permissions.decide(ReplyLine(push="decision", request="3", allowed=is_allowed))

    async def settle(self, *, is_taken: bool) -> None:
        self.harness.taken.set_result(is_taken)
        async with asyncio.timeout(LIMIT_S):
            await self.work.settle()

    @property
    def outcomes(self) -> list[str]:
        return [one.outcome for one in self.bus.told]


async def test_permission_request_is_reported_once_in_the_name_of_its_agent() -> None:
    stage = Stage()
    below = PermissionQuestion(id="4", session="below", tool="Bash")

    stage.ask(ASKED, below)

    assert [(one.name, one.request, one.session) for one in stage.bus.told] == [
        ("", "3", "one"),
        ("nova_sub_1", "4", "below"),
    ]
    assert stage.harness.replies == []


async def test_first_decision_is_passed_on_and_reported_as_taken() -> None:
    stage = Stage()

    stage.decide()
    stage.decide(is_allowed=False)
    stage.permissions.look()
    assert stage.outcomes == [""]
    await stage.settle(is_taken=True)

    assert stage.harness.replies == [(ASKED, True)]
    assert stage.outcomes == ["", "taken"]


async def test_decision_that_came_too_late_is_reported() -> None:
    stage = Stage()

    stage.decide()
    await stage.settle(is_taken=False)
    stage.permissions.look()

    assert stage.outcomes == ["", "gone"]


async def test_withdrawn_request_accepts_no_decision() -> None:
    stage = Stage()

    stage.ask()
    stage.decide()
    await stage.settle(is_taken=True)

    assert stage.outcomes == ["", "gone"]
    assert stage.harness.replies == []


async def test_changed_request_is_withdrawn_and_reported_again() -> None:
    stage = Stage()
    other = PermissionQuestion(id=3, session="one", tool="Bash", given={"command": "rm x"})

    stage.ask(other)

    assert [(one.outcome, one.input) for one in stage.bus.told] == [
        ("", {"command": "ls"}),
        ("gone", {}),
        ("", {"command": "rm x"}),
    ]


async def test_request_that_changes_after_a_decision_is_reported_again() -> None:
    stage = Stage()
    stage.decide()

    stage.ask(PermissionQuestion(id=3, session="one", tool="Bash", given={"command": "rm x"}))

    assert stage.bus.told[-1].input == {"command": "rm x"}
    await stage.settle(is_taken=True)


async def test_another_daemon_receives_open_requests_again() -> None:
    stage = Stage()
    stage.bus.is_there = False
    stage.ask(ASKED, PermissionQuestion(id=4, session="one", tool="Bash"))
    assert len(stage.bus.told) == 1
    stage.bus.is_there = True

    stage.permissions.connected()

    assert [one.request for one in stage.bus.told] == ["3", "3", "4"]
