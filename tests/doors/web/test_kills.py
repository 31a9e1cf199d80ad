"""Both views stay open while the daemon is killed under load: they show every event once, in order."""

import asyncio
import re
import threading
from collections.abc import Iterator

import httpx2
import pytest
from tests.daemon.stage import Home, wait_until
from tests.doors.web.client import PageClient, bus_with_page
from tests.limits import LIMIT_S

import palaver

KILLS = 20
_MESSAGE = re.compile(rb"\d\d:\d\d #(\d+) luna to @luna: (.*)\n")


@pytest.fixture
def bus() -> Iterator[Home]:
    with bus_with_page() as home:
        yield home


class PlainView:
    """`pal ui --plain`, and the messages that it has printed."""

    def __init__(self, home: Home) -> None:
        self._process = home.start("ui", "--plain")
        self.messages: list[tuple[int, str]] = []
        self.other: list[bytes] = []
        self._line()  # the first line: from here on it misses nothing
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _read(self) -> None:
        while line := self._line():
            if (found := _MESSAGE.fullmatch(line)) is not None:
                self.messages.append((int(found[1]), found[2].decode()))
            else:
                self.other.append(line)

    @property
    def last(self) -> int:
        return self.messages[-1][0] if self.messages else 0

    def close(self) -> None:
        self._process.kill()
        self.reading.join(LIMIT_S)


class PageStream:
    """The stream of the page, opened again like a browser does it, and the events in it."""

    def __init__(self, client: PageClient) -> None:
        self._client = client
        self.last = 0
        self.first = 0
        self.seqs: list[int] = []
        self.faults: list[str] = []
        self.snapshots = 0
        self._is_over = False
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        while not self._is_over:
            try:
                self._read_once()
            except httpx2.TransportError:  # the daemon was killed
                wait_until(lambda: self._is_over or self._has_door())

    def _has_door(self) -> bool:
        try:
            return self._client.get("/").status_code == 200
        except httpx2.TransportError:
            return False

    def _read_once(self) -> None:
        again = {"Last-Event-ID": str(self.last)} if self.last else {}
        with self._client.events(**again) as records:
            for seq, kind, record in records:
                if kind == "snapshot":
                    self._begin(seq, is_continued=record.get("is_continued", False))
                elif record["after"] != self.last:
                    self.faults.append(f"{record['after']} follows {self.last}")
                if self.snapshots > 1 or kind != "snapshot":
                    self.seqs += [event["seq"] for event in record.get("events", ())]
                self.last = seq
                if self._is_over:
                    return

    def _begin(self, seq: int, *, is_continued: bool) -> None:
        self.snapshots += 1
        if self.snapshots == 1:
            self.first = seq
        elif not is_continued:
            self.faults.append(f"the snapshot at {seq} does not continue after {self.last}")

    def close(self) -> None:
        """End it with its next record."""
        self._is_over = True


async def test_both_views_have_no_gap_and_no_repeat_while_the_daemon_is_killed(bus: Home) -> None:
    client = PageClient(bus)
    assert (await asyncio.to_thread(client.sign_in)).status_code == 200
    page = PageStream(client)
    plain = await asyncio.to_thread(PlainView, bus)
    await asyncio.to_thread(wait_until, lambda: page.snapshots)
    sent: list[tuple[int, str]] = []
    is_over = False

    async def send_on() -> None:
        async with palaver.connect("luna", home=bus.path) as luna:
            while not is_over:
                texts = [f"text {len(sent) + step}" for step in range(10)]
                done = await asyncio.gather(*(luna.send("@luna", text) for text in texts))
                sent.extend((one.seq, text) for one, text in zip(done, texts, strict=True))
            sent.append(((await luna.send("@luna", "the end")).seq, "the end"))

    sending = asyncio.create_task(send_on())
    for _ in range(KILLS):
        goal = len(sent) + 20
        await asyncio.to_thread(wait_until, lambda goal=goal: len(sent) >= goal)
        seq = sent[goal - 1][0]
        await asyncio.to_thread(wait_until, lambda seq=seq: min(plain.last, page.last) >= seq)
        await asyncio.to_thread(bus.kill)
    is_over = True
    await sending
    end = sent[-1][0]
    await asyncio.to_thread(wait_until, lambda: min(plain.last, page.last) >= end)
    page.close()
    plain.close()

    assert plain.messages == sorted(sent)
    assert plain.other.count(b"The bus is back.\n") >= KILLS
    assert page.faults == []
    assert page.seqs == list(range(page.first + 1, page.seqs[-1] + 1))
    assert page.snapshots > KILLS
