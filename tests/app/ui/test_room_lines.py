"""A room as lines."""

from palaver.app.ui.messages import Look
from palaver.app.ui.rooms import RoomLines, is_running, room_line, stick_text, time_left
from palaver.protocol.views import RoomHandoff, RoomMember, RoomNote, RoomPage, RoomRow, RoomTask

LOOK = Look(me="human", is_ascii=False, clock=lambda ms: "12:03")
ROOM = RoomRow(
    id="shop-x4kd",
    name="shop",
    path="/home/ada/shop",
    stick="owned",
    owner="luna",
    lease_until=300_000,
    members=3,
    present=2,
)


def test_time_left_runs_down_and_then_up() -> None:
    assert time_left(298_000, 0) == "4:58 left"
    assert time_left(298_001, 1_000) == "4:58 left"
    assert time_left(3_723_000, 0) == "1:02:03 left"
    assert time_left(0, 30_000) == "over for 0:30"


def test_stick_is_described_with_its_time() -> None:
    reserved = RoomRow(id="a", name="a", path="", stick="reserved", reserved_for="nova", claim_until=60_000)

    assert stick_text(ROOM, LOOK, 0) == "luna has the stick, lease 5:00 left"
    assert stick_text(reserved, LOOK, 0) == "reserved for nova, 1:00 left to take it"
    assert stick_text(RoomRow(id="a", name="a", path="", stick="idle"), LOOK, 0) == "the stick is free"
    assert stick_text(RoomRow(id="a", name="a", path="", stick="closed"), LOOK, 0) == "the room is closed"
    assert is_running(ROOM)
    assert is_running(reserved)
    assert not is_running(RoomRow(id="a", name="a", path="", stick="idle"))
    assert room_line(ROOM, LOOK, 80, 0).plain == "shop  2 of 3 here  luna has the stick, lease 5:00 left"


def test_room_shows_members_handoffs_tasks_and_notes() -> None:
    now = 0
    page = RoomPage(
        seq=9,
        row=ROOM,
        turn=7,
        members=(
            RoomMember(name="luna", state="active", is_present=True, is_owner=True, last_turn=7),
            RoomMember(name="nova", state="idle", is_present=True, is_waiting=True, rank=1),
            RoomMember(name="kira"),
        ),
        handoffs=(
            RoomHandoff(
                seq=8, ts=1, sender="nova", to="luna", handoff={"status": "red", "do_not": ["push", "merge"]}
            ),
        ),
        is_handoff_open=True,
        notes=(RoomNote(id="n1", ts=1, sender="nova", text="the port is 80", is_resolved=True),),
        tasks=(RoomTask(id="t", number=3, title="fix it", status="open", assignee="kira"),),
    )
    lines = RoomLines(page, LOOK, lambda: now)

    def shown() -> list[str]:
        return [row.plain for index in range(lines.total) if (row := lines.row(index, 80)) is not None]

    assert shown() == [
        "shop  /home/ada/shop",
        "luna has the stick, lease 5:00 left, turn 7",
        "",
        "Members: 2 of 3 here",
        "  luna  has the stick, active, last turn 7",
        "  nova  number 1 in the waiting line, idle",
        "  kira  away",
        "",
        "Handoffs: 1",
        "  #8 12:03 nova → luna  waits for the next owner",
        "    status: red",
        "    do not: push",
        "    do not: merge",
        "",
        "Tasks: 1",
        "  Task 3 (open, kira): fix it",
        "",
        "Notes: 1",
        "  12:03 nova (resolved): the port is 80",
    ]
    now = 299_000
    assert shown()[1] == "luna has the stick, lease 0:01 left, turn 7"


def test_room_with_thousands_of_members_draws_only_what_is_shown() -> None:
    members = tuple(RoomMember(name=f"a{number}", is_present=True) for number in range(10_000))
    lines = RoomLines(RoomPage(seq=1, row=ROOM, members=members), LOOK, lambda: 0)

    shown = lines.row(5_004, 80)

    assert lines.total > 10_000
    assert shown is not None
    assert shown.plain.startswith("  a5000 ")
    assert lines.find("5004") == 5_004
    assert lines.row(lines.total, 80) is None
