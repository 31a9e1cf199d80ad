"""Move events from the log to an archive. Writes no event: seqs and rows do not change."""

from dataclasses import replace

from palaver.broker import redaction
from palaver.broker.context import Context
from palaver.broker.outcome import Outcome
from palaver.model.agent import Caller
from palaver.model.request import Archive


async def archive(context: Context, caller: Caller, request: Archive, key: bytes | None) -> Outcome:
    """Move the events before a seq into an archive. A repeat finds nothing left to move."""
    # Finish removals first: their records are searched in the log only.
    left = await redaction.finish(context)
    return replace(await context.log.archive(request.before), unredacted=left)
