"""Tasks in the state: for any events, rebuilt rows equal the live rows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.log.memory import MemoryLog
from palaver.protocol.envelope import Draft, Event
from palaver.state.agents import read_unread
from palaver.state.fold import SKIPPED, apply
from palaver.state.references import OPEN_TASKS, TASK_PLACES, TASKS, read_task, read_tasks


async def written(
    log: MemoryLog, type: str, id: str, *, sender: str = "luna", to: Sequence[str] = (), **payload: object
) -> Event:
    draft = Draft(type=type, sender=sender, payload=payload, id=id, ts=5, delivered_to=tuple(to))
    commit = await log.commit(None, lambda rows: draft)
    assert commit.event is not None
    return commit.event


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(apply=apply)


async def test_task_is_open_and_its_events_are_mail(log: MemoryLog) -> None:
    event = await written(
        log, "task.create", "e1", to=["nova"], title="t", assignee="@nova", assignees=["nova"]
    )

    task = read_task(log.rows, "e1")

    assert task is not None
    assert (task.seq, task.title, task.status, task.by) == (event.seq, "t", "open", "luna")
    assert (task.assignee, task.assignees) == ("@nova", ("nova",))
    assert read_unread(log.rows, "nova") == 1


async def test_update_changes_the_named_fields_and_keeps_the_rest(log: MemoryLog) -> None:
    await written(log, "task.create", "e1", title="t", description="d", assignee="@x", assignees=["x", "y"])

    event = await written(log, "task.update", "e2", task_id="e1", status="in_progress", assignee="")

    task = read_task(log.rows, "e1")
    assert task is not None
    assert (task.title, task.description, task.status, task.last) == ("t", "d", "in_progress", event.seq)
    assert (task.assignee, task.assignees) == ("", ())


async def test_completed_task_is_not_open_until_it_is_reopened(log: MemoryLog) -> None:
    await written(log, "task.create", "e1", title="t")
    await written(log, "task.complete", "e2", sender="nova", task_id="e1", summary="done")
    done = read_task(log.rows, "e1")
    open_then = read_tasks(log.rows, is_open=True)

    await written(log, "task.update", "e3", task_id="e1", status="open")

    assert done is not None
    assert (done.status, done.summary, done.completed_by, done.completed_id) == (
        "completed",
        "done",
        "nova",
        "e2",
    )
    assert open_then == []
    (task,) = read_tasks(log.rows, is_open=True)
    assert (task.summary, task.completed_by, task.completed_id) == ("", "", "")


async def test_change_of_title_keeps_a_task_completed(log: MemoryLog) -> None:
    await written(log, "task.create", "e1", title="t")
    await written(log, "task.complete", "e2", task_id="e1", summary="done")

    await written(log, "task.update", "e3", task_id="e1", title="T")

    task = read_task(log.rows, "e1")
    assert task is not None
    assert (task.title, task.status, task.summary) == ("T", "completed", "done")


async def test_tasks_are_listed_newest_first_page_by_page(log: MemoryLog) -> None:
    for number in range(5):
        await written(log, "task.create", f"e{number}", title=str(number))

    first = read_tasks(log.rows, is_open=False, limit=2)
    second = read_tasks(log.rows, is_open=False, before=first[-1].seq, limit=2)

    assert [task.title for task in first + second] == ["4", "3", "2", "1"]


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("task.create", {"title": "another"}),
        ("task.create", {}),
        ("task.create", {"title": ["t"]}),
        ("task.update", {"task_id": "nothing", "status": "open"}),
        ("task.update", {"status": "open"}),
        ("task.complete", {"task_id": 3}),
    ],
)
async def test_unreadable_task_event_is_counted_and_changes_nothing(
    log: MemoryLog, type_: str, payload: dict[str, object]
) -> None:
    await written(log, "task.create", "e1", title="t")
    before = read_task(log.rows, "e1")

    await written(log, type_, "e1", sender="nova", to=["kira"], **payload)

    assert read_task(log.rows, "e1") == before
    assert log.rows.get(SKIPPED, type_) == b"1"
    assert read_unread(log.rows, "kira") == 0


ids = st.sampled_from(["e1", "e2", "e3"])
words = st.none() | st.sampled_from(["", "open", "completed", "cancelled", "x"])
events = st.lists(
    st.tuples(
        st.sampled_from(["task.create", "task.update", "task.complete"]),
        ids,
        st.fixed_dictionaries(
            {},
            optional={
                "title": words,
                "status": words,
                "assignee": words | st.integers(),
                "assignees": st.lists(words, max_size=2),
                "task_id": ids,
                "summary": words,
            },
        ),
    ),
    max_size=12,
)


@given(events)
async def test_rebuilt_rows_equal_the_live_rows(found: list[tuple[str, str, dict[str, object]]]) -> None:
    log = MemoryLog(apply=apply)
    for number, (type_, id_, payload) in enumerate(found):
        await written(log, type_, id_, sender=f"s{number}", to=["nova"], **payload)
    tables = (TASKS, TASK_PLACES, OPEN_TASKS, SKIPPED)
    before = [log.rows.scan(table, "") for table in tables]

    await log.rebuild()

    assert [log.rows.scan(table, "") for table in tables] == before
    every = read_tasks(log.rows, is_open=False)
    is_over = {task.id for task in every if task.status in ("completed", "cancelled")}
    assert {task.id for task in read_tasks(log.rows, is_open=True)} == {task.id for task in every} - is_over
