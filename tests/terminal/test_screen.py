"""Screen states: recordings of the real harnesses, and unknown programs."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.holder.recorded import RECORDINGS, Recording

from palaver.harness.base import Profile, Prompt
from palaver.harness.marks import SESSION_MARKS
from palaver.harness.registry import PROFILES, profile_of
from palaver.protocol.events import AgentState
from palaver.terminal.emulator import redraw
from palaver.terminal.gates import Foreground, GateFacts, check
from palaver.terminal.keyboard import is_at_cursor, squeeze
from palaver.terminal.screen import (
    BACKLOG_BYTES,
    FRAME_LIMIT_MS,
    KEPT_BYTES,
    STEP_BYTES,
    Composer,
    Screen,
    ScreenState,
)

SETTLED_MS = 10_000
"""Later than every rule about silence."""


def generic(started_ms: int = 0) -> Screen:
    return Screen(40, 6, profile_of("generic"), started_ms=started_ms)


def state(look: ScreenState) -> tuple[AgentState, str]:
    return look.state, look.reason


@pytest.fixture(params=RECORDINGS, ids=lambda recording: recording.name)
def recording(request: pytest.FixtureRequest) -> Recording:
    assert isinstance(request.param, Recording)
    return request.param


def test_four_harnesses_are_recorded_in_two_sizes_and_with_a_race() -> None:
    assert {recording.name for recording in RECORDINGS} == {
        f"{name}/{kind}" for name in SESSION_MARKS for kind in ("80x24", "120x40", "race")
    }


def test_every_scene_has_the_recorded_screen_state(recording: Recording) -> None:
    for scene, screen in recording.play():
        look = screen.look(scene.ms + SETTLED_MS)

        seen = (scene.scene, str(look.state), look.reason, str(look.composer), squeeze(look.draft))
        assert seen == (scene.scene, scene.state, scene.reason, scene.composer, squeeze(scene.draft))
        assert look.is_readable
        assert look.has_dialog == (scene.state == "blocked")


def test_gate_is_open_exactly_where_the_composer_is_empty(recording: Recording) -> None:
    for scene, screen in recording.play():
        now_ms = scene.ms + SETTLED_MS
        gate = check(screen.look(now_ms), GateFacts(now_ms=now_ms, foreground=Foreground.AGENT))

        assert (scene.scene, gate.is_open) == (scene.scene, scene.composer == "empty")


def test_dialog_is_detected_without_status_and_title(recording: Recording) -> None:
    deaf = recording.screen()
    data = recording.data
    scene = next(scene for scene in recording.scenes if scene.state == "blocked")
    words = (b"\x1b]7501;state=", b"\x1b]0;", b"\x1b]2;")
    heard = data[: scene.offset]
    for word in words:
        heard = heard.replace(word, b"\x1b]999;")
    for start in range(0, len(heard), 4096):
        deaf.feed(heard[start : start + 4096], 0)
        deaf.step()

    look = deaf.look(SETTLED_MS)

    assert look.has_dialog
    assert look.composer is Composer.UNKNOWN


@cache  # many examples end at the same scene
def look_in_large_pieces(name: str, size: int) -> ScreenState:
    """Return the look after the beginning of a recording, fed in pieces of 8 KiB."""
    (recording,) = (one for one in RECORDINGS if one.name == name)
    screen, data = recording.screen(), recording.data[:size]
    for start in range(0, size, 8192):
        screen.feed(data[start : start + 8192], 0)
        screen.step()
    return screen.look(SETTLED_MS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_chunk_size_of_a_recording_makes_no_difference(recording: Recording, data: st.DataObject) -> None:
    scene = data.draw(st.sampled_from(recording.scenes))
    whole = recording.data[: scene.offset]
    size = data.draw(st.integers(1, 5000), label="size of the first piece")
    cut_screen = recording.screen()

    at = 0
    while at < len(whole):
        cut_screen.feed(whole[at : at + size], 0)
        cut_screen.step()
        at += size
        size = size * 7 % 4999 + 1

    cut, expected = cut_screen.look(SETTLED_MS), look_in_large_pieces(recording.name, scene.offset)
    assert (cut.text, state(cut), cut.composer, cut.draft) == (
        expected.text,
        state(expected),
        expected.composer,
        expected.draft,
    )


@given(st.sampled_from(sorted(PROFILES)), st.lists(st.binary(max_size=80), max_size=12))
def test_any_bytes_are_safe_and_never_open_the_gate_of_a_harness(name: str, pieces: list[bytes]) -> None:
    screen = Screen(20, 5, profile_of(name), started_ms=0)
    for piece in pieces:
        screen.feed(piece, 0)

    look = screen.look(SETTLED_MS)

    assert isinstance(look, ScreenState)
    if look.has_composer_rule:
        assert look.state is AgentState.STARTING
        assert not check(look, GateFacts(now_ms=SETTLED_MS, foreground=Foreground.AGENT)).is_open


def test_unknown_program_is_active_while_writing_and_then_idle() -> None:
    screen = generic()
    screen.feed(b"hello\r\n", 1_000)

    first = screen.look(3_000)
    screen.feed(b"more\r\n", 4_000)
    looks = [screen.look(4_001), screen.look(5_999), screen.look(6_000)]

    assert first.state is AgentState.IDLE
    assert [look.state for look in looks] == [AgentState.ACTIVE, AgentState.ACTIVE, AgentState.IDLE]


def test_program_is_starting_until_its_first_output_and_silence() -> None:
    screen = generic(started_ms=1_000)

    states = [screen.look(2_000).state]
    screen.feed(b"loading", 2_500)
    states += [screen.look(4_499).state, screen.look(4_500).state]

    assert states == [AgentState.STARTING, AgentState.STARTING, AgentState.IDLE]


def test_silent_program_is_idle_after_two_seconds_but_has_not_started() -> None:
    screen = generic(started_ms=1_000)

    looks = [screen.look(2_999), screen.look(3_000)]
    screen.feed(b"loading", 5_000)
    looks += [screen.look(6_999), screen.look(7_000)]

    assert [look.state for look in looks] == [
        AgentState.STARTING,
        AgentState.IDLE,
        AgentState.ACTIVE,
        AgentState.IDLE,
    ]
    assert [look.has_started for look in looks] == [False, False, False, True]


def test_start_of_a_program_that_never_pauses_ends_after_its_limit() -> None:
    screen = generic(started_ms=0)
    screen.feed(b"tick", 9_999)

    assert screen.look(9_999).state is AgentState.STARTING
    assert screen.look(10_000).state is AgentState.ACTIVE


@pytest.mark.parametrize(
    ("is_waiting", "is_raw", "started_ms"),
    [(True, False, 2_000), (True, True, 2_000), (None, True, 10_000), (None, False, 0), (False, True, 0)],
)
def test_silent_program_has_started_when_it_waits_for_input(
    is_waiting: bool | None, is_raw: bool, started_ms: int
) -> None:
    screen = generic(started_ms=0)

    states = []
    for now_ms in (1_999, 2_000, 9_999, 10_000, 3_600_000):
        screen.startup.see_reader(now_ms, is_waiting=is_waiting, is_raw=is_raw)
        states.append(screen.look(now_ms).has_started)

    expected = [now_ms >= (started_ms or 10**9) for now_ms in (1_999, 2_000, 9_999, 10_000, 3_600_000)]
    assert states == expected


def test_program_with_output_has_started_only_by_its_output() -> None:
    screen = generic(started_ms=0)
    screen.feed(b"loading", 2_500)

    screen.startup.see_reader(2_600, is_waiting=True, is_raw=False)

    assert screen.look(2_600).state is AgentState.STARTING


@pytest.mark.parametrize(
    "question",
    [
        b"Overwrite the file? [y/N] ",
        b"Continue (yes/no)? ",
        b"Password: ",
        b"Enter passphrase for key: ",
        b"Do you want to proceed?\r\n 1. Yes\r\n 2. No\r\n",
        b"Would you like to run this?\r\n> ",
        b"Permission required: shell\r\n",
        b"rm: remove regular empty file 'x'? ",
        b"Press ENTER to continue...",
        b"Press any key to continue . . . \r\n",
        b"Apply this patch to 3 files? y/n: ",
        b"Apply this patch to 3 files? y/n:\r\n> ",
        b"> 1. Yes\r\n  2. No\r\n",
        b"  1. Yes\r\n> 2. No\r\n",
        b"> 1. Yes / 2. No",
        "❯ Yes\r\n  No\r\n".encode(),
        b"1) one\r\n2) two\r\n#? ",
        b"Do you want to allow this?\r\n" + b"".join(b"  (%c) option\r\n" % n for n in range(97, 106)),
        b"Enter token> ",
        b"API key: ",
        b"Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        b"Trust this folder? [Y/n] ",
        b"Which one?\r\n",
        b"--More--",
        b"? Pick one (Use arrow keys)\r\n",
        b"\x1b]7501;state=blocked:kind=permission\x07",
    ],
)
def test_question_of_any_program_is_a_dialog(question: bytes) -> None:
    screen = Screen(80, 24, profile_of("generic"), started_ms=0)

    screen.feed(question, 0)
    look = screen.look(SETTLED_MS)

    assert look.has_dialog
    assert state(look) == (AgentState.BLOCKED, "permission")


@pytest.mark.parametrize(
    "output",
    [
        b"> ",
        b"Password: secret\r\n> ",
        b"Do you want to know?\r\n" + b"line\r\n" * 12,
        b"ready [y/N] no\r\n> ",
        b"How can I help you?\r\n> ",
        b'Type "help", "copyright", "credits" or "license" for more information.\r\n>>> ',
        b"Press Ctrl-D to leave, Enter to send\r\n> ",
        b"[pal message #42 from: luna] is it green?\r\n",
        b"[URGENT pal message #42 from: luna] do you know whether it is green by now?\r\n",
        b"$ ",
        b"In [1]: ",
        b"1. one\r\n2. two\r\n> ",
        b"tokens: 12 > ",
    ],
)
def test_answered_question_is_not_a_dialog(output: bytes) -> None:
    screen = Screen(40, 20, profile_of("generic"), started_ms=0)

    screen.feed(output, 0)

    assert not screen.look(SETTLED_MS).has_dialog


def test_half_typed_line_is_a_draft_without_a_known_composer() -> None:
    screen = generic()
    screen.feed(b"> ", 0)

    screen.human_keys(b"half", 5_000)
    draft = screen.look(SETTLED_MS)
    screen.human_keys(b"\r", 6_000)
    after = screen.look(SETTLED_MS)

    assert (draft.composer, draft.draft, draft.human_key_ms) == (Composer.DRAFT, "half", 5_000)
    assert (after.composer, after.human_key_ms, after.human_key_count) == (Composer.EMPTY, 6_000, 2)


@pytest.mark.parametrize(
    ("modes", "composer"),
    [
        (b"", Composer.EMPTY),
        (b"\x1b[?1049h", Composer.UNKNOWN),
        (b"\x1b[?1049h\x1b[?2004h", Composer.EMPTY),
        (b"\x1b[?2004h\x1b[?1049h\x1b[?2004l", Composer.UNKNOWN),
        (b"\x1b[?1049h\x1b[?1049l", Composer.EMPTY),
    ],
)
def test_full_screen_program_has_a_composer_only_with_paste_mode(modes: bytes, composer: Composer) -> None:
    screen = generic()

    screen.feed(modes + b"hello", 0)

    assert screen.look(SETTLED_MS).composer is composer


def test_hooks_override_the_state_from_output() -> None:
    screen = generic()
    screen.feed(b"> ", 0)

    heard = screen.hear("UserPromptSubmit")
    busy = screen.look(SETTLED_MS)
    screen.hear("PermissionRequest")
    asked = screen.look(SETTLED_MS)
    screen.hear("Stop")
    screen.feed(b"spinner", SETTLED_MS)
    idle = screen.look(SETTLED_MS)

    assert heard
    assert state(busy) == (AgentState.ACTIVE, "thinking")
    assert (state(asked), asked.has_dialog) == ((AgentState.BLOCKED, "permission_review"), True)
    assert idle.state is AgentState.IDLE


def test_hook_ends_the_start() -> None:
    screen = Screen(80, 24, profile_of("claude"), started_ms=0)

    screen.hear("SessionStart", session="one")

    assert screen.look(0).state is AgentState.IDLE
    assert not screen.hear("Stop", session="two")


def test_interrupt_clears_the_state_of_a_hook() -> None:
    screen = generic()
    screen.feed(b"> ", 0)
    screen.hear("PreToolUse")

    screen.interrupted()

    assert screen.look(SETTLED_MS).state is AgentState.IDLE


def test_ended_program_is_exited_whatever_it_showed_last() -> None:
    screen = generic()
    screen.feed(b"Continue? [y/N] ", 0)

    screen.exit("exited with 3")

    assert state(screen.look(SETTLED_MS)) == (AgentState.EXITED, "exited with 3")


def test_usage_limit_is_the_reason_of_an_idle_agent() -> None:
    screen = Screen(80, 24, profile_of("claude"), started_ms=0)
    rule = "─" * 80
    text = f"\x1b[?2004hYou've hit your session limit · resets 6pm\r\n{rule}\r\n❯ \r\n{rule}\r\n\x1b[3;3H"

    screen.feed(text.encode(), 0)

    assert state(screen.look(SETTLED_MS)) == (AgentState.IDLE, "usage_limit")


def test_compaction_is_detected_on_the_screen() -> None:
    screen = Screen(80, 24, profile_of("claude"), started_ms=0)
    rule = "─" * 80

    screen.feed(f"\x1b[?2004h✻ Compacting conversation…\r\n{rule}\r\n❯ \r\n{rule}\r\n\x1b[3;3H".encode(), 0)

    assert state(screen.look(SETTLED_MS)) == (AgentState.ACTIVE, "compacting")


def test_harness_is_starting_until_paste_mode_is_on() -> None:
    screen = Screen(80, 24, profile_of("claude"), started_ms=0)
    rule = "─" * 80

    screen.feed(f"{rule}\r\n❯ \r\n{rule}\r\n\x1b[2;3H".encode(), 0)
    before = screen.look(SETTLED_MS)
    screen.feed(b"\x1b[?2004h", 0)
    ready = screen.look(SETTLED_MS)

    assert (before.state, before.composer) == (AgentState.STARTING, Composer.UNKNOWN)
    assert (ready.state, ready.composer) == (AgentState.IDLE, Composer.EMPTY)


@pytest.mark.parametrize("harness", ["claude", "codex"])
@pytest.mark.parametrize(("sequence", "state"), [("idle", AgentState.IDLE), ("working", AgentState.ACTIVE)])
def test_harness_that_reports_a_status_has_started_without_a_composer(
    harness: str, sequence: str, state: AgentState
) -> None:
    screen = Screen(80, 24, profile_of(harness), started_ms=0)
    screen.feed(b"welcome \x1b]7501;state=unheard\x1b\\", 0)
    before = screen.look(100)

    screen.feed(b"\x1b]7501;state=%s:app=%s\x1b\\" % (sequence.encode(), harness.encode()), 200)

    look = screen.look(300)
    assert before.state is AgentState.STARTING
    assert (look.state, look.composer) == (state, Composer.UNKNOWN)
    assert check(look, GateFacts(now_ms=300, foreground=Foreground.AGENT)).reason == "composer"


def test_half_drawn_frame_is_not_read_unless_it_never_ends() -> None:
    screen = generic()
    screen.feed(b"\x1b[?2026h> ", 5_000)

    assert not screen.look(5_000 + FRAME_LIMIT_MS - 1).is_readable
    assert screen.look(5_000 + FRAME_LIMIT_MS).is_readable


def test_screen_that_could_not_be_parsed_is_unreadable_until_redrawn() -> None:
    screen = generic()
    screen.feed(b"> \x1b[?6h\x1b[5d", 0)

    spoiled = screen.look(SETTLED_MS)
    screen.feed(b"\x1bc> ", 0)
    drawn = screen.look(SETTLED_MS)

    assert (spoiled.is_readable, spoiled.composer) == (False, Composer.UNKNOWN)
    assert (drawn.is_readable, drawn.composer) == (True, Composer.EMPTY)


def test_flood_is_skipped_except_for_status_and_title() -> None:
    screen = generic()
    flood = b"\x1b[?2004h\x1b]0;busy\x07" + b"\rworking" * (BACKLOG_BYTES // 8) + b"\x1b]2;done\x07"

    screen.feed(b"\x1b]0;unfinished", 0)
    screen.feed(flood + b"tail" * 10, 0)
    look = screen.look(SETTLED_MS)

    assert look.has_paste_mode
    assert look.title == "done"
    assert not look.is_readable


def test_screen_is_readable_at_once_after_a_flood_of_lines() -> None:
    screen = generic()

    for start in range(0, BACKLOG_BYTES * 2, 60_000):
        screen.feed(b"%08d some output of a long build\r\n" % start * 2_000, 0)
    look = screen.look(SETTLED_MS)

    assert look.is_readable
    assert "some output" in look.text


def test_flood_is_parsed_in_bounded_steps() -> None:
    screen = generic()
    screen.feed(b"line\r\n" * 4_000, 0)

    steps = 1
    while screen.step():
        steps += 1

    assert steps == -(-24_000 // STEP_BYTES)
    assert KEPT_BYTES < BACKLOG_BYTES


def test_size_can_change_at_any_time() -> None:
    screen = generic()
    screen.feed(b"one two three", 0)

    screen.resize(3, 2)
    small = screen.look(SETTLED_MS)
    screen.resize(0, 0)

    assert small.text.startswith("one")
    assert screen.size == (1, 1)


def test_scrolled_lines_can_be_read() -> None:
    screen = generic()

    screen.feed(b"".join(b"line %d\r\n" % number for number in range(10)), 0)

    assert screen.terminal.grid.row_text(0) == "line 5"
    assert screen.scrollback[:2] == ("line 0", "line 1")


def test_terminal_queries_are_answered_through_the_screen() -> None:
    screen = generic()
    screen.feed(b"\x1b]7501;?\x1b\\\x1b[?1004h", 0)
    screen.step()

    assert screen.take_answers(is_attended=True) == b"\x1b]7501;?ok\x1b\\"
    assert screen.has_focus_mode


@pytest.mark.parametrize(
    "text", ["\u4f60" * 40, "a" + "\u4f60" * 40, "\u4f60 a" * 20], ids=["full", "one column left", "mixed"]
)
def test_text_before_the_cursor_includes_wrapped_rows_of_wide_characters(text: str) -> None:
    screen = generic()

    screen.feed(f"> {text}".encode(), 0)
    look = screen.look(SETTLED_MS, ours=squeeze(text))

    assert squeeze(look.before_cursor) == f">{squeeze(text)}"
    assert look.prompt_line == ">"


@pytest.mark.parametrize(
    "text",
    [
        "done \u2764\ufe0f",
        "\U0001f469\u200d\U0001f4bb ok",
        "cafe\u0301",
        "x\u0323 y",
        "\u0939\u093f\u0928\u094d",
    ],
    ids=["emoji", "joined emoji", "accent", "mark without a letter of its own", "vowel sign"],
)
def test_own_text_is_found_although_some_characters_have_no_cell(text: str) -> None:
    screen = generic()

    screen.feed(f"> {text}".encode(), 0)
    look = screen.look(SETTLED_MS, ours=squeeze(text))

    assert (look.prompt_line, look.prompt) == (">", Prompt.KNOWN)
    assert is_at_cursor(look.before_cursor, squeeze(text))


def test_text_after_the_cursor_is_told_from_wide_characters_before_it() -> None:
    screen = generic()

    screen.feed("\u540d\u524d> [OK] [No]\x1b[1;7H\x1b[?2004h".encode(), 0)
    look = screen.look(SETTLED_MS)

    assert look.before_cursor == "\u540d\u524d> "
    assert look.prompt is Prompt.OTHER


def test_paste_is_open_only_while_the_program_takes_pastes() -> None:
    screen = generic()
    screen.feed(b"\x1b[?2004h", 0)
    screen.human_keys(b"\x1b[200~text", 0)
    states = [screen.look(SETTLED_MS).is_pasting]

    screen.feed(b"\x1b[?2004l", 0)
    states.append(screen.look(SETTLED_MS).is_pasting)
    screen.feed(b"\x1b[?2004h", 0)
    screen.human_keys(b"\x1b[201~", 0)
    states.append(screen.look(SETTLED_MS).is_pasting)

    assert states == [True, False, False]


def test_text_before_the_cursor_includes_wrapped_rows() -> None:
    screen = Screen(10, 4, profile_of("generic"), started_ms=0)
    screen.feed(b"no\r\n> 0123456789abc", 0)

    before = screen.look(SETTLED_MS).before_cursor

    assert before == "> 0123456789abc"


def test_screen_reports_when_to_look_again() -> None:
    screen = generic(started_ms=0)
    changes_ms = [screen.next_change_ms(0)]
    screen.feed(b"x", 1_000)
    changes_ms.append(screen.next_change_ms(1_000))
    screen.human_keys(b"x", 2_000)
    changes_ms += [screen.next_change_ms(2_000), screen.next_change_ms(2_600), screen.next_change_ms(50_000)]

    assert changes_ms == [1_000, 2_000, 2_500, 3_000, None]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: str(profile.name))
def test_empty_screen_is_starting_for_every_profile(profile: Profile) -> None:
    look = Screen(80, 24, profile, started_ms=0).look(0)

    assert look.state is AgentState.STARTING
    assert look.text == ""


@pytest.mark.parametrize("text", ["shall we proceed?", "x? [y/n]", "é? " * 40 + "y/n"])
def test_question_in_our_own_text_is_not_a_dialog(text: str) -> None:
    screen = generic()
    screen.feed(f"> {text}".encode(), 0)

    assert screen.look(SETTLED_MS).has_dialog
    assert not screen.look(SETTLED_MS, ours=squeeze(text)).has_dialog


def test_question_before_our_own_text_is_a_dialog() -> None:
    screen = generic()
    screen.feed(b"Proceed? [y/n] hello", 0)

    assert screen.look(SETTLED_MS, ours="hello").has_dialog


def test_skipped_progress_output_leaves_the_screen_readable() -> None:
    screen = generic()
    screen.feed(b"Proceed? [y/n] y\r\n", 0)

    for number in range(3_000):
        screen.feed(b"\r\x1b[32m%06d %s\x1b[K" % (number, b"#" * 60) * 16, 0)
    screen.feed(b"\r\ndone\r\n> ", 0)
    look = screen.look(SETTLED_MS)

    assert look.is_readable
    assert look.before_cursor == "> "
    assert "done" in look.text


def test_restored_screen_knows_the_program_and_the_draft() -> None:
    before, after = generic(), generic(started_ms=50_000)
    before.feed(b"> \x1b]7501;state=blocked:kind=permission\x07", 0)
    before.human_keys(b"half", 1_000)

    after.take_up(redraw(before.terminal), before.keep())

    for now_ms in (1_001, SETTLED_MS, 100_000):
        assert after.look(now_ms) == before.look(now_ms)


@pytest.mark.parametrize("is_told", [True, False])
def test_restored_unreadable_screen_stays_unreadable(is_told: bool) -> None:
    before, after = generic(), generic()
    before.feed(b"> \x1b[?6h\x1b[5d" if is_told else b"> ", 0)

    after.take_up(redraw(before.terminal), before.keep() if is_told else None)

    assert not after.look(SETTLED_MS).is_readable
    after.feed(b"\x1b[2J> ", SETTLED_MS)
    assert after.look(SETTLED_MS).is_readable


def test_restored_screen_of_a_starting_program_is_starting() -> None:
    before, after = generic(), generic()

    after.take_up(redraw(before.terminal), before.keep())

    assert not after.look(3_600_000).has_started
