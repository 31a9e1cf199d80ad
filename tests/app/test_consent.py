"""A person's permission for hooks and for the safe commands: asked once, of a person only, and stored."""

import io
import json
import stat
import sys
from pathlib import Path

import pytest

from palaver.app.install_plan import AGAIN, ASK, KNOWN, OFF, has_codex_hooks, may_use_bus

PAL = "/opt/pal"


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class PersonAtTerminal:
    """A terminal with a person."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._shown = Terminal()

    def types(self, text: str) -> None:
        """Have the person type this when asked."""
        self._monkeypatch.setattr(sys, "stdin", Terminal(text))
        self._monkeypatch.setattr(sys, "stderr", self._shown)

    @property
    def shown(self) -> str:
        """The text shown to the person."""
        return self._shown.getvalue()


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> PersonAtTerminal:
    return PersonAtTerminal(monkeypatch)


def remembered(home: Path) -> Path:
    return home / "harness" / "codex-hooks.json"


@pytest.mark.parametrize(
    ("typed", "is_agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False)]
)
def test_person_is_asked_once(tmp_path: Path, person: PersonAtTerminal, typed: str, is_agreed: bool) -> None:
    person.types(typed)

    first = has_codex_hooks(ASK, PAL, str(tmp_path))
    person.types("y\n" if not is_agreed else "n\n")
    second = has_codex_hooks(ASK, PAL, str(tmp_path))

    assert (first, second) == (is_agreed, is_agreed)
    assert person.shown.count("Trust these hooks?") == 1
    assert f"{PAL} --home {tmp_path} hook codex EVENT" in person.shown
    assert stat.S_IMODE(remembered(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_question_is_as_wide_as_the_terminal(
    tmp_path: Path, person: PersonAtTerminal, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    person.types("y\n")

    has_codex_hooks(ASK, PAL, str(tmp_path))

    lines = [line for line in person.shown.splitlines() if PAL not in line]
    assert all(len(line) <= min(columns, 101) for line in lines)
    assert " ".join(" ".join(lines).split()).endswith("Trust these hooks? [y/N]")


def test_person_can_be_asked_again(tmp_path: Path, person: PersonAtTerminal) -> None:
    person.types("n\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))
    person.types("y\n")

    assert has_codex_hooks(AGAIN, PAL, str(tmp_path))
    assert has_codex_hooks(KNOWN, PAL, str(tmp_path))


def test_permission_does_not_apply_to_other_hooks(tmp_path: Path, person: PersonAtTerminal) -> None:
    person.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    assert not has_codex_hooks(KNOWN, "/elsewhere/pal", str(tmp_path))


@pytest.mark.parametrize("word", ["", OFF, KNOWN])
def test_question_is_not_asked_where_it_is_not_allowed(
    tmp_path: Path, person: PersonAtTerminal, word: str
) -> None:
    person.types("y\n")

    assert not has_codex_hooks(word, PAL, str(tmp_path))
    assert person.shown == ""
    assert not remembered(tmp_path).exists()


def test_permitted_hooks_can_be_switched_off(tmp_path: Path, person: PersonAtTerminal) -> None:
    person.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    assert not has_codex_hooks(OFF, PAL, str(tmp_path))


def test_without_a_terminal_no_question_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    assert not has_codex_hooks(ASK, PAL, str(tmp_path))
    assert not remembered(tmp_path).exists()


def test_closed_terminal_is_not_an_answer_and_the_next_one_is_asked(
    tmp_path: Path, person: PersonAtTerminal
) -> None:
    person.types("")

    assert not has_codex_hooks(ASK, PAL, str(tmp_path))
    assert not remembered(tmp_path).exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"hooks": 7}'])
def test_unreadable_permission_file_counts_as_denied(tmp_path: Path, content: bytes) -> None:
    remembered(tmp_path).parent.mkdir()
    remembered(tmp_path).write_bytes(content)

    assert not has_codex_hooks(KNOWN, PAL, str(tmp_path))


def test_permission_is_stored_with_the_hash_of_its_hooks(tmp_path: Path, person: PersonAtTerminal) -> None:
    person.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    found = json.loads(remembered(tmp_path).read_bytes())

    assert found["agreed"] is True
    assert len(found["hooks"]) == 64


# The safe commands of the bus. That the decision is stored is tested with a running bus, in test_run.py.


def set_commands(home: Path, value: str) -> None:
    (home / "config.toml").write_text(f'agent_commands = "{value}"\n')


@pytest.mark.parametrize("word", [ASK, KNOWN])
@pytest.mark.parametrize(("value", "is_allowed"), [("yes", True), ("no", False)])
def test_stored_decision_about_commands_counts_without_a_question(
    tmp_path: Path, person: PersonAtTerminal, word: str, value: str, is_allowed: bool
) -> None:
    set_commands(tmp_path, value)
    person.types("n\n" if is_allowed else "y\n")

    assert may_use_bus(word, str(tmp_path)) == is_allowed
    assert person.shown == ""


def test_commands_are_not_asked_about_without_a_person(tmp_path: Path, person: PersonAtTerminal) -> None:
    person.types("y\n")

    assert not may_use_bus(KNOWN, str(tmp_path))
    assert person.shown == ""


def test_commands_are_not_asked_about_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    assert not may_use_bus(ASK, str(tmp_path))


def test_closed_terminal_allows_no_commands(tmp_path: Path, person: PersonAtTerminal) -> None:
    person.types("")

    assert not may_use_bus(ASK, str(tmp_path))
    assert person.shown.count("Allow these without a prompt?") == 1
    assert "pal send, recv, inbox" in " ".join(person.shown.split())


def test_damaged_settings_allow_no_commands(tmp_path: Path, person: PersonAtTerminal) -> None:
    set_commands(tmp_path, "always")
    person.types("y\n")

    assert not may_use_bus(ASK, str(tmp_path))
    assert person.shown == ""


def test_decision_that_the_bus_does_not_store_allows_nothing(
    tmp_path: Path, person: PersonAtTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.app.install_plan.find_pal", lambda: "/nowhere/pal")
    person.types("y\n")

    assert not may_use_bus(ASK, str(tmp_path))
    assert "could not be stored" in person.shown
