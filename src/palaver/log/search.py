"""Searches: their words, the full-text index, and a query as SQL.

All words must occur, in any order; "several words" in quotes must be adjacent; a star after a word or a quote
allows any ending. Each CJK character is a word; several without a blank between them must be adjacent.
Nothing else has a meaning, so no search is ever a syntax error.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from msgspec import structs

from palaver.errors import BadQuery
from palaver.log.records import (
    COLUMNS,
    Blobs,
    add_to_indexes,
    read_indexed,
    readable_events,
    space_cjk,
    term_of,
)
from palaver.protocol.envelope import Event
from palaver.protocol.events import BYE
from palaver.protocol.query import EXITED, STORED_STATES, STORED_TYPES, WRITTEN_FOR, Query, wanted_words

# The closing quote is optional, because no search may be a syntax error.
_PART: Final = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
# Without the underscore, at which FTS5's tokenizer also splits.
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Phrase:
    """Adjacent words as they were typed; with `is_open` the last one may continue."""

    text: str
    is_open: bool = False


def parse_search(search: str) -> tuple[Phrase, ...]:
    """Parse the text of a search. Skip parts without a letter or digit."""
    # A lone surrogate cannot be the parameter of a statement, and FTS5 would end the search at a null
    # character.
    readable = search.encode(errors="replace").decode().replace("\0", " ")
    phrases = [
        Phrase((quoted or bare).rstrip("*"), is_open=bool(star) or bare.endswith("*"))
        for quoted, star, bare in _PART.findall(readable)
    ]
    return tuple(phrase for phrase in phrases if words_of(phrase.text))


def format_search(phrases: Sequence[Phrase]) -> str:
    """Format phrases so that FTS5 and `parse_search` can read them."""
    # In quotes, so that AND, OR and NEAR are words to be found and not operators of FTS5.
    return " ".join(f'"{phrase.text}"{"*" if phrase.is_open else ""}' for phrase in phrases)


def words_of(text: str) -> list[str]:
    """Split a text into words: letters and digits, without accents, in lower case.

    Each CJK character is a word. The result must be that of FTS5's tokenizer, so that a search finds the same
    events in archives, which have no index, as in the log.
    """
    decomposed = unicodedata.normalize("NFD", space_cjk(text))
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _WORD.findall(plain.lower())


def is_found(phrases: Sequence[Phrase], text: str) -> bool:
    """Return whether a text contains every phrase; no phrases are found nowhere."""
    words = words_of(text)
    return bool(phrases) and all(_is_in(phrase, words) for phrase in phrases)


def _is_in(phrase: Phrase, words: list[str]) -> bool:
    *before, last = words_of(phrase.text)
    size = len(before)
    return any(
        words[start : start + size] == before
        and (words[start + size] == last or (phrase.is_open and words[start + size].startswith(last)))
        for start in range(len(words) - size)
    )


# --------------------
# The full-text index and the index of terms, updated later than the events. The caller has exclusive use of
# the writing connection.
#
# Indexing the words of a single commit would cost more than all its other writes. So the words of several
# commits are indexed together: with the next large batch, at the next pause, or before a search.

LIMIT_UNINDEXED: Final = 512
"""Events that may wait for the index before they are indexed at once."""

LIMIT_INDEXED: Final = 5000
"""Events that are indexed in one transaction, while commits wait. More are missing only after an upgrade."""

_EVENTS_AT_ONCE: Final = 1000
_BETWEEN: Final = f"SELECT {COLUMNS} FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # noqa: S608 - a constant


class Words:
    """Knows the last indexed seq, and brings the index up to date.

    `_reached` is the end of the index in the open transaction; `_indexed` is the committed end.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: Blobs, last: int) -> None:
        """`last` is the seq of the newest event."""
        self._connection = connection
        self._blobs = blobs
        self._indexed = self._reached = read_indexed(connection)
        self._last = last

    @property
    def unindexed(self) -> int:
        """The number of seqs that are not indexed. Usable from any thread."""
        return self._last - self._indexed

    def written(self, last: int) -> None:
        """Record that events up to this seq, and the index as far as it reaches, are committed."""
        self._last = last
        self._indexed = self._reached

    def catch_up(self) -> None:
        """Index missing events in a separate transaction, up to the limit."""
        last = min(self._last, self._indexed + LIMIT_INDEXED)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self.take_in(last)
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            self._reached = self._indexed
            raise
        # Not before the commit: from now on another thread searches without waiting for the index.
        self._indexed = self._reached

    def take_in(self, last: int) -> None:
        """Index missing events up to a seq, in the open transaction."""
        seq = self._indexed
        while rows := self._connection.execute(_BETWEEN, (seq, last, _EVENTS_AT_ONCE)).fetchall():
            add_to_indexes(self._connection, list(readable_events(rows, self._blobs)))
            # From the row, not from the event: a page of unreadable rows must not be read again and again.
            seq = rows[-1][0]
        self._reach(last)

    def add(self, events: Sequence[Event], last: int) -> None:
        """Index the events of a batch, after all indexed events, in the open transaction."""
        add_to_indexes(self._connection, events)
        self._reach(last)

    def forget(self) -> None:
        """Read the last indexed seq again, as after a rollback."""
        self._indexed = self._reached = read_indexed(self._connection)

    def _reach(self, last: int) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('indexed', ?)", (str(last),)
        )
        self._reached = last


# --------------------
# A query as SQL. Pure: values in, a statement and its parameters out.
#
# A statement may find more events than the query means, never fewer: `query.matches` decides about each
# event. So a statement contains only conditions that SQLite finds fast, and otherwise a coarse filter.

_LIMIT_ARMS: Final = 20
"""Parts of a UNION at most; with more words, SQLite reads all rows instead."""
_SENDER: Final = "ltrim(sender, '@') COLLATE NOCASE"
"""Written as in the index `events_by_sender`: SQLite uses an index only for the same expression."""
_WILDCARDS: Final = re.compile(r"\*|\?|\[.*", re.DOTALL)
"""The parts of a file pattern that stand for others; everything after a bracket counts as one."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ .:/@#-]+")
"""Texts that JSON contains unescaped, and in which SQLite ignores case as we do."""


def statement_from(query: Query, among: Sequence[int] = ()) -> tuple[str, list[object]]:
    """Return the statement that finds a query's events in seq order, newest first if it asks for `last`.

    With `among` only these seqs are read.
    """
    made = _Conditions()
    source, column = "events", "seq"
    if query.search:
        source, column = "events_fts JOIN events ON events.seq = events_fts.rowid", "events_fts.rowid"
        phrases = parse_search(query.search)
        spaced = [Phrase(space_cjk(phrase.text), is_open=phrase.is_open) for phrase in phrases]
        made.add("events_fts MATCH ?", format_search(spaced))
    made.add(f"{column} > ?", query.after)
    if query.before is not None:
        made.add(f"{column} < ?", query.before)
    if not query.with_imported:
        made.add("imported IS NULL")
    if among:
        # Integers, so they are safe in the text.
        made.add(f"{column} IN ({', '.join(map(str, among))})")
    _add_filters(made, query, is_found_by_type=not (query.threads or query.rooms))
    arms = _arms(made, query)
    selects = [f"SELECT {COLUMNS} FROM {source} WHERE {' AND '.join(arm.terms)}" for arm in arms]  # noqa: S608
    order = "DESC" if query.last is not None else "ASC"
    values = [value for arm in arms for value in arm.values]
    return f"{' UNION ALL '.join(selects)} ORDER BY {column} {order}", values


def statements_from(
    query: Query, among: Sequence[int] = (), *, last_indexed: int
) -> list[tuple[str, list[object]]]:
    """Return the statements that together find a query's events, in the order in which it asks for them.

    Events up to `last_indexed` are found by the index of terms if the query has words for it and no other
    index is as good. The few later ones are read.
    """
    words = wanted_words(query)
    has_other_index = query.search or query.threads or query.rooms or _has_one_sender(query) or among
    if not words or has_other_index:
        return [statement_from(query, among)]
    found = [_by_terms(query, words, last_indexed), statement_from(_after(query, last_indexed))]
    return found if query.last is None else found[::-1]


def _after(query: Query, seq: int) -> Query:
    return structs.replace(query, after=max(query.after, seq))


def _by_terms(query: Query, words: Sequence[str], last_indexed: int) -> tuple[str, list[object]]:
    made = _Conditions()
    made.add("events_terms MATCH ?", " OR ".join(map(term_of, words)))
    made.add("events_terms.rowid > ?", query.after)
    # The second statement reads the events after this seq. One that both find would be returned twice.
    made.add("events_terms.rowid <= ?", last_indexed)
    if query.before is not None:
        made.add("events_terms.rowid < ?", query.before)
    if not query.with_imported:
        made.add("imported IS NULL")
    _add_filters(made, query, is_found_by_type=False)
    order = "DESC" if query.last is not None else "ASC"
    # CROSS: SQLite must begin with the terms. In their order nothing has to be sorted.
    source = "events_terms CROSS JOIN events ON events.seq = events_terms.rowid"
    where = " AND ".join(made.terms)
    return f"SELECT {COLUMNS} FROM {source} WHERE {where} ORDER BY events_terms.rowid {order}", made.values  # noqa: S608


def archived_conversations_statement(query: Query, after: int, before: int) -> tuple[str, list[object]]:
    """Return the statement that finds the seqs of archived events in the conversations of a query.

    They are between two seqs, newest first if the query asks for `last`.
    """
    order = "DESC" if query.last is not None else "ASC"
    match = " OR ".join(map(term_of, wanted_words(Query(shown=query.shown))))
    where = "events_terms MATCH ? AND rowid > ? AND rowid < ?"
    return f"SELECT rowid FROM events_terms WHERE {where} ORDER BY rowid {order}", [match, after, before]  # noqa: S608


def check_search(query: Query) -> None:
    """Refuse, with BadQuery, a search without a word."""
    if query.search and not parse_search(query.search):
        raise BadQuery("the search contains no word; write at least one letter or digit")


def wanted(query: Query) -> int:
    """Return the maximum number of events that a query wants."""
    return max(0, query.limit if query.last is None else min(query.last, query.limit))


def in_order(query: Query, events: Iterable[Event]) -> list[Event]:
    """Return the events that a query wants of those found, each once, in seq order."""
    found = sorted({event.seq: event for event in events}.values(), key=attrgetter("seq"))
    count = wanted(query)
    return found[:count] if query.last is None else found[max(0, len(found) - count) :]


class _Conditions:
    """The terms of a WHERE clause, and their parameters in order."""

    def __init__(self) -> None:
        self.terms: list[str] = []
        self.values: list[object] = []

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values.extend(values)

    def copy_with(self, term: str, *values: object) -> "_Conditions":
        made = _Conditions()
        made.add(" AND ".join((*self.terms, term)), *self.values, *values)
        return made


def _add_filters(made: _Conditions, query: Query, *, is_found_by_type: bool) -> None:
    types = sorted({STORED_TYPES.get(name, name) for name in query.types})
    _add_word(made, "type", types, is_found_by=is_found_by_type)
    _add_senders(made, query)
    if query.since is not None:
        made.add("ts >= ?", query.since)
    if query.until is not None:
        made.add("ts <= ?", query.until)
    _add_sieve(made, ("sender", "recipients", "delivered_to", "payload"), query.agents)
    _add_sieve(made, ("recipients", "delivered_to", "payload"), query.to)
    _add_sieve(made, ("delivered_to", "payload"), query.targets)
    _add_sieve(made, ("sender", "recipients", "delivered_to", "payload"), query.participants)
    for names in (query.mentions, query.intents, query.tools):
        _add_sieve(made, ("payload",), names)
    _add_sieve(made, ("payload",), [one.partition(":")[0] for one in query.replies_to])
    _add_sieve(made, ("payload",), map(_longest_part, query.files))
    _add_sieve(made, ("payload",), ('"dead":',) if query.is_dead else ())
    states = [word for stored in query.statuses for word in _same_state(stored)]
    _add_sieve(made, ("payload",), states, types=(BYE,) if EXITED in states else ())


def _add_senders(made: _Conditions, query: Query) -> None:
    """Add a condition for events that one of several senders wrote, or that the bus wrote for them."""
    senders = _plain(query.senders)
    if senders and not _has_one_sender(query):
        # The row of a blob has only short fields, so the name may be in the part that is not in the row.
        named = " OR ".join([*("payload LIKE ?" for _ in senders), "blob IS NOT NULL"])
        spoken = f"type IN ({_marks(WRITTEN_FOR)}) AND ({named})"
        likes = (f"%{name}%" for name in senders)
        # The plus is explained in `_add_word`.
        made.add(f"(+{_SENDER} IN ({_marks(senders)}) OR {spoken})", *senders, *WRITTEN_FOR, *likes)


def _has_one_sender(query: Query) -> bool:
    """Return whether events are found by their only sender: no other index is as good."""
    is_found_otherwise = query.threads or query.rooms or query.search
    return len(_plain(query.senders)) == 1 and not is_found_otherwise


def _by_sender(made: _Conditions, query: Query) -> list[_Conditions]:
    """Split into the events of a sender and, by type, those that the bus has written for it."""
    (sender,) = _plain(query.senders)
    spoken = f"type = ? AND +{_SENDER} <> ? AND (payload LIKE ? OR blob IS NOT NULL)"
    types = [type_ for type_ in WRITTEN_FOR if not query.types or type_ in query.types]
    return [
        # The parts must not overlap, because UNION ALL would return an event of both twice.
        made.copy_with(f"{_SENDER} = ?", sender),
        *(made.copy_with(spoken, type_, sender, f"%{sender}%") for type_ in types),
    ]


def _arms(made: _Conditions, query: Query) -> list[_Conditions]:
    """Split by thread, else by room or one sender: each is found by its index, and SQLite merges them.

    With IN it would have to sort all matches.
    """
    # The empty string represents a thread or room that is not a string.
    threads, rooms = (
        list(dict.fromkeys(("", *words))) if words else [] for words in (query.threads, query.rooms)
    )
    if threads and rooms:
        made, rooms = made.copy_with(f"+room IN ({_marks(rooms)})", *rooms), []
    column, words = ("thread", threads) if threads else ("room", rooms)
    if not words:
        return _by_sender(made, query) if _has_one_sender(query) else [made]
    if query.search or len(words) > _LIMIT_ARMS:
        return [made.copy_with(f"+{column} IN ({_marks(words)})", *words)]
    return [made.copy_with(f"{column} = ?", word) for word in words]


def _add_word(made: _Conditions, column: str, words: Sequence[str], *, is_found_by: bool) -> None:
    """Add a condition for rows with one of the words; a single one is found by its index, in seq order."""
    if len(words) == 1 and is_found_by:
        made.add(f"{column} = ?", *words)
    elif words:
        # The plus prevents the use of the index, after which SQLite would have to sort all matches.
        made.add(f"+{column} IN ({_marks(words)})", *words)


def _add_sieve(
    made: _Conditions, columns: Sequence[str], names: Iterable[str], types: Sequence[str] = ()
) -> None:
    """Add a condition for rows that contain one of the names anywhere, and all rows of these types."""
    plain = _plain(names)
    if plain:
        # An underscore in a name matches any character here. That only finds more rows, and `matches` checks
        # them.
        terms = [f"{column} LIKE ?" for column in columns for _ in plain]
        terms += ["type = ?" for _ in types]
        made.add(
            f"({' OR '.join([*terms, 'blob IS NOT NULL'])})",
            *(f"%{name}%" for _ in columns for name in plain),
            *types,
        )


def _plain(names: Iterable[str]) -> list[str]:
    """Return the names without their `@`, or nothing if JSON could write one of them differently in a row.

    Without names there is no condition: all rows are then read and checked.
    """
    bare = [name.removeprefix("@") for name in names]
    return bare if all(_PLAIN.fullmatch(name) for name in bare) else []


def _longest_part(pattern: str) -> str:
    """Return the longest part of a file pattern that every matching path contains."""
    return max(_WILDCARDS.split(pattern), key=len)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _same_state(word: str) -> set[str]:
    stored = STORED_STATES.get(word, word)
    return {stored} | {alias for alias, meant in STORED_STATES.items() if meant == stored}
