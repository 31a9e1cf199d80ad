"""Notification that the process of a seat has ended."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from tests.limits import LIMIT_S

from palaver.identity.process import ProcessWatch, boot_id, read_process
from palaver.protocol.agents import Seat


def _refuse(pid: int) -> int:
    raise OSError(f"no pidfd for {pid}")


@pytest.fixture(params=[os.pidfd_open, None, _refuse], ids=["pidfd", "none", "refused"])
async def watch(request: pytest.FixtureRequest) -> AsyncIterator[ProcessWatch]:
    watch = ProcessWatch(poll_s=0.001, pidfd_open=request.param)
    yield watch
    watch.close()


@pytest.fixture
def children() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.communicate()


def _seat(child: subprocess.Popen[bytes]) -> Seat:
    process = read_process(child.pid)
    assert process is not None
    return Seat(pid=process.pid, start=process.start, boot=boot_id())


Start = Callable[[], subprocess.Popen[bytes]]


async def test_end_of_a_process_is_reported_once(watch: ProcessWatch, children: Start) -> None:
    child, later = children(), children()
    calls: asyncio.Queue[str] = asyncio.Queue()
    watch.add(_seat(child), lambda: calls.put_nowait("first"))
    watch.add(_seat(later), lambda: calls.put_nowait("later"))

    child.kill()
    first = await asyncio.wait_for(calls.get(), LIMIT_S)
    later.kill()
    second = await asyncio.wait_for(calls.get(), LIMIT_S)

    assert (first, second) == ("first", "later")


async def test_zombie_has_ended(watch: ProcessWatch, children: Start) -> None:
    child = children()
    ended = asyncio.Event()
    watch.add(_seat(child), ended.set)

    child.kill()  # not waited for: it stays a zombie

    await asyncio.wait_for(ended.wait(), LIMIT_S)


async def test_ended_seat_is_reported_in_the_next_loop_iteration(
    watch: ProcessWatch, children: Start
) -> None:
    child = children()
    seat = _seat(child)
    used_again = Seat(pid=os.getpid(), start=1, boot=boot_id())
    child.kill()
    child.wait()
    ended, other_ended = asyncio.Event(), asyncio.Event()

    watch.add(seat, ended.set)
    watch.add(used_again, other_ended.set)

    assert not ended.is_set()
    await asyncio.wait_for(ended.wait(), LIMIT_S)
    await asyncio.wait_for(other_ended.wait(), LIMIT_S)


async def test_removed_seat_is_not_reported(watch: ProcessWatch, children: Start) -> None:
    removed, kept = children(), children()
    calls: list[str] = []
    done = asyncio.Event()
    watch.add(_seat(removed), lambda: calls.append("removed"))
    watch.add(_seat(kept), done.set)

    watch.remove(_seat(removed))
    watch.remove(_seat(removed))
    removed.kill()
    removed.wait()
    kept.kill()
    await asyncio.wait_for(done.wait(), LIMIT_S)

    assert calls == []


async def test_second_callback_replaces_the_first(watch: ProcessWatch, children: Start) -> None:
    child = children()
    calls: list[str] = []
    done = asyncio.Event()
    watch.add(_seat(child), lambda: calls.append("first"))

    watch.add(_seat(child), done.set)
    child.kill()
    await asyncio.wait_for(done.wait(), LIMIT_S)

    assert calls == []


async def test_ended_seat_removed_before_the_next_iteration_is_not_reported(
    watch: ProcessWatch,
) -> None:
    ended = Seat(pid=os.getpid(), start=1, boot=boot_id())
    other = Seat(pid=os.getpid(), start=2, boot=boot_id())
    calls: list[str] = []
    done = asyncio.Event()
    watch.add(ended, lambda: calls.append("ended"))

    watch.remove(ended)
    watch.add(other, done.set)
    await asyncio.wait_for(done.wait(), LIMIT_S)

    assert calls == []


async def test_close_releases_every_descriptor(children: Start) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = ProcessWatch()
    seats = [_seat(children()) for _ in range(3)]
    with_children = len(os.listdir("/proc/self/fd"))
    for seat in seats:
        watch.add(seat, lambda: None)

    watch.close()

    assert len(os.listdir("/proc/self/fd")) == with_children >= before
