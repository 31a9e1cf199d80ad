"""Hooks for one Codex session: their trust hashes, and settings that Codex reads as TOML."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.codex.hooks import EVENTS as INSTALLED
from palaver.harness.codex.hooks import (
    TRUSTED_EVENTS,
    hook_command,
    hook_settings,
    hooks_digest,
    trusted_hash,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def read(settings: tuple[str, ...]) -> dict[str, object]:
    """Parse settings as Codex does: each is a path and a TOML value."""
    found: dict[str, object] = {}
    for flag, word in zip(settings[::2], settings[1::2], strict=True):
        assert flag == "-c"
        key, _, value = word.partition("=")
        found[key] = tomllib.loads(f"value = {value}")["value"]
    return found


def test_trust_hash_is_the_one_of_codex() -> None:
    found = trusted_hash("/opt/pal", "/home/pat/.palaver", "SessionEnd")

    # The value that Codex 0.166.0 reported for this hook.
    assert found == "sha256:3c774979fb9ee239560a77cac841fb3bdbd246cc87733d6a6fcfa0e62b746120"


def test_session_hooks_are_a_subset_of_installed_hooks() -> None:
    assert set(TRUSTED_EVENTS) < set(INSTALLED)


@given(TEXTS, TEXTS)
def test_each_hook_has_its_own_hash(pal: str, home: str) -> None:
    found = read(hook_settings(pal, home))

    states = found.pop("hooks.state")
    assert isinstance(states, dict)
    assert list(found) == [f"hooks.{event}" for event in TRUSTED_EVENTS]
    for event, (key, state) in zip(TRUSTED_EVENTS, states.items(), strict=True):
        hook = {"type": "command", "command": hook_command(pal, home, event), "timeout": 3}
        assert found[f"hooks.{event}"] == [{"hooks": [hook]}]
        assert key.startswith("/<session-flags>/config.toml:")
        assert state == {"trusted_hash": trusted_hash(pal, home, event)}


@given(TEXTS, TEXTS, TEXTS)
def test_digest_of_hooks_is_specific_to_the_program(pal: str, other: str, home: str) -> None:
    assert (hooks_digest(pal, home) == hooks_digest(other, home)) == (pal == other)
