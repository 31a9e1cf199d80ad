"""Messages, marks and ledgers as lines."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from textual.content import Content

from palaver.app.ui.messages import (
    LIMIT_LOADED,
    Look,
    MessageLines,
    ledger_lines,
    mark_lines,
    message_lines,
    quoted,
)
from palaver.protocol.views import LedgerPage, LedgerStep, Mark, MessageRow, WaitReason

LOOK = Look(me="human", is_ascii=False, clock=lambda ms: "12:03")
PLAIN = Look(me="human", is_ascii=True, clock=lambda ms: "12:03")
BUSY = WaitReason(code="busy", text="kira is busy", moves="It is delivered when kira is idle.")


def _message(seq: int = 1, text: str = "hello", **fields: object) -> MessageRow:
    return msgspec.convert(
        {"seq": seq, "id": f"id{seq}", "ts": 1, "sender": "luna", "text": text, **fields}, MessageRow
    )


def _texts(lines: list[Content]) -> list[str]:
    return [line.plain for line in lines]


def test_message_shows_sender_recipients_quote_text_and_marks() -> None:
    row = _message(
        412,
        "look\nhere",
        to=["@human", "@nova"],
        intent="request",
        priority="high",
        thread="pr-1",
        reply_to=410,
        quote="what is\nred?",
        marks=[Mark(name="human", state="seen"), Mark(name="nova", state="queued", reason=BUSY)],
    )

    assert _texts(message_lines(row, LOOK, 80)) == [
        "12:03 luna → you, @nova  #412  request  high  thread pr-1",
        "  │ #410 what is",
        "  look",
        "  here",
        "  ✓ seen: you",
        "  ○ waiting: nova: kira is busy",
        "",
    ]


def test_drawing_without_utf8_is_ascii() -> None:
    row = _message(
        reply_to=1,
        is_cut=True,
        to=["@nova"],
        marks=[Mark(name="nova", state=state) for state in ("seen", "held")],
    )

    assert all(text.isascii() for text in _texts(message_lines(row, PLAIN, 30)))


def test_final_marks_share_a_line_and_waiting_ones_have_reasons() -> None:
    seen = [Mark(name=f"a{number}", state="seen") for number in range(10_000)]
    waiting = [Mark(name=f"b{number}", state="held", reason=BUSY) for number in range(6)]

    lines = _texts(mark_lines([*seen, *waiting], LOOK, 80))

    assert lines[0] == "  ✓ seen: a0, a1, a2, a3 and 9,996 more"
    assert lines[1] == "  ‖ held: b0: kira is busy"
    assert lines[-1] == "  2 more recipients wait; Enter shows each"
    assert len(lines) == 6


def test_foreign_text_cannot_control_the_terminal_or_use_markup() -> None:
    row = _message(text="[b]x[/b] \x1b[2J \u202e", quote="\x1b]0;x\x07", reply_to=1, to=["<img src=x>"])

    lines = _texts(message_lines(row, LOOK, 200))

    assert lines[1] == "  │ #1 ␛]0;x␇"
    assert lines[2] == "  [b]x[/b] ␛[2J \\u202e"
    assert "\x1b" not in _texts(message_lines(_message(intent="\x1b[2J", priority="\x1b"), LOOK, 200))[0]


@given(st.text(max_size=300), st.integers(4, 100))
def test_every_line_of_a_message_fits(text: str, width: int) -> None:
    lines = message_lines(_message(text=text, to=["nova"], reply_to=1, quote=text), LOOK, width)

    assert all(line.cell_length <= max(width, 2) for line in lines)
    assert not any("\n" in line.plain for line in lines)


def test_ledger_shows_each_step_with_time_lane_evidence_and_reason() -> None:
    receipts = {
        "receipts": [
            {"name": "nova", "state": "seen"},
            {"name": "kira", "state": "queued", "wait": BUSY},
            {"name": "kira", "session": "mon", "state": "refused", "reason": "it has no session"},
        ]
    }
    steps = (
        LedgerStep(seq=5, ts=1, name="nova", state="queued"),
        LedgerStep(seq=6, ts=2, name="kira", state="held", reason="3 messages in 10 s", by="system"),
        LedgerStep(seq=7, ts=3, name="nova", state="seen", lane="codex", grade="transcript"),
    )
    raw = msgspec.Raw(msgspec.json.encode(receipts))
    page = LedgerPage(seq=7, message=_message(5), receipts=raw, steps=steps)

    lines = _texts(ledger_lines(page, LOOK, lambda ms: f"t{ms}", 80))

    assert lines[3:] == [
        "nova  ✓ seen",
        "  t1  waiting",
        "  t3  seen  lane codex  evidence transcript",
        "",
        "kira  ○ waiting",
        "  t2  held  by system: 3 messages in 10 s",
        "  Why: kira is busy [busy]",
        "  Next: It is delivered when kira is idle.",
        "",
        "kira (session mon)  ✗ refused",
        "  Why: it has no session",
        "",
    ]


def test_ledger_of_a_message_to_thousands_counts_the_others() -> None:
    receipts = {"receipts": [{"name": f"a{number}", "state": "seen"} for number in range(3000)]}
    raw = msgspec.Raw(msgspec.json.encode(receipts))
    page = LedgerPage(seq=7, message=_message(5), receipts=raw)

    lines = _texts(ledger_lines(page, LOOK, str, 80))

    assert "a499  ✓ seen" in lines
    assert lines[-1] == "and 2,500 more; `pal receipts 5` prints all"


def test_quote_is_short() -> None:
    assert quoted("a\nb") == "> a\n> b\n"
    assert quoted("\n".join("abcdefg")).endswith("> e\n> ...\n")


def _loaded(*seqs: int) -> MessageLines:
    lines = MessageLines(LOOK, width=40)
    lines.replace([_message(seq) for seq in seqs], has_older=True, has_newer=False)
    return lines


def test_lines_of_a_message_have_its_key_and_can_be_found() -> None:
    lines = _loaded(3, 7)

    assert lines.total == 6
    assert [lines.key(index) for index in range(-1, 7)] == ["", "3", "3", "3", "7", "7", "7", ""]
    assert [lines.find(key) for key in ("3", "7", "5", "x")] == [0, 3, -1, -1]
    assert [row.seq for row in lines.between(2, 3)] == [3, 7]
    assert lines.row(6, 40) is None


def test_older_and_newer_messages_are_added_once() -> None:
    lines = _loaded(5, 6)

    lines.prepend([_message(seq) for seq in (3, 4, 5)], has_older=False)
    lines.append([_message(seq) for seq in (6, 7)], has_newer=False)

    assert [row.seq for row in lines.rows] == [3, 4, 5, 6, 7]
    assert not lines.has_older


def test_messages_far_from_the_reader_are_dropped() -> None:
    lines = _loaded(*range(1000, 1000 + LIMIT_LOADED))

    lines.prepend([_message(seq) for seq in range(900, 1000)], has_older=True)
    assert (lines.rows[0].seq, len(lines.rows), lines.has_newer) == (900, LIMIT_LOADED, True)

    newest = lines.rows[-1].seq
    lines.append([_message(seq) for seq in range(newest + 1, newest + 101)], has_newer=False)
    assert (lines.rows[-1].seq, len(lines.rows), lines.has_older) == (newest + 100, LIMIT_LOADED, True)


def test_changed_marks_and_another_width_lay_messages_out_again() -> None:
    lines = _loaded(1, 2)

    assert lines.update([_message(1, marks=[Mark(name="nova", state="seen")]), _message(9)])
    assert not lines.update([_message(2)])
    assert (lines.total, lines.find("2")) == (7, 4)

    lines.fit(11)
    assert lines.total > 7
