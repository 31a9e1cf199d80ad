"""Threads of an app-server combined into one state: the agent's thread counts, and no input can break it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.codex.threads import CodexMessage, CodexThread, CodexTurn, ThreadNews, Threads
from palaver.protocol.events import AgentState

IDLE: dict[str, object] = {"type": "idle"}
ACTIVE: dict[str, object] = {"type": "active", "activeFlags": []}
ASKING: dict[str, object] = {"type": "active", "activeFlags": ["waitingOnApproval"]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
METHODS = st.sampled_from(
    [
        "thread/started",
        "thread/status/changed",
        "thread/closed",
        "turn/started",
        "turn/completed",
        "item/started",
        "item/completed",
        "serverRequest/resolved",
        "account/rateLimits/updated",
        "item/commandExecution/requestApproval",
        "thread/goal/cleared",
    ]
)
PARAMS = st.fixed_dictionaries(
    {"threadId": st.sampled_from(["one", "two", "", 7])},
    optional=dict.fromkeys(("status", "turn", "item", "thread", "rateLimits", "requestId"), JSON),
)


def threads(*names: str) -> Threads:
    found = Threads()
    for name in names or ("one",):
        found.found(CodexThread(id=name, status=IDLE))
    return found


def say(
    found: Threads, method: str, thread: str = "one", number: int | None = None, **params: Any
) -> ThreadNews:
    return found.hear(CodexMessage(id=number, method=method, params={"threadId": thread, **params}))


def begin(found: Threads, thread: str = "one", turn: str = "turn-1") -> None:
    say(found, "thread/status/changed", thread, status=ACTIVE)
    say(found, "turn/started", thread, turn={"id": turn})


def test_gate_is_closed_before_there_is_a_thread() -> None:
    found = Threads()

    assert found.word.state is AgentState.STARTING
    assert (found.level.gate.is_open, found.level.gate.reason) == (False, "starting")
    assert (found.turn, found.is_busy, found.is_limited) == ("", False, False)


def test_idle_thread_is_open() -> None:
    found = threads()

    assert found.word.state is AgentState.IDLE
    assert found.level.gate.is_open
    assert not found.level.is_paused


def test_only_interrupts_pass_while_the_model_is_thinking() -> None:
    found = threads()

    begin(found)

    assert (found.word.state, found.word.detail) == (AgentState.ACTIVE, "thinking")
    assert (found.level.gate.is_open, found.level.is_paused) == (True, True)
    assert found.turn == "turn-1"


def test_all_messages_pass_while_a_tool_runs() -> None:
    found = threads()
    begin(found)

    say(found, "item/started", item={"id": "a", "type": "commandExecution", "command": "make"})

    assert (found.word.tool, found.word.command) == ("Bash", "make")
    assert (found.level.gate.is_open, found.level.is_paused) == (True, False)

    say(found, "item/completed", item={"id": "a", "type": "commandExecution"})

    assert found.level.is_paused


def test_dialog_closes_the_gate_and_shows_its_question() -> None:
    found = threads()
    begin(found)

    say(found, "thread/status/changed", status=ASKING)
    say(found, "item/commandExecution/requestApproval", number=0, command="/bin/bash -lc 'rm -r x'")

    assert (found.word.state, found.word.detail) == (AgentState.BLOCKED, "permission: rm -r x")
    assert (found.level.gate.is_open, found.level.gate.reason) == (False, "dialog")

    say(found, "serverRequest/resolved", requestId=0)

    assert found.word.detail == "permission"

    say(found, "thread/status/changed", status=ACTIVE)

    assert found.word.state is AgentState.ACTIVE


def test_question_blocks_too() -> None:
    found = threads()

    say(found, "thread/status/changed", status={"type": "active", "activeFlags": ["waitingOnUserInput"]})

    assert found.word.detail == "question"
    assert found.level.gate.reason == "dialog"


def test_compaction_closes_the_gate() -> None:
    found = threads()
    begin(found)

    say(found, "item/started", item={"id": "c", "type": "contextCompaction"})

    assert found.word.detail == "compacting"
    assert found.level.gate.reason == "compacting"


def test_own_text_in_the_thread_is_seen() -> None:
    found = threads()
    begin(found)

    heard = say(found, "item/started", item={"id": "u", "type": "userMessage", "clientId": "key"})

    assert heard.seen == {"key"}


def test_text_is_seen_in_the_thread_that_contains_it() -> None:
    found = threads("two", "one")

    heard = say(found, "item/started", "two", item={"id": "u", "type": "userMessage", "clientId": "key"})

    assert heard.seen == {"key"}
    assert heard.thread == "two"


def below(name: str, parent: str = "one", role: str | None = "explorer") -> CodexThread:
    source = {"subAgent": {"thread_spawn": {"depth": 1, "parent_thread_id": parent}}}
    return CodexThread(id=name, parent_thread_id=parent, agent_role=role, source=source, status=IDLE)


def test_subagent_belongs_to_the_thread_that_started_it() -> None:
    found = threads()

    assert not found.found(below("sub"))
    assert not found.found(below("deeper", "sub", None))
    begin(found, "sub", "turn-2")

    assert found.current == "one"
    assert found.subagents() == {"sub": ("one", "explorer"), "deeper": ("sub", "")}
    assert (found.turn_in("sub"), found.word_of("sub").state) == ("turn-2", AgentState.ACTIVE)
    assert found.word.state is AgentState.IDLE


def test_closed_thread_removes_its_subagents() -> None:
    found = threads()
    found.found(below("sub"))
    found.found(below("deeper", "sub"))

    say(found, "thread/closed", "sub")

    assert found.subagents() == {}
    assert found.current == "one"
    assert not found.has("deeper")


def test_closed_subagent_returns_when_it_is_loaded_again() -> None:
    found = threads()
    found.found(below("sub"))

    say(found, "thread/status/changed", "sub", status={"type": "notLoaded"})
    closed = found.subagents()
    say(found, "thread/status/changed", "sub", status=IDLE)

    assert (closed, list(found.subagents())) == ({}, ["sub"])


def test_turn_shown_after_its_end_starts_nothing() -> None:
    found = threads()
    begin(found)
    say(found, "thread/status/changed", status=IDLE)
    say(found, "turn/completed", turn={"id": "turn-1"})
    shown = CodexTurn(id="turn-1", status="inProgress", items=[{"type": "userMessage", "clientId": "key"}])

    heard = found.begun(shown)

    assert heard.seen == {"key"}
    assert heard.ended == "turn-1"
    assert found.word.state is AgentState.IDLE
    assert found.has_ended(shown)


def test_review_and_subagent_of_an_unknown_thread_are_ignored() -> None:
    found = threads()

    found.found(CodexThread(id="review", parent_thread_id="one", source={"subAgent": "review"}, status=IDLE))
    found.found(below("lost", "elsewhere"))

    assert found.subagents() == {}


def test_refused_thread_is_not_read_again_until_a_turn_begins() -> None:
    found = threads()
    assert say(found, "item/agentMessage/delta", "two").stranger == "two"

    found.refused("two")

    assert say(found, "item/agentMessage/delta", "two").stranger == ""
    assert say(found, "turn/started", "two").stranger == "two"
    found.found(CodexThread(id="two", status=IDLE))
    assert found.has("two")


def test_closed_thread_is_forgotten() -> None:
    found = threads()
    found.found(CodexThread(id="title", ephemeral=True, status=IDLE))
    found.refused("two")
    assert say(found, "item/started", "title").stranger == ""

    assert say(found, "thread/closed", "title") == say(found, "thread/closed", "two") == ThreadNews()

    assert say(found, "item/started", "title").stranger == "title"
    assert say(found, "item/started", "two").stranger == "two"


def test_only_the_named_thread_belongs_to_the_agent() -> None:
    found = Threads("one")
    for name in ("one", "two"):
        found.found(CodexThread(id=name, status=IDLE))

    begin(found, "two")

    assert found.current == "one"
    assert found.word.state is AgentState.IDLE


def test_question_about_a_change_contains_the_change() -> None:
    found = threads()
    begin(found)
    change = {"id": "i", "type": "fileChange", "changes": [{"path": "/a.py"}, {"path": "/b.py"}]}

    heard = say(found, "item/started", item=change)
    say(found, "thread/status/changed", status=ASKING)
    say(found, "item/fileChange/requestApproval", number=3, itemId="i")

    (asked,) = found.questions().values()
    assert [word.file for word in heard.edits] == ["/b.py"]
    assert (asked.tool, asked.text) == ("apply_patch", "/a.py, /b.py")
    assert found.word.detail == "permission: /a.py, /b.py"

    say(found, "serverRequest/resolved", requestId=3)

    assert found.questions() == {}


def test_question_in_another_thread_is_not_of_the_agent() -> None:
    found = threads("two", "one")

    say(found, "thread/status/changed", "two", status=ASKING)
    found.current = "one"
    say(found, "item/commandExecution/requestApproval", "two", 3, command="ls")

    assert found.questions() == {}


def test_ended_turn_is_not_current() -> None:
    found = threads()
    begin(found)

    heard = say(found, "turn/completed", turn={"id": "turn-1", "status": "interrupted"})

    assert heard.ended == "turn-1"
    assert found.turn == ""


@pytest.mark.parametrize("fields", [{"ephemeral": True}, {"parent_thread_id": "one"}])
def test_titles_and_subagents_change_nothing(fields: dict[str, Any]) -> None:
    found = threads()

    assert found.found(CodexThread(id="side", **fields)) is False
    assert say(found, "thread/status/changed", "side", status=ACTIVE) == ThreadNews()
    assert found.current == "one"
    assert not found.is_busy


def test_unknown_thread_is_read() -> None:
    found = threads()

    started = found.hear(CodexMessage(method="thread/started", params={"thread": {"id": "two"}}))
    named = say(found, "thread/status/changed", "two", status=ACTIVE)

    assert (started.stranger, named.stranger) == ("two", "two")


def test_newest_or_resumed_thread_belongs_to_the_agent() -> None:
    found = threads("one")

    assert found.found(CodexThread(id="two", status=IDLE)) is True
    assert found.current == "two"

    begin(found, "one")

    assert found.current == "one"


def test_closed_thread_is_not_current() -> None:
    found = threads("two", "one")

    say(found, "thread/closed", "two")
    assert found.current == "one"

    say(found, "thread/closed", "one")
    assert found.word.state is AgentState.STARTING


def test_usage_limit_closes_the_gate_until_it_is_lifted() -> None:
    found = threads()
    limits = {"primary": {"usedPercent": 100, "resetsAt": 1_900_000_000}, "secondary": {"usedPercent": 3}}
    found.hear(CodexMessage(method="account/rateLimits/updated", params={"rateLimits": limits}))
    begin(found)
    say(found, "thread/status/changed", status=IDLE)

    say(found, "turn/completed", turn={"id": "turn-1", "error": {"codexErrorInfo": "usageLimitExceeded"}})

    assert (found.word.state, found.word.detail) == (AgentState.BLOCKED, "usage_limit until 1900000000")
    assert found.level.gate.reason == "usage_limit"
    assert found.word.detail == "usage_limit until 1900000000"

    found.lifted()

    assert found.word.state is AgentState.IDLE
    assert found.level.gate.is_open


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        ("You've hit your limit, or try again at 1:25 PM.", "usage_limit until 1:25 PM"),
        ("No more.", "usage_limit"),
    ],
)
def test_usage_limit_message_may_contain_the_reset_time(message: str, detail: str) -> None:
    found = threads()

    error = {"message": message, "codexErrorInfo": "usageLimitExceeded"}
    say(found, "turn/completed", turn={"id": "turn-1", "error": error})

    assert found.word.detail == detail


def test_late_status_does_not_hide_a_usage_limit() -> None:
    found = threads()
    begin(found)
    say(found, "turn/completed", turn={"id": "turn-1", "error": {"codexErrorInfo": "usageLimitExceeded"}})

    say(found, "thread/status/changed", status=ACTIVE)

    late = found.word.state
    say(found, "turn/started", turn={"id": "turn-2"})
    assert [late, found.word.state] == [AgentState.BLOCKED, AgentState.ACTIVE]


def test_usage_limit_reached_before_the_connection_is_known() -> None:
    found = threads()

    found.begun(CodexTurn(id="t0", status="failed", error={"codexErrorInfo": "usageLimitExceeded"}))

    assert found.level.gate.reason == "usage_limit"


def test_other_failures_of_a_turn_do_not_close_the_gate() -> None:
    found = threads()
    begin(found)
    say(found, "thread/status/changed", status=IDLE)

    say(found, "turn/completed", turn={"id": "turn-1", "error": {"codexErrorInfo": {"other": {}}}})

    assert found.level.gate.is_open


def test_turn_from_a_reply_is_processed() -> None:
    found = threads()
    items: list[dict[str, object]] = [{"type": "userMessage", "clientId": "key"}, {"type": "agentMessage"}]

    running = found.begun(CodexTurn(id="t1", status="inProgress", items=items))
    over = found.begun(CodexTurn(id="t0", status="completed"))

    assert (running.seen, running.ended) == (frozenset({"key"}), "")
    assert over.ended == "t0"
    assert found.turn == "t1"


def test_running_turn_from_a_result_ends_the_items_that_have_ended() -> None:
    found = threads()
    begin(found)
    for name in ("a", "b"):
        item = {"id": name, "type": "fileChange", "status": "inProgress", "changes": [{"path": f"/{name}"}]}
        say(found, "item/started", item=item)

    items: list[dict[str, object]] = [{"id": "b", "type": "fileChange", "status": "completed"}]
    found.begun(CodexTurn(id="turn-1", status="inProgress", items=items))
    say(found, "thread/status/changed", status=ASKING)
    for number, name in enumerate(("a", "b")):
        say(found, "item/fileChange/requestApproval", number=number, itemId=name)

    assert [asked.text for asked in found.questions().values()] == ["/a"]
    say(found, "thread/status/changed", status=ACTIVE)
    assert found.word.file == "/a"


def test_compaction_continues_although_a_result_does_not_show_it() -> None:
    found = threads()
    begin(found)
    say(found, "item/started", item={"id": "c", "type": "contextCompaction"})
    say(found, "item/started", item={"id": "w", "type": "webSearch"})

    found.begun(CodexTurn(id="turn-1", status="inProgress", items=[{"id": "w", "type": "webSearch"}]))

    assert (found.word.tool, found.level.gate.reason) == ("web_search", "compacting")


def test_new_turn_from_a_result_ends_the_items_of_the_earlier_one() -> None:
    found = threads()
    begin(found)
    say(found, "item/started", item={"id": "a", "type": "commandExecution", "command": "make"})

    found.begun(CodexTurn(id="turn-2", status="inProgress"))

    assert (found.turn, found.word.detail) == ("turn-2", "thinking")


def test_outdated_result_changes_nothing_except_seen_texts() -> None:
    found = threads()
    begin(found)
    say(found, "thread/status/changed", status=ASKING)
    say(found, "item/commandExecution/requestApproval", number=7, command="ls")
    items: list[dict[str, object]] = [
        {"type": "userMessage", "clientId": "key"},
        {"id": "a", "type": "sleep"},
    ]

    assert found.found(CodexThread(id="one", status=ACTIVE), is_outdated=True) is False
    heard = found.begun(CodexTurn(id="turn-0", status="inProgress", items=items), is_outdated=True)

    assert heard == ThreadNews(thread="one", seen=frozenset({"key"}))
    assert (found.turn, list(found.questions())) == ("turn-1", ["7"])


def test_limit_from_an_outdated_result_does_not_block_the_next_turn() -> None:
    found = threads()
    begin(found, turn="turn-2")
    failed = CodexTurn(id="turn-1", status="failed", error={"codexErrorInfo": "usageLimitExceeded"})

    found.begun(failed, is_outdated=True)

    assert found.level.gate.is_open
    say(found, "turn/completed", turn={"id": "turn-2"})
    found.begun(failed, is_outdated=True)
    assert found.level.gate.reason == "usage_limit"


def test_outdated_result_does_not_add_a_closed_thread() -> None:
    found = threads()
    found.found(below("sub"))
    say(found, "thread/closed", "sub")

    found.found(below("sub"), is_outdated=True)

    assert not found.has("sub")


def test_repeated_question_does_not_make_a_result_outdated() -> None:
    found = threads()
    begin(found)
    say(found, "item/commandExecution/requestApproval", number=7, command="ls")
    before = found.version_of("one")

    say(found, "item/commandExecution/requestApproval", number=7, command="ls")
    assert found.version_of("one") == before

    say(found, "item/commandExecution/requestApproval", number=8, command="ls")
    assert found.version_of("one") != before


def test_version_of_a_thread_changes_with_its_state_only() -> None:
    found = threads()
    found.found(below("sub"))
    before = found.version_of("sub")

    say(found, "item/agentMessage/delta", "sub")
    begin(found, "one")
    assert found.version_of("sub") == before

    say(found, "thread/status/changed", "sub", status=ACTIVE)
    reported = found.version_of("sub")
    found.begun(CodexTurn(id="turn-2", status="inProgress"), "sub")
    assert len({before, reported, found.version_of("sub")}) == 3


@given(st.lists(st.tuples(METHODS, PARAMS, st.none() | st.integers()), max_size=12))
def test_any_sequence_of_notifications_is_safe(
    notifications: list[tuple[str, dict[str, Any], int | None]],
) -> None:
    found = threads("two", "one")

    for method, params, number in notifications:
        found.hear(CodexMessage(id=number, method=method, params=params))

    assert found.word.state in AgentState
    assert found.level.gate.is_open or found.level.gate.reason
