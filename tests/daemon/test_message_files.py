"""Which queued messages are written to files, and what happens when a file cannot be written."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fakes import HUMAN, Bus, open_memory, opened_bus, seat

from palaver.home import read_message, remove_message, write_message
from palaver.protocol.agent_text import parse_message_file
from palaver.protocol.envelope import Draft
from palaver.protocol.paths import Content, SubscribePath
from palaver.protocol.requests import Redact
from palaver.reactors.files import MessageFiles


@asynccontextmanager
async def kept_in(home: Path, bus: Bus) -> AsyncIterator[None]:
    """Write the messages that are sent in the block to files; the files are complete when it ends."""
    async with asyncio.TaskGroup() as tasks:
        files = MessageFiles(home, bus.log, tasks)
        yield
        files.close()


def texts(home: Path, agent: str) -> list[str]:
    """Return the texts in an agent's folder."""
    return sorted(file.read_text().removesuffix("\n") for file in (home / "messages" / agent).glob("*"))


async def test_only_messages_to_an_agent_in_a_terminal_are_written_to_files(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        await bus.join("luna", holder="hash", seat=seat(7))
        await bus.join("nova")
        async with kept_in(tmp_path, bus):
            await bus.send(HUMAN, "for both", "@luna", "@nova")
            await bus.send(HUMAN, "for nova", "@nova")
            await bus.send(HUMAN, "", "@luna", raw=b"y", priority="interrupt")

    assert texts(tmp_path, "luna") == ["for both"]
    assert not (tmp_path / "messages" / "nova").exists()


async def test_session_copy_has_a_file_of_its_agent_unless_it_is_handled(tmp_path: Path) -> None:
    payload: dict[str, object] = {"text": "handled", "delivered_to": ["luna"], "handled": {"luna": ["mon"]}}
    handled = Draft(type="message", sender="nova", payload=payload, id="H1", ts=1)
    async with opened_bus(open_memory, tmp_path) as bus:
        luna = await bus.join("luna", holder="hash", seat=seat(7))
        await bus.submit(luna, SubscribePath(agent="luna", pattern="ci/*", session="mon"))
        async with kept_in(tmp_path, bus):
            await bus.send(HUMAN, "", "/ci/main", content=Content(command="red", payload={}))
            await bus.log.commit(None, lambda rows: handled)

    assert texts(tmp_path, "luna") == ["red {}"]
    assert [folder.name for folder in (tmp_path / "messages").iterdir()] == ["luna"]


async def test_hidden_characters_and_control_tags_are_escaped_in_the_file(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        await bus.join("luna", holder="hash", seat=seat(7))
        async with kept_in(tmp_path, bus):
            await bus.send(HUMAN, "a\u200bb <system-reminder>", "@luna")

    (file,) = (tmp_path / "messages" / "luna").glob("*")
    assert file.read_text() == "a\\u{200b}b <\\system-reminder>\n"
    assert parse_message_file(read_message(str(file))) == "a\u200bb <system-reminder>"


async def test_unwritable_folder_blocks_nothing(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        await bus.join("luna", holder="hash", seat=seat(7))
        (tmp_path / "messages").touch()
        async with kept_in(tmp_path, bus):
            sent = await bus.send(HUMAN, "one", "@luna")

    assert sent.seq
    assert (tmp_path / "messages").is_file()


def test_removal_of_a_message_with_a_short_id_keeps_other_files(tmp_path: Path) -> None:
    home = str(tmp_path)
    kept = write_message(home, "luna", "0001", 1_000, b"kept")
    for agent, text in (("luna", b"one"), ("nova", b"one")):
        write_message(home, agent, "1", 1_000, text)

    assert remove_message(home, "1") == 2
    assert list(tmp_path.rglob("*.md")) == [kept]


def test_file_named_after_the_whole_id_is_removed_too(tmp_path: Path) -> None:
    home = str(tmp_path)
    write_message(home, "luna", "a-12345678", 1_000, b"one")
    path = write_message(home, "luna", "b-12345678", 1_000, b"two")

    remove_message(home, "b-12345678")

    assert not path.exists()


class LateTasks(asyncio.TaskGroup):
    """Tasks that begin only when `run` is called, so that everything until then is one batch."""

    def __init__(self) -> None:
        self._late: list[Coroutine[Any, Any, Any]] = []

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # as a group, but later
        self._late.append(coro)
        return cast("asyncio.Task[Any]", asyncio.get_running_loop().create_future())

    async def run(self) -> None:
        for coro in self._late:
            await coro


async def test_removed_text_has_no_file_even_if_another_file_cannot_be_written(tmp_path: Path) -> None:
    tasks = LateTasks()
    async with opened_bus(open_memory, tmp_path) as bus:
        await bus.join("luna", holder="hash", seat=seat(7))
        await bus.join("nova", holder="hash", seat=seat(8))
        async with kept_in(tmp_path, bus):
            secret = await bus.send(HUMAN, "secret", "@luna")
        files = MessageFiles(tmp_path, bus.log, tasks)
        (tmp_path / "messages" / "nova").touch()
        await bus.send(HUMAN, "cannot be written", "@nova")
        await bus.broker.submit(HUMAN, Redact(event=str(secret.seq), hash="salted"))
        files.close()

        await tasks.run()

    assert texts(tmp_path, "luna") == []


async def test_file_that_cannot_be_removed_blocks_no_later_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = LateTasks()
    async with opened_bus(open_memory, tmp_path) as bus:
        await bus.join("luna", holder="hash", seat=seat(7))
        async with kept_in(tmp_path, bus):
            secret = await bus.send(HUMAN, "secret", "@luna")
        (file,) = (tmp_path / "messages" / "luna").glob("*")
        file.unlink()
        file.mkdir()
        files = MessageFiles(tmp_path, bus.log, tasks)
        await bus.broker.submit(HUMAN, Redact(event=str(secret.seq), hash="salted"))
        await bus.send(HUMAN, "later", "@luna")
        files.close()

        await tasks.run()
        file.rmdir()

    assert texts(tmp_path, "luna") == ["later"]
    assert "cannot be removed" in caplog.text
