"""The caller of a token: a present agent, with at most the rights that the token was created with."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs
from tests.doors.room_stage import Stage, opened_stage

from palaver.doors.http.app import caller_of
from palaver.errors import WhoAreYou
from palaver.identity.accounts import Token
from palaver.protocol.agents import Standing
from palaver.services.services import Services


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path) as made:
        yield made


ENDED = "ended"


def services(stage: Stage) -> Services:
    tokens = SimpleNamespace(is_valid=lambda token: token.id != ENDED)
    callers = SimpleNamespace(member_presence=stage.book, tokens=tokens)
    return cast("Services", SimpleNamespace(broker=stage.broker, callers=callers))


def token(name: str, standing: str = "worker") -> Token:
    return Token(id="1", name=name, standing=standing, by="human", ts=1, hash="")


async def test_token_names_its_agent_and_marks_it_present(stage: Stage) -> None:
    await stage.join("luna", harness="codex", is_here=False)
    assert not stage.book.is_present("luna")

    caller = caller_of(services(stage), token("luna"))

    assert (caller.name, caller.harness, caller.kind) == ("luna", "codex", "instance")
    assert stage.book.is_present("luna")


async def test_caller_has_the_lower_rights_of_token_and_agent(stage: Stage) -> None:
    await stage.join("luna", role="operator")
    await stage.join("nova")

    assert caller_of(services(stage), token("luna")).standing is Standing.WORKER
    assert caller_of(services(stage), token("luna", "operator")).standing is Standing.OPERATOR
    assert caller_of(services(stage), token("nova", "operator")).standing is Standing.WORKER


def test_token_of_an_unknown_agent_is_refused(stage: Stage) -> None:
    with pytest.raises(WhoAreYou, match="belongs to ghost, which has left"):
        caller_of(services(stage), token("ghost"))


async def test_token_that_has_ended_is_refused(stage: Stage) -> None:
    await stage.join("luna")

    with pytest.raises(WhoAreYou, match="has ended"):
        caller_of(services(stage), structs.replace(token("luna"), id=ENDED))
