"""The timer of delivery: wakes it when something is due, such as a message that expires."""

import asyncio
import logging
from typing import Final

from palaver.delivery.delivery import Delivery
from palaver.errors import Unavailable

_TRY_AGAIN_S: Final = 1.0

_logger: Final = logging.getLogger("palaver")


class Due:
    """The single timer of a delivery."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._has_changed = asyncio.Event()
        delivery.deadline_changed = self._has_changed.set

    async def run(self) -> None:
        """Wake delivery at its next deadline, and recompute when that changes; runs until cancelled."""
        while True:
            self._has_changed.clear()
            try:
                async with asyncio.timeout(self._delivery.next_wait_s()):
                    await self._has_changed.wait()
            except TimeoutError:
                await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            await self._delivery.catch_up()
        except Unavailable as error:
            _logger.warning("nothing could expire or be held: %s: %s", error.code, error)
            await asyncio.sleep(_TRY_AGAIN_S)
        except Exception:  # A bug. Without this timer nothing would expire, be held or be given up any more.
            _logger.exception("what has fallen due could not be done")
            await asyncio.sleep(_TRY_AGAIN_S)
