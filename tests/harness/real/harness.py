"""The properties that each harness must define to run the common tests."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from palaver.app.mock_model import ScriptedReply, ScriptedToolCall


class Harness(ABC):
    """How one harness is started, what its model can call, and what its terminal shows."""

    harness: ClassVar[str]
    lanes: ClassVar[tuple[str, ...]]
    """Its lanes, the best one first."""
    grades: ClassVar[Mapping[str, str]] = {"native": "context", "hook": "context", "terminal": "handed"}
    """The evidence grade of each lane."""
    resume: ClassVar[tuple[str, ...]]
    """Arguments that resume its last conversation."""
    sign: ClassVar[bytes]
    """Text that its terminal shows after it has started."""
    question: ClassVar[str]
    """Text that its terminal shows while it requests permission."""
    tools_sign: ClassVar[str]
    """Text in a model request that offers our tools."""
    own_files: ClassVar[tuple[str, ...]]
    """The settings files of the user, which must stay unchanged."""
    leaves: ClassVar[tuple[str, ...]] = ()
    """Prefixes of temporary files that it leaves when it is killed, with or without `pal`."""

    @abstractmethod
    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        """Return its arguments for a first prompt, with or without permission requests."""

    @abstractmethod
    def shell(self, command: str) -> ScriptedToolCall:
        """Return a call of its shell."""

    @abstractmethod
    def asking_to_make(self, path: Path) -> ScriptedToolCall:
        """Return a call that creates a file and needs permission."""

    @abstractmethod
    def bus_replies(self, name: str, **given: object) -> list[ScriptedReply]:
        """Return the model replies that call one of our tools."""

    @abstractmethod
    def composer(self, text: str) -> str:
        """Return how its terminal shows a draft."""

    @abstractmethod
    def dialog(self) -> str:
        """Return the complete dialog on its screen and nothing else; empty while it is incomplete."""
