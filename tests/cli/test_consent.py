"""A person's leave for hooks: asked once, of a person only, and remembered for exactly these hooks."""

import io
import json
import stat
import sys
from pathlib import Path

import pytest

from palaver.cli.consent import AGAIN, ASK, KNOWN, OFF, has_codex_hooks

PAL = "/opt/pal"


class Terminal(io.StringIO):
    """What a person types, or where they read."""

    def isatty(self) -> bool:
        return True


class Desk:
    """A terminal with a person at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._shown = Terminal()

    def types(self, text: str) -> None:
        """Have the person type this when asked."""
        self._monkeypatch.setattr(sys, "stdin", Terminal(text))
        self._monkeypatch.setattr(sys, "stderr", self._shown)

    @property
    def shown(self) -> str:
        """What the person was shown."""
        return self._shown.getvalue()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def remembered(home: Path) -> Path:
    return home / "harness" / "codex-hooks.json"


@pytest.mark.parametrize(
    ("typed", "is_agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False)]
)
def test_a_person_is_asked_once(tmp_path: Path, desk: Desk, typed: str, is_agreed: bool) -> None:
    desk.types(typed)

    first = has_codex_hooks(ASK, PAL, str(tmp_path))
    desk.types("y\n" if not is_agreed else "n\n")
    second = has_codex_hooks(ASK, PAL, str(tmp_path))

    assert (first, second) == (is_agreed, is_agreed)
    assert desk.shown.count("Do you trust these?") == 1
    assert f"{PAL} --home {tmp_path} hook codex EVENT" in desk.shown
    assert stat.S_IMODE(remembered(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_the_question_is_as_wide_as_the_terminal(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    desk.types("y\n")

    has_codex_hooks(ASK, PAL, str(tmp_path))

    lines = [line for line in desk.shown.splitlines() if PAL not in line]
    assert all(len(line) <= min(columns, 101) for line in lines)
    assert " ".join(" ".join(lines).split()).endswith("Do you trust these? [y/N]")


def test_one_who_wants_to_be_asked_again_is(tmp_path: Path, desk: Desk) -> None:
    desk.types("n\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))
    desk.types("y\n")

    assert has_codex_hooks(AGAIN, PAL, str(tmp_path))
    assert has_codex_hooks(KNOWN, PAL, str(tmp_path))


def test_other_hooks_are_another_question(tmp_path: Path, desk: Desk) -> None:
    desk.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    assert not has_codex_hooks(KNOWN, "/elsewhere/pal", str(tmp_path))


@pytest.mark.parametrize("word", ["", OFF, KNOWN])
def test_nobody_is_asked_when_nobody_may_be(tmp_path: Path, desk: Desk, word: str) -> None:
    desk.types("y\n")

    assert not has_codex_hooks(word, PAL, str(tmp_path))
    assert desk.shown == ""
    assert not remembered(tmp_path).exists()


def test_hooks_that_were_agreed_to_can_be_left_out(tmp_path: Path, desk: Desk) -> None:
    desk.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    assert not has_codex_hooks(OFF, PAL, str(tmp_path))


def test_without_a_terminal_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    assert not has_codex_hooks(ASK, PAL, str(tmp_path))
    assert not remembered(tmp_path).exists()


def test_a_closed_terminal_says_nothing_and_the_next_one_is_asked(tmp_path: Path, desk: Desk) -> None:
    desk.types("")

    assert not has_codex_hooks(ASK, PAL, str(tmp_path))
    assert not remembered(tmp_path).exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"hooks": 7}'])
def test_what_cannot_be_read_was_not_agreed_to(tmp_path: Path, content: bytes) -> None:
    remembered(tmp_path).parent.mkdir()
    remembered(tmp_path).write_bytes(content)

    assert not has_codex_hooks(KNOWN, PAL, str(tmp_path))


def test_a_yes_is_kept_with_what_it_was_said_to(tmp_path: Path, desk: Desk) -> None:
    desk.types("y\n")
    has_codex_hooks(ASK, PAL, str(tmp_path))

    found = json.loads(remembered(tmp_path).read_bytes())

    assert found["agreed"] is True
    assert len(found["hooks"]) == 64
