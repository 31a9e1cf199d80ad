"""Tasks at the broker, on both engines: assignees, notified agents, and refusals."""

import asyncio
from dataclasses import replace

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import Sent
from palaver.broker.tasks import find_task
from palaver.errors import AmbiguousRecipient, BadRequest, NotAllowed, NotFound, UnknownRecipient
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft
from palaver.protocol.query import Query
from palaver.protocol.requests import CloseRoom, JoinRoom, Put
from palaver.protocol.tasks import CompleteTask, CreateTask, Task, TaskRequest, UpdateTask
from palaver.state.rooms import room_base


async def ask(bus: Bus, asking: Caller, request: TaskRequest, key: bytes | None = None) -> Sent:
    outcome = await bus.broker.submit(asking, request, key=key)
    assert isinstance(outcome, Sent)
    return outcome


async def put(bus: Bus, asking: Caller, type: str, *to: str, id: str = "e1", **payload: object) -> Sent:
    envelope = Draft(type=type, id=id, sender=asking.name, to=to, payload=payload, ts=1)
    outcome = await bus.broker.submit(asking, Put(envelope=envelope))
    assert isinstance(outcome, Sent)
    return outcome


def task_of(bus: Bus, sent: Sent) -> Task:
    assert sent.event is not None
    return find_task(bus.log, str(sent.event.payload.get("task_id", sent.event.id)))


# Assignees


async def test_task_is_mail_only_for_its_assignee(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    sent = await ask(bus, luna, CreateTask(title="t", description="d", assignee="@nova"))

    assert sent.event is not None
    assert sent.event.payload == {
        "title": "t",
        "description": "d",
        "assignee": "@nova",
        "assignees": ["nova"],
    }
    assert (sent.to, sent.delivered_to) == (("@nova",), ("nova",))
    assert (bus.texts("nova"), bus.texts("kira")) == (["task.create"], [])


@pytest.mark.parametrize(
    ("assignee", "assignees"),
    [
        ("nova", ("nova",)),
        ("@nov", ("nova",)),
        ("@api-", ("api-mila",)),
        ("api-mila", ("api-mila",)),
        ("@workers", ("api-mila", "nova")),
        ("@all", ("api-mila", "nova")),
        ("@api-*", ("api-mila",)),
        ("@human", ("human",)),
        ("agent/nova", ("nova",)),
        ("luna", ("luna",)),
    ],
)
async def test_assignee_accepts_any_form_of_address(
    bus: Bus, assignee: str, assignees: tuple[str, ...]
) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("mila", tag="api")

    task = task_of(bus, await ask(bus, luna, CreateTask(title="t", assignee=assignee)))

    assert task.assignee == assignee
    assert sorted(task.assignees) == sorted(assignees)


async def test_assignee_may_be_a_room(bus: Bus) -> None:
    luna, nova, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    for one in (luna, nova):
        await bus.broker.submit(one, JoinRoom(workspaces=("/src/talk",)))

    here = await ask(bus, luna, CreateTask(title="t", assignee="room"))
    named = await ask(bus, HUMAN, CreateTask(title="t", assignee="#talk"))

    assert (here.delivered_to, named.delivered_to) == (("nova",), ("luna", "nova"))
    await bus.broker.submit(HUMAN, CloseRoom(room="talk"))
    for word in ("room", "#talk", f"#{room_base('/src/talk')}"):
        with pytest.raises(UnknownRecipient):
            await ask(bus, luna, CreateTask(title="t", assignee=word))


async def test_task_assigned_to_its_creator_notifies_no_agent(bus: Bus) -> None:
    luna = await bus.join("luna")

    sent = await ask(bus, luna, CreateTask(title="t", assignee="luna"))

    assert sent.delivered_to == ()
    assert task_of(bus, sent).assignees == ("luna",)


async def test_task_without_an_assignee_goes_to_all_present_agents(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("away", is_here=False)

    sent = await ask(bus, luna, CreateTask(title="t"))

    assert (sent.to, sent.delivered_to) == ((), ("nova",))


async def test_named_recipients_are_notified_in_addition_to_the_assignee(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    sent = await ask(bus, luna, CreateTask(title="t", assignee="nova", to=("@kira",)))

    assert (sent.to, sorted(sent.delivered_to)) == (("@kira",), ["kira", "nova"])


async def test_harness_agent_must_confirm_a_task_for_many(bus: Bus) -> None:
    luna = replace(await bus.join("luna"), harness="claude")
    for name in ("mila", "mira", "nila", "nira", "pila", "pira"):
        await bus.join(name)

    with pytest.raises(BadRequest, match="6 agents; to confirm, add --yes"):
        await ask(bus, luna, CreateTask(title="t"))
    sent = await ask(bus, luna, CreateTask(title="t", is_confirmed=True))

    assert len(sent.delivered_to) == 6


async def test_unknown_assignee_is_refused_and_nothing_is_written(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("mila"), await bus.join("mira")
    before = bus.log.last()

    with pytest.raises(UnknownRecipient):
        await ask(bus, luna, CreateTask(title="t", assignee="zora"))
    with pytest.raises(AmbiguousRecipient):
        await ask(bus, luna, CreateTask(title="t", assignee="@mi"))

    assert bus.log.last() == before


async def test_empty_group_and_unmatched_path_are_reported(bus: Bus) -> None:
    luna = await bus.join("luna")

    group = await ask(bus, luna, CreateTask(title="t", assignee="@observers"))
    path = await ask(bus, luna, CreateTask(title="t", assignee="ticket/7"))

    assert (group.empty_groups, task_of(bus, group).assignees) == (("@observers",), ())
    assert path.dead == ("ticket/7",)


async def test_observer_cannot_write_tasks(bus: Bus) -> None:
    observer = await bus.join("olga", role="observer")

    with pytest.raises(NotAllowed):
        await ask(bus, observer, CreateTask(title="t"))


# Updates


async def test_creator_and_assignees_are_notified_of_changes(bus: Bus) -> None:
    luna, nova, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    made = await ask(bus, luna, CreateTask(title="t", assignee="nova"))
    assert made.event is not None

    taken = await ask(bus, nova, UpdateTask(task=made.event.id, status="in_progress"))
    given = await ask(bus, nova, UpdateTask(task=str(made.event.seq), assignee="@kira"))
    done = await ask(bus, luna, CompleteTask(task=made.event.id[-20:].lower(), summary="all green"))

    assert taken.delivered_to == ("luna",)
    assert (given.to, given.delivered_to) == (("luna", "@kira"), ("luna", "kira"))
    assert done.delivered_to == ("kira",)
    task = task_of(bus, made)
    assert (task.status, task.summary, task.completed_by) == ("completed", "all green", "luna")
    assert done.event is not None
    assert done.event.payload == {
        "task_id": made.event.id,
        "task_seq": made.event.seq,
        "summary": "all green",
    }


async def test_update_contains_only_the_changed_fields(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    made = await ask(bus, luna, CreateTask(title="t", assignee="nova"))

    sent = await ask(bus, luna, UpdateTask(task=task_of(bus, made).id, assignee="", description=""))

    assert sent.event is not None
    task = task_of(bus, made)
    changed = {"assignee": "", "description": ""}
    assert sent.event.payload == {"task_id": task.id, "task_seq": task.seq, **changed}
    assert sent.delivered_to == ("nova",)
    assert task_of(bus, made).assignees == ()


async def test_script_and_human_create_tasks_and_only_the_human_has_mail(bus: Bus) -> None:
    luna = await bus.join("luna")
    by_script = await ask(bus, SCRIPT, CreateTask(title="s", assignee="luna"))
    by_human = await ask(bus, HUMAN, CreateTask(title="h", assignee="luna"))

    script = await ask(bus, luna, CompleteTask(task=task_of(bus, by_script).id))
    human = await ask(bus, luna, CompleteTask(task=task_of(bus, by_human).id))

    assert (script.delivered_to, human.delivered_to) == ((), ("human",))


async def test_task_is_completed_once(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    task = task_of(bus, await ask(bus, luna, CreateTask(title="t")))

    results = await asyncio.gather(
        *(ask(bus, one, CompleteTask(task=task.id)) for one in (luna, nova, luna, nova)),
        return_exceptions=True,
    )

    refused = [str(one) for one in results if isinstance(one, BadRequest)]
    assert len(refused) == 3
    assert all(f"task #{task.seq} is already completed by " in one for one in refused)
    assert len(await bus.log.read(Query(types=("task.complete",)))) == 1


async def test_task_set_to_completed_by_an_update_is_not_completed_again(bus: Bus) -> None:
    luna = await bus.join("luna")
    task = task_of(bus, await ask(bus, luna, CreateTask(title="t")))
    await ask(bus, luna, UpdateTask(task=task.id, status="completed"))

    with pytest.raises(BadRequest, match="is already completed; to reopen it, run 'pal task update'"):
        await ask(bus, luna, CompleteTask(task=task.id))


async def test_reopened_task_can_be_completed_again(bus: Bus) -> None:
    luna = await bus.join("luna")
    task = task_of(bus, await ask(bus, luna, CreateTask(title="t")))
    await ask(bus, luna, CompleteTask(task=task.id))
    await ask(bus, luna, UpdateTask(task=task.id, status="open"))

    await ask(bus, luna, CompleteTask(task=task.id, summary="really"))

    assert find_task(bus.log, task.id).summary == "really"


async def test_update_without_a_change_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")
    task = task_of(bus, await ask(bus, luna, CreateTask(title="t")))

    with pytest.raises(BadRequest, match="nothing to change"):
        await ask(bus, luna, UpdateTask(task=task.id))


async def test_same_request_key_is_one_event(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    first = await ask(bus, luna, CreateTask(title="t", assignee="nova"), key=b"k" * 16)

    second = await ask(bus, luna, CreateTask(title="t", assignee="nova"), key=b"k" * 16)

    assert (second.event, second.delivered_to) == (first.event, ("nova",))
    assert len(await bus.log.read(Query(types=("task.create",)))) == 1


@pytest.mark.parametrize("reference", ["9999", "01HX9Z00000000000000000000", "abcd"])
async def test_unknown_task_is_not_found(bus: Bus, reference: str) -> None:
    luna = await bus.join("luna")

    with pytest.raises(NotFound):
        await ask(bus, luna, CompleteTask(task=reference))


async def test_event_of_another_type_is_not_a_task(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    message = await bus.send(luna, "hello", "@nova")
    task = task_of(bus, await ask(bus, luna, CreateTask(title="t")))
    update = await ask(bus, luna, UpdateTask(task=task.id, status="blocked"))
    assert update.event is not None

    with pytest.raises(NotFound, match="is an event of type message"):
        find_task(bus.log, str(message.seq))
    with pytest.raises(NotFound, match=r"is an event of type task\.update"):
        find_task(bus.log, f"#{update.event.seq}")


async def test_reference_that_cannot_be_a_task_is_called_a_task(bus: Bus) -> None:
    with pytest.raises(BadRequest, match="'zz' is not a task"):
        find_task(bus.log, "zz")


# Envelopes


async def test_task_envelopes_are_equal_to_task_requests(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("codex-7")

    made = await put(bus, luna, "task.create", "@workers", title="Run regression suite", points=3)
    moved = await put(bus, nova, "task.update", id="e2", task_id="e1", status="in_progress")
    done = await put(bus, nova, "task.complete", "luna", id="e3", task_id="e1", summary="Tests pass.")

    assert made.event is not None
    assert (made.event.id, made.to, made.delivered_to) == ("e1", ("@workers",), ("codex-7",))
    assert made.event.payload == {"title": "Run regression suite", "points": 3}
    assert moved.delivered_to == done.delivered_to == ("luna",)
    task = find_task(bus.log, "e1")
    assert (task.title, task.status, task.summary) == ("Run regression suite", "completed", "Tests pass.")


async def test_task_envelope_without_recipients_goes_to_all_present_agents(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    made = await put(bus, luna, "task.create", title="t", assignee="nova")

    assert (made.to, sorted(made.delivered_to)) == ((), ["kira", "nova"])
    assert find_task(bus.log, "e1").assignees == ("nova",)


async def test_assignee_is_notified_even_if_the_envelope_is_for_others(bus: Bus) -> None:
    luna, _, _ = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")

    made = await put(bus, luna, "task.create", "kira", title="t", assignee="@nova")

    assert (made.to, made.delivered_to) == (("kira",), ("kira", "nova"))


async def test_same_task_envelope_again_is_one_event(bus: Bus) -> None:
    luna = await bus.join("luna")
    first = [
        await put(bus, luna, "task.create", title="t"),
        await put(bus, luna, "task.update", id="e2", task_id="e1", status="blocked"),
        await put(bus, luna, "task.complete", id="e3", task_id="e1"),
    ]

    second = [
        await put(bus, luna, "task.create", title="t"),
        await put(bus, luna, "task.update", id="e2", task_id="e1", status="blocked"),
        await put(bus, luna, "task.complete", id="e3", task_id="e1"),
    ]

    assert [one.event for one in second] == [one.event for one in first]
    assert all(one.is_repeat for one in second)


async def test_id_used_by_another_sender_is_refused(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await put(bus, luna, "task.create", title="t")

    with pytest.raises(BadRequest, match=r"the task id e1 is taken by #\d+ of luna"):
        await put(bus, nova, "task.create", title="mine")

    assert find_task(bus.log, "e1").title == "t"


async def test_update_envelope_may_contain_only_foreign_fields(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await put(bus, luna, "task.create", title="t")

    sent = await put(bus, luna, "task.update", id="e2", task_id="e1", task_seq="mine", progress=50)

    assert sent.event is not None
    assert made.event is not None
    assert sent.event.payload == {"task_id": "e1", "task_seq": made.event.seq, "progress": 50}


async def test_guest_may_write_tasks(bus: Bus) -> None:
    guest = Caller(name="ann", standing=Standing.GUEST, kind="external")

    sent = await ask(bus, guest, CreateTask(title="t"))

    assert task_of(bus, sent).by == "ann"
