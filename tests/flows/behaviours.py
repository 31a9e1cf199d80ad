"""Behaviour that all doors share, by id.

A test names the id it covers; `test_behaviours.py` compares the two.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

BEHAVIOURS: Final[Mapping[str, str]] = {
    # Recipients
    "direct": "A message to a name reaches that agent and nobody else.",
    "no-recipient": "A message without recipients is refused; only @all means everybody.",
    "base-name": "A base name means every agent that has it, tagged or not, here or remote.",
    "full-name": "A full name means one agent.",
    "tag-group": "A tag with a hyphen means everybody with that tag.",
    "prefix": "The beginning of exactly one base name means that base name.",
    "ambiguous-prefix": "The beginning of several base names is refused, and they are named.",
    "unknown-name": "A name that nobody has is refused with the nearest names, and nothing is sent.",
    "unknown-tag": "A tag that nobody has is refused.",
    "empty-group": "A group with nobody in it is stored, and that is said.",
    "role-group": "A role, in the singular or the plural, means everybody who has it.",
    "everyone": "@all means everybody present but the sender.",
    "glob": "A pattern means every full name that begins so.",
    "self": "One's own full name means oneself; a group never does.",
    "human": "@human means the person.",
    "remote": "A name with a device means the remote one only.",
    "underscore": "An underscore stops a prefix: a sub-agent is not its parent.",
    "path": "A path reaches the agent that it names.",
    "dead-path": "A path that nobody answers to is a dead letter, and its sender is told.",
    "route": "A routed message has the same command, payload and result at every door.",
    "route-subscribers": "A routed message reaches the agents and sessions that subscribed to its path.",
    "route-dead": "A routed message without a subscriber is a dead letter, which is not an error.",
    "case": "Case does not matter in an address.",
    "union": "Several recipients are a union, nobody twice.",
    "addresses": "Every form of address means the same agents at every door.",
    # Replies and message fields
    "reply-answers": "A reply raises the receipt of what it answers to answered.",
    "reply-to-author": "A reply without recipients goes to the author of what it answers.",
    "implied-answer": "A direct message back answers the only open request, also without reply_to.",
    "request-to-exited": "A request to an agent that has left says so, and its sender is notified at once.",
    "reply-inherits-thread": "A reply is in the thread of what it answers.",
    "ack-needs-reply-to": "An ack without what it answers is refused.",
    "ack-of-inform-refused": "What only informs, and an ack itself, is not acknowledged.",
    "unknown-intent": "An intent that does not exist is refused.",
    "thread": "A thread is kept, and does not change who gets a message to named recipients.",
    "thread-participants": "A message to a thread without recipients goes to its participants.",
    "same-id-once": "The same id again is the same message, stored once.",
    "dry-run": "A dry run says who would get it and stores nothing.",
    "flat-fields": "A message has the fields of the design, whatever door it came through.",
    # Content
    "too-large": "A body of 100,000 bytes is kept whole; one byte more is refused.",
    "control-character": "A control character is refused with its place; tab, LF and CR are kept.",
    "bidi": "A character that turns the direction of text is refused.",
    "empty-text": "An empty text, or one of blanks, is refused.",
    "hostile-bodies": "A body that looks like our own marks is read back as it was written.",
    "fence": "No body can close the fence, forge a head or split a message in two.",
    "reserved-type": "An envelope of a type of our own is refused.",
    "foreign-from": "An envelope in another's name is refused.",
    "foreign-type": "An envelope of a foreign type is kept and routed unread.",
    "task-sentence": "A task is read as a sentence with its number.",
    # Delivery
    "receipt-rises": "A receipt rises from queued to seen, with its lane and its evidence.",
    "receipt-reason": "A receipt that is not final says why it waits, and what would deliver it.",
    "take-once": "What was taken is not given again.",
    "peek-changes-nothing": "Looking at mail leaves it unread.",
    "store-and-forward": "A message to somebody who is away waits until it is back.",
    "priority-order": "Mail is taken by priority, and within one in its order.",
    "expires": "What expires before it is seen is not given, and its sender is told.",
    "message-reference": "A message is found by its number, with or without #, by its id or the end of it.",
    "name-taken": "A name that is in use is refused.",
    "leave": "Who has left is in no group, and still reached by name.",
    "observer": "An observer reads and cannot write.",
}

Test = TypeVar("Test", bound=Callable[..., object])


def behaviour(id: str, *, needs: str = "") -> Callable[[Test], Test]:
    """Mark the test of a behaviour. `needs` names a feature that a door must offer, if not all doors do."""

    def mark(test: Test) -> Test:
        vars(test).update(behaviour=id, needs=needs)
        return test

    return mark
