"""The inputs of OpenCode's tool calls: only those that are certain."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.opencode.wire import Calls

NAME = ("msg_1", "call_1")


def take(calls: Calls, status: str = "running", name: tuple[str, str] = NAME, **given: object) -> None:
    message, call = name
    calls.take({"messageID": message, "callID": call, "state": {"status": status, "input": given}})


def test_input_of_a_running_tool_is_known() -> None:
    calls = Calls()

    take(calls, "pending")
    before = calls.input_of(NAME)
    take(calls, path="/x")
    take(calls, path="/x")

    assert (before, calls.input_of(NAME)) == (None, {"path": "/x"})
    assert calls.input_of(("msg_2", "call_1")) is None


def test_empty_input_of_a_tool_is_known() -> None:
    calls = Calls()

    take(calls)

    assert calls.input_of(NAME) == {}


def test_call_with_two_different_inputs_stays_unknown() -> None:
    calls = Calls()
    take(calls, command="ls")

    take(calls, command="rm -r /")
    take(calls, command="rm -r /")

    assert calls.input_of(NAME) is None


def test_input_of_an_ended_call_stays_unknown() -> None:
    calls = Calls()
    take(calls, command="ls")

    take(calls, "completed", command="ls")
    take(calls, command="rm -r /")

    assert calls.input_of(NAME) is None


def test_oldest_of_many_calls_is_forgotten_and_never_confused() -> None:
    calls = Calls()
    take(calls, command="ls")

    for number in range(100):
        take(calls, name=("msg_1", f"more_{number}"), command="ls")
    take(calls, command="rm -r /")

    assert calls.input_of(NAME) is None
    assert calls.input_of(("msg_1", "more_99")) == {"command": "ls"}


def test_call_without_a_message_is_ignored() -> None:
    calls = Calls()

    calls.take({"callID": "call_1", "state": {"status": "running", "input": {"command": "ls"}}})

    assert calls.input_of(("", "call_1")) is None


def test_cleared_calls_are_unknown() -> None:
    calls = Calls()
    take(calls, command="ls")

    calls.clear()

    assert calls.input_of(NAME) is None


JSON = st.none() | st.text(max_size=4) | st.integers() | st.dictionaries(st.text(max_size=4), st.integers())


@given(st.lists(st.tuples(st.sampled_from(["pending", "running", "completed"]), JSON)))
def test_known_input_is_the_only_one_ever_reported(reports: list[tuple[str, object]]) -> None:
    calls = Calls()

    for status, value in reports:
        calls.take({"messageID": "msg_1", "callID": "call_1", "state": {"status": status, "input": value}})

    found = calls.input_of(NAME)
    assert found is None or all(status == "pending" or value == found for status, value in reports)
