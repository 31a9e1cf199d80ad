"""Rooms, turns and notes in text for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import msgspec
import pytest
from tests.fakes import FakeClock, nowhere

from palaver.doors.cli.call import Call
from palaver.doors.cli.rooms import (
    join_lines,
    lease_lines,
    not_yet_line,
    note_lines,
    room_table,
    state_lines,
    turn_lines,
)
from palaver.doors.cli.spec import Command, Parsed, build_table
from palaver.doors.thin import ArgvConnection
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.display import display_width
from palaver.protocol.thin import ThinRequest
from palaver.services.results import DeniedTurn, GrantedTurn, NoteView, PolicyView, RoomLine, RoomView
from palaver.services.services import Services

NOW = 1_700_000_000_000  # 22:13:20 UTC
NOTHING = Command(path=(), summary="x", is_group=True)
MINUTE = 60_000
HANDOFF: dict[str, object] = {"status": "parser done", "next_action": "wire it in", "do_not": ["publish"]}


@dataclass(frozen=True, slots=True)
class OnlyAClock:
    """The part of the daemon that a page needs."""

    clock: FakeClock


def call(*, width: int = 80, is_terminal: bool = True) -> Call:
    asked = ThinRequest(
        key=b"k" * 16,
        version="0",
        argv=(),
        cwd="/",
        environment={"TZ": "UTC", "NO_COLOR": "1"},
        stdin_is_terminal=False,
        stdout_is_terminal=is_terminal,
        stderr_is_terminal=False,
        width=width,
    )
    return Call(
        services=cast(Services, OnlyAClock(FakeClock(NOW))),
        connection=cast(ArgvConnection, None),
        asked=asked,
        parsed=Parsed(command=NOTHING),
        anchor_of=nowhere,
        caller=Caller(name="luna", standing=Standing.WORKER, kind="instance"),
        table=build_table(NOTHING, ()),
    )


def stick(**fields: object) -> dict[str, object]:
    view: dict[str, object] = {
        "room_id": "talk-x7qa",
        "room_state": "idle",
        "turn_id": 0,
        "owner_agent_id": None,
        "lease_expires_at": None,
        "reserved_for": None,
        "claim_expires_at": None,
        "conditions": [],
    }
    return {**view, **fields}


def owned(**fields: object) -> dict[str, object]:
    view = stick(room_state="owned", turn_id=7, owner_agent_id="nova", lease_expires_at=NOW + 33 * MINUTE)
    return {**view, **fields}


def member(name: str, **fields: object) -> dict[str, object]:
    view: dict[str, object] = {
        "agent_id": name,
        "harness": None,
        "status": "active",
        "present": True,
        "state": "idle",
        "waiting": False,
        "parked": False,
        "is_owner": False,
        "joined_at": NOW,
        "last_seen_at": None,
        "last_turn_id": None,
    }
    return {**view, **fields}


def room(view: Mapping[str, object]) -> RoomView:
    usual: dict[str, object] = {
        "name": "talk",
        "canonical_path": "/src/talk",
        "created_at": NOW,
        "closed_at": None,
        "prior_owner_agent_id": None,
        "pending_handoff": None,
        "members": [],
        "policy": dict.fromkeys(PolicyView.__struct_fields__, 0),
        "agent_id": "luna",
        "cursor_event_seq": 0,
    }
    return msgspec.convert({**stick(), **usual, **view}, RoomView)


def line(view: Mapping[str, object]) -> RoomLine:
    usual = {"name": "talk", "created_at": NOW, "closed_at": None}
    return msgspec.convert({**usual, **view}, RoomLine)


def turn(**fields: object) -> GrantedTurn:
    usual: dict[str, object] = {
        "status": "your_turn",
        "reason": None,
        "room_id": "talk-x7qa",
        "turn_id": 8,
        "lease_id": "lease",
        "lease_expires_at": NOW + 45 * MINUTE,
        "heartbeat_interval_ms": MINUTE,
        "handoff": None,
        "from_agent_id": None,
    }
    return msgspec.convert({**usual, **fields}, GrantedTurn)


def test_join_shows_room_path_members_and_warning() -> None:
    answer: dict[str, object] = {
        "room_id": "talk-x7qa",
        "canonical_path": "/src/talk",
        "members": [member("luna"), member("nova")],
        "warning": "Joined ancestor room",
    }

    assert list(join_lines(call(), room(answer))) == [
        "you are in talk-x7qa, the room of /src/talk",
        "members: luna, nova",
        "Joined ancestor room",
    ]


def test_join_of_an_observer_can_show_no_members() -> None:
    answer: dict[str, object] = {"room_id": "talk-x7qa", "canonical_path": "/src/talk", "members": []}

    assert list(join_lines(call(), room(answer)))[1:] == ["members: none"]


def test_room_table_shows_the_stick_and_marks_own_rooms() -> None:
    counts: dict[str, object] = {"canonical_path": "/src/talk", "member_count": 3, "present_count": 2}
    rooms = [
        {**owned(conditions=["owner_idle"]), **counts, "is_member": True},
        {**stick(reserved_for="kira", room_state="reserved"), **counts, "is_member": False},
        {**stick(room_state="closed"), **counts, "is_member": False},
        {**stick(conditions=["dormant"]), **counts, "is_member": False},
    ]

    assert room_table(call(), list(map(line, rooms))) == [
        "   ROOM       HERE  STICK              PATH",
        "*  talk-x7qa   2/3  nova (owner_idle)  /src/talk",
        "   talk-x7qa   2/3  for kira           /src/talk",
        "   talk-x7qa   2/3  closed             /src/talk",
        "   talk-x7qa   2/3  idle (dormant)     /src/talk",
        "* you are a member",
    ]


def test_empty_room_table_says_how_to_open_a_room() -> None:
    assert room_table(call(), []) == ["there is no room; 'pal room join' opens one for the working directory"]


def test_rooms_of_others_need_no_legend() -> None:
    other = {**stick(), "canonical_path": "/x", "member_count": 1, "present_count": 0, "is_member": False}

    assert len(room_table(call(), [line(other)])) == 2


def test_room_page_shows_stick_conditions_members_and_handoff() -> None:
    answer = {
        **owned(lease_expires_at=NOW - 2 * MINUTE, conditions=["stale_owner", "something_new"]),
        "canonical_path": "/src/talk",
        "members": [
            member("luna", harness="claude", waiting=True, last_turn_id=6),
            member("nova", is_owner=True, state="active", last_turn_id=7),
            member("kira", waiting=True, parked=True, state=None),
            member("mila", status="gone"),
        ],
        "pending_handoff": {"from_agent_id": "nova", "event_seq": 5, "handoff": HANDOFF},
    }

    assert list(state_lines(call(), room(answer))) == [
        "talk-x7qa  /src/talk",
        "nova owns the stick: turn 7, lease over since 22:11:20 (2m ago)",
        "the owner's lease has expired: 'pal stick takeover' is possible",
        "something_new",
        "",
        "MEMBER  HARNESS  STATUS  STICK   LAST TURN",
        "luna    claude   idle    waits           6",
        "nova    -        active  has it          7",
        "kira    -        here    parked          -",
        "mila    -        gone    -               -",
        "",
        "handoff #5 by nova for the next owner:",
        "  status:    parser done",
        "  next:      wire it in",
        "  do not:    publish",
    ]


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (stick(), "the stick is free"),
        (stick(turn_id=3), "the stick is free; 3 turns so far"),
        (stick(turn_id=1), "the stick is free; 1 turn so far"),
        (stick(room_state="closed"), "the room is closed"),
        (owned(), "nova owns the stick: turn 7, lease until 22:46:20 (in 33m)"),
        (
            stick(room_state="reserved", reserved_for="kira", claim_expires_at=NOW + 20 * MINUTE),
            "the stick is reserved for kira until 22:33:20 (in 20m)",
        ),
    ],
)
def test_room_page_says_where_the_stick_is(view: dict[str, object], sentence: str) -> None:
    answer: dict[str, object] = {**view, "canonical_path": "/src/talk", "members": []}

    assert list(state_lines(call(), room(answer))) == ["talk-x7qa  /src/talk", sentence]


@pytest.mark.parametrize(
    ("fields", "head"),
    [
        ({"reason": "open_claim"}, "it is your turn: turn 8 in talk-x7qa"),
        (
            {"reason": "direct_pass", "from_agent_id": "nova"},
            "it is your turn: turn 8 in talk-x7qa, passed by nova",
        ),
        ({"reason": "sequence", "from_agent_id": "nova"}, "it is your turn: turn 8 in talk-x7qa, after nova"),
        ({"reason": "sequence"}, "it is your turn: turn 8 in talk-x7qa"),
        ({"reason": "already_owner"}, "it is your turn: turn 8 in talk-x7qa, you already own it"),
        (
            {"reason": "owner_gone", "revoked": "kira"},
            "it is your turn: turn 8 in talk-x7qa, taken from kira",
        ),
    ],
)
def test_turn_shows_how_it_was_obtained(fields: dict[str, object], head: str) -> None:
    assert list(turn_lines(call(), turn(**fields))) == [
        head,
        "your lease runs until 22:58:20 (in 45m) and is renewed while you work",
    ]


def test_turn_shows_the_handoff_before_the_lease() -> None:
    mine = turn(lease_expires_at=NOW, handoff=HANDOFF)

    lines = list(turn_lines(call(), mine))

    assert lines[1:-1] == ["  status:    parser done", "  next:      wire it in", "  do not:    publish"]
    assert lines[-1:] == list(lease_lines(call(), mine))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            {**stick(room_state="closed"), "status": "closed"},
            "talk-x7qa is closed; 'pal room join' opens a new room",
        ),
        (
            {**owned(), "status": "takeover_available", "reason": "owner_gone"},
            "nova owns the stick, but has exited; to take it, run 'pal stick takeover --reason TEXT'",
        ),
        (
            {**owned(), "status": "takeover_available", "reason": "owner_timeout"},
            "nova owns the stick, but its lease has expired; "
            "to take it, run 'pal stick takeover --reason TEXT'",
        ),
        (
            {**stick(reserved_for="kira"), "status": "takeover_available", "reason": "claim_timeout"},
            "kira did not claim the stick; to take it, run 'pal stick takeover --reason TEXT'",
        ),
        (
            {**stick(), "status": "takeover_available", "reason": "new_reason"},
            "the owner can lose the stick; to take it, run 'pal stick takeover --reason TEXT'",
        ),
        (
            {**owned(), "status": "not_yet", "reason": None},
            "not yet: nova owns the stick: turn 7, lease until 22:46:20 (in 33m)",
        ),
        (
            {**stick(), "status": "not_yet", "reason": "others_first", "hint": "kira is before you in line."},
            "not yet: the stick is free. kira is before you in line.",
        ),
    ],
)
def test_refused_turn_shows_the_reason(answer: dict[str, object], sentence: str) -> None:
    assert not_yet_line(call(), msgspec.convert({"reason": None, **answer}, DeniedTurn)) == sentence


def note(**fields: object) -> NoteView:
    view: dict[str, object] = {
        "note_id": "01HX9Y0000000000007F3Q9X2M",
        "room_id": "talk-x7qa",
        "turn_id": None,
        "event_seq": 4,
        "resolved_at": None,
        "resolved_by_agent_id": None,
        "author_agent_id": "luna",
        "body": "no libpq\nuse the wheel",
        "created_at": NOW - 2 * MINUTE,
    }
    return msgspec.convert({**view, **fields}, NoteView)


def test_notes_show_author_time_and_who_resolved_them() -> None:
    notes = [note(), note(turn_id=3, resolved_at=NOW - MINUTE, resolved_by_agent_id="nova", body="x")]

    assert list(note_lines(call(), notes)) == [
        "7f3q9x2m luna, 2m ago",
        "  no libpq",
        "  use the wheel",
        "7f3q9x2m luna, 2m ago, turn 3, resolved by nova 1m ago",
        "  x",
    ]


def test_empty_note_list_says_how_to_add_a_note() -> None:
    assert list(note_lines(call(), [])) == ["no notes; 'pal note add TEXT' adds one"]


@pytest.mark.parametrize("width", [40, 80])
def test_long_note_is_wrapped_only_on_a_terminal(width: int) -> None:
    body = "word " * 60

    shown = list(note_lines(call(width=width), [note(body=body)]))
    elsewhere = list(note_lines(call(is_terminal=False), [note(body=body)]))

    assert max(map(display_width, shown)) <= width
    assert elsewhere[1] == f"  {body}"


def test_text_from_others_cannot_control_the_terminal() -> None:
    evil = "\x1b[2J"
    answer = {
        **owned(owner_agent_id=evil, room_id=evil, conditions=[evil]),
        "canonical_path": evil,
        "members": [member(evil, harness=evil, state=evil)],
        "pending_handoff": {"from_agent_id": evil, "event_seq": 5, "handoff": {evil: evil}},
    }

    lines = [
        *state_lines(call(), room(answer)),
        *note_lines(call(), [note(body=evil, author_agent_id=evil)]),
    ]

    assert not any("\x1b" in line for line in lines)


def test_sentences_wrap_between_words_in_a_narrow_terminal() -> None:
    answer: dict[str, object] = {**owned(), "canonical_path": "/src/talk", "members": []}

    assert list(state_lines(call(width=40), room(answer)))[1:] == [
        "nova owns the stick: turn 7, lease until",
        "22:46:20 (in 33m)",
    ]
