"""Find the messages that expire. Reads only; delivery reports the expiry."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from palaver.log.api import Rows
from palaver.model.mail import EXPIRY, expiry_of_key

_PAGE: Final = 500


class Due(NamedTuple):
    """One message that expires for one agent, and when."""

    moment_ms: int
    seq: int
    agent: str


def expiring(rows: Rows, *, is_in_hand: Callable[[str, int], bool]) -> Iterator[Due]:
    """Yield the messages that will expire, soonest first, page by page.

    A message that a reader or lane has claimed is skipped: it may be read at this time. It is checked again
    when it is released.
    """
    after = ""
    while page := rows.scan(EXPIRY, "", after=after, limit=_PAGE):
        for key, _ in page:
            due = Due(*expiry_of_key(key))
            if not is_in_hand(due.agent, due.seq):
                yield due
        after = page[-1][0]
