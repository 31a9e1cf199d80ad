"""Conversations as rows of the fold: rooms, threads, pairs and broadcasts, with unread counts. Pure.

    talk        the newest message of each conversation, the number of its messages, and the unread ones
    talk_order  the conversations by their newest message, newest first, in groups of `_GROUP` seqs
    talk_open   the conversations of each message that the person has not read, by its seq

The rows contain no text: a removed text would have to be removed there too. The reader adds it.
A busy conversation moves in `talk_order` only when its newest message is in another group, so that most
messages change one row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from palaver.protocol.envelope import Event
from palaver.protocol.events import DeliveryReport, MessageSent
from palaver.protocol.message import HUMAN
from palaver.protocol.query import GENERAL, is_envelope, shared_conversations
from palaver.protocol.views import ConversationKind, ConversationRow
from palaver.state.agents import read_unread
from palaver.state.rooms import read_room
from palaver.state.rows import (
    MAIL,
    UNSURE,
    Change,
    MailKind,
    Rows,
    decode_mail,
    encode_row,
    kind_of_key,
    mail_prefix,
    seq_of_key,
    seq_of_mail_key,
)

TALKS: Final = "talk"
TALK_ORDER: Final = "talk_order"
TALK_OPEN: Final = "talk_open"

_THREAD: Final = "thread/"
_LARGEST: Final = 10**15 - 1
_GROUP: Final = 512
"""Seqs in one group of `talk_order`. A page reads whole groups and sorts them."""
_AT_ONCE: Final = 500
_OF_PERSON: Final = mail_prefix(HUMAN)


# Stored as an array: the order of the fields is a part of the stored form.
class _Talk(msgspec.Struct, frozen=True, array_like=True):
    """One conversation: its newest message, the number of its messages, and the unread ones."""

    seq: int
    ts: int
    sender: str
    count: int
    unread: int


class _OpenTalks(msgspec.Struct, frozen=True, array_like=True):
    """The conversations of a message of the person, and whether it counts as unread now."""

    talks: tuple[str, ...]
    is_unread: bool


_decode_talk: Final = msgspec.json.Decoder(_Talk).decode
_decode_open: Final = msgspec.json.Decoder(_OpenTalks).decode


def conversations_of(event: Event) -> tuple[str, ...]:
    """Return the keys of the conversations that a message or an envelope belongs to; none for other events.

    They are the words of `shown_conversations`, without those of single agents. An imported message belongs
    to none.
    """
    return () if event.imported else shared_conversations(event)


def kind_of_conversation(key: str) -> ConversationKind:
    """Return the kind of a conversation."""
    if key == GENERAL:
        return ConversationKind.ALL
    if key.startswith(_THREAD):
        return ConversationKind.THREAD
    return ConversationKind.PAIR if key.startswith("@") else ConversationKind.ROOM


# --------------------
# Queries.

TextOf = Callable[[int], str]
"""Returns the beginning of the message with a seq."""


def read_conversation(rows: Rows, key: str, *, text_of: TextOf | None = None) -> ConversationRow | None:
    """Return one conversation, or None. Its text is empty without `text_of`."""
    value = rows.get(TALKS, key)
    return None if value is None else _row(rows, key, _decode_talk(value), text_of)


def read_conversations(
    rows: Rows, *, before: int = 0, limit: int = 100, text_of: TextOf | None = None
) -> list[ConversationRow]:
    """Return conversations whose newest message is below the seq `before`, newest first; 0 means all.

    A page has `limit` rows or a few more: those with the same newest message are never separated, so that the
    next page begins below the last seq of this one. Texts are empty without `text_of`.
    """
    found: list[tuple[str, _Talk]] = []
    for key, talk in _newest_first(rows, before):
        if len(found) >= limit and talk.seq != found[-1][1].seq:
            break
        found.append((key, talk))
    return [_row(rows, key, talk, text_of) for key, talk in found]


def count_unread(rows: Rows) -> int:
    """Return the number of messages that the person has not read."""
    return read_unread(rows, HUMAN)


def _newest_first(rows: Rows, before: int) -> Iterator[tuple[str, _Talk]]:
    """Yield conversations below a seq, newest first, those with the same seq by key."""
    for keys in _groups(rows, before):
        talks = ((key, _decode_talk(value)) for key in keys if (value := rows.get(TALKS, key)) is not None)
        # The group of `before` also has conversations above it, which were on an earlier page.
        below = [one for one in talks if not before or one[1].seq < before]
        yield from sorted(below, key=lambda one: (-one[1].seq, one[0]))


def _groups(rows: Rows, before: int) -> Iterator[list[str]]:
    """Yield the keys of conversations, one list for each group of seqs, newest first."""
    # This is less than every key of the group, so the page begins with the group itself.
    after = f"{_group(before - 1)}/" if before else ""
    group, keys = "", list[str]()
    while page := rows.scan(TALK_ORDER, "", after=after, limit=_AT_ONCE):
        for row, _ in page:
            found, _, key = row.partition("/")
            if found != group and keys:
                yield keys
                keys = []
            group = found
            keys.append(key)
        after = page[-1][0]
    if keys:
        yield keys


def _group(seq: int) -> str:
    """Return the name of the group of a seq; those of later groups sort first."""
    return f"{_LARGEST - seq // _GROUP:015d}"


def _row(rows: Rows, key: str, talk: _Talk, text_of: TextOf | None) -> ConversationRow:
    return ConversationRow(
        key=key,
        kind=kind_of_conversation(key),
        title=_title(rows, key),
        seq=talk.seq,
        ts=talk.ts,
        sender=talk.sender,
        text="" if text_of is None else text_of(talk.seq),
        count=talk.count,
        unread=talk.unread,
    )


def _title(rows: Rows, key: str) -> str:
    """Return the name of a conversation for people: of a pair with the person, the other one."""
    match kind_of_conversation(key):
        case ConversationKind.ROOM:
            room = read_room(rows, key[1:])
            return key if room is None else room.name
        case ConversationKind.THREAD:
            return key.removeprefix(_THREAD)
        case ConversationKind.PAIR:
            # An agent can write to itself, and then both names are the same.
            names = dict.fromkeys(key.split("@")[1:])
            others = [name for name in names if name != HUMAN]
            return " and ".join(others or names)
        case _:
            return "everyone"


# --------------------
# The fold.


def talk_changes(rows: Rows, event: Event, changes: Sequence[Change]) -> list[Change]:
    """Return the changes of an event to conversations; `changes` are those to the mail of its recipients."""
    body = event.body
    if isinstance(body, MessageSent):
        is_of_person = HUMAN in body.delivered_to or event.sender == HUMAN
    elif isinstance(body, DeliveryReport):
        return _read(rows, event, changes) if body.agent == HUMAN or body.author == HUMAN else []
    elif is_envelope(event):
        is_of_person = HUMAN in event.delivered_to
    else:
        return []
    talks = conversations_of(event)
    if not is_of_person:  # As most messages on a busy bus.
        return [change for key in talks for change in _newest(rows, event, key, 0)]
    # All steps are summed before any row is written: one event may move several messages of one conversation,
    # and the rows keep their values until it is applied.
    steps = dict.fromkeys(talks, 0)
    found = _opened(rows, event, talks, changes, steps)
    for key, step in steps.items():
        found += _newest(rows, event, key, step) if key in talks else _stepped(rows, key, step)
    return found


def _newest(rows: Rows, event: Event, key: str, step: int) -> list[Change]:
    """Return the changes of a conversation by a new message, which changes its unread ones by `step`."""
    value, seq = rows.get(TALKS, key), event.seq
    if value is None:
        new = _Talk(seq, event.ts, event.sender, 1, step)
        return [(TALKS, key, encode_row(new)), (TALK_ORDER, f"{_group(seq)}/{key}", b"")]
    old = _decode_talk(value)
    row = encode_row(_Talk(seq, event.ts, event.sender, old.count + 1, old.unread + step))
    # The order within a group is that of the seqs in `talk`, so only a new group needs new rows.
    if seq // _GROUP == old.seq // _GROUP:
        return [(TALKS, key, row)]
    return [
        (TALKS, key, row),
        (TALK_ORDER, f"{_group(old.seq)}/{key}", None),
        (TALK_ORDER, f"{_group(seq)}/{key}", b""),
    ]


def _stepped(rows: Rows, key: str, step: int) -> list[Change]:
    """Return the changes of a conversation in which the number of unread messages changes."""
    value = rows.get(TALKS, key)
    if value is None or not step:
        return []
    old = _decode_talk(value)
    return [(TALKS, key, encode_row(_Talk(old.seq, old.ts, old.sender, old.count, old.unread + step)))]


def _read(rows: Rows, event: Event, mail: Sequence[Change]) -> list[Change]:
    """Return the changes of a report about messages of the person."""
    steps: dict[str, int] = {}
    changes = _opened(rows, event, (), mail, steps)
    return changes + [change for key, step in steps.items() for change in _stepped(rows, key, step)]


def _opened(
    rows: Rows, event: Event, talks: Sequence[str], mail: Sequence[Change], steps: dict[str, int]
) -> list[Change]:
    """Return the changes to the open messages of the person, and add the unread ones to `steps`."""
    moved = {key: value for table, key, value in mail if table == MAIL and key.startswith(_OF_PERSON)}
    changes: list[Change] = []
    for key, value in moved.items():
        seq = seq_of_mail_key(key)
        row = rows.get(TALK_OPEN, f"{seq:015d}")
        # Reports do not name conversations, so the row remembers those of each open message.
        old = (
            _OpenTalks(tuple(talks) if seq == event.seq else (), False) if row is None else _decode_open(row)
        )
        is_unread = value is not None and _is_unread(key, value)
        for talk in old.talks:
            steps[talk] = steps.get(talk, 0) + is_unread - old.is_unread
        # An unconfirmed message may be queued again, and is unread then.
        is_open = value is not None or _becomes_unconfirmed(mail, seq)
        changes.append(
            (TALK_OPEN, f"{seq:015d}", encode_row(_OpenTalks(old.talks, is_unread)) if is_open else None)
        )
    return changes


def _is_unread(key: str, value: bytes) -> bool:
    return not decode_mail(value).is_kept_back and kind_of_key(key) is not MailKind.HANDLED


def _becomes_unconfirmed(changes: Sequence[Change], seq: int) -> bool:
    return any(
        table == UNSURE and value is not None and key.startswith(_OF_PERSON) and seq_of_key(key) == seq
        for table, key, value in changes
    )
