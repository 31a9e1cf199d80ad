"""Tokens: printed once, stored as hashes, invalid when revoked."""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import START_MS, Bus, FakeClock, open_memory, opened_bus

from palaver.errors import StorageFailed
from palaver.identity.accounts import FILE_NAME, TokenBook
from palaver.protocol.requests import Leave


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


async def _make(book: TokenBook, name: str = "luna") -> str:
    secret, _ = await book.create(name, standing="worker", by="human")
    return secret


async def test_token_is_found_by_its_secret_also_after_a_restart(tmp_path: Path) -> None:
    secret = await _make(TokenBook(tmp_path, FakeClock()))

    found = TokenBook(tmp_path, FakeClock()).find(secret)

    assert found is not None
    assert (found.name, found.standing, found.by, found.ts) == ("luna", "worker", "human", START_MS)


async def test_token_file_is_private_and_contains_no_secret(tmp_path: Path) -> None:
    secret = await _make(TokenBook(tmp_path, FakeClock()))

    path = tmp_path / FILE_NAME
    assert secret not in path.read_text()
    assert secret.removeprefix("pal_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [FILE_NAME]


async def test_wrong_secret_finds_no_token(tmp_path: Path) -> None:
    book = TokenBook(tmp_path, FakeClock())
    secret = await _make(book)

    assert book.find(secret[:-1]) is None
    assert book.find("") is None
    assert book.find("\udcff") is None


async def test_revoked_token_is_invalid_and_others_stay_valid(tmp_path: Path) -> None:
    book = TokenBook(tmp_path, FakeClock())
    old, new = await _make(book), await _make(book, "nova")
    gone = book.find(old)
    assert gone is not None

    await book.revoke({gone.id})

    assert book.find(old) is None
    assert TokenBook(tmp_path, FakeClock()).find(old) is None
    assert TokenBook(tmp_path, FakeClock()).find(new) is not None


async def test_token_owners_are_known_while_the_file_is_readable(tmp_path: Path) -> None:
    book = TokenBook(tmp_path, FakeClock())
    await _make(book)

    assert (book.has_one_of("luna"), book.has_one_of("nova")) == (True, False)
    (tmp_path / FILE_NAME).write_text("{")
    assert not TokenBook(tmp_path, FakeClock()).has_one_of("luna")


@pytest.mark.parametrize("content", [b"[{", b'[{"id":"\xff"}]'], ids=["not JSON", "not UTF-8"])
async def test_unreadable_token_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)

    with pytest.raises(StorageFailed):
        TokenBook(tmp_path, FakeClock()).find("x")


async def test_token_that_cannot_be_stored_is_not_created(tmp_path: Path) -> None:
    book = TokenBook(tmp_path / "gone", FakeClock())

    with pytest.raises(StorageFailed):
        await _make(book)

    assert book.all() == ()


async def test_expired_token_is_invalid_and_not_listed(tmp_path: Path) -> None:
    clock = FakeClock()
    book = TokenBook(tmp_path, clock)
    secret, token = await book.create("luna", standing="worker", by="human", expires_ms=START_MS + 1000)
    await _make(book, "nova")

    clock.advance(0.999)
    assert book.find(secret) == token
    clock.advance(0.001)

    assert book.find(secret) is None
    assert not book.has_one_of("luna")
    assert [one.name for one in book.all()] == ["nova"]


async def test_tokens_end_when_their_agent_leaves(bus: Bus, tmp_path: Path) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    book = TokenBook(tmp_path, bus.clock)
    own, other = await _make(book), await _make(book, "nova")
    async with asyncio.TaskGroup() as tasks:
        stop = book.end_with_agents(bus.log, tasks)
        await bus.submit(nova, Leave(reason="the process has ended"))

        await bus.submit(luna, Leave())
        assert (book.find(own), book.has_one_of("luna")) == (None, False)
        stop()

    again = TokenBook(tmp_path, bus.clock)
    assert again.find(own) is None
    assert again.find(other) is not None


async def test_leave_is_noticed_after_a_restart_too(bus: Bus, tmp_path: Path) -> None:
    luna = await bus.join("luna")
    old = await _make(TokenBook(tmp_path, bus.clock))
    await bus.submit(luna, Leave())
    bus.clock.advance(1)
    luna = await bus.join("luna")
    new = await _make(TokenBook(tmp_path, bus.clock))

    book = TokenBook(tmp_path, bus.clock)
    await book.catch_up(bus.log)
    await book.catch_up(bus.log)

    assert book.find(old) is None
    assert book.find(new) is not None
    assert TokenBook(tmp_path, bus.clock).find(old) is None


async def test_unreadable_file_has_no_tokens_to_end(bus: Bus, tmp_path: Path) -> None:
    luna = await bus.join("luna")
    (tmp_path / FILE_NAME).write_text("[{")
    book = TokenBook(tmp_path, bus.clock)

    async with asyncio.TaskGroup() as tasks:
        stop = book.end_with_agents(bus.log, tasks)
        await bus.submit(luna, Leave())
        await book.catch_up(bus.log)
        stop()

    assert (tmp_path / FILE_NAME).read_text() == "[{"


async def test_token_stays_ended_when_the_file_cannot_be_written(bus: Bus, tmp_path: Path) -> None:
    luna = await bus.join("luna")
    book = TokenBook(tmp_path / "tokens", bus.clock)
    (tmp_path / "tokens").mkdir()
    secret = await _make(book)
    shutil.rmtree(tmp_path / "tokens")

    async with asyncio.TaskGroup() as tasks:
        stop = book.end_with_agents(bus.log, tasks)
        await bus.submit(luna, Leave())
        stop()

    assert book.find(secret) is None


async def test_home_without_tokens_has_nothing_to_catch_up(bus: Bus, tmp_path: Path) -> None:
    book = TokenBook(tmp_path, bus.clock)

    await book.catch_up(bus.log)

    assert book.all() == ()


# Tokens for several agents


async def test_token_acts_for_its_agent_or_for_the_names_that_it_has(tmp_path: Path) -> None:
    book = TokenBook(tmp_path, FakeClock())
    _, own = await book.create("luna", standing="worker", by="human")
    _, several = await book.create("", standing="worker", by="human", acts_for=("luna", "slack-bridge"))
    _, everyone = await book.create("", standing="operator", by="human", acts_for=("all",))

    acts = {
        token.id: [name for name in ("luna", "nova", "slack-bridge", "") if token.acts_as(name)]
        for token in TokenBook(tmp_path, FakeClock()).all()
    }

    assert acts == {
        own.id: ["luna"],
        several.id: ["luna", "slack-bridge"],
        everyone.id: ["luna", "nova", "slack-bridge", ""],
    }
    assert several.holder == f"token {several.id}"


async def test_token_for_several_agents_outlives_each_of_them(bus: Bus, tmp_path: Path) -> None:
    luna = await bus.join("luna")
    book = TokenBook(tmp_path, bus.clock)
    _, token = await book.create("", standing="worker", by="human", acts_for=("luna",))
    async with asyncio.TaskGroup() as tasks:
        stop = book.end_with_agents(bus.log, tasks)
        await bus.submit(luna, Leave())
        stop()

    await book.catch_up(bus.log)

    assert book.is_valid(token)


async def test_watchers_hear_of_tokens_that_end(bus: Bus, tmp_path: Path) -> None:
    luna = await bus.join("luna")
    book = TokenBook(tmp_path, bus.clock)
    _, first = await book.create("luna", standing="worker", by="human")
    _, second = await book.create("luna", standing="worker", by="human")
    heard: list[tuple[bool, bool]] = []
    stop = book.watch(lambda: heard.append((book.is_valid(first), book.is_valid(second))))

    await book.revoke({first.id})
    async with asyncio.TaskGroup() as tasks:
        end = book.end_with_agents(bus.log, tasks)
        await bus.submit(luna, Leave())
        end()
    stop()
    await book.revoke(set())

    assert heard == [(False, True), (False, False)]


async def test_no_token_is_valid_while_the_file_cannot_be_read(tmp_path: Path) -> None:
    _, token = await TokenBook(tmp_path, FakeClock()).create("luna", standing="worker", by="human")
    (tmp_path / FILE_NAME).write_bytes(b"{")

    assert not TokenBook(tmp_path, FakeClock()).is_valid(token)


async def test_kept_token_stays_valid_when_its_agent_leaves(bus: Bus, tmp_path: Path) -> None:
    luna = await bus.join("luna")
    book = TokenBook(tmp_path, bus.clock)
    secret, _ = await book.create("luna", standing="worker", by="human", is_kept=True)
    async with asyncio.TaskGroup() as tasks:
        stop = book.end_with_agents(bus.log, tasks)
        await bus.submit(luna, Leave())
        stop()

    again = TokenBook(tmp_path, bus.clock)
    await again.catch_up(bus.log)

    assert again.find(secret) is not None


async def test_new_token_replaces_others_with_one_write(tmp_path: Path) -> None:
    book = TokenBook(tmp_path, FakeClock())
    old, other = await _make(book), await _make(book, "nova")
    found = book.find(old)
    assert found is not None
    notices: list[bool] = []
    book.watch(lambda: notices.append(book.is_valid(found)))

    new, token = await book.create("luna", standing="guest", by="human", replaces={found.id})

    assert notices == [False]
    assert token.is_persons
    assert not found.is_persons
    assert [book.find(secret) is not None for secret in (old, other, new)] == [False, True, True]
