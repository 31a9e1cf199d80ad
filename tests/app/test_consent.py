"""A person's permission for hooks: asked once, of a person only, and stored for exactly these hooks."""

import io
import json
import stat
import sys
from pathlib import Path

import pytest

from palaver.app.consent import AGAIN, ASK, KNOWN, OFF, has_codex_hooks

PAL = "/opt/pal"


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Desk:
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
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def remembered(home: Path) -> Path:
    return home / "harness" / "codex-hooks.json"


@pytest.mark.parametrize(
    ("typed", "is_agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False)]
)
def test_person_is_asked_once(tmp_path: Path, desk: Desk, typed: str, is_agreed: bool) -> None:
    desk.types(typed)

    first = has_codex_hooks(ASK, PAL, str(tmp_path))
    desk.types("y\n" if not is_agreed else "n\n")
    second = has_codex_hooks(ASK, PAL, str(tmp_path))

    assert (first, second) == (is_agreed, is_agreed)
    assert desk.shown.count("Trust these hooks?") == 1
    assert f"{PAL} --home {tmp_path} hook codex EVENT" in desk.shown
    assert stat.S_IMODE(remembered(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_question_is_as_wide_as_the_terminal(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    desk.types("y\n")

    has_codex_hooks(ASK, PAL, str(tmp_path))

    lines = [line for line in desk.shown.splitlines() if PAL not in line]
    assert all(len(line) <= min(columns, 101) for line in lines)
    assert " ".join(" ".join(lines).split()).endswith("Trust these hooks? [y/N]")


def test_person_can_be_asked_again(tmp_path: Path, desk: Desk) -> None:
    desk.types("n\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))
    desk.types("y\n")

    assert has_codex_hooks(AGAIN, PAL, str(tmp_path))
    assert has_codex_hooks(KNOWN, PAL, str(tmp_path))


def test_permission_does_not_apply_to_other_hooks(tmp_path: Path, desk: Desk) -> None:
    desk.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    assert not has_codex_hooks(KNOWN, "/elsewhere/pal", str(tmp_path))


@pytest.mark.parametrize("word", ["", OFF, KNOWN])
def test_question_is_not_asked_where_it_is_not_allowed(tmp_path: Path, desk: Desk, word: str) -> None:
    desk.types("y\n")

    assert not has_codex_hooks(word, PAL, str(tmp_path))
    assert desk.shown == ""
    assert not remembered(tmp_path).exists()


def test_permitted_hooks_can_be_switched_off(tmp_path: Path, desk: Desk) -> None:
    desk.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    assert not has_codex_hooks(OFF, PAL, str(tmp_path))


def test_without_a_terminal_no_question_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    assert not has_codex_hooks(ASK, PAL, str(tmp_path))
    assert not remembered(tmp_path).exists()


def test_closed_terminal_is_not_an_answer_and_the_next_one_is_asked(tmp_path: Path, desk: Desk) -> None:
    desk.types("")

    assert not has_codex_hooks(ASK, PAL, str(tmp_path))
    assert not remembered(tmp_path).exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"hooks": 7}'])
def test_unreadable_permission_file_counts_as_denied(tmp_path: Path, content: bytes) -> None:
    remembered(tmp_path).parent.mkdir()
    remembered(tmp_path).write_bytes(content)

    assert not has_codex_hooks(KNOWN, PAL, str(tmp_path))


def test_permission_is_stored_with_the_hash_of_its_hooks(tmp_path: Path, desk: Desk) -> None:
    desk.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    found = json.loads(remembered(tmp_path).read_bytes())

    assert found["agreed"] is True
    assert len(found["hooks"]) == 64
