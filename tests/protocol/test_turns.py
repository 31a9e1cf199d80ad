"""Automatic turns: which mailboxes of a message start one, and whether they are on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.paths import mailbox_of
from palaver.protocol.turns import is_harness_session, is_on, session_of_mailbox, turn_targets

names = st.sampled_from(["luna", "nova"])
mailboxes = st.builds(mailbox_of, names, st.sampled_from(["", "main", "mon"]))


@pytest.mark.parametrize(
    ("mailbox", "target"),
    [("luna", ("luna", "main")), ("luna+main", ("luna", "main")), ("luna+mon", ("luna", "mon"))],
)
def test_mailbox_of_an_agent_belongs_to_its_main_session(mailbox: str, target: tuple[str, str]) -> None:
    assert session_of_mailbox(mailbox) == target
    assert session_of_mailbox(mailbox_of(*target)) == target


@given(st.lists(mailboxes, unique=True))
def test_agent_starts_a_turn_itself_only_if_no_session_of_it_does(found: list[str]) -> None:
    targets = turn_targets(found)

    assert [one for one in targets if "+" in one] == [one for one in found if "+" in one]
    for name in ("luna", "nova"):
        has_session = any(one.startswith(f"{name}+") for one in found)
        assert (name in targets) == (name in found and not has_session)
    sessions = [session_of_mailbox(one) for one in targets]
    assert len(set(sessions)) == len(sessions)


values: st.SearchStrategy[object] = st.sampled_from(
    [None, "yes", 7, True, False, {}, {"enabled": True}, {"enabled": False}, []]
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        ({}, True),
        ({"enabled": None}, True),
        ({"enabled": False}, False),
        ([], True),
        (None, False),
        ("yes", False),
        (7, False),
    ],
)
def test_value_of_an_agent_decides_for_a_session_without_one(value: object, expected: bool) -> None:
    assert is_on(None, value) is expected
    assert is_on("yes", value) is expected


@given(values, values)
def test_value_of_a_session_takes_precedence(session: object, agent: object) -> None:
    decides = isinstance(session, bool | dict | list)

    assert is_on(session, agent) == is_on(None, session if decides else agent)


@pytest.mark.parametrize("text", ["a", "019a-b2", "ses_1", "A.b:c", "0" * 256])
def test_id_of_a_harness_session_is_a_plain_word(text: str) -> None:
    assert is_harness_session(text)


@pytest.mark.parametrize(
    "text", ["", "-p", "--dangerously-skip-permissions", "a b", "a\n", "é", "0" * 257, "a/b"]
)
def test_id_of_a_harness_session_is_never_an_option(text: str) -> None:
    assert not is_harness_session(text)
