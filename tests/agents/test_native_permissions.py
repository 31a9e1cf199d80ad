"""What a harness asks people, told to the bus, and a person's word brought back while it is still asked."""

import asyncio

import msgspec
from tests.limits import LIMIT_S

from palaver.agents.bus import Bus, Held
from palaver.agents.native_permissions import Permissions
from palaver.agents.native_word import Asked
from palaver.agents.work import Work
from palaver.client.wire import Line
from palaver.model.lines.holder_ops import PermissionOp
from palaver.model.lines.wire import Op

ASKED = Asked(id=3, session="one", tool="Bash", given={"command": "ls"})


class HearingBus(Bus):
    """Keeps what it is told."""

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


class Harness:
    """Asks what a test says, and takes a word when a test says."""

    def __init__(self) -> None:
        self.now: dict[str, Asked] = {}
        self.replies: list[tuple[Asked, bool]] = []
        self.taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def asked(self) -> dict[str, Asked]:
        return self.now

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        self.replies.append((asked, is_allowed))
        return await self.taken


def _name_of(session: str) -> str:
    return "nova_sub_1" if session == "below" else ""


class Stage:
    """A harness that asks one thing, and the bus that knows of it."""

    def __init__(self) -> None:
        self.bus, self.harness, self.work = HearingBus(), Harness(), Work()
        self.permissions = Permissions(self.bus, self.harness, spawn=self.work.spawn, name_of=_name_of)
        self.ask(ASKED)

    def ask(self, *asked: Asked) -> None:
        self.harness.now = {one.request: one for one in asked}
        self.permissions.look()

    def decide(self, *, is_allowed: bool = True) -> None:
        self.permissions.decide(Line(push="decision", request="3", allowed=is_allowed))

    async def settle(self, *, is_taken: bool) -> None:
        self.harness.taken.set_result(is_taken)
        async with asyncio.timeout(LIMIT_S):
            await self.work.settle()

    @property
    def outcomes(self) -> list[str]:
        return [one.outcome for one in self.bus.told]


async def test_what_is_asked_is_told_once_and_in_the_name_of_who_asks() -> None:
    stage = Stage()
    below = Asked(id="4", session="below", tool="Bash")

    stage.ask(ASKED, below)

    assert [(one.name, one.request, one.session) for one in stage.bus.told] == [
        ("", "3", "one"),
        ("nova_sub_1", "4", "below"),
    ]
    assert stage.harness.replies == []


async def test_a_word_is_passed_on_once_and_said_to_be_taken_when_it_is() -> None:
    stage = Stage()

    stage.decide()
    stage.decide(is_allowed=False)
    stage.permissions.look()
    assert stage.outcomes == [""]
    await stage.settle(is_taken=True)

    assert stage.harness.replies == [(ASKED, True)]
    assert stage.outcomes == ["", "taken"]


async def test_a_word_that_was_not_taken_is_said_to_be_gone() -> None:
    stage = Stage()

    stage.decide()
    await stage.settle(is_taken=False)
    stage.permissions.look()

    assert stage.outcomes == ["", "gone"]


async def test_what_is_asked_no_more_takes_no_word() -> None:
    stage = Stage()

    stage.ask()
    stage.decide()
    await stage.settle(is_taken=True)

    assert stage.outcomes == ["", "gone"]
    assert stage.harness.replies == []


async def test_a_request_that_became_another_is_told_anew() -> None:
    stage = Stage()
    other = Asked(id=3, session="one", tool="Bash", given={"command": "rm x"})

    stage.ask(other)

    assert [(one.outcome, one.input) for one in stage.bus.told] == [
        ("", {"command": "ls"}),
        ("gone", {}),
        ("", {"command": "rm x"}),
    ]


async def test_one_that_became_another_behind_an_answer_is_told_anew_too() -> None:
    stage = Stage()
    stage.decide()

    stage.ask(Asked(id=3, session="one", tool="Bash", given={"command": "rm x"}))

    assert stage.bus.told[-1].input == {"command": "rm x"}
    await stage.settle(is_taken=True)


async def test_another_daemon_is_told_again() -> None:
    stage = Stage()
    stage.bus.is_there = False
    stage.ask(ASKED, Asked(id=4, session="one", tool="Bash"))
    assert len(stage.bus.told) == 1
    stage.bus.is_there = True

    stage.permissions.connected()

    assert [one.request for one in stage.bus.told] == ["3", "3", "4"]
