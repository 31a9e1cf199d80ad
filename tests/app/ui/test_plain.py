"""`pal ui --plain`: the bus as lines."""

from palaver.app.ui.start import PlainLines
from palaver.client.view_link import BusAway
from palaver.protocol.display import Paint
from palaver.protocol.views import Action, AgentRow, Attention, Changes, Counts, EventRow, Snapshot

ASKS = Attention(
    key="request/42",
    kind="request",
    who="nova",
    what="which\nport?",
    since=1,
    why="nova expects a reply.",
    actions=(Action(word="reply", command=("pal", "send", "--reply-to", "42")),),
)


def _lines() -> PlainLines:
    return PlainLines(Paint(colour=False, is_for_person=True), lambda ms: "12:03")


def _snapshot(*attention: Attention, continued: bool = False, events: tuple[EventRow, ...] = ()) -> Snapshot:
    counts = Counts(agents={"active": 2, "idle": 0}, attention=len(attention), unread=1)
    agents = (AgentRow(name="luna", state="idle", since=1, seq=1),)
    return Snapshot(
        epoch="e", seq=5, now=1, me="human", device="BOXE", version="1", counts=counts, attention=attention,
        agents=agents, agents_total=1, is_continued=continued, events=events,
    )  # fmt: skip


def _agent(state: str, waits_for: str = "") -> Changes:
    row = AgentRow(name="luna", state=state, since=1, seq=6, waits_for=waits_for)
    return Changes(after=5, seq=6, agents=(row,))


def _message(seq: int, text: str) -> EventRow:
    return EventRow(seq=seq, ts=1, type="message", sender="nova", to=("@human",), text=text)


def test_snapshot_is_a_summary_and_the_open_entries() -> None:
    assert list(_lines().lines(_snapshot(ASKS), 0)) == [
        "Agents: 2 active. Open attention: 1. Unread messages: 1.",
        "Attention: request, nova: which port? nova expects a reply. [pal send --reply-to 42]",
    ]


def test_changes_are_printed_once() -> None:
    plain = _lines()
    list(plain.lines(_snapshot(), 0))
    change = Changes(
        after=5,
        seq=7,
        events=(_message(6, "a\x1b[2J\nb"), EventRow(seq=7, ts=1, type="status", sender="luna")),
        attention=(ASKS,),
    )

    assert list(plain.lines(change, 0)) == [
        "12:03 #6 nova to @human: a␛[2J b",
        "Attention: request, nova: which port? nova expects a reply. [pal send --reply-to 42]",
    ]
    assert list(plain.lines(Changes(after=7, seq=7, attention=(ASKS,)), 0)) == []
    assert list(plain.lines(Changes(after=7, seq=8, settled=("request/42", "held/1")), 0)) == [
        "Done: request, nova: which port?"
    ]


def test_state_is_printed_at_most_once_a_second_and_the_last_is_kept() -> None:
    plain = _lines()
    list(plain.lines(_snapshot(), 0))

    assert list(plain.lines(_agent("active"), 0)) == ["luna is active"]
    assert list(plain.lines(_agent("idle"), 100)) == []
    assert list(plain.lines(_agent("blocked", waits_for="a permission"), 200)) == []
    assert plain.next_ms == 1000
    assert list(plain.late_lines(1000)) == ["luna is blocked and waits for a permission"]
    assert list(plain.lines(_agent("idle"), 1100)) == []
    assert list(plain.lines(_agent("blocked", waits_for="a permission"), 1200)) == []
    assert plain.next_ms is None


def test_away_and_back_are_said_once_and_nothing_is_missed() -> None:
    plain = _lines()
    list(plain.lines(_snapshot(ASKS), 0))

    assert list(plain.lines(BusAway(), 0)) == ["The bus is not reachable; reconnecting."]
    assert list(plain.lines(BusAway(), 0)) == []
    upgrading = [plain.lines(BusAway(upgraded=percent), 0) for percent in (3, 9, 40)]
    assert [line for lines in upgrading for line in lines] == [
        "The bus is upgrading its log (3 %).",
        "The bus is upgrading its log (40 %).",
    ]
    assert list(plain.lines(_snapshot(continued=True, events=(_message(9, "late"),)), 0)) == [
        "The bus is back.",
        "12:03 #9 nova to @human: late",
        "Agents: 2 active. Open attention: 0. Unread messages: 1.",
        "Done: request, nova: which port?",
    ]


def test_agent_that_has_ended_is_named_as_on_the_screens() -> None:
    plain = _lines()
    list(plain.lines(_snapshot(), 0))
    left = AgentRow(name="luna", state="exited", since=1, seq=7, has_left=True)

    assert list(plain.lines(_agent("exited"), 0)) == ["luna has exited"]
    assert list(plain.lines(Changes(after=6, seq=7, agents=(left,)), 2000)) == ["luna has left"]
