"""Permission requests of agents and the decisions on them. Only the human decides, and only in person."""

from palaver.broker.context import Context
from palaver.broker.outcome import Written
from palaver.errors import NotAllowed, NotPerson
from palaver.model.agent import Caller
from palaver.model.envelope import Draft
from palaver.model.message import HUMAN
from palaver.model.permission import (
    ALLOW,
    ANSWERED,
    ASKED,
    DENY,
    LIMIT_TEXT,
    AnswerPermission,
    AskPermission,
    ClosePermission,
)
from palaver.model.text import check_text


def check_person(caller: Caller) -> None:
    """Refuse every caller but the human, and the human acting as another agent."""
    if caller.kind != HUMAN:
        raise NotAllowed("answering a permission request", caller.standing.word, "a person")
    if caller.by is not None:
        raise NotPerson("only a person can answer a permission request, and not with --as")


async def ask(context: Context, caller: Caller, request: AskPermission, key: bytes | None) -> Written:
    """Write that an agent requests permission, and until when it waits."""
    check_text(request.text, "the requested permission", LIMIT_TEXT * 4)
    payload: dict[str, object] = {
        "permission": request.permission,
        "tool": request.tool,
        "text": request.text,
        "digest": request.digest,
        "until": request.until,
    }
    return await _write(context, ASKED, request.name, payload, key)


async def answer(context: Context, caller: Caller, request: AnswerPermission, key: bytes | None) -> Written:
    """Write a person's decision."""
    check_person(caller)
    payload: dict[str, object] = {
        "agent": request.name,
        "permission": request.permission,
        "decision": ALLOW if request.is_allowed else DENY,
        "digest": request.digest,
    }
    return await _write(context, ANSWERED, caller.name, payload, key)


async def close(context: Context, caller: Caller, request: ClosePermission, key: bytes | None) -> Written:
    """Write that a request was closed without a decision, and what follows."""
    payload: dict[str, object] = {
        "agent": request.name,
        "permission": request.permission,
        "decision": request.decision,
        "reason": request.reason,
    }
    return await _write(context, ANSWERED, caller.name, payload, key)


async def _write(
    context: Context, type_: str, sender: str, payload: dict[str, object], key: bytes | None
) -> Written:
    draft = Draft(
        type=type_, sender=sender, payload=payload, id=context.ids.next(), ts=context.clock.now_ms()
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)
