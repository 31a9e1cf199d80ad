"""The runner of automatic turns: one for each home, known again after a restart."""

import stat
from pathlib import Path

import pytest
from tests.fakes import seat

from palaver.errors import StorageFailed
from palaver.identity.accounts import RUNNER_FILE, RunnerBook, TurnProcess
from palaver.protocol.agents import Seat


class Alive:
    """Processes that run, by pid."""

    def __init__(self, *pids: int) -> None:
        self.pids = set(pids)

    def __call__(self, one: Seat) -> bool:
        return one.pid in self.pids


def process(pid: int, turn: int) -> TurnProcess:
    return TurnProcess(seat=seat(pid), agent="luna", session="main", turn=turn)


async def test_runner_is_known_by_its_secret_also_after_a_restart(tmp_path: Path) -> None:
    alive = Alive(7, 8)
    book = RunnerBook(tmp_path, alive)
    assert (book.current(), book.find("s")) == (None, None)

    await book.put(seat(7), "s", 1000)
    await book.put_turn(process(8, 42))

    again = RunnerBook(tmp_path, alive)
    found = again.find("s")
    assert found is not None
    assert (found.seat, found.since_ms, found.turns) == (seat(7), 1000, (process(8, 42),))
    assert again.find("x") is None
    assert again.find("\udcff") is None


async def test_file_is_private_and_has_no_secret(tmp_path: Path) -> None:
    await RunnerBook(tmp_path, Alive(7)).put(seat(7), "a long secret", 1000)

    path = tmp_path / RUNNER_FILE
    assert "a long secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_runner_whose_process_has_ended_is_none(tmp_path: Path) -> None:
    alive = Alive(7)
    book = RunnerBook(tmp_path, alive)
    await book.put(seat(7), "s", 1000)

    alive.pids.clear()

    assert (book.current(), book.find("s")) == (None, None)
    assert book.last is not None
    assert book.last.seat == seat(7)


async def test_processes_of_ended_turns_are_forgotten(tmp_path: Path) -> None:
    alive = Alive(7, 8, 9)
    book = RunnerBook(tmp_path, alive)
    await book.put_turn(process(8, 42))
    assert not (tmp_path / RUNNER_FILE).exists(), "a turn without a runner"
    await book.put(seat(7), "s", 1000)
    await book.put_turn(process(8, 42))

    alive.pids.discard(8)
    await book.put_turn(process(9, 57))

    runner = book.current()
    assert runner is not None
    assert [one.turn for one in runner.turns] == [57]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"seat": 7}', b"\xff", b'{"hash":"\xff"}'])
async def test_unreadable_file_is_no_runner(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RUNNER_FILE).write_bytes(content)

    assert RunnerBook(tmp_path, Alive(7)).current() is None


async def test_runner_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    book = RunnerBook(tmp_path / "missing", Alive(7))

    with pytest.raises(StorageFailed, match=r"runner\.json"):
        await book.put(seat(7), "s", 1000)

    assert book.current() is None
