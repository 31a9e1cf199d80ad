"""What each harness must say of itself, so that all of them can be put through the same tests."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from palaver.cli.mock_model.script import Reply, ToolCall


class Harness(ABC):
    """How one harness is started, what its model can call, and what its terminal looks like."""

    harness: ClassVar[str]
    lanes: ClassVar[tuple[str, ...]]
    """The ways in that it has, the best one first."""
    grades: ClassVar[Mapping[str, str]] = {"native": "context", "hook": "context", "terminal": "handed"}
    """What each of them proves."""
    resume: ClassVar[tuple[str, ...]]
    """How its last conversation goes on."""
    sign: ClassVar[bytes]
    """What its terminal shows once it is drawn."""
    question: ClassVar[str]
    """What its terminal shows while it asks for leave."""
    tools_sign: ClassVar[str]
    """What stands in a request that offers our tools."""
    own_files: ClassVar[tuple[str, ...]]
    """The user's own settings, in which nothing is written."""
    leaves: ClassVar[tuple[str, ...]] = ()
    """What it leaves in the folder for temporary files when it is killed, with or without us."""

    @abstractmethod
    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        """Its arguments: what it is to do first, and whether it asks for leave."""

    @abstractmethod
    def shell(self, command: str) -> ToolCall:
        """A call of its shell."""

    @abstractmethod
    def asking_to_make(self, path: Path) -> ToolCall:
        """A call for which a person is asked, and by which a file is made."""

    @abstractmethod
    def bus_replies(self, name: str, **given: object) -> list[Reply]:
        """What its model says to call one of our tools."""

    @abstractmethod
    def composer(self, text: str) -> str:
        """How its terminal shows a text that a person has begun."""

    @abstractmethod
    def dialog(self) -> str:
        """The dialog on its screen, all of it and nothing else; empty while it is not whole."""
