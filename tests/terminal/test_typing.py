"""The plan of keystrokes, tested step by step with chosen screen states and with random ones."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.holder.recorded import RECORDINGS

from palaver.harness.base import Done, Interrupt, Profile, Prompt, TextOutcome
from palaver.harness.registry import PROFILES, profile_of
from palaver.protocol.events import AgentState, Grade
from palaver.protocol.message import Priority
from palaver.terminal.gates import Foreground, GateFacts, check, check_raw
from palaver.terminal.screen import Composer, ScreenState
from palaver.terminal.typing import (
    ENTER,
    PASTE_BEGIN,
    PASTE_END,
    PauseStep,
    TypedText,
    Typing,
    TypingStep,
    Write,
)

TEXT = "[pal message #42 from: luna] can you review this?"
CLAUDE = profile_of("claude")
CODEX = profile_of("codex")
OPENCODE = profile_of("opencode")
GENERIC = profile_of("generic")

IDLE = ScreenState(
    state=AgentState.IDLE,
    composer=Composer.EMPTY,
    has_composer_rule=True,
    has_paste_mode=True,
    output_count=1,
)
BUSY = replace(IDLE, state=AgentState.ACTIVE)
DIALOG = replace(IDLE, state=AgentState.BLOCKED, has_dialog=True, composer=Composer.UNKNOWN)
PASTED = replace(IDLE, composer=Composer.DRAFT, draft=TEXT, output_count=2)
BLIND = ScreenState(state=AgentState.IDLE, composer=Composer.EMPTY, prompt=Prompt.KNOWN, output_count=1)

PASTE = Write(PASTE_BEGIN + TEXT.encode() + PASTE_END)
SEEN = Done(TextOutcome.SEEN, grade=Grade.HANDED)


class Hand:
    """Steps through a plan at chosen times and records the keys."""

    def __init__(self, profile: Profile = CLAUDE, offer: TypedText | None = None) -> None:
        self.typing = Typing(offer or TypedText(text=TEXT), profile)
        self.now_ms = 100_000
        self.keys: list[bytes] = []

    def ask(
        self,
        look: ScreenState,
        *,
        after_ms: int = 0,
        foreground: Foreground = Foreground.AGENT,
        taken: bool = False,
        unread: bool = False,
        reading: bool = True,
    ) -> TypingStep:
        self.now_ms += after_ms
        facts = GateFacts(
            now_ms=self.now_ms,
            foreground=foreground,
            is_passthrough=taken,
            has_unread=unread,
            is_reading=reading,
        )
        step = self.typing.step(look, facts)
        if isinstance(step, Write):
            self.keys.append(step.data)
        return step


def urgent() -> TypedText:
    return TypedText(text=TEXT, priority=Priority.INTERRUPT)


def test_message_is_pasted_then_sent_then_seen_to_leave() -> None:
    hand = Hand()

    steps = [
        hand.ask(IDLE),
        hand.ask(PASTED, after_ms=10),
        hand.ask(PASTED, after_ms=290),
        hand.ask(PASTED, after_ms=10),
        hand.ask(IDLE, after_ms=50),
    ]

    assert steps == [PASTE, PauseStep(290), Write(ENTER), PauseStep(100), SEEN]


def test_nothing_is_typed_while_the_gate_is_closed() -> None:
    hand = Hand()

    assert hand.ask(DIALOG) == Done(TextOutcome.DEFERRED, "dialog")
    assert hand.keys == []
    assert not hand.typing.has_typed


def test_half_drawn_frame_is_waited_for_up_to_a_limit() -> None:
    short, long = Hand(), Hand()
    blurred = replace(IDLE, is_readable=False, composer=Composer.UNKNOWN)

    assert [short.ask(blurred), short.ask(IDLE, after_ms=100)] == [PauseStep(100), PASTE]
    assert [long.ask(blurred), long.ask(blurred, after_ms=1_000)] == [
        PauseStep(100),
        Done(TextOutcome.DEFERRED, "unreadable"),
    ]


@pytest.mark.parametrize("foreground", [Foreground.SHELL, Foreground.OTHER, Foreground.GONE])
def test_only_the_process_of_the_agent_is_typed_to(foreground: Foreground) -> None:
    hand = Hand()

    step = hand.ask(IDLE, foreground=foreground)

    assert isinstance(step, Done)
    assert step.answer is TextOutcome.DEFERRED
    assert hand.keys == []


def test_dialog_that_opens_while_typing_gets_no_enter_until_it_closes() -> None:
    hand = Hand()
    hand.ask(IDLE)

    held = [hand.ask(DIALOG, after_ms=300), hand.ask(DIALOG, after_ms=3_600_000)]
    after = [hand.ask(PASTED, after_ms=1), hand.ask(IDLE, after_ms=1)]

    assert held == [PauseStep(500, "dialog"), PauseStep(500, "dialog")]
    assert after == [Write(ENTER), SEEN]
    assert hand.keys == [PASTE.data, ENTER]


def test_text_swallowed_by_a_dialog_is_deferred() -> None:
    hand = Hand()
    hand.ask(IDLE)
    hand.ask(DIALOG, after_ms=300)

    step = hand.ask(replace(IDLE, output_count=5), after_ms=4_000)

    assert step == Done(TextOutcome.DEFERRED, "swallowed")
    assert hand.keys == [PASTE.data]


def test_text_that_is_not_read_yet_does_not_count_as_swallowed() -> None:
    hand = Hand()
    hand.ask(IDLE)
    busy = replace(IDLE, output_count=5)

    steps = [hand.ask(busy, after_ms=4_000, unread=True), hand.ask(busy, after_ms=2_000)]
    steps += [hand.ask(replace(PASTED, output_count=6), after_ms=100)]

    assert steps == [PauseStep(100, "composer"), PauseStep(100, "composer"), Write(ENTER)]
    assert hand.keys == [PASTE.data, ENTER]


def test_text_that_the_program_has_read_and_not_shown_is_deferred() -> None:
    hand = Hand()
    hand.ask(IDLE)
    busy = replace(IDLE, output_count=5)
    hand.ask(busy, after_ms=4_000, unread=True)

    step = hand.ask(busy, after_ms=3_000)

    assert step == Done(TextOutcome.DEFERRED, "swallowed")


@pytest.mark.parametrize(
    ("unread", "reason"),
    [(True, "the program does not read its input"), (False, "the program does not react")],
)
def test_text_that_is_read_too_late_is_unconfirmed(unread: bool, reason: str) -> None:
    hand = Hand()
    hand.ask(IDLE)
    busy = replace(IDLE, output_count=5)
    hand.ask(busy, after_ms=59_000, unread=True)

    step = hand.ask(busy, after_ms=1_000, unread=unread)

    assert step == Done(TextOutcome.UNCONFIRMED, reason)


def test_unresponsive_program_is_reported_after_a_wait() -> None:
    hand = Hand()
    hand.ask(IDLE)

    steps = [hand.ask(IDLE, after_ms=10_000), hand.ask(IDLE, after_ms=60_000)]

    assert steps == [PauseStep(100, "composer"), Done(TextOutcome.UNCONFIRMED, "the program does not react")]


def test_text_sent_by_a_person_is_seen() -> None:
    hand = Hand()
    hand.ask(IDLE)

    step = hand.ask(replace(IDLE, text=f"> {TEXT}\nworking", human_key_count=3), after_ms=700)

    assert step == Done(TextOutcome.SEEN, "another process sent it", Grade.HANDED)


def test_text_deleted_by_a_person_is_unconfirmed() -> None:
    hand = Hand()
    hand.ask(IDLE)

    step = hand.ask(replace(IDLE, human_key_count=3, output_count=9), after_ms=3_500)

    assert step == Done(TextOutcome.UNCONFIRMED, "a person typed before it was sent")


def test_text_extended_by_a_person_is_left_to_them() -> None:
    hand = Hand()
    hand.ask(IDLE)
    mixed = replace(PASTED, draft=f"{TEXT} and more", human_key_count=1)
    mixed = replace(mixed, human_key_ms=100_200, output_ms=100_210)

    steps = [hand.ask(mixed, after_ms=300), hand.ask(mixed, after_ms=900), hand.ask(mixed, after_ms=58_800)]

    assert steps == [
        PauseStep(500, "human"),
        PauseStep(500, "draft"),
        Done(TextOutcome.UNCONFIRMED, "a person typed before it was sent"),
    ]
    assert hand.keys == [PASTE.data]


def test_swallowed_enter_is_pressed_once_more() -> None:
    hand = Hand()
    hand.ask(IDLE)
    hand.ask(PASTED, after_ms=300)

    steps = [
        hand.ask(PASTED, after_ms=1_499),
        hand.ask(PASTED, after_ms=1),
        hand.ask(PASTED, after_ms=1_500),
        hand.ask(IDLE, after_ms=5),
    ]

    assert steps == [PauseStep(100), Write(ENTER), PauseStep(500, "eaten"), SEEN]


def test_enter_swallowed_twice_is_reported() -> None:
    hand = Hand()
    hand.ask(IDLE)
    hand.ask(PASTED, after_ms=300)
    hand.ask(PASTED, after_ms=1_500)

    assert hand.ask(PASTED, after_ms=60_000) == Done(TextOutcome.UNCONFIRMED, "Enter had no effect twice")
    assert hand.keys == [PASTE.data, ENTER, ENTER]


def test_no_second_enter_while_a_dialog_covers_the_composer() -> None:
    hand = Hand()
    hand.ask(IDLE)
    hand.ask(PASTED, after_ms=300)

    steps = [hand.ask(DIALOG, after_ms=2_000), hand.ask(DIALOG, after_ms=600_000)]
    done = hand.ask(replace(DIALOG, text=f"> {TEXT}\n Do you want to proceed?"), after_ms=1)

    assert steps == [PauseStep(500, "dialog"), PauseStep(500, "dialog")]
    assert done == SEEN
    assert hand.keys == [PASTE.data, ENTER]


def test_typing_after_the_text_left_does_not_matter() -> None:
    hand = Hand()
    hand.ask(IDLE)
    hand.ask(PASTED, after_ms=300)

    assert hand.ask(replace(PASTED, draft="and now", human_key_count=2), after_ms=20) == SEEN


def test_folded_paste_counts_as_ours_until_a_person_types() -> None:
    folded = replace(PASTED, draft="[Pasted ~2 lines]")
    ours, theirs = Hand(OPENCODE), Hand(OPENCODE)
    ours.ask(IDLE)
    theirs.ask(IDLE)

    assert ours.ask(folded, after_ms=300) == Write(ENTER)
    assert theirs.ask(replace(folded, human_key_count=1), after_ms=300) == PauseStep(500, "draft")


def test_end_of_a_long_text_in_a_scrolling_composer_counts_as_ours() -> None:
    long = TypedText(text="a line of the message that goes on\n" * 20)
    hand = Hand(offer=long)
    hand.ask(IDLE)

    step = hand.ask(replace(PASTED, draft="a line of the message that goes on\n" * 4), after_ms=300)

    assert step == Write(ENTER)


def test_text_that_is_out_of_sight_is_unconfirmed_after_a_wait() -> None:
    covered = replace(IDLE, composer=Composer.UNKNOWN)
    before, behind = Hand(), Hand()
    before.ask(IDLE)
    behind.ask(IDLE)
    behind.ask(PASTED, after_ms=300)

    assert before.ask(covered, after_ms=400) == PauseStep(500, "composer")
    assert before.ask(covered, after_ms=60_000) == Done(
        TextOutcome.UNCONFIRMED, "the composer is no longer visible"
    )
    assert behind.ask(covered, after_ms=400) == PauseStep(500, "composer")
    assert behind.ask(covered, after_ms=60_000) == Done(
        TextOutcome.UNCONFIRMED, "the composer is no longer visible"
    )


def test_half_drawn_frame_that_shows_the_text_does_not_prove_it_left() -> None:
    half = replace(BUSY, composer=Composer.UNKNOWN, text=f"> {TEXT}")
    eaten, sent = Hand(), Hand()
    for hand in (eaten, sent):
        hand.ask(IDLE)
        hand.ask(PASTED, after_ms=300)

    assert eaten.ask(half, after_ms=200) == sent.ask(half, after_ms=200) == PauseStep(500, "composer")

    assert eaten.ask(PASTED, after_ms=1_300) == Write(ENTER)
    assert sent.ask(half, after_ms=60_000) == SEEN


def test_unreadable_screen_holds_everything() -> None:
    blurred = replace(PASTED, is_readable=False, composer=Composer.UNKNOWN)
    before, behind = Hand(), Hand()
    before.ask(IDLE)
    behind.ask(IDLE)
    behind.ask(PASTED, after_ms=300)

    assert before.ask(blurred, after_ms=600_000) == PauseStep(500, "unreadable")
    assert before.ask(PASTED) == Write(ENTER)
    assert behind.ask(blurred, after_ms=600_000) == PauseStep(100, "unreadable")
    assert behind.ask(IDLE) == SEEN


def test_without_paste_mode_the_text_is_one_plain_line() -> None:
    hand = Hand(GENERIC, TypedText(text="one\ntwo\tthree"))

    assert hand.ask(BLIND) == Write(b"one two three")


def test_idle_agent_is_not_interrupted() -> None:
    hand = Hand(GENERIC, urgent())

    assert hand.ask(BLIND) == Write(TEXT.encode())
    assert hand.typing.interrupts == 0


@pytest.mark.parametrize("priority", [Priority.IDLE, Priority.IDLE_FIRST])
def test_idle_message_is_not_typed_into_a_program_that_became_busy(
    priority: Priority,
) -> None:
    hand = Hand(offer=TypedText(text=TEXT, priority=priority))

    assert hand.ask(BUSY) == Done(TextOutcome.DEFERRED, "busy")
    assert Hand(offer=TypedText(text=TEXT, priority=priority)).ask(IDLE) == PASTE


def test_ignored_interrupt_is_repeated_three_times_before_the_text() -> None:
    hand = Hand(GENERIC, urgent())
    busy = replace(BLIND, state=AgentState.ACTIVE)
    written: list[tuple[int, bytes]] = []

    for _ in range(200):
        step = hand.ask(busy, after_ms=100)
        if isinstance(step, Write):
            written.append((hand.now_ms, step.data))
        if hand.typing.has_typed:
            break

    start = written[0][0]
    assert [(time_ms - start, data) for time_ms, data in written] == [
        (0, b"\x03"),
        (5_000, b"\x03"),
        (10_000, b"\x03"),
        (15_000, TEXT.encode()),
    ]


def test_interrupt_that_works_is_not_repeated() -> None:
    hand = Hand(GENERIC, urgent())
    busy = replace(BLIND, state=AgentState.ACTIVE)

    steps = [
        hand.ask(busy),
        hand.ask(busy, after_ms=300),
        hand.ask(BLIND, after_ms=100),
        hand.ask(BLIND, after_ms=2_000),
    ]

    assert steps == [PauseStep(100), Write(b"\x03"), PauseStep(200), Write(TEXT.encode())]


def test_program_that_is_busy_for_a_moment_only_is_not_interrupted() -> None:
    hand = Hand(GENERIC, urgent())

    steps = [hand.ask(replace(BLIND, state=AgentState.ACTIVE)), hand.ask(BLIND, after_ms=100)]

    assert steps == [PauseStep(100), Write(TEXT.encode())]


def test_dialog_stops_an_interrupt_before_and_after_its_keys() -> None:
    before, behind = Hand(offer=urgent()), Hand(offer=urgent())
    behind.ask(BUSY)

    assert before.ask(DIALOG) == Done(TextOutcome.DEFERRED, "dialog")
    assert behind.ask(DIALOG, after_ms=400) == Done(TextOutcome.DEFERRED, "dialog")
    assert (before.keys, behind.keys) == ([], [b"\x1b"])


def test_redraw_after_an_interrupt_is_waited_for() -> None:
    hand = Hand(offer=urgent())
    hand.ask(BUSY)

    steps = [hand.ask(replace(IDLE, composer=Composer.UNKNOWN), after_ms=400), hand.ask(IDLE, after_ms=100)]

    assert steps == [PauseStep(100), PASTE]


def test_composer_hidden_after_an_interrupt_defers_the_message() -> None:
    hand = Hand(offer=urgent())
    covered = replace(IDLE, composer=Composer.UNKNOWN)
    hand.ask(BUSY)

    steps = [hand.ask(covered, after_ms=2_000), hand.ask(covered, after_ms=3_000)]

    assert steps == [PauseStep(100), Done(TextOutcome.DEFERRED, "composer")]


def test_opencode_is_interrupted_by_exactly_two_presses() -> None:
    hand = Hand(OPENCODE, urgent())

    steps = [hand.ask(BUSY), hand.ask(BUSY, after_ms=300), hand.ask(BUSY, after_ms=300), hand.ask(IDLE)]

    assert steps == [Write(b"\x1b"), Write(b"\x1b"), PauseStep(100), PASTE]


def test_prompt_restored_by_an_interrupt_is_sent_with_the_message() -> None:
    hand = Hand(offer=urgent())
    restored = replace(IDLE, composer=Composer.DRAFT, draft="make the\nfile")
    hand.ask(BUSY)

    pasted = hand.ask(restored, after_ms=400)
    sent = hand.ask(replace(restored, draft=f"make the\nfile\n\n{TEXT}", output_count=4), after_ms=300)

    assert pasted == Write(PASTE_BEGIN + b"\n\n" + TEXT.encode() + PASTE_END)
    assert sent == Write(ENTER)


def test_draft_begun_during_an_interrupt_is_never_touched() -> None:
    hand = Hand(offer=urgent())
    draft = replace(IDLE, composer=Composer.DRAFT, draft="no wait", human_key_count=1)
    draft = replace(draft, human_key_ms=100_100, output_ms=100_150)
    hand.ask(BUSY)

    steps = [hand.ask(draft, after_ms=700), hand.ask(draft, after_ms=5_000)]

    assert steps == [PauseStep(100), Done(TextOutcome.DEFERRED, "draft")]
    assert hand.keys == [b"\x1b"]


def test_busy_codex_gets_the_queue_key_instead_of_enter() -> None:
    normal, idle = Hand(CODEX), Hand(CODEX)
    for hand in (normal, idle):
        hand.ask(BUSY)

    assert normal.ask(replace(PASTED, state=AgentState.ACTIVE), after_ms=300) == Write(b"\t")
    assert idle.ask(PASTED, after_ms=300) == Write(ENTER)


def test_raw_bytes_are_written_unchanged_even_into_a_dialog() -> None:
    hand = Hand(offer=TypedText(text="\x1b[Ay\udcff", is_raw=True))

    steps = [hand.ask(DIALOG), hand.ask(DIALOG)]

    assert steps == [Write(b"\x1b[Ay\xff"), SEEN]
    assert hand.typing.has_typed


def test_secret_keys_are_written_only_at_a_hidden_prompt() -> None:
    secret = TypedText(text="hunter2", is_raw=True, is_secret=True)
    asking = replace(BLIND, before_cursor="Password: ")

    assert Hand(offer=secret).ask(asking) == Write(b"hunter2")
    shown = Hand(offer=secret).ask(BLIND)
    hidden = Hand(offer=TypedText(text="hunter2", is_raw=True)).ask(asking)

    assert isinstance(shown, Done)
    assert isinstance(hidden, Done)
    assert (shown.answer, hidden.answer) == (TextOutcome.REFUSED, TextOutcome.REFUSED)
    assert "no longer hides" in shown.reason
    assert "asks for a secret" in hidden.reason


def test_raw_bytes_into_a_shell_are_refused() -> None:
    hand = Hand(offer=TypedText(text="rm", is_raw=True))

    assert hand.ask(IDLE, foreground=Foreground.SHELL) == Done(TextOutcome.REFUSED, "shell")


def test_outcome_is_repeated_whenever_asked() -> None:
    hand = Hand()

    first = hand.ask(DIALOG)

    assert hand.ask(IDLE) == first


def test_cursor_shows_that_the_text_left_a_program_without_composer() -> None:
    hand = Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)

    steps = [
        hand.ask(BLIND),
        hand.ask(echoed, after_ms=300),
        hand.ask(echoed, after_ms=100),
        hand.ask(replace(BLIND, before_cursor="> ", output_count=4), after_ms=100),
    ]

    assert steps == [Write(TEXT.encode()), Write(ENTER), PauseStep(100), SEEN]


def test_echo_that_stays_at_the_cursor_gets_one_more_enter() -> None:
    hand = Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    hand.ask(BLIND)
    hand.ask(echoed, after_ms=300)

    assert hand.ask(echoed, after_ms=1_500) == Write(ENTER)


def test_program_without_echo_must_at_least_react() -> None:
    quiet, lively = Hand(GENERIC), Hand(GENERIC)
    for hand in (quiet, lively):
        hand.ask(BLIND)
        hand.ask(BLIND, after_ms=300)

    assert quiet.ask(BLIND, after_ms=5_000) == PauseStep(100)
    assert quiet.ask(BLIND, after_ms=5_000) == Done(TextOutcome.UNCONFIRMED, "the program does not react")
    assert lively.ask(replace(BLIND, output_count=2), after_ms=5_000) == SEEN


def test_person_typing_in_a_program_without_composer_is_not_disturbed() -> None:
    hand = Hand(GENERIC)
    hand.ask(BLIND)
    theirs = replace(BLIND, composer=Composer.DRAFT, draft="x", human_key_count=1)
    theirs = replace(theirs, human_key_ms=100_100, output_ms=100_150)

    held = hand.ask(theirs, after_ms=900)
    taken = replace(theirs, composer=Composer.EMPTY, draft="", human_key_count=2)
    after = [hand.ask(taken, after_ms=900), hand.ask(taken, after_ms=1_000)]

    assert held == PauseStep(500, "draft")
    assert after == [
        PauseStep(100, "composer"),
        Done(TextOutcome.UNCONFIRMED, "the text left the composer before it was sent"),
    ]
    assert hand.keys == [TEXT.encode()]


def test_echo_that_vanished_while_held_gets_no_enter() -> None:
    hand = Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    hand.ask(BLIND)

    steps = [hand.ask(replace(echoed, has_dialog=True), after_ms=300)]
    steps += [hand.ask(BLIND, after_ms=300), hand.ask(BLIND, after_ms=1_000)]

    assert steps == [
        PauseStep(500, "dialog"),
        PauseStep(100, "composer"),
        Done(TextOutcome.UNCONFIRMED, "the text left the composer before it was sent"),
    ]


def test_echo_covered_by_a_dialog_is_sent_when_the_dialog_closes() -> None:
    hand = Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    covered = replace(BLIND, before_cursor=f"> {TEXT}\nProceed? [y/n] ", output_count=3, has_dialog=True)
    hand.ask(BLIND)

    steps = [hand.ask(replace(echoed, state=AgentState.BLOCKED), after_ms=300)]
    steps += [hand.ask(covered, after_ms=300), hand.ask(covered, after_ms=5_000)]
    steps += [hand.ask(replace(BLIND, output_count=4), after_ms=300)]  # the frame is half drawn
    steps += [hand.ask(replace(echoed, output_count=4), after_ms=900)]

    assert steps[:3] == [PauseStep(500, "dialog")] * 3
    assert steps[3:] == [PauseStep(100, "composer"), Write(b"\r")]


def test_question_at_the_cursor_gets_no_enter() -> None:
    hand = Hand(GENERIC)
    hand.ask(BLIND)

    step = hand.ask(replace(BLIND, state=AgentState.BLOCKED, has_dialog=True), after_ms=300)

    assert step == PauseStep(500, "dialog")


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_recorded_dialog_that_opens_while_typing_gets_no_key(name: str) -> None:
    recording = next(recording for recording in RECORDINGS if recording.name == f"{name}/race")
    text = "[pal message from: nova] in the very moment"
    hand = Hand(profile_of(name), TypedText(text=text))
    steps: dict[str, TypingStep] = {}

    for scene, screen in recording.play():
        hand.now_ms = scene.ms + 5_000
        if scene.scene in ("queued", "dialog_over_draft", "draft_after_dialog", "sent"):
            steps[scene.scene] = hand.ask(screen.look(hand.now_ms))

    assert steps["queued"] == Write(PASTE_BEGIN + text.encode() + PASTE_END)
    assert steps["dialog_over_draft"] == PauseStep(500, "dialog")
    assert steps["draft_after_dialog"] == Write(ENTER)
    assert steps["sent"] == SEEN


@st.composite
def looks(draw: st.DrawFn) -> ScreenState:
    """Draw any screen state, with likely ones more often."""
    has_rule = draw(st.booleans())
    draft = draw(st.sampled_from(["", TEXT, f"{TEXT} more", "half", "[Pasted ~2 lines]"]))
    return ScreenState(
        state=draw(st.sampled_from([AgentState.IDLE, AgentState.ACTIVE, *AgentState])),
        reason=draw(st.sampled_from(["", "", "", "compacting", "session_end"])),
        has_dialog=draw(st.sampled_from([False, False, False, True])),
        composer=draw(
            st.sampled_from([Composer.EMPTY, Composer.DRAFT if draft else Composer.EMPTY, *Composer])
        ),
        draft=draft,
        has_composer_rule=has_rule,
        is_readable=draw(st.sampled_from([True, True, True, False])),
        has_paste_mode=draw(st.booleans()),
        text=draw(st.sampled_from(["", TEXT])),
        before_cursor=draw(st.sampled_from(["", TEXT, "> "])),
        output_count=draw(st.integers(0, 3)),
        human_key_ms=draw(st.sampled_from([None, None, 100_000, 101_000])),
        human_key_count=draw(st.sampled_from([0, 0, 0, 1])),
    )


moments = st.lists(
    st.tuples(
        looks(),
        st.sampled_from([0, 50, 300, 1_500, 5_000, 70_000]),
        st.sampled_from([Foreground.AGENT, *Foreground]),
    ),
    max_size=40,
)
offers = st.builds(TypedText, text=st.just(TEXT), priority=st.sampled_from(Priority), is_raw=st.booleans())


@given(st.sampled_from(sorted(PROFILES)), offers, moments)
def test_no_key_is_ever_written_while_its_gate_is_closed(
    name: str, offer: TypedText, story: Sequence[tuple[ScreenState, int, Foreground]]
) -> None:
    profile = profile_of(name)
    typing = Typing(offer, profile)
    now_ms, keys = 100_000, list[bytes]()

    for look, after_ms, foreground in story:
        now_ms += after_ms
        facts = GateFacts(now_ms=now_ms, foreground=foreground)
        step = typing.step(look, facts)
        if not isinstance(step, Write):
            continue
        keys.append(step.data)
        if offer.is_raw:
            assert check_raw(look, facts).is_open
        elif step.data in (ENTER, profile.queue_key):
            assert check(look, facts, ours=True).is_open
            assert look.composer is not Composer.DRAFT or look.has_composer_rule
        elif step.data.startswith(PASTE_BEGIN + b"\n\n"):
            assert typing.interrupts
            assert look.human_key_count == 0 or look.composer is Composer.DRAFT
            assert check(look, facts, ours=True).is_open
        else:
            assert check(look, facts).is_open

    assert sum(TEXT.encode() in key for key in keys) <= 1
    assert sum(key in (ENTER, b"\t") for key in keys) <= 2
    assert keys.count(profile.interrupt.keys) <= _most(profile.interrupt)
    assert offer.priority is Priority.INTERRUPT or profile.interrupt.keys not in keys


def _most(interrupt: Interrupt) -> int:
    return interrupt.most * interrupt.presses


@given(offers, moments)
def test_deferred_message_left_nothing_but_a_swallowed_paste(
    offer: TypedText, story: Sequence[tuple[ScreenState, int, Foreground]]
) -> None:
    typing = Typing(offer, CLAUDE)
    now_ms = 100_000

    for look, after_ms, foreground in story:
        now_ms += after_ms
        step = typing.step(look, GateFacts(now_ms=now_ms, foreground=foreground))
        if isinstance(step, Done) and step.answer is TextOutcome.DEFERRED:
            assert step.reason == "swallowed" or not typing.has_typed


def test_unread_text_is_not_seen_whatever_the_screen_shows() -> None:
    hand = Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    after = replace(BLIND, output_count=3)
    hand.ask(BLIND)
    hand.ask(echoed, after_ms=300)

    steps = [hand.ask(after, after_ms=100, unread=True), hand.ask(after, after_ms=9_900, unread=True)]

    assert steps == [PauseStep(100), Done(TextOutcome.UNCONFIRMED, "the program does not read its input")]


def test_text_is_seen_as_soon_as_the_program_has_read_it() -> None:
    hand = Hand(GENERIC)
    hand.ask(BLIND)
    hand.ask(replace(BLIND, before_cursor=f"> {TEXT}", output_count=2), after_ms=300)
    after = replace(BLIND, output_count=3)

    assert [hand.ask(after, after_ms=100, unread=True), hand.ask(after, after_ms=100)] == [
        PauseStep(100),
        SEEN,
    ]


def test_empty_composer_counts_only_after_the_input_is_read() -> None:
    hand = Hand()
    hand.ask(IDLE)
    hand.ask(PASTED, after_ms=300)

    assert [hand.ask(IDLE, unread=True), hand.ask(IDLE)] == [PauseStep(100, "deaf"), SEEN]


def test_unread_text_gets_no_enter_and_is_unconfirmed_after_a_minute() -> None:
    hand = Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    hand.ask(BLIND)

    steps = [hand.ask(echoed, after_ms=300, unread=True), hand.ask(echoed, after_ms=59_700, unread=True)]

    assert steps == [
        PauseStep(500, "deaf"),
        Done(TextOutcome.UNCONFIRMED, "the program does not read its input"),
    ]
    assert hand.keys == [TEXT.encode()]


def test_nothing_is_typed_into_a_program_that_does_not_read() -> None:
    hand = Hand(GENERIC)

    steps = [hand.ask(BLIND, reading=False), hand.ask(BLIND, after_ms=1_000, reading=False)]

    assert steps == [PauseStep(100), Done(TextOutcome.DEFERRED, "deaf")]
    assert hand.keys == []


def test_program_that_does_not_read_after_three_interrupts_gets_no_text() -> None:
    hand = Hand(GENERIC, urgent())
    busy = replace(BLIND, state=AgentState.ACTIVE)

    for _ in range(3):
        hand.ask(busy, after_ms=5_000, reading=False)
    hand.ask(busy, after_ms=5_000, reading=False)

    assert hand.keys == [b"\x03", b"\x03", b"\x03"]


def test_urgent_text_waits_for_a_reader_once_the_program_is_idle() -> None:
    hand = Hand(GENERIC, urgent())
    hand.ask(replace(BLIND, state=AgentState.ACTIVE), reading=False)
    hand.ask(replace(BLIND, state=AgentState.ACTIVE), after_ms=300, reading=False)

    waiting = hand.ask(BLIND, after_ms=1_000, reading=False)
    hand.ask(BLIND, after_ms=100)

    assert waiting == PauseStep(100)
    assert hand.keys == [b"\x03", TEXT.encode()]


def test_text_extended_after_a_swallowed_enter_does_not_prove_it_left() -> None:
    seen, blind = Hand(), Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    for hand, first, pasted in ((seen, IDLE, PASTED), (blind, BLIND, echoed)):
        hand.ask(first)
        hand.ask(pasted, after_ms=300)
    mixed = replace(PASTED, draft=f"{TEXT}Z", human_key_count=1)
    touched = replace(
        echoed, before_cursor=f"> {TEXT}Z", composer=Composer.DRAFT, human_key_count=1, output_count=3
    )

    held = [seen.ask(mixed, after_ms=900), blind.ask(touched, after_ms=900)]
    over = [seen.ask(mixed, after_ms=59_100), blind.ask(touched, after_ms=59_100)]

    assert held == [PauseStep(500, "draft")] * 2
    assert over == [Done(TextOutcome.UNCONFIRMED, "a person typed before it was sent")] * 2
    assert (seen.typing.is_left, blind.typing.is_left) == (False, True)


def test_text_that_may_remain_in_an_unreadable_line_counts_as_left() -> None:
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    part = replace(echoed, before_cursor=f"> {TEXT[-30:]}")
    eaten, cut, silent = Hand(GENERIC), Hand(GENERIC), Hand(GENERIC)
    for hand, shown in ((eaten, echoed), (cut, part), (silent, BLIND)):
        hand.ask(BLIND)
        hand.ask(shown, after_ms=300)

    eaten.ask(echoed, after_ms=1_500)
    ends = [
        eaten.ask(echoed, after_ms=60_000),
        cut.ask(part, after_ms=10_000),
        silent.ask(BLIND, after_ms=10_000),
    ]

    assert all(isinstance(end, Done) and end.answer is TextOutcome.UNCONFIRMED for end in ends)
    assert [hand.typing.is_left for hand in (eaten, cut, silent)] == [True, True, False]


def test_stopped_text_stays_stopped_whatever_else_delays_it() -> None:
    eaten, touched = Hand(GENERIC), Hand(GENERIC)
    echoed = replace(BLIND, before_cursor=f"> {TEXT}", output_count=2)
    mixed = replace(echoed, composer=Composer.DRAFT, draft="Z", human_key_count=1)
    stopped = []

    for hand in (eaten, touched):
        hand.ask(BLIND)
    for after_ms in (300, 1_500):
        eaten.ask(echoed, after_ms=after_ms)
        stopped.append(eaten.typing.is_stopped)
    for hand, look in ((eaten, echoed), (touched, mixed)):
        assert hand.ask(look, after_ms=1_600, reading=False) == PauseStep(500, "deaf")
        stopped.append(hand.typing.is_stopped)

    assert stopped == [False, False, True, True]


@pytest.mark.parametrize("text", ["one\ttwo", "one\ntwo", "one\r\ntwo", "one\u2028two"])
def test_text_with_breaks_is_a_file_reference_without_bracketed_paste(text: str) -> None:
    offer = TypedText(text=text, reference="Read /m/1.md")
    blind, pasting = Hand(GENERIC, offer), Hand(CLAUDE, offer)

    assert blind.ask(BLIND) == Write(b"Read /m/1.md")
    assert blind.typing.text == "Read /m/1.md"
    step = pasting.ask(IDLE)

    assert isinstance(step, Write)
    assert step.data.startswith(PASTE_BEGIN + b"one")


@pytest.mark.parametrize("text", ["one two", "one two\n", "\tone"])
def test_text_without_breaks_inside_is_typed_without_bracketed_paste(text: str) -> None:
    hand = Hand(GENERIC, TypedText(text=text, reference="Read /m/1.md"))

    step = hand.ask(BLIND)

    assert isinstance(step, Write)
    assert b"one" in step.data
