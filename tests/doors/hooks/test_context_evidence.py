"""The order of hooks proves which messages were in a request to the model, and nothing else."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.hooks import HookNews, HookStep
from palaver.services.evidence import ContextEvidence


def news(step: HookStep) -> HookNews:
    return HookNews(event=step.value, step=step)


def walk(context_evidence: ContextEvidence, *steps: HookStep) -> list[list[int]]:
    """Return the messages that each hook proves."""
    return [sorted(context_evidence.hear(news(step))) for step in steps]


def test_message_with_a_prompt_is_proven_by_the_first_tool_call() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.PROMPT, [7])

    assert walk(context_evidence, HookStep.CALL, HookStep.CALL) == [[7], []]


def test_message_with_a_result_is_not_proven_by_a_parallel_call() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.RESULT, [7])

    assert walk(context_evidence, HookStep.CALL, HookStep.RESULT, HookStep.BATCH, HookStep.CALL) == [
        [],
        [],
        [],
        [7],
    ]


def test_without_a_batch_hook_the_turn_end_proves_a_result() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.RESULT, [7])

    assert walk(context_evidence, HookStep.CALL, HookStep.RESULT, HookStep.TURN_END) == [[], [], [7]]


def test_message_that_extends_a_turn_is_proven_by_its_next_end() -> None:
    context_evidence = ContextEvidence()
    context_evidence.hear(news(HookStep.TURN_END))
    context_evidence.give(HookStep.TURN_END, [7])

    assert walk(context_evidence, HookStep.TURN_END) == [[7]]


def test_message_of_a_prompt_without_a_response_is_unconfirmed() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.PROMPT, [7])
    assert context_evidence.take_unconfirmed() == frozenset()

    assert walk(context_evidence, HookStep.PROMPT) == [[]]

    assert context_evidence.take_unconfirmed() == {7}
    assert context_evidence.take_unconfirmed() == frozenset()
    assert walk(context_evidence, HookStep.CALL, HookStep.TURN_END) == [[], []]


def test_result_between_two_prompts_shows_that_the_first_was_sent() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.PROMPT, [7])

    assert walk(context_evidence, HookStep.RESULT, HookStep.PROMPT, HookStep.CALL) == [[], [], [7]]
    assert context_evidence.take_unconfirmed() == frozenset()


def test_forgotten_message_is_never_proven() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.PROMPT, [7])
    context_evidence.give(HookStep.RESULT, [8])

    context_evidence.forget()

    assert walk(context_evidence, HookStep.TURN_END) == [[]]


def test_tracked_messages_are_limited_and_the_oldest_is_dropped() -> None:
    context_evidence = ContextEvidence()
    context_evidence.give(HookStep.PROMPT, range(1, 1002))

    (proven,) = walk(context_evidence, HookStep.CALL)

    assert proven[0] == 2
    assert len(proven) == 1000


class Model:
    """A model of the conversation: messages are in the next request, and each request gets a response."""

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.asked: set[int] = set()

    def ask(self) -> None:
        self.asked |= self.pending
        self.pending.clear()


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[HookStep, bool]]:
    """Draw the hooks of some turns in a possible order; true if a model request follows the hook."""
    hooks: list[tuple[HookStep, bool]] = [(HookStep.START, False)]
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):  # a prompt that another hook blocks
            hooks.append((HookStep.PROMPT, False))
        hooks.append((HookStep.PROMPT, True))
        for _ in range(draw(st.integers(0, 3))):
            calls = draw(st.integers(1, 3))
            tools = [(HookStep.CALL, False), (HookStep.RESULT, False)] * calls
            if draw(st.booleans()):
                tools = [(HookStep.CALL, False)] * calls + [(HookStep.RESULT, False)] * calls
            says_batch = draw(st.booleans())
            hooks += (
                [*tools, (HookStep.BATCH, True)] if says_batch else [*tools[:-1], (HookStep.RESULT, True)]
            )
        hooks.append((HookStep.TURN_END, False))
    return hooks


@given(turns(), st.sets(st.integers(0, 40)))
def test_only_messages_in_a_request_are_proven(
    hooks: Sequence[tuple[HookStep, bool]], given_at: set[int]
) -> None:
    context_evidence, model = ContextEvidence(), Model()
    for index, (step, is_asked) in enumerate(hooks):
        if step is HookStep.PROMPT and index and hooks[index - 1][0] is HookStep.PROMPT:
            model.pending.discard(index - 1)
        proven = context_evidence.hear(news(step))
        assert proven <= model.asked
        if index in given_at and step is not HookStep.CALL:
            context_evidence.give(step, [index])
            model.pending.add(index)
            if step is HookStep.TURN_END:
                model.ask()  # the turn continues
        if is_asked:
            model.ask()

    last = context_evidence.hear(news(HookStep.TURN_END)) if model.asked else frozenset()
    assert last <= model.asked | model.pending
