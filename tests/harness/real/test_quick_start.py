"""The quick start of the README with the real Claude Code and Codex: its commands and their output."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from tests.docs.pages import blocks, sections
from tests.docs.story import README, Numbers, steps
from tests.harness.real.claude_stage import ClaudeStage, write_account
from tests.harness.real.codex_stage import CodexStage, bus_call, write_settings
from tests.harness.real.duo_stage import Duo
from tests.harness.real.harness_home import HarnessHome, new_folder, no_bus_yet
from tests.harness.real.harness_stage import HarnessStage, reply, tool
from tests.harness.real.install import installed

from palaver.app.mock_model import Request, Script, ScriptedReply, ScriptedToolCall, mock_model

pytestmark = pytest.mark.harness

QUICK = sections(README, "##")["Quick start"]
QUESTION = "which tests are red?"
ANSWER = "3 of 41, all in test_lexer.py"
ASKED = b"[y/N]"
"""The end of a question.

`pal claude` asks whether agents may use the safe commands without a prompt. Without that Claude Code asks a
server about each command, and the scripted model cannot reply to that. `pal codex` asks about our hooks.
"""


@dataclass(frozen=True, slots=True)
class Step:
    """The call that a model makes for the first message that matches.

    The call is made with the seqs of the matched messages so far.
    """

    pattern: str
    call: Callable[[Sequence[str]], ScriptedToolCall]


class Part(Script):
    """A model that makes its next call when the message for it has arrived."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self._steps = list(steps)
        self._seqs: list[str] = []

    def take(self, request: Request) -> ScriptedReply:
        other = super().take(request)
        found = re.search(self._steps[0].pattern, request.conversation) if self._steps else None
        if not request.is_main or found is None:
            return other
        self._seqs.append(found[1])
        return reply("", self._steps.pop(0).call(self._seqs))


def claude_sends(*words: str) -> ScriptedToolCall:
    """Return a call by which Claude Code sends a message from its shell."""
    return tool("Bash", command=f"pal send {' '.join(words)}", description="write")


def luna() -> Part:
    """Return the model of luna: it passes the question on to nova, and the reply back to the human."""
    return Part(
        Step(
            r"#(\d+)\] human → luna: ",
            lambda _: claude_sends("@nova", "--intent request", f"-- '{QUESTION}'"),
        ),
        Step(
            r"#(\d+)\] nova → luna: ",
            lambda seqs: claude_sends(f"--reply-to {seqs[0]}", f"-- '{ANSWER}'"),
        ),
    )


def nova() -> Part:
    """Return the model of nova: it replies with a tool, because its sandboxed shell cannot reach the bus."""
    return Part(
        Step(r"#(\d+)\] luna → nova: ", lambda seqs: bus_call("send", text=ANSWER, reply_to=seqs[0])),
    )


@pytest.fixture
def both() -> Iterator[Duo]:
    """Both programs, not started yet, and no bus."""
    folder = new_folder(installed("claude"), installed("codex"))
    write_account(folder)
    with mock_model(luna()) as luna_model, mock_model(nova()) as nova_model:
        write_settings(folder, nova_model)
        home = HarnessHome(folder / "home", luna_model, "claude", "codex")
        with no_bus_yet(home) as people:
            yield Duo(ClaudeStage(home, luna_model, people), CodexStage(home, nova_model, people))


def start(stage: HarnessStage, command: str, name: str) -> None:
    """Start a harness at a terminal of a person, and wait until it can be reached."""
    person = stage.person(term="xterm-256color")
    person.run(command)
    person.until(ASKED)
    person.press(b"y\r")
    stage.until(lambda: stage.state(name)[0] and stage.is_ready(name))


def normal(text: str) -> str:
    """Return an output without times."""
    return re.sub(r"\d\d:\d\d:\d\d", "TIME", text)


def test_quick_start_of_the_readme_works_as_it_is_typed(both: Duo) -> None:
    claude, codex = [
        line.split("#")[0].strip() for block in blocks(QUICK, "sh") for line in block.splitlines()
    ]
    start(both.claude, claude, "luna")
    start(both.codex, codex, "nova")
    you = both.claude.person()
    you.output_of("stty -echo")
    numbers = Numbers()
    story_steps = steps(QUICK)

    for _, command, page in story_steps:
        here = you.output_of(numbers.replace(command))
        numbers.learn(page, here)
        assert normal(here) == normal(numbers.replace(page)), command

    assert [command.split()[1] for _, command, _ in story_steps] == ["send", "recv", "receipts"]
    sent = both.home.events("--type", "message")
    assert [one["from"] for one in sent] == ["human", "luna", "nova", "luna"]
    assert [one for one in both.home.events("--type", "life") if one["payload"]["action"] == "typed"] == []
