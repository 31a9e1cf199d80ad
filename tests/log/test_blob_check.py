"""The check for missing or changed blobs."""

from pathlib import Path

from tests.fakes import open_sqlite
from tests.log.logs import draft, writes

from palaver.log.api import BlobCount
from palaver.log.records import LIMIT_ROW_BYTES

LARGE = "x" * (LIMIT_ROW_BYTES + 1)


async def test_contents_are_counted_and_the_lost_ones_named(tmp_path: Path) -> None:
    log = await open_sqlite(tmp_path)
    try:
        nothing = await log.check_blobs()
        for number in ("1", "2", "3", "3"):
            await log.commit(None, writes(draft(number + LARGE)))
        whole = await log.check_blobs()
        gone, changed, _ = sorted((tmp_path / "blobs").iterdir())
        gone.unlink()
        changed.write_bytes(b"another")

        found = await log.check_blobs()

        assert (nothing, whole) == (BlobCount(0, []), BlobCount(3, []))
        assert (found.count, sorted(found.lost)) == (3, [gone.name, changed.name])
    finally:
        await log.close()
