"""The order of hooks proves what was in a request to the model, and no more."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.hooks.trail import Trail
from palaver.harness.hook_news import HookNews, Step


def news(step: Step, agent_id: str = "") -> HookNews:
    return HookNews(event=step.value, step=step, agent_id=agent_id)


def walk(trail: Trail, *steps: Step) -> list[list[int]]:
    """What each hook proves."""
    return [sorted(trail.hear(news(step))) for step in steps]


def test_what_comes_with_a_prompt_is_proven_by_the_first_tool_call() -> None:
    trail = Trail()
    trail.give(Step.PROMPT, [7])

    assert walk(trail, Step.CALL, Step.CALL) == [[7], []]


def test_what_comes_with_a_result_is_not_proven_by_a_call_of_the_same_answer() -> None:
    trail = Trail()
    trail.give(Step.RESULT, [7])

    assert walk(trail, Step.CALL, Step.RESULT, Step.BATCH, Step.CALL) == [[], [], [], [7]]


def test_without_a_word_on_the_batch_the_end_of_the_turn_proves_a_result() -> None:
    trail = Trail()
    trail.give(Step.RESULT, [7])

    assert walk(trail, Step.CALL, Step.RESULT, Step.TURN_END) == [[], [], [7]]


def test_what_keeps_a_turn_from_ending_is_proven_by_its_next_end() -> None:
    trail = Trail()
    trail.hear(news(Step.TURN_END))
    trail.give(Step.TURN_END, [7])

    assert walk(trail, Step.TURN_END) == [[7]]


def test_what_a_sub_agent_does_proves_nothing() -> None:
    trail = Trail()
    trail.give(Step.PROMPT, [7])

    assert trail.hear(news(Step.CALL, "a1")) == frozenset()
    assert walk(trail, Step.TURN_END) == [[7]]


def test_what_came_with_a_prompt_that_nothing_answered_before_the_next_is_in_doubt() -> None:
    trail = Trail()
    trail.give(Step.PROMPT, [7])
    assert trail.take_doubtful() == frozenset()

    assert walk(trail, Step.PROMPT) == [[]]

    assert trail.take_doubtful() == {7}
    assert trail.take_doubtful() == frozenset()
    assert walk(trail, Step.CALL, Step.TURN_END) == [[], []]


def test_a_result_between_two_prompts_shows_that_the_first_came_to_the_model() -> None:
    trail = Trail()
    trail.give(Step.PROMPT, [7])

    assert walk(trail, Step.RESULT, Step.PROMPT, Step.CALL) == [[], [], [7]]
    assert trail.take_doubtful() == frozenset()


def test_what_was_forgotten_is_never_proven() -> None:
    trail = Trail()
    trail.give(Step.PROMPT, [7])
    trail.give(Step.RESULT, [8])

    trail.forget()

    assert walk(trail, Step.TURN_END) == [[]]


def test_only_so_many_are_followed_and_the_oldest_is_given_up() -> None:
    trail = Trail()
    trail.give(Step.PROMPT, range(1, 1002))

    (proven,) = walk(trail, Step.CALL)

    assert proven[0] == 2
    assert len(proven) == 1000


class Model:
    """A conversation as it really is: what was given is in the next request, and a request is answered."""

    def __init__(self) -> None:
        self.pending: set[int] = set()
        self.asked: set[int] = set()

    def ask(self) -> None:
        self.asked |= self.pending
        self.pending.clear()


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[Step, bool]]:
    """The hooks of some turns in a possible order; true where the model is asked right behind a hook."""
    hooks: list[tuple[Step, bool]] = [(Step.START, False)]
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):  # one that another hook keeps from the model
            hooks.append((Step.PROMPT, False))
        hooks.append((Step.PROMPT, True))
        for _ in range(draw(st.integers(0, 3))):
            calls = draw(st.integers(1, 3))
            tools = [(Step.CALL, False), (Step.RESULT, False)] * calls
            if draw(st.booleans()):
                tools = [(Step.CALL, False)] * calls + [(Step.RESULT, False)] * calls
            says_batch = draw(st.booleans())
            hooks += [*tools, (Step.BATCH, True)] if says_batch else [*tools[:-1], (Step.RESULT, True)]
        hooks.append((Step.TURN_END, False))
    return hooks


@given(turns(), st.sets(st.integers(0, 40)))
def test_nothing_is_proven_that_was_not_in_a_request(
    hooks: Sequence[tuple[Step, bool]], given_at: set[int]
) -> None:
    trail, model = Trail(), Model()
    for place, (step, is_asked) in enumerate(hooks):
        if step is Step.PROMPT and place and hooks[place - 1][0] is Step.PROMPT:
            model.pending.discard(place - 1)
        proven = trail.hear(news(step))
        assert proven <= model.asked
        if place in given_at and step is not Step.CALL:
            trail.give(step, [place])
            model.pending.add(place)
            if step is Step.TURN_END:
                model.ask()  # the turn goes on
        if is_asked:
            model.ask()

    last = trail.hear(news(Step.TURN_END)) if model.asked else frozenset()
    assert last <= model.asked | model.pending
