"""The state that follows from OpenCode's events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.base import AgentReport
from palaver.harness.opencode.integration import Sessions
from palaver.harness.opencode.wire import (
    OpenCodeEvent,
    ReplySettings,
    event_from_bytes,
    events_in_messages,
    json_from_bytes,
    manner_of,
    prompt_body,
)
from palaver.protocol.events import AgentState

IDLE = AgentReport(state=AgentState.IDLE)
THINKING = AgentReport(state=AgentState.ACTIVE, detail="thinking")


def created(name: str, parent: str = "", **more: object) -> OpenCodeEvent:
    info: dict[str, object] = {"id": name, "time": {"created": 5, "updated": 7}, **more}
    return OpenCodeEvent("session.created", {"info": {**info, "parentID": parent} if parent else info})


def status(session: str, kind: str, **more: object) -> OpenCodeEvent:
    return OpenCodeEvent("session.status", {"sessionID": session, "status": {"type": kind, **more}})


def user(session: str, name: str, **more: object) -> OpenCodeEvent:
    return OpenCodeEvent(
        "message.updated", {"sessionID": session, "info": {"id": name, "role": "user", **more}}
    )


def assistant(session: str, name: str, parent: str) -> OpenCodeEvent:
    info = {"id": name, "role": "assistant", "parentID": parent}
    return OpenCodeEvent("message.updated", {"sessionID": session, "info": info})


def part(session: str, message: str, kind: str, **more: object) -> OpenCodeEvent:
    found = {"id": f"prt_{message}", "messageID": message, "type": kind, **more}
    return OpenCodeEvent("message.part.updated", {"sessionID": session, "part": found})


def ours(session: str, message: str, key: str) -> OpenCodeEvent:
    return part(session, message, "text", text="hello", metadata={"palaver": key})


def running(session: str, tool: str, **given: object) -> OpenCodeEvent:
    return part(session, "msg_2", "tool", tool=tool, state={"status": "running", "input": given})


def asked(session: str, name: str = "per_1") -> OpenCodeEvent:
    about = {"id": name, "sessionID": session, "permission": "edit", "patterns": ["f.txt"]}
    return OpenCodeEvent("permission.asked", {**about, "metadata": {"filepath": "/x/f.txt"}})


def heard(*events: OpenCodeEvent) -> Sessions:
    sessions = Sessions()
    for one in events:
        sessions.hear(one)
    return sessions


def test_agent_without_a_session_is_idle_and_reachable() -> None:
    sessions = Sessions(ReplySettings(agent="plan"))

    assert sessions.word == IDLE
    assert sessions.level.gate.is_open
    assert sessions.manner == ReplySettings(agent="plan")


def test_session_is_active_from_busy_to_idle() -> None:
    sessions = heard(created("a"), status("a", "busy"))

    assert sessions.word == THINKING
    assert sessions.level.gate.is_open

    sessions.hear(OpenCodeEvent("session.idle", {"sessionID": "a"}))

    assert sessions.word == IDLE


def test_tool_reports_its_command_and_the_file_that_it_changes() -> None:
    sessions = heard(created("a"), status("a", "busy"), running("a", "bash", command="make\ntest"))

    assert sessions.word.command == "make test"
    assert sessions.word.detail == "bash: make test"

    sessions.hear(running("a", "edit", filePath="/x/y.py"))

    assert (sessions.word.tool, sessions.word.file) == ("edit", "/x/y.py")

    sessions.hear(running("a", "read", filePath="/x/y.py"))

    assert (sessions.word.tool, sessions.word.file) == ("read", "")

    sessions.hear(part("a", "msg_2", "tool", tool="read", state={"status": "completed"}))

    assert sessions.word == THINKING


def test_permission_request_closes_the_lane_until_it_is_answered() -> None:
    sessions = heard(created("a"), status("a", "busy"), asked("a"))

    assert sessions.word == AgentReport(state=AgentState.BLOCKED, detail="permission: edit: /x/f.txt")
    assert (sessions.level.gate.is_open, sessions.level.gate.reason) == (False, "dialog")

    sessions.hear(OpenCodeEvent("permission.replied", {"sessionID": "a", "requestID": "per_1"}))

    assert sessions.word == THINKING
    assert sessions.level.gate.is_open


def test_question_is_a_dialog_too() -> None:
    about = {"id": "que_1", "sessionID": "a", "questions": [{"question": "Which one?"}]}
    sessions = heard(created("a"), status("a", "busy"), OpenCodeEvent("question.asked", about))

    assert sessions.word.detail == "question: Which one?"

    sessions.hear(OpenCodeEvent("question.rejected", {"sessionID": "a", "requestID": "que_1"}))

    assert sessions.word == THINKING


def test_request_of_a_subagent_blocks_its_parent_but_its_work_does_not() -> None:
    sessions = heard(created("a"), status("a", "busy"), created("b", "a"), status("b", "busy"))
    sessions.hear(running("b", "edit", filePath="/x/y.py"))

    assert sessions.current == "a"
    assert sessions.word == THINKING
    assert sessions.word_of("b").file == "/x/y.py"

    sessions.hear(asked("b"))

    assert sessions.word == sessions.word_of("b")
    assert sessions.word.state is AgentState.BLOCKED
    assert sessions.level_of("b").gate.reason == sessions.level.gate.reason == "dialog"
    assert list(sessions.permissions()) == ["per_1"]


def test_permission_request_is_shown_only_with_the_input_of_its_tool() -> None:
    call = {"messageID": "msg_2", "callID": "call_1"}
    about = {"id": "per_1", "sessionID": "a", "permission": "mail_send", "patterns": ["*"], "metadata": {}}
    sessions = heard(
        created("a"), status("a", "busy"), OpenCodeEvent("permission.asked", {**about, "tool": call})
    )

    assert sessions.word.detail == "permission: mail_send"
    assert not sessions.permissions()
    assert sessions.asking() == {"a"}

    state = {"status": "running", "input": {"to": "boss", "text": "I quit"}}
    sessions.hear(part("a", "msg_2", "tool", callID="call_1", tool="mail_send", state=state))

    (shown,) = sessions.permissions().values()
    assert shown.given == {"patterns": ["*"], "input": {"to": "boss", "text": "I quit"}}


def test_request_without_a_call_needs_its_own_details() -> None:
    about = {"sessionID": "a", "permission": "doom_loop", "patterns": ["bash"]}
    request = {**about, "id": "per_2", "metadata": {"tool": "bash", "input": {"command": "ls"}}}

    sessions = heard(created("a"), OpenCodeEvent("permission.asked", {**about, "id": "per_1"}))
    sessions.hear(OpenCodeEvent("permission.asked", request))

    assert list(sessions.permissions()) == ["per_2"]


def test_subagent_is_alive_while_its_session_is_busy() -> None:
    sessions = heard(created("a"), created("c", "b", agent="deep"), created("b", "a", agent="general"))

    assert sessions.children() == {}

    for name in "cb":
        sessions.hear(status(name, "busy"))

    assert list(sessions.children().items()) == [("b", ("a", "general")), ("c", ("b", "deep"))]

    sessions.hear(OpenCodeEvent("session.idle", {"sessionID": "b"}))

    assert list(sessions.children()) == ["c"]


def test_fixed_session_stays_the_session_of_the_agent() -> None:
    sessions = Sessions(only="a")

    for event in (created("a"), created("b"), user("b", "msg_1"), status("b", "busy")):
        sessions.hear(event)
    sessions.choose("b")

    assert sessions.current == "a"
    assert sessions.word == IDLE


def test_other_session_of_the_same_process_changes_nothing() -> None:
    sessions = heard(created("a"), created("b"), status("a", "busy"), asked("a"))

    assert sessions.current == "b"
    assert sessions.word == IDLE
    assert sessions.level.gate.is_open


def test_session_that_a_person_writes_in_belongs_to_the_agent() -> None:
    sessions = heard(created("a"), created("b"), user("a", "msg_1"))

    assert sessions.current == "a"

    sessions.hear(OpenCodeEvent("tui.session.select", {"sessionID": "b"}))

    assert sessions.current == "b"

    sessions.hear(user("a", "msg_1", summary={"diffs": []}))

    assert sessions.current == "b"

    sessions.hear(OpenCodeEvent("session.deleted", {"sessionID": "b"}))

    assert sessions.current == ""


def test_text_is_seen_when_the_model_replies_to_it() -> None:
    sessions = heard(
        created("a"), user("a", "msg_1"), ours("a", "msg_1", "k"), assistant("a", "msg_2", "msg_1")
    )

    assert sessions.has_text("k")
    assert sessions.take_seen() == frozenset()

    sessions.hear(part("a", "msg_2", "step-start"))

    assert sessions.take_seen() == {"k"}
    assert sessions.take_seen() == frozenset()
    assert not sessions.has_text("k")


def test_reply_to_an_earlier_text_does_not_confirm_a_later_one() -> None:
    sessions = heard(created("a"), user("a", "msg_1"), assistant("a", "msg_2", "msg_1"))
    sessions.hear(ours("a", "msg_3", "k"))

    sessions.hear(part("a", "msg_2", "step-start"))
    sessions.hear(part("a", "msg_2", "text"))

    assert sessions.take_seen() == frozenset()

    sessions.hear(assistant("a", "msg_4", "msg_3"))
    sessions.hear(part("a", "msg_4", "patch"))

    assert sessions.take_seen() == frozenset()

    sessions.hear(part("a", "msg_4", "reasoning"))

    assert sessions.take_seen() == {"k"}


def test_reply_in_another_session_confirms_nothing() -> None:
    sessions = heard(created("a"), created("b"), ours("a", "msg_1", "k"), assistant("b", "msg_9", "msg_8"))

    sessions.hear(part("b", "msg_9", "step-start"))

    assert sessions.take_seen() == frozenset()


def test_missed_messages_are_processed_like_events() -> None:
    sessions = heard(created("a"))
    found = [
        {
            "info": {"id": "msg_1", "role": "user", "sessionID": "a"},
            "parts": [{"type": "text", "messageID": "msg_1", "metadata": {"palaver": "k"}}],
        },
        {
            "info": {"id": "msg_2", "role": "assistant", "sessionID": "a", "parentID": "msg_1"},
            "parts": [{"type": "step-start", "messageID": "msg_2"}],
        },
    ]

    for event in events_in_messages(found):
        sessions.hear(event)

    assert sessions.take_seen() == {"k"}


def test_compaction_closes_the_lane() -> None:
    sessions = heard(created("a"), status("a", "busy"), part("a", "msg_1", "compaction"))

    assert sessions.word.detail == "compacting"
    assert sessions.level.gate.reason == "compacting"

    sessions.hear(OpenCodeEvent("session.compacted", {"sessionID": "a"}))

    assert sessions.level.gate.is_open


def test_usage_limit_is_distinguished_from_a_temporary_error() -> None:
    sessions = heard(created("a"), status("a", "retry", message="the line was cut"))

    assert sessions.word == AgentReport(state=AgentState.ACTIVE, detail="tries again: the line was cut")
    assert sessions.level.gate.is_open

    sessions.hear(status("a", "retry", message="You've hit your weekly usage limit"))

    assert sessions.word == AgentReport(state=AgentState.BLOCKED, detail="usage limit")
    assert sessions.level.gate.reason == "usage_limit"

    sessions.hear(status("a", "busy"))

    assert sessions.word == THINKING


def failed(session: str, name: str = "APIError", **data: object) -> OpenCodeEvent:
    return OpenCodeEvent("session.error", {"sessionID": session, "error": {"name": name, "data": data}})


def test_usage_limit_that_ended_a_turn_ends_at_its_reset_time() -> None:
    sessions = heard(created("a"), status("a", "busy"))
    quota = failed("a", message="insufficient_quota", responseHeaders={"retry-after": "60"})

    sessions.hear(quota, 1_000_000)
    sessions.hear(status("a", "idle"))
    sessions.limit_over(1_059_999)

    assert sessions.word == AgentReport(
        state=AgentState.BLOCKED, detail="usage limit, resets Jan 1, 1970 00:18 (UTC)"
    )
    assert sessions.limit_ends_ms() == 1_060_000

    sessions.limit_over(1_060_000)

    assert sessions.word == IDLE
    assert sessions.limit_ends_ms() == 0


def test_failed_turn_is_reported_and_its_texts_stay_unread() -> None:
    sessions = heard(created("a"), user("a", "msg_1"), ours("a", "msg_1", "k"), status("a", "busy"))

    sessions.hear(failed("a", message="bad thing"))
    sessions.hear(status("a", "idle"))

    assert sessions.word == AgentReport(state=AgentState.IDLE, detail="error: bad thing")
    assert sessions.level.gate.is_open
    assert sessions.has_stopped("a")

    sessions.hear(ours("a", "msg_2", "later"))

    assert not sessions.has_stopped("a")


def test_turn_aborted_by_a_person_has_no_error() -> None:
    sessions = heard(created("a"), status("a", "busy"), failed("a", "MessageAbortedError"))
    sessions.hear(status("a", "idle"))

    assert sessions.word == IDLE
    assert sessions.has_stopped("a")


def test_context_overflow_does_not_stop_the_session() -> None:
    sessions = heard(created("a"), status("a", "busy"), failed("a", "ContextOverflowError"))

    assert sessions.word == THINKING
    assert not sessions.has_stopped("a")


def test_complete_listing_replaces_the_missed_events() -> None:
    sessions = Sessions()
    sessions.listed(
        [{"id": "a", "time": {"created": 1, "updated": 9}}, {"id": "b", "time": {"updated": 5}}, 7]
    )
    sessions.listed([{"id": "c", "parentID": "a", "time": {"created": 30, "updated": 30}}])
    sessions.choose(sessions.newest(3))
    sessions.statuses({"a": {"type": "busy"}})
    sessions.questions([asked("a").about], is_permission=True)

    assert sessions.current == "a"
    assert sessions.word.state is AgentState.BLOCKED

    sessions.questions([], is_permission=True)
    sessions.questions([], is_permission=False)

    assert sessions.word == THINKING

    sessions.statuses({})

    assert sessions.word == IDLE


def test_newest_session_is_not_older_than_requested() -> None:
    sessions = heard(created("a"))

    assert sessions.newest(7) == "a"
    assert sessions.newest(8) == ""
    assert sessions.newest(5, by_creation=True) == "a"
    assert sessions.newest(6, by_creation=True) == ""
    assert Sessions().newest(0) == ""


def test_text_uses_the_agent_and_model_of_its_session() -> None:
    info = {"agent": "plan", "model": {"providerID": "p", "modelID": "m", "variant": "high"}}
    sessions = heard(created("a"), user("a", "msg_1", **info))

    assert sessions.manner == ReplySettings(agent="plan", provider="p", model="m", variant="high")
    assert json_from_bytes(prompt_body("hi", "k", sessions.manner)) == {
        "parts": [{"type": "text", "text": "hi", "metadata": {"palaver": "k"}}],
        "agent": "plan",
        "model": {"providerID": "p", "modelID": "m"},
        "variant": "high",
    }


def test_session_info_has_another_key_for_the_model() -> None:
    assert manner_of({"model": {"providerID": "p", "id": "m", "variant": "default"}}) == ReplySettings(
        provider="p", model="m"
    )


WORDS = st.sampled_from(
    [
        "id",
        "sessionID",
        "info",
        "part",
        "type",
        "role",
        "parentID",
        "messageID",
        "state",
        "status",
        "metadata",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(WORDS, some, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(
        st.builds(
            OpenCodeEvent,
            st.sampled_from(
                ["session.created", "message.updated", "message.part.updated", "permission.asked"]
            ),
            st.dictionaries(WORDS, JSON, max_size=4),
        ),
        max_size=6,
    )
)
def test_any_sequence_of_events_is_safe(words: list[OpenCodeEvent]) -> None:
    sessions = heard(created("a"), *words)

    assert sessions.word.state in AgentState
    assert isinstance(sessions.level.gate.is_open, bool)


@pytest.mark.parametrize("data", [b"", b"7", b"{}", b'{"type": 4}', b"\xff"])
def test_invalid_event_is_ignored(data: bytes) -> None:
    assert event_from_bytes(data) is None
