"""Events without their text: which fields are removed, and which stay."""

import pytest

from palaver.protocol.envelope import Event
from palaver.protocol.redaction import (
    asks_secret,
    can_remove,
    is_removed,
    pieces_of,
    removed_text,
    without_text,
)


def event(type: str, **payload: object) -> Event:
    return Event(seq=7, id="01K", type=type, sender="luna", to=(), ts=1, device="BOXE", payload=payload)


def test_message_keeps_all_fields_except_its_text() -> None:
    message = event("message", text="hunter2", thread="t", delivered_to=["nova"])

    assert can_remove(message, is_foreign=False)
    assert removed_text(message, is_foreign=False) == "hunter2"
    assert without_text(message, is_foreign=False).payload == {
        "text": "[redacted]",
        "thread": "t",
        "delivered_to": ["nova"],
    }


def test_raw_keys_lose_their_bytes_and_stay_raw() -> None:
    keys = event("message", text="hunter2\\r", raw="aHVudGVyMg0=")

    assert removed_text(keys, is_foreign=False) == "hunter2\r"
    assert without_text(keys, is_foreign=False).payload == {"text": "[redacted]", "raw": ""}
    assert removed_text(without_text(keys, is_foreign=False), is_foreign=False) == "[redacted]"


def test_removed_text_of_a_large_payload_is_whole() -> None:
    message = event("message", text="", command="push", payload="x" * 200_000 + "hunter2")

    assert removed_text(message, is_foreign=False).endswith('xhunter2"')


def test_routed_message_loses_its_command_and_payload() -> None:
    routed = event("message", text="", command="login", payload={"password": "hunter2"}, path="ci/x")

    assert can_remove(routed, is_foreign=False)
    assert removed_text(routed, is_foreign=False) == 'login {"password":"hunter2"}'
    assert without_text(routed, is_foreign=False).payload == {"text": "[redacted]", "path": "ci/x"}


def test_payload_of_another_program_is_removed_completely() -> None:
    foreign = event("deploy.done", where={"token": "hunter2"})

    assert can_remove(foreign, is_foreign=True)
    assert "hunter2" in removed_text(foreign, is_foreign=True)
    assert without_text(foreign, is_foreign=True).payload == {"text": "[redacted]"}


@pytest.mark.parametrize("one", [event("agent.hello", runtime="x"), event("life", action="ready")])
def test_event_without_a_text_has_nothing_to_remove(one: Event) -> None:
    assert not can_remove(one, is_foreign=False)


def test_task_has_several_texts() -> None:
    task = event("task.create", title="one", description="two", assignee="luna")

    assert removed_text(task, is_foreign=False) == "one\ntwo"


def test_pieces_are_printable_runs_as_json_writes_them() -> None:
    assert pieces_of('say "hunter2"\r\x1b[A     \nabc') == ['say \\"hunter2\\"']


@pytest.mark.parametrize(
    "line",
    [
        "Password: ",
        "[sudo] password for luna:",
        "Enter passphrase for key '/x':",
        "API key> ",
        "? What is your password? › ",
        "? Enter a password [input is hidden] ",
        "? Token [hidden]",
        "[sudo] Passwort für luna: ",
        "密码：",
        "PIN: ****",
        "••",
    ],
)
def test_prompt_for_a_secret_is_recognised(line: str) -> None:
    assert asks_secret(line)


@pytest.mark.parametrize(
    "line", ["", ">>> ", "Name: ", "the password is in the vault", "Use the old password? ", "$ "]
)
def test_other_lines_do_not_ask_for_a_secret(line: str) -> None:
    assert not asks_secret(line)


@pytest.mark.parametrize(
    ("one", "is_foreign"),
    [
        (event("message", text="hunter2"), False),
        (event("message", text="", command="login", payload=["hunter2"]), False),
        (event("deploy.done", text="hunter2"), True),
    ],
)
def test_removed_text_is_recognised(one: Event, is_foreign: bool) -> None:
    assert not is_removed(one, is_foreign=is_foreign)
    assert is_removed(without_text(one, is_foreign=is_foreign), is_foreign=is_foreign)


def test_event_that_never_had_a_text_is_not_removed() -> None:
    assert not is_removed(event("agent.hello"), is_foreign=False)
