"""Events that leave the log for an archive. Writes no event: their places and rows do not change."""

from dataclasses import replace

from palaver.broker import redaction
from palaver.broker.context import Context
from palaver.broker.outcome import Outcome
from palaver.model.agent import Caller
from palaver.model.request import Archive


async def archive(context: Context, caller: Caller, request: Archive, key: bytes | None) -> Outcome:
    """Move what stands before a place into an archive; asked again, there is nothing left to move."""
    left = await redaction.finish(context)  # Records of removals are looked for in the log alone.
    return replace(await context.log.archive(request.before), unredacted=left)
