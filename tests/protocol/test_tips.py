"""One-time tips."""

from typing import Any

import pytest

from palaver.protocol.agent_text import TIPS, tips_for
from palaver.protocol.envelope import Event


def message(*, seq: int = 42, type: str = "message", **payload: Any) -> Event:
    return Event(seq=seq, id="i", type=type, sender="luna", to=(), ts=0, device="D", payload=payload)


@pytest.mark.parametrize(
    ("payload", "name", "sentence"),
    [
        ({"intent": "request"}, "request", "answer with: pal send --reply-to 42 -- …"),
        (
            {"scope": "broadcast"},
            "broadcast",
            "this went to everyone; to answer only its sender: pal send --reply-to 42 -- …",
        ),
        ({"thread": "pr 1"}, "thread", "the whole thread: pal thread show 'pr 1'"),
    ],
)
def test_each_kind_of_message_has_its_tip(payload: dict[str, Any], name: str, sentence: str) -> None:
    assert tips_for([message(**payload)], ()) == {name: sentence}


def test_task_has_its_tip() -> None:
    assert tips_for([message(type="task.create", title="t")], ()) == {
        "task": "report the status: pal task update 42 --status in_progress, then pal task complete 42"
    }


def test_tip_is_about_the_first_message_that_needs_it() -> None:
    found = tips_for([message(seq=7, intent="request"), message(seq=8, intent="request", thread="t")], ())

    assert "--reply-to 7 " in found["request"]
    assert list(found) == ["request", "thread"]


def test_shown_tip_is_not_shown_again() -> None:
    events = [message(intent="request", scope="broadcast", thread="t")]

    assert tips_for(events, TIPS) == {}
    assert list(tips_for(events, {"request"})) == ["broadcast", "thread"]


@pytest.mark.parametrize(
    "event",
    [
        message(intent="inform", scope="mentions"),
        message(sender_kind="system", intent="request"),
        message(type="x", thread="t"),
    ],
)
def test_other_messages_have_no_tip(event: Event) -> None:
    assert tips_for([event], ()) == {}
