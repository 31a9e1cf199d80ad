"""Move old events to an archive, and find the copies of the log that are kept next to it."""

from pathlib import Path

from palaver.broker.broker import Broker
from palaver.log.api import Archived
from palaver.log.storage import FILE_NAME, kept_folders
from palaver.protocol.agents import Caller
from palaver.protocol.requests import Archive


async def archive_events(broker: Broker, caller: Caller, before: int, key: bytes) -> Archived:
    """Move the events below a seq into an archive. Repeating the request key returns the same result."""
    moved = await broker.submit(caller, Archive(before=before), key=key)
    assert isinstance(moved, Archived)
    return moved


def repair_folders(home: Path) -> list[Path]:
    """Return the folders with the damaged log files that repairs have saved."""
    return kept_folders(home)


def replaced_log(home: Path) -> Path | None:
    """Return the copy of a log that was replaced while the bus was running, or None."""
    saved = home / f"{FILE_NAME}.saved"
    return saved if saved.exists() else None
