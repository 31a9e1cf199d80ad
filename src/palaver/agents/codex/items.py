"""The work items of Codex as short status values. Pure.

Tool names are those that its hooks use. Items that are not work (texts, reasoning, plans) have no status.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from palaver.agents.native_word import Word
from palaver.harness.hook_news import LIMIT_COMMAND, as_map, one_line, text_in
from palaver.harness.hook_states import COMPACTING, TOOL_USE
from palaver.model.delivery import AgentState

_UNSTEERABLE: Final = frozenset({"contextCompaction", "enteredReviewMode"})
"""Item types during which Codex accepts no text."""
_SHELL_WORDS: Final = 3
_SHELLS: Final = frozenset(
    f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in ("sh", "bash", "zsh")
)
"""The paths of standard shells. A program elsewhere may have the same name and do something else."""
BASH: Final = "Bash"
PATCH: Final = "apply_patch"


def work_of(item: Mapping[str, object]) -> Word | None:
    """Return the status for a work item; None if it is not work, such as texts, reasoning and plans."""
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
    """Return the command that a standard shell runs, without the shell; any other command stays as it is.

    This is for display only. The user approves the full command.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) == _SHELL_WORDS and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return command


def paths_in(item: Mapping[str, object]) -> list[str]:
    """Return the files that a work item changes."""
    changes = item.get("changes")
    if item.get("type") != "fileChange" or not isinstance(changes, list):
        return []
    return [path for one in changes if (path := text_in(as_map(one), "path"))]


def edits_of(item: Mapping[str, object]) -> list[Word]:
    """Return a status for each changed file except the first: that one is in the status of the item."""
    return [_at_work(PATCH, file=path) for path in paths_in(item)[1:]]
