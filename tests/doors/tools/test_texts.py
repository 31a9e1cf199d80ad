"""The sentences of errors for callers of tools: they name tools and parameters, never commands."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.test_errors import EXAMPLES

import palaver
from palaver import errors
from palaver.doors.tools import tool_error

SOURCE = Path(palaver.__file__).parent
REACHED = ("broker/rooms.py", "domain/stick.py", "state/rooms.py", "services/rooms.py")
"""Modules that only requests of tools and of the same commands reach."""
NOT_OF_TOOLS = {
    "AlreadyJoined",  # join_path uses the name that the session has
    "DuplicateListener",  # tools have no consumers
}


def raised_texts() -> Iterator[tuple[str, str]]:
    """Yield every text in a raise statement of these modules, with its position."""
    for name in REACHED:
        for node in ast.walk(ast.parse((SOURCE / name).read_text())):
            if isinstance(node, ast.Raise):
                for part in ast.walk(node):
                    if isinstance(part, ast.JoinedStr | ast.Constant) and (text := text_of(part)):
                        yield f"{name}:{part.lineno}", text


def text_for_tools(error: errors.PalaverError, tool: str = "send") -> str:
    return str(tool_error(error, tool)["message"])


def text_of(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


@pytest.mark.parametrize(
    "error",
    [error for error in EXAMPLES if type(error).__name__ not in NOT_OF_TOOLS],
    ids=lambda error: type(error).__name__,
)
def test_error_for_a_tool_names_no_command_and_no_option(error: errors.PalaverError) -> None:
    shown = json.dumps(tool_error(error, "send"))

    assert "'pal" not in shown
    assert "--" not in shown


def test_no_refusal_of_a_room_tool_names_a_command() -> None:
    texts = dict(raised_texts())

    # The verb of a command is the subject of NotAllowed. The name of the tool replaces it.
    sentences = {where: text for where, text in texts.items() if not text.startswith(("stick ", "room "))}
    shown = {where: text_for_tools(errors.BadRequest(text)) for where, text in sentences.items()}

    assert len(shown) > 20
    assert {where: text for where, text in shown.items() if "'pal" in text or "--" in text} == {}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.RoomNotFound("shp"),
            "no such room: shp; list_rooms shows the rooms, join_path creates one here",
        ),
        (
            errors.UnknownMember("luna", "shop-x7qa"),
            "luna is not a member of shop-x7qa; join_path joins the room, get_room_state shows its members",
        ),
        (
            errors.UnknownRecipient({"@nova": []}),
            "no such agent: @nova; nothing was sent. list_agents shows the agents",
        ),
        (
            errors.TurnMismatch(1, 2),
            "the current turn is 2, not 1; call get_room_state and try again",
        ),
        (
            errors.StaleLease(2),
            "you do not own the stick in turn 2 with this lease; "
            "wait_for_turn gets a new lease when it is your turn",
        ),
        (errors.CannotKickSelf("shop"), "you cannot remove yourself; to leave shop, call leave_room"),
        (
            errors.TargetActive("luna"),
            "luna is present; only an operator or a person can remove it, with force",
        ),
        (errors.RateLimited(5, "60 messages"), "message #5 is held: 60 messages; a person can release it"),
        (
            errors.NotAllowed("room kick --force", "worker", "operator"),
            "kick_member with force requires an operator; you are a worker",
        ),
        (
            errors.NotAllowed("stick takeover", "observer", "worker"),
            "kick_member requires a worker; you are an observer",
        ),
        (errors.BadRequest("an ack requires --reply-to ID"), "an ack requires reply_to"),
        (errors.WhoAreYou("choose one with --as NAME"), "choose one with palaver/session in _meta"),
        (errors.BadRequest("leave out --id ULID"), "leave out --id ULID"),
        (errors.BadRequest("run 'pal frob it' now"), "run 'pal frob it' now"),
        (errors.BadRequest("see 'pal list -v luna'; add --yes"), "see list_agents; add yes"),
    ],
)
def test_sentence_for_a_tool(error: errors.PalaverError, text: str) -> None:
    assert text_for_tools(error, "kick_member") == text


def test_reason_in_the_details_names_the_same_tool_as_the_sentence() -> None:
    error = errors.NotFound("note x in shop", "'pal note list' shows the notes")

    assert tool_error(error, "resolve_note") == {
        "error": "not_found",
        "message": "there is no note x in shop: list_notes shows the notes",
        "details": {"what": "note x in shop", "reason": "list_notes shows the notes"},
    }


def test_refusal_for_lack_of_rights_names_the_tool_in_its_details() -> None:
    shown = tool_error(errors.NotAllowed("room kick --force", "worker", "operator"), "kick_member")

    assert shown["details"] == {
        "request": "kick_member with force",
        "standing": "worker",
        "needed": "operator",
    }
