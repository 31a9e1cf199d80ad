"""Accounts of the IRC door: tokens, one-time codes and guests."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.doors.parts import Links
from tests.fakes import Bus, open_memory, opened_bus

from palaver.config import LiveSettings, LoadedSettings, Settings
from palaver.errors import WhoAreYou
from palaver.identity.accounts import (
    Accounts,
)
from palaver.identity.tokens import TokenBook
from palaver.protocol.agents import Caller, Standing, caller_for
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import Join

PERSON = Caller(name=HUMAN, standing=Standing.HUMAN, kind=HUMAN)


class Stage:
    """Accounts on a bus, with a token book in a directory."""

    def __init__(self, bus: Bus, home: Path, guests: str = "off") -> None:
        self.bus = bus
        self.tokens = TokenBook(home, bus.clock)
        self.links = Links()
        self.live = LiveSettings(LoadedSettings(settings=Settings(irc_guests=guests), origins={}))
        self.accounts = Accounts(
            tokens=self.tokens,
            directory=bus.broker.directory,
            presence=self.links,
            submit=bus.broker.submit,
            live=self.live,
            clock=bus.clock,
        )

    def let_guests(self, word: str) -> None:
        self.live.origins["irc_guests"] = "default"
        self.live.now = replace(self.live.now, irc_guests=word)
        self.accounts.notify()

    async def register(self, name: str, role: str = "worker", *, is_kept: bool = True) -> str:
        await self.bus.broker.submit(PERSON, Join(name=name, role=role, has_link=True))
        standing = caller_for(self.bus.agent(name)).standing.word
        secret, _ = await self.tokens.create(name, standing=standing, by="human", is_kept=is_kept)
        return secret


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_bus(open_memory, tmp_path) as bus:
        yield Stage(bus, tmp_path)


# --------------------
# Tokens


async def test_token_logs_its_agent_in(stage: Stage) -> None:
    secret = await stage.register("luna", "operator")

    account = stage.accounts.log_in("Luna", secret)

    assert (account.name, account.is_program, account.is_guest) == ("luna", True, False)
    assert (account.caller.name, account.caller.standing) == ("luna", Standing.OPERATOR)
    assert stage.accounts.is_valid(account)


async def test_token_of_another_agent_or_a_wrong_one_is_refused(stage: Stage) -> None:
    secret = await stage.register("luna")
    await stage.register("nova")

    for name, password in (("nova", secret), ("luna", secret[:-1]), ("luna", ""), ("nobody_here", secret)):
        with pytest.raises(WhoAreYou, match="pal agent register"):
            stage.accounts.log_in(name, password)
