from tests.app.chat.events import room_event

from palaver.app.chat import (
    ChatPage,
    happening,
)
from palaver.protocol.display import Paint
from palaver.protocol.query import RoomEvent


def _page(*, colour: bool = False) -> ChatPage:
    return ChatPage("human", Paint(colour, is_for_person=True), lambda ms: "12:03")


def _message(
    body: str, to: str | tuple[str, ...] | None = None, hint: str = "normal", sender: str = "luna"
) -> RoomEvent:
    return room_event("message_sent", sender, to, payload={"body": body, "delivery_hint": hint})


def test_message_shows_its_sender_and_recipients() -> None:
    page = _page()

    lines = [
        *page.lines(_message("hello"), 80),
        *page.lines(_message("look", to="human"), 80),
        *page.lines(_message("stop", to=("nova", "kira"), hint="interrupt", sender="human"), 80),
    ]

    assert lines == ["12:03 luna: hello", "12:03 luna → you: look", "12:03 ! you → nova, kira: stop"]


def test_colour_changes_nothing_but_colour() -> None:
    plain, painted = _page().lines(_message("hello"), 80), _page(colour=True).lines(_message("hello"), 80)

    assert painted != plain
    assert [
        line.replace("\x1b[2m", "").replace("\x1b[1m", "").replace("\x1b[0m", "") for line in painted
    ] == plain


def test_message_cannot_control_the_terminal_or_forge_a_line() -> None:
    lines = _page().lines(_message("a\x1b[2Jb\n12:04 human: yes"), 80)

    assert lines == ["12:03 luna: a␛[2Jb", "  12:04 human: yes"]


def test_room_event_is_shown_as_a_sentence() -> None:
    events = {
        "luna joined": room_event("member_joined", "luna"),
        "luna left (gone)": room_event("member_left", "luna", reason="gone"),
        "nova has the stick, turn 3": room_event("claim", to="nova", turn=3),
        "luna released the stick, nova is next": room_event("release", "luna", "nova"),
        "luna passed the stick to nova": room_event("pass", "luna", "nova"),
        "nova took over the stick from luna (owner_gone)": room_event(
            "takeover", "nova", "luna", reason="owner_gone"
        ),
        "nova did not take the stick; it goes to the next member": room_event(
            "reservation_expired", to="nova"
        ),
        "luna removed nova": room_event("kick", "luna", "nova"),
        "luna closed the room": room_event("close", "luna"),
        "luna added note 7f3q9x2m: CI has no libpq": room_event(
            "note_added", "luna", payload={"note": "01HX9Y000000000000007F3Q9X2M", "text": "CI has no libpq"}
        ),
        "luna resolved note 7f3q9x2m": room_event("note_resolved", "luna", payload={"note": "7f3q9x2m"}),
        "luna passed the stick to nova · handoff of turn 3: status: green, next: merge it": room_event(
            "pass",
            "luna",
            "nova",
            turn=3,
            handoff={"status": "green", "next_action": "merge it", "do_not": ["push"]},
        ),
        "build.done luna → nova, kira": room_event("build.done", "luna", ("nova", "kira")),
    }

    assert [happening(event, Paint(False)) for event in events.values()] == list(events)
