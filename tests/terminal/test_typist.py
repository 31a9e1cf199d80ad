"""Executing the plan: each key with its screen state, none while keys are unsent, one message at a time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from tests.limits import LIMIT_S

from palaver.harness.base import Done, Gate, Profile, Prompt, TextOutcome
from palaver.harness.programs import GENERIC
from palaver.protocol.events import AgentState
from palaver.protocol.message import Priority
from palaver.terminal.gates import Foreground, GateFacts
from palaver.terminal.keyboard import Keyboard, Leftover
from palaver.terminal.screen import Composer, ScreenState
from palaver.terminal.typing import TypedText, Typist

IDLE = ScreenState(state=AgentState.IDLE, composer=Composer.EMPTY, prompt=Prompt.KNOWN, text="the screen")
QUICK = replace(GENERIC, settle_ms=0)


class FakeTerminal:
    """A terminal that the test controls. Typed text is echoed, and Enter sends it."""

    def __init__(self) -> None:
        self.seen = IDLE
        self.foreground = Foreground.AGENT
        self.unsent = False
        self.current = True
        self.keys: list[bytes] = []
        self.persons: list[bool] = []
        self.asked: list[bool] = []
        self.interrupts = 0
        self.changes = 0
        self.prompts: list[str] = []
        self.eats_enter = False
        self.keyboard = Keyboard()
        self.now_ms = 1_000
        self.tick_ms = 1
        self.on_current: Callable[[], None] = lambda: None

    def is_current(self) -> bool:
        self.on_current()
        return self.current

    def has_unsent(self) -> bool:
        return self.unsent

    def look(self) -> ScreenState:
        return self.seen

    def facts(self, *, is_interrupt: bool) -> GateFacts:
        self.asked.append(is_interrupt)
        self.now_ms += self.tick_ms
        return GateFacts(now_ms=self.now_ms, foreground=self.foreground)

    def press(self, keys: bytes, *, is_persons: bool) -> None:
        self.keys.append(keys)
        self.persons.append(is_persons)
        if keys == b"\r" and self.eats_enter:
            return
        text = "" if keys == b"\r" else keys.decode()
        self.seen = replace(self.seen, before_cursor=text, output_count=self.seen.output_count + 1)

    def interrupted(self) -> None:
        self.interrupts += 1
        self.seen = replace(self.seen, state=AgentState.IDLE)

    def accepted(self, prompt: str) -> None:
        self.prompts.append(prompt)

    def changed(self) -> None:
        self.changes += 1


def typist_at(terminal: FakeTerminal, profile: Profile = QUICK) -> Typist:
    return Typist(terminal, Leftover(terminal.keyboard), profile)


class RecordedOutcomes:
    """Records the outcomes of messages."""

    def __init__(self) -> None:
        self.ends: list[tuple[Done, str]] = []
        self._news = asyncio.Event()

    def __call__(self, done: Done, screen: str) -> None:
        self.ends.append((done, screen))
        self._news.set()

    async def end(self) -> tuple[Done, str]:
        async with asyncio.timeout(LIMIT_S):
            await self._news.wait()
        return self.ends[-1]


async def test_message_is_typed_entered_and_seen_to_leave() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    typist = typist_at(terminal)

    typist.begin(TypedText(text="hello"), recorded)

    done, screen = await recorded.end()
    assert (done.answer, screen) == (TextOutcome.SEEN, "the screen")
    assert terminal.keys == [b"hello", b"\r"]
    assert not typist.is_busy


async def test_closed_gate_defers_and_presses_nothing() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    terminal.foreground = Foreground.SHELL

    typist_at(terminal).begin(TypedText(text="hello"), recorded)

    assert (await recorded.end())[0] == Done(TextOutcome.DEFERRED, "shell")
    assert terminal.keys == []


async def test_no_step_while_keys_are_unsent_or_output_is_unparsed() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    typist = typist_at(terminal)
    terminal.unsent = True
    typist.begin(TypedText(text="hello"), recorded)
    assert terminal.asked == []

    terminal.unsent, terminal.current = False, False
    typist.poke()
    assert terminal.asked == []
    terminal.current = True
    typist.poke()

    assert (await recorded.end())[0].answer is TextOutcome.SEEN


async def test_interrupt_is_marked_when_the_gate_is_checked() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    terminal.seen = replace(IDLE, state=AgentState.ACTIVE)
    terminal.tick_ms = 300

    typist_at(terminal).begin(TypedText(text="now", priority=Priority.INTERRUPT), recorded)

    await recorded.end()
    assert terminal.keys == [b"\x03", b"now", b"\r"]
    assert terminal.interrupts == 1
    assert set(terminal.asked) == {True}


async def test_raw_keys_are_pressed_unchanged() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()

    typist_at(terminal).begin(TypedText(text="y\x1b[A", is_raw=True), recorded)

    assert (await recorded.end())[0].answer is TextOutcome.SEEN
    assert terminal.keys == [b"y\x1b[A"]
    assert terminal.persons == [True]


async def test_end_of_the_terminal_leaves_typed_text_unconfirmed() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    typist = typist_at(terminal, GENERIC)
    typist.begin(TypedText(text="hello"), recorded)
    assert typist.has_typed

    typist.end("exited with 0")

    assert (await recorded.end())[0] == Done(TextOutcome.UNCONFIRMED, "exited with 0")
    assert terminal.keys == [b"hello"]


async def test_end_of_the_terminal_defers_text_that_was_not_typed() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    typist = typist_at(terminal, GENERIC)
    terminal.unsent = True
    typist.begin(TypedText(text="hello"), recorded)

    typist.end("exited with 0")
    typist.end("exited with 0")

    assert recorded.ends == [(Done(TextOutcome.DEFERRED, "exited with 0"), "")]


async def test_end_during_output_parsing_ends_the_message_once() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    typist = typist_at(terminal, GENERIC)
    terminal.on_current = lambda: typist.end("exited with 0")

    typist.begin(TypedText(text="hello"), recorded)

    assert recorded.ends == [(Done(TextOutcome.DEFERRED, "exited with 0"), "")]
    assert terminal.keys == []


async def test_step_is_retried_while_the_program_keeps_writing() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    terminal.current = False
    typist = typist_at(terminal)
    typist.begin(TypedText(text="hello"), recorded)

    terminal.current = True

    assert (await recorded.end())[0].answer is TextOutcome.SEEN


async def test_raw_keys_can_be_pressed_during_a_message() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    typist = typist_at(terminal, GENERIC)
    typist.begin(TypedText(text="hello"), recorded)

    done, screen = typist.press_now(TypedText(text="y", is_raw=True))
    terminal.unsent = True
    late, _ = typist.press_now(TypedText(text="y", is_raw=True))

    assert (done.answer, screen) == (TextOutcome.SEEN, "the screen")
    assert late == Done(TextOutcome.DEFERRED, "earlier keys are not read yet")
    assert (terminal.keys, terminal.persons) == ([b"hello", b"y"], [False, True])


async def test_raw_keys_during_a_message_are_refused_for_a_shell() -> None:
    terminal = FakeTerminal()
    terminal.foreground = Foreground.SHELL

    done, _ = typist_at(terminal, GENERIC).press_now(TypedText(text="y", is_raw=True))

    assert done == Done(TextOutcome.REFUSED, "shell")


async def test_swallowed_enter_closes_the_gate_and_leaves_a_draft() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()
    terminal.eats_enter = True
    typist = typist_at(terminal)
    facts = GateFacts(now_ms=0, foreground=Foreground.AGENT)
    typist.begin(TypedText(text="hello"), recorded)
    before = typist.gate(terminal.look(), facts)

    for _ in range(3):
        terminal.now_ms += 2_000
        typist.poke()
    stopped = typist.gate(terminal.look(), facts)
    changes = terminal.changes
    terminal.now_ms += 60_000
    typist.poke()

    assert (before.is_open, stopped) == (True, Gate(is_open=False, reason="draft"))
    assert changes == 1
    assert (await recorded.end())[0] == Done(TextOutcome.UNCONFIRMED, "Enter had no effect twice")
    assert (terminal.keyboard.draft, terminal.keyboard.is_left_alone) == ("hello", True)
    assert terminal.keys == [b"hello", b"\r", b"\r"]


async def test_text_that_was_seen_to_leave_is_not_a_draft() -> None:
    terminal, recorded = FakeTerminal(), RecordedOutcomes()

    typist_at(terminal).begin(TypedText(text="hello"), recorded)

    await recorded.end()
    terminal.keyboard.leave()
    assert not terminal.keyboard.has_draft
