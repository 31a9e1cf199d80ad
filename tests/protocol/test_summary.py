"""Short summaries of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.envelope import Event
from palaver.protocol.summary import summary


def event(type_: str, **payload: object) -> Event:
    return Event(seq=7, id="id", type=type_, sender="nova", to=(), ts=1, device="BOXE", payload=dict(payload))


FILE = {"path": "a", "size": 1, "sha256": "x", "content": "a"}
UNREADABLE = (
    "(the content cannot be read: it is damaged, or a newer version of Palaver wrote it; "
    "'pal show 7 --json' prints it)"
)
TURN: dict[str, object] = {"room": "talk-x7qa", "turn_id": 2, "lease_id": "l", "until": 7}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (event("message", text="hello"), "hello"),
        (event("message", text="", command="run", payload={"a": 1}), 'run {"a":1}'),
        (event("org.deploy", ok=True), '{"ok":true}'),
        (event("status", state="active", detail="tests", file="a.py"), "active (tests, in a.py)"),
        (event("status", state="idle"), "idle"),
        (event("agent.hello", runtime="claude", version="2"), "joined (claude, 2)"),
        (event("agent.bye", reason="its process ended"), "left (its process ended)"),
        (event("life", action="daemon_started", version="0.1.0"), "daemon_started (0.1.0)"),
        (event("life", action="typed", agent="luna", text="blue"), "typed (blue)"),
        (event("agent.paused", agent="luna"), "luna"),
        (
            event("delivery", agent="nova", state="seen", messages=[3, 4], lane="recv", grade="flushed"),
            "seen #3, #4 (recv, flushed)",
        ),
        (event("delivery", state="seen", messages="odd"), UNREADABLE),
        (event("kick"), UNREADABLE),
        (event("message", text=5), "(cannot be read: text)"),
        (event("message", text="hello", thread=5), "hello"),
        (event("status", state=["new"], tool="Bash"), "? (Bash) (cannot be read: state)"),
        (event("agent.paused", agent=5), "? (cannot be read: agent)"),
        (event("life", agent=[]), "? (cannot be read: agent)"),
        (event("org.deploy", room=5), '{"room":5}'),
        (event("permission.asked", permission="p1", tool="Bash", text="ls"), "p1 (Bash, ls)"),
        (
            event("permission.answered", permission="p1", decision="allow", agent="luna", reason="by kira"),
            "p1 (allow, for luna, by kira)",
        ),
        (event("permission.answered", permission="p1", decision="deny"), "p1 (deny)"),
        (
            event("bundle", bundle_id="bundle:9561pk99", title="Review", files=[FILE, FILE]),
            "bundle:9561pk99 Review, 2 files",
        ),
        (
            event(
                "sub.added",
                id="a1b2c3",
                owner="luna",
                filter={"types": ["status", "life"], "agents": ["nova"]},
                once=True,
                preset="idle",
            ),
            "a1b2c3 for luna (idle, types status life, agents nova, once)",
        ),
        (event("sub.added", id="a1b2c3", owner="luna", filter={}), "a1b2c3 for luna"),
        (
            event("sub.added", id="a1b2c3", owner="luna", filter="odd"),
            "a1b2c3 for luna (cannot be read: filter)",
        ),
        (event("sub.removed", id="a1b2c3", reason="by luna"), "a1b2c3 (by luna)"),
        (event("redacted", event=5), "the text of #5"),
        (event("message", text="", command="run", payload=[]), "run []"),
        (event("path.subscribed", agent="luna", pattern="ci/**"), "ci/** (for luna)"),
        (
            event("path.unsubscribed", agent="luna", pattern="ci/*", session="mon"),
            "ci/* (for luna (session mon))",
        ),
        (
            event("session.created", agent="luna", session="mon", title="Builds", harness_session="s1"),
            "mon (of luna, Builds, s1)",
        ),
        (event("session.removed", agent="luna", session="mon"), "mon (of luna)"),
        (event("dead.cleared", up_to=7), "up to #7"),
        (
            event("delivery", agent="luna+mon", state="seen", messages=[3], lane="recv", grade="flushed"),
            "seen #3 (session mon, recv, flushed)",
        ),
        (event("task.create", title="t", assignee="@nova"), "task 7: t (for @nova)"),
        (event("task.create", title="t", description="long"), "task 7: t"),
        (
            event("task.update", task_id="e1", status="open", assignee="kira"),
            "task e1 is now open, is now for kira",
        ),
        (event("task.complete", task_id="e1", task_seq=3, summary="done"), "task 3 is completed: done"),
        (event("member_joined", room="talk-x7qa", base="talk", path="/src", name="talk"), "talk-x7qa (/src)"),
        (
            event("member_left", room="talk-x7qa", reason="inactive", **{"from": "kira"}),
            "talk-x7qa (kira, inactive)",
        ),
        (event("close", room="talk-x7qa", reason="done"), "talk-x7qa (done)"),
        (event("note_added", room="talk-x7qa", note="n", text="beware"), "note n in talk-x7qa: beware"),
        (event("note_resolved", room="talk-x7qa", note="01H"), "note 01h in talk-x7qa is resolved"),
        (event("claim", **TURN | {"from": None}, reason="sequence"), "talk-x7qa (turn 2, sequence)"),
        (
            event("pass", room="talk-x7qa", turn_id=2, reserved_for="kira", handoff={"status": "tests pass"}),
            "handoff of turn 2 in talk-x7qa for kira: tests pass",
        ),
        (
            event("takeover", **TURN, cause="owner_gone", reason="went"),
            "talk-x7qa (turn 2, owner_gone, went)",
        ),
        (event("release", room="r", turn_id=3, handoff={}), "r (turn 3)"),
        (event("release", room="r", turn_id="x"), UNREADABLE),
        (
            event("release", room="r", turn_id=3, reason="harness_gone", **{"from": "vega"}),
            "r (turn 3, held by vega, harness_gone)",
        ),
        (event("setting.changed", key="stale_after", value=0, old=1800), "stale_after = 0 (was 1800)"),
        (event("setting.changed", key="hints", value="x", old=None), "hints = x"),
        (event("setting.changed", key="tag", value="x", old=None, agent="luna"), "luna: tag = x"),
        (
            event("setting.changed", key="irc_verbosity", value="full", old="minimal", channel="#a"),
            "#a: irc_verbosity = full (was minimal)",
        ),
        (event("setting.changed", key="topic", value="x", old="", channel="#a"), "#a: topic = x"),
        (
            event("setting.changed", key="autoRun", value=True, old=None, agent="luna", session="mon"),
            "luna+mon: autoRun = True",
        ),
        (
            event("auto-turn", agent="luna", session="mon", messages=[1, 2, 3, 4, 5, 6], attempt=2),
            "session mon: 6 messages (#1, #2, #3, #4, #5, …) (try 2)",
        ),
        (
            event("auto-turn", agent="luna", session="main", messages=[1], attempt=1, started_by="script"),
            "session main: 1 message (#1) (started by script)",
        ),
        (event("auto-turn", agent="luna", session="main", attempt=1), "session main: no messages"),
        (
            event("auto-turn-result", agent="luna", session="mon", turn=9, text="done"),
            "session mon, turn #9: done",
        ),
        (event("auto-turn-result", agent="luna", session="mon", turn=9), "session mon, turn #9: (no text)"),
        (
            event("auto-turn-error", agent="luna", session="m", turn=9, error="exit 1", attempt=3, held=True),
            "session m, turn #9: exit 1 (its messages are held)",
        ),
        (
            event("turn.skipped", agent="luna", session="mon", messages=[4], reason="triage"),
            "session mon: 1 message (#4), by the triage",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else one.type,
)
def test_event_has_a_short_summary(given: Event, words: str) -> None:
    assert summary(given) == words


@given(
    st.sampled_from(
        [
            *("status", "agent.hello", "agent.bye", "life", "delivery", "message", "org.x", "bundle"),
            *("sub.added", "sub.removed", "setting.changed", "task.create", "task.update", "task.complete"),
            *("member_joined", "claim", "release", "note_added", "auto-turn", "auto-turn-error"),
            *("path.subscribed", "path.unsubscribed", "session.created", "session.removed", "dead.cleared"),
        ]
    ),
    st.dictionaries(
        st.sampled_from(
            [
                "state",
                "messages",
                "text",
                "reason",
                "runtime",
                "action",
                "file",
                "filter",
                "files",
                "old",
                "handoff",
            ]
        ),
        st.none()
        | st.integers()
        | st.text()
        | st.lists(st.integers())
        | st.dictionaries(st.text(), st.text()),
    ),
)
def test_any_payload_has_a_summary(type_: str, payload: dict[str, object]) -> None:
    assert isinstance(summary(event(type_, **payload)), str)
