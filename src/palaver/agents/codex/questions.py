"""What an app-server of Codex asks a person, and what a person's yes or no is on its wire. Pure.

Answered can be only what is shown whole: a command, or a change of files whose every line is known. All else
(a network for good, a form, a question of the model) is asked at the terminal alone.
"""

from collections.abc import Mapping
from typing import Final

from palaver.agents.codex.items import BASH, PATCH, paths_in, plain_command
from palaver.agents.codex.wire import Said
from palaver.agents.native_word import Asked
from palaver.harness.hook_news import as_map, one_line, text_in

_COMMAND: Final = "item/commandExecution/requestApproval"
_FILES: Final = "item/fileChange/requestApproval"
_FORM: Final = "mcpServer/elicitation/request"
_ACCEPT: Final = "accept"
_DECLINE: Final = "decline"
"""No, and the turn goes on: the model is told so."""
_NOT_SHOWN: Final = frozenset(
    {
        *("threadId", "turnId", "itemId", "approvalId", "startedAtMs", "kind"),
        *("availableDecisions", "commandActions", "proposedExecpolicyAmendment"),
        "proposedNetworkPolicyAmendments",
    }
)
"""What tells requests apart, or is offered for more than this once: no part of what is asked."""


def question_of(said: Said, item: Mapping[str, object]) -> Asked:
    """Read a request; `item` is the piece of work that it is about, as far as that is known."""
    params, session = said.params, text_in(said.params, "threadId")
    assert said.id is not None  # it is a question
    tool, given = _asked(said.method, params, item)
    what = (
        plain_command(text_in(given, "command")) or text_in(given, "file_path") or text_in(params, "reason")
    )
    if said.method == _FORM:
        what = text_in(params, "message", "serverName")
    return Asked(id=said.id, session=session, text=one_line(what), tool=tool, given=given)


def decision(*, is_allowed: bool) -> dict[str, object]:
    """Write a person's word: for this once, and never for good."""
    return {"decision": _ACCEPT if is_allowed else _DECLINE}


def _asked(
    method: str, params: Mapping[str, object], item: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    shown = {name: value for name, value in params.items() if name not in _NOT_SHOWN and value is not None}
    if method == _COMMAND:
        command = text_in(params, "command")
        is_whole = bool(command) and params.get("kind", "command") == "command" and _can_accept(params)
        return BASH if is_whole else "", {**shown, "command": command}
    if method == _FILES:
        paths = paths_in(item)
        given = {"file_path": ", ".join(paths), **shown, "changes": item.get("changes")}
        return (PATCH, given) if paths else ("", shown)
    return "", {}


def _can_accept(params: Mapping[str, object]) -> bool:
    offered = params.get("availableDecisions")
    return not isinstance(offered, list) or _ACCEPT in offered


def changes_in(item: Mapping[str, object]) -> Mapping[str, object]:
    """Give what must be remembered of a piece of work: a question about it names it and says no more."""
    return item if item.get("type") == "fileChange" else as_map(None)
