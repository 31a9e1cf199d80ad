"""What Codex works on, as its app-server says it, in a few words. Pure.

The names of tools are those that its hooks use. What is no work (texts, thoughts, plans) gives nothing.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from palaver.agents.native_word import Word
from palaver.harness.hook_news import LIMIT_COMMAND, as_map, one_line, text_in
from palaver.harness.hook_states import COMPACTING, TOOL_USE
from palaver.model.delivery import AgentState

_UNSTEERABLE: Final = frozenset({"contextCompaction", "enteredReviewMode"})
"""Work during which Codex takes no text."""
_SHELL_WORDS: Final = 3
_SHELLS: Final = frozenset(
    f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in ("sh", "bash", "zsh")
)
"""Programs that surely do with a text what it says. Any other may only be called so."""
BASH: Final = "Bash"
PATCH: Final = "apply_patch"


def work_of(item: Mapping[str, object]) -> Word | None:
    """Give what a thread works on, None for what is no work: texts, thoughts, plans."""
    kind = item.get("type")
    match kind:
        case "commandExecution":
            return _at_work(BASH, command=plain_command(text_in(item, "command")))
        case "fileChange":
            return _at_work(PATCH, file=next(iter(paths_in(item)), ""))
        case "mcpToolCall":
            return _at_work(f"{text_in(item, 'server')}.{text_in(item, 'tool')}")
        case "dynamicToolCall" | "collabAgentToolCall":
            return _at_work(text_in(item, "tool"))
        case "webSearch":
            return _at_work("web_search", command=text_in(item, "query"))
        case "imageView" | "imageGeneration" | "sleep":
            return _at_work(str(kind))
        case str() if kind in _UNSTEERABLE:
            return Word(state=AgentState.ACTIVE, detail=COMPACTING)
    return None


def _at_work(tool: str, *, command: str = "", file: str = "") -> Word:
    return Word(
        state=AgentState.ACTIVE,
        detail=TOOL_USE,
        tool=one_line(tool),
        command=one_line(command, LIMIT_COMMAND),
        file=file,
    )


def plain_command(command: str) -> str:
    """Give what a shell of this machine is told to run, without the shell; any other program stands there.

    For a few words about it. What a person allows is the command as it is.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) == _SHELL_WORDS and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return command


def paths_in(item: Mapping[str, object]) -> list[str]:
    """Give the files that a piece of work changes."""
    changes = item.get("changes")
    if item.get("type") != "fileChange" or not isinstance(changes, list):
        return []
    return [path for one in changes if (path := text_in(as_map(one), "path"))]


def edits_of(item: Mapping[str, object]) -> list[Word]:
    """Give one word for each file but the first, which is the word for all of it."""
    return [_at_work(PATCH, file=path) for path in paths_in(item)[1:]]
