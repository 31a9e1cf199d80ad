"""Instructions for an agent are short, contain its name, and use only existing commands."""

import re

import pytest

from palaver.doors.cli.run import COMMANDS
from palaver.harness.base import instructions, subagent_instructions

LIMIT_TOKENS = 300


@pytest.mark.parametrize("is_woken", [True, False])
def test_instructions_are_short_and_name_the_agent_and_five_commands(is_woken: bool) -> None:
    text = instructions("api-nova", is_woken=is_woken)

    commands = re.findall(r"^- pal ([a-z]+(?: [a-z]+)?)", text, re.MULTILINE)
    known = {" ".join(command.path) for command in COMMANDS}
    # Upper bound of the token count: a word or a sign is about one token.
    assert len(re.findall(r"\w+|[^\w\s]", text)) < LIMIT_TOKENS
    assert len(text) / 4 < LIMIT_TOKENS
    assert "You are api-nova" in text
    assert len(commands) == 5
    assert all(command in known or command.split()[0] in known for command in commands)


def test_only_an_agent_that_can_be_woken_should_end_its_turn_and_wait() -> None:
    woken, alone = (instructions("nova", is_woken=is_woken).splitlines()[-1] for is_woken in (True, False))

    assert woken.endswith("end your turn, and a message wakes you.")
    assert "a message wakes you" not in alone
    assert alone.endswith("wait with: pal recv --wait")


def test_unconfirmed_messages_are_listed_by_number() -> None:
    assert "maybe not read: #3, #8" in instructions("nova", unsure=[3, 8])
    assert "#20, #21" not in instructions("nova", unsure=range(1, 30))


def test_sub_agent_instructions_name_its_parent_and_its_own_commands() -> None:
    text = subagent_instructions("nova_reviewer_1", "nova")

    commands = re.findall(r"^- pal (?:--as nova_reviewer_1 )?([a-z]+)", text, re.MULTILINE)
    assert len(re.findall(r"\w+|[^\w\s]", text)) < LIMIT_TOKENS
    assert len(text) / 4 < LIMIT_TOKENS
    assert "You are nova_reviewer_1 on Palaver" in text
    assert "a sub-agent of nova" in text
    assert commands == ["list", "send", "send", "show"]
