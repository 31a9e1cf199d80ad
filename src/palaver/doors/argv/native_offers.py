"""Offers that a client writes to a harness as lines: record cut messages, and return unsent offers."""

import asyncio
from collections.abc import Sequence

from palaver.delivery.delivery import Delivery
from palaver.delivery.lane import Answer, Lane, Offer
from palaver.doors.hooks.conversation import Conversation

Offers = asyncio.Queue[Offer | None]
"""Offers for the client, in order; None means the end. No limit: delivery offers nothing to a busy lane."""


def remember_cut(
    conversation: Conversation | None, offer: Offer, written: Sequence[tuple[str, bool]]
) -> None:
    """Record the messages of which only the beginning was written: the hook that shows them adds the rest.

    `written` has a line for each message, and whether it is complete. Without hooks nothing is recorded.
    """
    if conversation is not None:
        is_whole = zip(offer.seqs, written, strict=True)
        conversation.cut.update(seq for seq, (_, whole) in is_whole if not whole)


async def give_back(delivery: Delivery, lane: Lane, offers: Offers, reason: str) -> None:
    """Queue the offers again that were not sent to the client."""
    while not offers.empty():
        if (offer := offers.get_nowait()) is not None:
            await delivery.answer(lane, offer.number, Answer.DEFERRED, reason=reason)
