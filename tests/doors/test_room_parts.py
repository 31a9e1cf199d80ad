"""Parts that all room tools share: the length of waits, and the record of shown messages."""

from pathlib import Path

import pytest
from tests.doors.room_stage import opened_stage
from tests.fakes import SCRIPT

from palaver.protocol.query import Query
from palaver.services.results import EventPage


@pytest.mark.parametrize(
    ("asked_ms", "limit_ms", "wait_ms"),
    [
        (None, 50_000, 50_000),
        (None, 999_999, 110_000),
        (None, None, None),
        (5, 50_000, 5),
        (-5, 50_000, 0),
        (60_000, 50_000, 50_000),
        (999_999, None, 999_999),
        (-5, None, 0),
    ],
)
async def test_wait_lasts_as_requested_within_the_limit_of_the_caller(
    tmp_path: Path, asked_ms: int | None, limit_ms: int | None, wait_ms: int | None
) -> None:
    async with opened_stage(tmp_path) as stage:
        assert stage.rendered.wait_ms(asked_ms, limit_ms) == wait_ms


async def test_page_records_as_shown_only_messages_to_the_reader(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        sent = await stage.rendered.send_message(luna, room_id="work", body="look")
        events, room = await stage.log.read(Query(rooms=(stage.room().id,))), stage.room()

        for asking in (luna, nova, SCRIPT):
            page = stage.rendered.page_of(asking, room, events, 0)

        seq = int(str(sent["event_seq"]))
        assert page.cursor_event_seq == seq
        assert [stage.book.shown.has(name, room.id, seq) for name in ("luna", "nova", "script")] == [
            False,
            True,
            False,
        ]


async def test_empty_page_keeps_its_starting_cursor(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        [luna] = await stage.seat(tmp_path / "work", "luna")

        assert stage.rendered.page_of(luna, stage.room(), [], 7) == EventPage(events=(), cursor_event_seq=7)
