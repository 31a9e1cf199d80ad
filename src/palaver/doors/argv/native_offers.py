"""What a client carries for a harness as lines: what was cut of it, and what never left."""

import asyncio
from collections.abc import Sequence

from palaver.delivery.delivery import Delivery
from palaver.delivery.lane import Answer, Lane, Offer
from palaver.doors.hooks.conversation import Conversation

Offers = asyncio.Queue[Offer | None]
"""What is to be carried, in order; None is the end."""


def remember_cut(
    conversation: Conversation | None, offer: Offer, written: Sequence[tuple[str, bool]]
) -> None:
    """Remember of which messages only the beginning was written: the hook that shows them adds the rest.

    `written` has a line for each, and whether it is whole. Where no hooks come there is nobody to add it.
    """
    if conversation is not None:
        is_whole = zip(offer.seqs, written, strict=True)
        conversation.cut.update(seq for seq, (_, whole) in is_whole if not whole)


async def give_back(delivery: Delivery, lane: Lane, offers: Offers, reason: str) -> None:
    """Put in line again what was not handed to the client: it never left."""
    while not offers.empty():
        if (offer := offers.get_nowait()) is not None:
            await delivery.answer(lane, offer.number, Answer.DEFERRED, reason=reason)
