"""Recordings of Gemini CLI in the views of its settings, with its dialogs and its limits.

They were made like those of `recorded.py` and are stored in `screens/gemini`.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.holder.recorded import Recording, Scene

from palaver.terminal.gates import Foreground, GateFacts, check
from palaver.terminal.keyboard import squeeze
from palaver.terminal.screen import ScreenState

FOLDER = Path(__file__).parent / "screens" / "gemini"
SETTLED_MS = 10_000
RECORDINGS = tuple(
    msgspec.json.decode(path.read_bytes(), type=Recording) for path in sorted(FOLDER.glob("*.json"))
)


def looks(recording: Recording, *, hears_title: bool = True) -> Iterator[tuple[Scene, ScreenState]]:
    """Play a recording and yield the screen state of every scene."""
    data = gzip.decompress((FOLDER / f"{recording.name}.bin.gz").read_bytes())
    screen, done = recording.screen(), 0
    for scene in recording.scenes:
        for start in range(done, scene.offset, 4096):
            piece = data[start : min(start + 4096, scene.offset)]
            screen.feed(piece if hears_title else piece.replace(b"\x1b]0;", b"\x1b]9;"), scene.ms)
            screen.step()
        done = scene.offset
        yield scene, screen.look(scene.ms + SETTLED_MS)


@pytest.fixture(params=RECORDINGS, ids=lambda recording: recording.name)
def recording(request: pytest.FixtureRequest) -> Recording:
    assert isinstance(request.param, Recording)
    return request.param


def test_every_view_and_dialog_is_recorded() -> None:
    assert len(RECORDINGS) == 24


def test_every_scene_has_the_recorded_screen_state(recording: Recording) -> None:
    for scene, look in looks(recording):
        seen = (scene.scene, str(look.state), look.reason, str(look.composer), squeeze(look.draft))
        assert seen == (scene.scene, scene.state, scene.reason, scene.composer, squeeze(scene.draft))
        assert look.is_readable


def test_gate_is_open_only_where_text_can_be_typed(recording: Recording) -> None:
    for scene, look in looks(recording):
        gate = check(look, GateFacts(now_ms=scene.ms + SETTLED_MS, foreground=Foreground.AGENT))

        is_free = scene.composer == "empty" and scene.reason != "compacting"
        assert (scene.scene, gate.is_open) == (scene.scene, is_free)
        assert (scene.scene, gate.reason == "dialog") == (scene.scene, scene.state == "blocked")


def test_dialog_is_detected_without_the_title(recording: Recording) -> None:
    for scene, look in looks(recording, hears_title=False):
        assert (scene.scene, look.has_dialog) == (scene.scene, scene.state == "blocked")
