"""Signs that a program is ready; `test_screen.py` tests them on a screen."""

from dataclasses import replace

from palaver.harness.registry import profile_of
from palaver.terminal.screen import Startup

GENERIC = profile_of("generic")


def test_program_with_immediate_output_was_not_quiet() -> None:
    startup = Startup(GENERIC, 1_000)
    startup.has_output = True

    assert not startup.was_quiet(60_000)
    assert not startup.awaits_reader


def test_program_that_was_quiet_at_first_stays_so() -> None:
    startup = Startup(GENERIC, 1_000)

    before, after = startup.was_quiet(2_999), startup.was_quiet(3_000)
    startup.has_output = True

    assert (before, after, startup.was_quiet(3_001)) == (False, True, True)
    assert not startup.is_over


def test_harness_has_started_once_its_composer_is_seen() -> None:
    startup = Startup(profile_of("claude"), 0)

    startup.see(60_000, has_composer=False, is_silent=True)
    before = startup.is_over
    startup.see(60_000, has_composer=True, is_silent=False)

    assert (before, startup.is_over) == (False, True)
    assert not startup.awaits_reader


def test_early_composer_is_trusted_after_a_wait() -> None:
    startup = Startup(replace(profile_of("claude"), composer_wait_ms=2_000), 0)

    startup.see(1_000, has_composer=True, is_silent=True)
    startup.see(2_999, has_composer=True, is_silent=True)
    assert not startup.is_over

    startup.see(3_000, has_composer=True, is_silent=True)
    assert startup.is_over
