"""Recordings of the real harnesses: every byte they wrote to a terminal, and the offset where each scene was
complete.

They were made with a model server that only repeats a script, in an empty home and without a network. A
recording is `<harness>/<columns>x<rows>.bin.gz`. In `<harness>/race.bin.gz` a dialog opens while a message is
in the composer. The JSON file next to each recording says how every scene must be read.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

from palaver.harness.registry import profile_of
from palaver.terminal.screen import Screen

FOLDER = Path(__file__).parent / "recordings"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One offset in a recording, and the expected screen state there."""

    scene: str
    offset: int
    ms: int
    state: str
    reason: str = ""
    composer: str
    draft: str = ""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The complete output of one harness in one run."""

    name: str
    harness: str
    version: str
    cols: int
    rows: int
    scenes: list[Scene]

    @property
    def data(self) -> bytes:
        return gzip.decompress((FOLDER / f"{self.name}.bin.gz").read_bytes())

    def screen(self) -> Screen:
        """Return a screen of the recorded size, before the first byte."""
        return Screen(self.cols, self.rows, profile_of(self.harness), started_ms=0)

    def play(self) -> Iterator[tuple[Scene, Screen]]:
        """Feed the recording scene by scene, in pieces as a pump would, and yield the screen after each
        scene.
        """
        screen, data, done = self.screen(), self.data, 0
        for scene in self.scenes:
            for start in range(done, scene.offset, 4096):
                screen.feed(data[start : min(start + 4096, scene.offset)], scene.ms)
                screen.step()
            done = scene.offset
            yield scene, screen


RECORDINGS = tuple(
    msgspec.json.decode(path.read_bytes(), type=Recording) for path in sorted(FOLDER.glob("*/*.json"))
)
