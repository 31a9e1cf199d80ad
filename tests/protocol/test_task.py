"""Task requests: parsed from envelopes, and refused with a sentence that names the field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, BadText, MessageTooLarge, PalaverError
from palaver.protocol.envelope import Draft
from palaver.protocol.tasks import CompleteTask, CreateTask, UpdateTask, check_task, task_request_from


def envelope(type: str, *to: str, **payload: object) -> Draft:
    return Draft(type=type, id="e1", sender="luna", to=to, payload=payload)


def test_envelope_creates_a_task_with_all_its_fields() -> None:
    asked = task_request_from(
        envelope("task.create", "@workers", title="t", description="d", assignee="nova", points=3)
    )

    assert asked == CreateTask(
        title="t", description="d", assignee="nova", to=("@workers",), id="e1", extra={"points": 3}
    )


def test_update_changes_only_the_named_fields() -> None:
    assert task_request_from(envelope("task.update", task_id="e0", status="in_progress")) == UpdateTask(
        task="e0", status="in_progress", id="e1"
    )
    assert task_request_from(envelope("task.update", task_id="e0", assignee=None, eta="soon")) == UpdateTask(
        task="e0", assignee="", id="e1", extra={"eta": "soon"}
    )


def test_completion_may_have_a_summary() -> None:
    assert task_request_from(envelope("task.complete", task_id="e0")) == CompleteTask(task="e0", id="e1")
    assert task_request_from(envelope("task.complete", task_id="e0", summary="done")) == CompleteTask(
        task="e0", summary="done", id="e1"
    )


def test_fields_that_the_bus_sets_are_not_taken_from_outside() -> None:
    asked = task_request_from(envelope("task.create", title="t", assignees=["kira"]))

    assert asked == CreateTask(title="t", id="e1")


@pytest.mark.parametrize("type_", ["task", "task.note", "message", "Task.Create"])
def test_other_types_are_not_task_requests(type_: str) -> None:
    assert task_request_from(envelope(type_, title="t", task_id="e0")) is None


@pytest.mark.parametrize(
    ("type_", "payload", "field"),
    [
        ("task.create", {}, "title"),
        ("task.create", {"title": 3}, "title"),
        ("task.create", {"title": "t", "assignee": ["nova"]}, "assignee"),
        ("task.create", {"title": "t", "description": {}}, "description"),
        ("task.update", {"status": "open"}, "task_id"),
        ("task.update", {"task_id": "e0", "status": 1}, "status"),
        ("task.complete", {}, "task_id"),
        ("task.complete", {"task_id": "e0", "summary": 0}, "summary"),
    ],
)
def test_missing_or_wrong_field_is_named(type_: str, payload: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^payload\.{field} "):
        task_request_from(envelope(type_, **payload))


@pytest.mark.parametrize(
    ("fields", "error", "complaint"),
    [
        ({"title": " "}, BadRequest, "a task needs a title"),
        ({"title": "a\nb"}, BadRequest, "the title must be one line"),
        ({"title": "a\rb"}, BadRequest, "the title must be one line"),
        ({"title": "a\x1b"}, BadText, "the title"),
        ({"title": "x" * 257}, MessageTooLarge, "the title has 257 bytes"),
        ({"status": ""}, BadRequest, "a status is one word"),
        ({"status": "in progress"}, BadRequest, "a status is one word"),
        ({"status": "x" * 65}, MessageTooLarge, "the status"),
        ({"status": "\x00"}, BadText, "the status"),
        ({"assignee": "\x07"}, BadText, "the assignee"),
        ({"assignee": "x" * 1025}, MessageTooLarge, "the assignee"),
        ({"description": "\x00"}, BadText, "the description"),
        ({"summary": "x" * 100_001}, MessageTooLarge, "the summary"),
    ],
)
def test_invalid_task_field_is_refused(
    fields: dict[str, str], error: type[PalaverError], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        check_task(**fields)


def test_missing_field_is_not_checked() -> None:
    check_task()
    check_task(title="t", description="a\nb", status="waiting_for_review", assignee="", summary="")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(["title", "description", "assignee", "task_id", "status", "summary", "x"])


@given(st.sampled_from(["task.create", "task.update", "task.complete"]), st.dictionaries(names, json_values))
def test_any_payload_is_parsed_or_refused_and_keeps_other_fields(
    type_: str, payload: dict[str, object]
) -> None:
    try:
        asked = task_request_from(envelope(type_, **payload))
    except BadRequest:
        return

    assert asked is not None
    assert asked.extra.get("x") == payload.get("x")
