import msgspec
import pytest

from palaver.protocol.envelope import Event
from palaver.protocol.message import build_payload, flat, is_lost, readable_text
from palaver.protocol.paths import Content


def _event(payload: dict[str, object], type: str = "message", to: tuple[str, ...] = ("@nova",)) -> Event:
    return Event(seq=7, id="i", type=type, sender="luna", to=to, ts=3, device="BOXE", payload=payload)


_full = build_payload(
    text="look",
    scope="mentions",
    sender_kind="instance",
    mentions=["nova"],
    delivered_to=["nova", "api-nova"],
    intent="request",
    thread="pr-123",
    reply_to="42",
    bundle_id="bundle:abc12345",
    priority="idle",
    expires=99,
    path="slack/x",
    content=Content(command="analyze", payload={"t": 1}, source="slack", external_id="ts-1"),
)


def test_payload_contains_every_given_field() -> None:
    assert " ".join(_full) == (
        "text scope mentions sender_kind delivered_to intent thread reply_to bundle_id priority expires path "
        "command payload source external_id"
    )


def test_payload_leaves_out_empty_fields_except_two_lists() -> None:
    payload = build_payload(text="x", scope="broadcast", sender_kind="human", thread="")

    assert payload == {
        "text": "x",
        "scope": "broadcast",
        "mentions": [],
        "sender_kind": "human",
        "delivered_to": [],
    }


def test_payload_keeps_an_empty_list_of_a_routed_message() -> None:
    payload = build_payload(text="", scope="path", sender_kind="human", content=Content(payload=[]))

    assert (payload["command"], payload["payload"]) == ("message", [])
    assert flat(_event(payload)).payload == []


def test_flat_view_has_its_keys_in_order() -> None:
    view = flat(_event(_full | {"handled": {"nova": ["s1"]}}), room="main", mailbox="nova")

    shown = msgspec.to_builtins(view)
    assert " ".join(shown) == (
        "seq id ts from to text scope mentions sender_kind delivered_to intent thread reply_to bundle_id "
        "priority room command payload path source external_id handled handled_by"
    )
    assert (shown["from"], view.to, view.room, view.handled_by) == ("luna", ("@nova",), "main", ("s1",))


def test_copy_of_a_session_names_it_and_is_not_handled() -> None:
    view = flat(_event(_full | {"handled": {"nova": ["s1"]}}), mailbox="nova+s1")

    assert (view.session, view.handled, view.handled_by) == ("s1", False, ())


@pytest.mark.parametrize(("payload", "text"), [([], "run []"), ({}, "run {}"), ([0], "run [0]")])
def test_payload_of_a_command_is_kept_as_it_is(payload: object, text: str) -> None:
    view = flat(_event({"text": "", "command": "run", "payload": payload}))

    assert (view.command, view.payload, view.text) == ("run", payload, text)
    assert "payload" in msgspec.to_builtins(view)


def test_first_keys_of_the_flat_view_are_always_there() -> None:
    view = flat(_event(build_payload(text="x", scope="mentions", sender_kind="instance")))

    assert list(msgspec.to_builtins(view))[-1] == "room"
    assert (view.intent, view.priority, view.room) == (None, "normal", None)


@pytest.mark.parametrize(("to", "scope"), [(("@nova",), "mentions"), ((), "broadcast")])
def test_other_envelope_has_a_flat_view_too(to: tuple[str, ...], scope: str) -> None:
    event = Event(
        seq=1, id="i", type="x.y", sender="luna", to=to, ts=0, device="D", payload={}, delivered_to=("nova",)
    )

    view = flat(event)

    assert (view.text, view.scope, view.delivered_to) == ("", scope, ("nova",))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (_event({"text": "hello"}), "hello"),
        (_event({}), ""),
        (_event({"text": "", "command": "analyze", "payload": {"t": 1}}), 'analyze {"t":1}'),
        (_event({"command": "ping"}), "ping {}"),
        (_event({"a": "é"}, type="deploy.done"), 'deploy.done {"a":"é"}'),
    ],
)
def test_message_reads_as_its_text_or_its_command(event: Event, text: str) -> None:
    assert readable_text(event) == text


def test_payload_larger_than_any_text_is_cut() -> None:
    largest = _event({"command": "c" * 1024, "payload": "x" * 99_900})
    larger = _event({"command": "push", "payload": "x" * 200_000})
    whole = 'push "' + "x" * 200_000 + '"'

    assert readable_text(largest) == f'{"c" * 1024} "{"x" * 99_900}"'
    assert readable_text(larger, is_whole=True) == whole
    assert readable_text(larger) == f"{whole[:100_000]}… (200007 characters; 'pal show 7' prints all of them)"


def test_handled_copy_names_its_handlers() -> None:
    assert readable_text(_event({"text": "hello"}), handled_by=["s1", "s2"]) == "hello (handled by s1, s2)"


def test_bundle_reads_as_a_summary_without_its_contents() -> None:
    files = [{"path": "a", "size": 1, "sha256": "x", "content": "a"}]
    event = _event({"bundle_id": "bundle:7f3q9x2m", "title": "Review", "files": files}, type="bundle")

    assert readable_text(event) == "bundle:7f3q9x2m Review, 1 file"


def test_envelope_of_another_type_claims_nothing_about_itself() -> None:
    claims: dict[str, object] = {
        "sender_kind": "human",
        "intent": "request",
        "thread": "ops",
        "priority": "interrupt",
        "command": "rm",
        "delivered_to": ["kira"],
    }

    read = flat(_event(claims, type="org.x"))

    assert (read.sender_kind, read.intent, read.thread, read.priority) == (
        "instance",
        None,
        None,
        "normal",
    )
    assert read.delivered_to == ()
    assert read.command is None


def test_envelope_put_by_the_human_has_the_kind_human() -> None:
    event = Event(seq=7, id="i", type="org.x", sender="human", to=(), ts=3, device="BOXE", payload={})

    assert flat(event).sender_kind == "human"


def test_message_with_lost_content_says_so() -> None:
    lost = _event({"thread": "t", "missing_blob": "ab12"})

    assert is_lost(lost)
    assert not is_lost(_event({"text": "hello"}))
    assert readable_text(lost) == "(its content is lost)"
    assert (flat(lost).text, flat(lost).missing_blob) == ("", "ab12")
    assert readable_text(_event({"missing_blob": "ab12"}, type="x.y")) == "(its content is lost)"


# Tasks, notes and handoffs


HANDOFF = {
    "reviewer": "kira",
    "next_action": "merge it",
    "status": "green",
    "artifacts": [
        {"path": "a.py", "lines": [3, "5-7"], "note": "new"},
        {"path": "b.py"},
        {"path": "d.py", "why": "broken on ARM"},
        {"url": "x"},
        "c.py",
    ],
    "open_questions": [],
    "do_not": ["push", "rebase"],
}


@pytest.mark.parametrize(
    ("type_", "payload", "text"),
    [
        ("task.create", {"title": "Refactor auth"}, "task 7: Refactor auth"),
        (
            "task.create",
            {
                "title": "t",
                "description": "one\ntwo",
                "assignee": "@nova",
                "assignees": ["nova"],
                "points": 3,
            },
            'task 7: t (for @nova)\none\ntwo\nother fields: {"points":3}',
        ),
        (
            "task.update",
            {"task_id": "e1", "task_seq": 3, "status": "blocked", "assignee": "", "title": "u"},
            "task 3 is now blocked, is no longer assigned, is now called: u",
        ),
        (
            "task.update",
            {"task_id": "e1", "task_seq": 3, "assignee": "kira", "description": "why\nand how"},
            "task 3 is now for kira, has a new description\nwhy\nand how",
        ),
        (
            "task.update",
            {"task_id": "e1", "task_seq": 3, "description": ""},
            "task 3 no longer has a description",
        ),
        (
            "task.update",
            {"task_id": "01HX9Y0000000000000000000A", "progress": 50},
            'task 0000000a has changed\nother fields: {"progress":50}',
        ),
        ("task.complete", {"task_id": "e1", "task_seq": 3, "summary": "green"}, "task 3 is completed: green"),
        ("task.complete", {"task_id": "e1", "task_seq": 3}, "task 3 is completed"),
        ("task.complete", {"task_id": "e1", "task_seq": []}, 'task.complete {"task_id":"e1","task_seq":[]}'),
        ("note_added", {"room": "r", "note": "01HX7F3Q9X2M", "text": "a\nb"}, "note 7f3q9x2m in r: a\nb"),
        ("note_resolved", {"room": "r", "note": "01HX7F3Q9X2M"}, "note 7f3q9x2m in r is resolved"),
        (
            "pass",
            {"room": "r", "turn_id": 2, "reserved_for": "kira", "until": 1, "handoff": HANDOFF},
            "handoff of turn 2 in r for kira:\nstatus: green\nnext: merge it\n"
            'artifacts: a.py:3,5-7 (new); b.py; d.py {"why":"broken on ARM"}; {"url":"x"}; c.py\n'
            "do not: push; rebase\nreviewer: kira",
        ),
        ("release", {"room": "r", "turn_id": 2}, 'release {"room":"r","turn_id":2}'),
    ],
)
def test_task_note_and_handoff_are_sentences_with_their_number(
    type_: str, payload: dict[str, object], text: str
) -> None:
    assert readable_text(_event(payload, type=type_)) == text


def test_changed_task_of_another_log_has_the_number_of_that_log() -> None:
    event = _event({"task_id": "e1", "task_seq": 3}, type="task.complete")

    imported = msgspec.structs.replace(event, imported=5, device="BOXE")

    assert readable_text(imported) == "task 3:BOXE is completed"
