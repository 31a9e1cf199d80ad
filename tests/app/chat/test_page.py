from tests.app.chat.events import room_event

from palaver.app.chat import (
    Bottom,
    ChatMember,
    ChatPage,
    ChatState,
    happening,
    marks_line,
    stick_line,
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


def test_bottom_erases_as_many_lines_as_it_drew() -> None:
    bottom = Bottom()

    drawn = bottom.draw(["a mark", "", "the stick is free"], "> hi", 4, 10)

    assert drawn == "a mark\r\nthe stick…\r\n> hi\r\x1b[4C"
    assert bottom.erase(10) == "\r\x1b[2A\x1b[J"
    assert bottom.erase(10) == ""


def test_narrower_terminal_shows_the_bottom_in_more_rows() -> None:
    bottom = Bottom()
    bottom.draw(["twenty columns it has", "ten of them"], "> a longer line", 15, 30)

    # Three rows and two, and the cursor is in the second row of its line.
    assert bottom.erase(8) == "\r\x1b[6A\x1b[J"


def test_lines_above_the_input_are_painted_after_they_are_cut() -> None:
    drawn = Bottom().draw(["the stick is free"], "> ", 2, 10, lambda text: f"<dim>{text}</dim>")

    assert drawn == "<dim>the stick…</dim>\r\n> \r\x1b[2C"


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


def test_delivery_marks_are_shown_in_words() -> None:
    assert marks_line(42, {"luna": "seen", "nova": "queued"}) == "#42 luna seen · nova waiting"
    assert marks_line(42, {}) == ""


def test_stick_is_described_in_one_line() -> None:
    members = (ChatMember(agent_id="luna", present=True), ChatMember(agent_id="nova"))
    owned = ChatState(owner_agent_id="luna", members=members)

    assert stick_line(owned) == "luna has the stick · 1 of 2 here"
    assert stick_line(ChatState(reserved_for="nova")) == "the stick is reserved for nova · 0 of 0 here"
    assert stick_line(ChatState(room_state="closed")) == "the room is closed · 0 of 0 here"
    assert stick_line(ChatState()) == "the stick is free · 0 of 0 here"
