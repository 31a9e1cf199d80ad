"""Record changes of settings. The door writes the file, which is read at the next start."""

from palaver.broker.context import Context
from palaver.broker.outcome import Written
from palaver.config import typed
from palaver.model.agent import Caller
from palaver.model.envelope import Draft
from palaver.model.request import ChangeSetting


async def change_setting(
    context: Context, caller: Caller, request: ChangeSetting, key: bytes | None
) -> Written:
    """Write that a setting has another value from the next start on."""
    draft = Draft(
        type="setting.changed",
        sender=caller.name,
        payload={"key": request.key, "value": typed(request.key, request.value), "old": request.old},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)
