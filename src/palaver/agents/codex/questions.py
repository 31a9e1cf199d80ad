"""The requests of a Codex app-server to the user, and the encoding of the decision. Pure.

A request can be decided remotely only if it can be shown in full: a command, or a file change of which every
line is known. Everything else (permanent network access, a form, a question of the model) must be answered at
the terminal.
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
"""Declines the request and lets the turn continue; the model is notified."""
_NOT_SHOWN: Final = frozenset(
    {
        *("threadId", "turnId", "itemId", "approvalId", "startedAtMs", "kind"),
        *("availableDecisions", "commandActions", "proposedExecpolicyAmendment"),
        "proposedNetworkPolicyAmendments",
    }
)
"""Fields that only identify a request, or offer more than a single approval: not shown to the user."""


def question_of(said: Said, item: Mapping[str, object]) -> Asked:
    """Decode a request; `item` is the work item it refers to, as far as known."""
    params, session = said.params, text_in(said.params, "threadId")
    assert said.id is not None  # A request always has an id.
    tool, given = _asked(said.method, params, item)
    what = (
        plain_command(text_in(given, "command")) or text_in(given, "file_path") or text_in(params, "reason")
    )
    if said.method == _FORM:
        what = text_in(params, "message", "serverName")
    return Asked(id=said.id, session=session, text=one_line(what), tool=tool, given=given)


def decision(*, is_allowed: bool) -> dict[str, object]:
    """Encode the user's decision. It applies to this request only, never permanently."""
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
    """Return the part of a work item that must be kept: a later request only refers to it by id."""
    return item if item.get("type") == "fileChange" else as_map(None)
