"""Notes last, are bounded, and are resolved once."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.broker.scene import Scene
from tests.fakes import HUMAN, Bus

from palaver.errors import InvalidCursor
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.requests import AddNote, Claim, CloseRoom, ResolveNote
from palaver.state.rooms import Note, read_note, read_notes

FILE = Path(__file__).parents[1] / "vectors" / "rooms_and_stick.json"
IDS = {case["id"] for case in json.loads(FILE.read_text(encoding="utf-8"))["notes"]}


@pytest.fixture
async def scene(bus: Bus) -> Scene:
    made = Scene(bus)
    await made.join("ann", "bob")
    return made


async def add(scene: Scene, name: str, text: str, **fields: int) -> Note:
    event = await scene.written(name, AddNote(room=scene.id, text=text, **fields))
    note = read_note(scene.bus.log.rows, scene.id, event.id)
    assert note is not None
    return note


def test_every_vector_is_tested_here() -> None:
    assert {"note-1", "note-3", "note-5", "note-7", "note-9", "note-11", "note-13"} == IDS


async def test_note_1_note_is_stored_without_surrounding_blanks(scene: Scene) -> None:
    note = await add(scene, "ann", "  hi  ")

    assert (note.text, note.turn_id, note.by, note.is_open) == ("hi", None, "ann", True)


async def test_note_3_note_over_its_limit_is_refused(scene: Scene) -> None:
    assert await scene.refused("ann", AddNote(room=scene.id, text="x" * 16_385)) == "body_too_large"
    assert len((await add(scene, "ann", "x" * 16_384)).text) == 16_384


async def test_note_5_note_may_refer_to_turn_0(scene: Scene) -> None:
    assert (await add(scene, "ann", "x", turn=0)).turn_id == 0
    assert await scene.refused("ann", AddNote(room=scene.id, text="x", turn=-1)) == "bad_request"


async def test_note_about_a_turn_that_does_not_exist_is_refused(scene: Scene) -> None:
    await scene.bus.broker.submit(scene.callers["ann"], Claim(room=scene.id))

    assert (await add(scene, "bob", "x", turn=1)).turn_id == 1
    assert await scene.refused("bob", AddNote(room=scene.id, text="x", turn=2)) == "not_found"


async def test_note_7_caller_outside_the_room_cannot_write_notes(scene: Scene) -> None:
    scene.callers["eve"] = await scene.bus.join("eve")
    note = await add(scene, "ann", "x")

    assert await scene.refused("eve", AddNote(room=scene.id, text="x")) == "unknown_member"
    assert await scene.refused("eve", ResolveNote(room=scene.id, note=note.id)) == "unknown_member"


async def test_note_9_and_11_list_continues_after_a_note_and_has_at_least_one(
    scene: Scene,
) -> None:
    first, second = await add(scene, "ann", "a"), await add(scene, "bob", "b")
    rows = scene.bus.log.rows

    assert read_notes(rows, scene.id, limit=0) == [first]
    assert read_notes(rows, scene.id, after=first.id) == [second]
    with pytest.raises(InvalidCursor) as error:
        read_notes(rows, scene.id, after="unknown")

    assert error.value.details == {"after_note_id": "unknown"}


async def test_note_13_note_is_resolved_once_by_any_member(scene: Scene) -> None:
    note = await add(scene, "ann", "x")
    asked = ResolveNote(room=scene.id, note=note.id[-8:].lower())

    first, *rest = await asyncio.gather(*(scene.ask(name, asked) for name in ("bob", "ann", "bob")))
    again = await scene.ask("ann", asked)

    events = [outcome.event for outcome in (first, *rest)]  # type: ignore[union-attr]  # written
    assert [event is None for event in events].count(False) == 1
    assert again.event is None  # type: ignore[union-attr]
    assert read_notes(scene.bus.log.rows, scene.id) == []
    (done,) = read_notes(scene.bus.log.rows, scene.id, include_resolved=True)
    assert (done.resolved_by, done.resolved_ms) == ("bob", scene.now_ms)


async def test_human_and_guests_may_write_without_being_members(scene: Scene) -> None:
    guest = Caller(name="guest1", standing=Standing.GUEST, kind="external")

    for who in (HUMAN, guest):
        written = await scene.bus.submit(who, AddNote(room=scene.id, text="look"))

        assert written is not None


async def test_invalid_note_is_refused(scene: Scene) -> None:
    note = await add(scene, "ann", "x")

    assert await scene.refused("ann", AddNote(room=scene.id, text=" ")) == "invalid_body"
    assert await scene.refused("ann", AddNote(room="none", text="x")) == "room_not_found"
    assert await scene.refused("ann", ResolveNote(room=scene.id, note="none")) == "not_found"
    await scene.written("", CloseRoom(room=scene.id))
    assert await scene.refused("ann", AddNote(room=scene.id, text="x")) == "room_closed"
    assert await scene.refused("ann", ResolveNote(room=scene.id, note=note.id)) == "room_closed"
