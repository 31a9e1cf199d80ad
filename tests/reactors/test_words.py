"""The text of a subscription notice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.envelope import Event
from palaver.protocol.events import Filter
from palaver.protocol.subscriptions import Subscription
from palaver.protocol.text import check_text
from palaver.reactors.subscriptions import LIMIT_EXCERPT, collision_text, hit_text

SUB = Subscription(id="a1b2c3", owner="luna", filter=Filter())


def event(type: str, to: tuple[str, ...] = (), **payload: object) -> Event:
    return Event(seq=57, id="id", type=type, sender="nova", to=to, ts=0, device="TEST", payload=payload)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (event("status", state="idle"), "status nova: idle"),
        (event("status", state="idle", file="src/x.py"), "status nova: idle (in src/x.py)"),
        (
            event("status", state="active", detail="tests", tool="Bash", file="x"),
            "status nova: active (tests, Bash, in x)",
        ),
        (event("agent.hello", runtime="claude"), "agent.hello nova: joined (claude)"),
        (event("agent.bye", reason="left"), "agent.bye nova: left (left)"),
        (event("life", action="stopped", name="nova", reason="left"), "life nova: stopped (left)"),
        (
            event("delivery", agent="kira", state="seen", messages=[4, 5], lane="recv"),
            "delivery nova: seen #4, #5 (recv)",
        ),
        (
            event("delivery", messages=None),
            "delivery nova: (the content cannot be read: it is damaged, or a newer version of Palaver wrote "
            "it; 'pal show 57 --json' prints it)",
        ),
        (event("message", ("@kira",), text="two\nlines"), "message nova → @kira: two lines"),
        (event("build.done", ok=True), 'build.done nova: {"ok":true}'),
    ],
)
def test_notice_describes_the_event_on_one_line(happened: Event, expected: str) -> None:
    assert hit_text(SUB, happened) == f"[sub a1b2c3] #57 {expected}"


def test_text_of_the_owner_is_appended() -> None:
    made = Subscription(id="a1b2c3", owner="luna", filter=Filter(), text="look at it")

    assert hit_text(made, event("status", state="idle")) == "[sub a1b2c3] #57 status nova: idle — look at it"


def test_collision_names_all_agents_and_the_file() -> None:
    text = collision_text(SUB, event("status"), ("nova", "luna", "kira"), "src/x.py")

    assert text == "[sub a1b2c3] #57 collision: luna, kira and nova edited src/x.py"


def test_long_text_is_cut() -> None:
    text = hit_text(SUB, event("message", text="x" * 1000))

    assert text.endswith("x…")
    assert len(text) == len("[sub a1b2c3] ") + LIMIT_EXCERPT


@given(st.sampled_from(["message", "status", "delivery", "odd\x1btype"]), st.text(st.characters()))
def test_notice_of_any_event_is_valid_text(type: str, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    notice = hit_text(SUB, event(type, (text,), text=text, state=text, file=text, messages=[text]))

    check_text(notice)
    assert "\n" not in notice
