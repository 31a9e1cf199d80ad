"""A day with three real agents: a person starts them with one command, asks, gets answers, and stops them.

It needs Claude Code and Codex, so `make test-harness` runs it; without PALAVER_HARNESS it is skipped.
"""

import json
import os
import re
from collections.abc import Iterator

import pytest
from tests.app.person import Person
from tests.harness.real.claude_stage import ClaudeStage, write_account
from tests.harness.real.codex_stage import CodexStage, bus_call, shell_call, write_settings
from tests.harness.real.duo_stage import Duo
from tests.harness.real.harness_home import HarnessHome, new_folder, no_bus_yet
from tests.harness.real.harness_stage import reply, tool
from tests.harness.real.install import installed

from palaver.app.mock_model import Request, Script, ScriptedReply, ScriptedToolCall, mock_model

pytestmark = pytest.mark.skipif(
    not os.environ.get("PALAVER_HARNESS"), reason="runs real harnesses: make test-harness"
)

START = "pal start claude:2 codex --tag api"
QUESTION = "are the tests green?"
ANSWER = "41 of 41 are green"
ASKED = re.compile(r"\[request #(\d+)\] human → (\S+) \(\+2 others\): ")
MAKEFILE = "test:\n\t@while [ ! -e go ]; do sleep 0.1; done; echo 41 passed\n"
OWN_RULES = {"permissions": {"allow": ["Bash(make test)"]}}
"""The user's own rules for Claude Code. `pal send` is allowed by the reply to our question."""


class TestRunner(Script):
    """A model for several agents: each runs the tests when it is asked, and then answers."""

    __test__ = False

    def __init__(self, *calls: ScriptedToolCall) -> None:
        """Make these calls one after the other; `{seq}` in the last one is the number of the request."""
        super().__init__()
        self._calls = calls
        self._made: dict[str, int] = {}

    def take(self, request: Request) -> ScriptedReply:
        other = super().take(request)
        asked = ASKED.search(request.conversation)
        if not request.is_main or asked is None:
            return other
        seq, agent = asked.groups()
        step = self._made.get(agent, 0)
        if step == len(self._calls):
            return other
        self._made[agent] = step + 1
        return reply("", _with_seq(self._calls[step], seq))


def _with_seq(call: ScriptedToolCall, seq: str) -> ScriptedToolCall:
    given = {name: str(value).replace("{seq}", seq) for name, value in call.input.items()}
    return ScriptedToolCall(tool=call.tool, input=given, namespace=call.namespace)


@pytest.fixture
def duo() -> Iterator[Duo]:
    """Both programs, not started yet, and no bus."""
    folder = new_folder(installed("claude"), installed("codex"))
    (folder / "Makefile").write_text(MAKEFILE)
    write_account(folder)
    (folder / "account" / ".claude").mkdir()
    (folder / "account" / ".claude" / "settings.json").write_text(json.dumps(OWN_RULES))
    by_shell = TestRunner(
        tool("Bash", command="make test", description="run the tests"),
        tool("Bash", command=f"pal send --reply-to {{seq}} -- '{ANSWER}'", description="answer"),
    )
    by_tool = TestRunner(shell_call("make test"), bus_call("send", text=ANSWER, reply_to="{seq}"))
    with mock_model(by_shell) as claude_model, mock_model(by_tool) as codex_model:
        write_settings(folder, codex_model)
        home = HarnessHome(folder / "home", claude_model, "claude", "codex")
        with no_bus_yet(home) as people:
            yield Duo(ClaudeStage(home, claude_model, people), CodexStage(home, codex_model, people))


def answer_questions(person: Person, duo: Duo) -> list[str]:
    """Say yes to each question of a command; return the questions when the command has ended."""
    answered: list[str] = []

    def questions() -> list[str]:
        return [line for line in person.shown.decode().splitlines() if "[y/N]" in line]

    def has_ended() -> bool:
        return b"status " in person.shown

    while not has_ended():
        duo.claude.until(lambda: has_ended() or len(questions()) > len(answered))
        if len(questions()) > len(answered):
            answered.append(questions()[-1])
            person.press(b"y\r")
    return answered


def agents(duo: Duo) -> dict[str, str]:
    """Return what each agent does, or its state."""
    return {one["name"]: one["detail"] or one["state"] for one in duo.home.ok("list", "--json").lines}


def test_person_starts_a_group_asks_it_and_stops_it(duo: Duo) -> None:
    you = duo.claude.person()
    you.output_of("stty -echo")
    you.shown = b""

    you.run(START)
    questions = answer_questions(you, duo)
    assert len(questions) == len(set(questions)), "nothing is asked twice"
    duo.claude.until(lambda: list(agents(duo).values()) == ["idle"] * 3)
    names = set(agents(duo))
    assert all(name.startswith("api-") for name in names)

    sent = you.output_of(f"pal send @api- --intent request -- '{QUESTION}'")
    seq = sent.split("#")[1].split()[0]
    assert all(name in sent for name in names)
    duo.claude.until(lambda: list(agents(duo).values()).count("Bash: make test") == 3)
    shown = you.output_of("pal list")
    assert shown.count("tool: Bash: make test") == 3

    (duo.claude.project / "go").touch()
    answers = ""
    while answers.count(ANSWER) < 3:
        answers += you.output_of("pal recv --wait --timeout 90s")
    assert you.output_of(f"pal receipts {seq}").count("answered in #") == 3

    you.output_of("pal stop --tag api")
    assert agents(duo) == {}
    assert set(duo.home.ok("list", "--stopped", "--names").out.split()) == names
    you.close()
    duo.claude.until_gone()
