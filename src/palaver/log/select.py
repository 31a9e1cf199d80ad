"""A query as SQL. Pure: values in, a statement and its parameters out.

A statement may find more events than the query means, never fewer: `model.query.matches` decides about each
event. So a statement contains only conditions that SQLite finds fast, and otherwise a coarse filter.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from palaver.errors import BadQuery
from palaver.log.records import COLUMNS
from palaver.log.search import format_search, parse_search
from palaver.model.concern import SAID_FOR
from palaver.model.life import BYE
from palaver.model.query import EXITED, STORED_STATES, STORED_TYPES, Query

_LIMIT_ARMS: Final = 20
_SENDER: Final = "ltrim(sender, '@') COLLATE NOCASE"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ .:/@#-]+")
"""Texts that JSON contains unescaped, and in which SQLite ignores case as we do."""


def statement_from(query: Query, among: Sequence[int] = ()) -> tuple[str, list[object]]:
    """Return the statement that finds a query's events in seq order, newest first if it asks for `last`.

    With `among` only these seqs are read.
    """
    made = _Conditions()
    source, place = "events", "seq"
    if query.search:
        source, place = "events_fts JOIN events ON events.seq = events_fts.rowid", "events_fts.rowid"
        made.add("events_fts MATCH ?", format_search(parse_search(query.search)))
    made.add(f"{place} > ?", query.after)
    if query.before is not None:
        made.add(f"{place} < ?", query.before)
    if among:
        made.add(f"{place} IN ({', '.join(map(str, among))})")
    _add_filters(made, query)
    arms = _arms(made, query)
    selects = [f"SELECT {COLUMNS} FROM {source} WHERE {' AND '.join(arm.terms)}" for arm in arms]  # noqa: S608
    order = "DESC" if query.last is not None else "ASC"
    values = [value for arm in arms for value in arm.values]
    return f"{' UNION ALL '.join(selects)} ORDER BY {place} {order}", values


def check_search(query: Query) -> None:
    """Refuse, with BadQuery, a search without a word."""
    if query.search and not parse_search(query.search):
        raise BadQuery("the search contains no word; write at least one letter or digit")


def wanted(query: Query) -> int:
    """Return the maximum number of events that a query wants."""
    return max(0, query.limit if query.last is None else min(query.last, query.limit))


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


def _add_filters(made: _Conditions, query: Query) -> None:
    is_divided = bool(query.threads or query.rooms)
    types = sorted({STORED_TYPES.get(name, name) for name in query.types})
    _add_word(made, "type", types, is_found_by=not is_divided)
    _add_senders(made, query)
    if query.since is not None:
        made.add("ts >= ?", query.since)
    if query.until is not None:
        made.add("ts <= ?", query.until)
    _add_sieve(made, ("sender", "recipients", "delivered_to", "payload"), query.agents)
    _add_sieve(made, ("recipients", "delivered_to", "payload"), query.to)
    _add_sieve(made, ("delivered_to", "payload"), query.targets)
    for names in (query.mentions, query.intents, query.files):
        _add_sieve(made, ("payload",), names)
    states = [word for stored in query.statuses for word in _same_state(stored)]
    _add_sieve(made, ("payload",), states, types=(BYE,) if EXITED in states else ())


def _add_senders(made: _Conditions, query: Query) -> None:
    """Add a condition for events that one of several senders wrote, or that the bus wrote for them."""
    senders = _plain(query.senders)
    if senders and not _has_one_sender(query):
        named = " OR ".join([*("payload LIKE ?" for _ in senders), "blob IS NOT NULL"])
        spoken = f"type IN ({_marks(SAID_FOR)}) AND ({named})"
        likes = (f"%{name}%" for name in senders)
        # The plus is explained in `_add_word`.
        made.add(f"(+{_SENDER} IN ({_marks(senders)}) OR {spoken})", *senders, *SAID_FOR, *likes)


def _has_one_sender(query: Query) -> bool:
    """Return whether events are found by their only sender: no other index is as good."""
    is_found_otherwise = query.threads or query.rooms or query.search
    return len(_plain(query.senders)) == 1 and not is_found_otherwise


def _by_sender(made: _Conditions, query: Query) -> list[_Conditions]:
    """Split into the events of a sender and, by type, those that the bus has written for it."""
    (sender,) = _plain(query.senders)
    spoken = f"type = ? AND +{_SENDER} <> ? AND (payload LIKE ? OR blob IS NOT NULL)"
    types = [type_ for type_ in SAID_FOR if not query.types or type_ in query.types]
    return [
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
        terms = [f"{column} LIKE ?" for column in columns for _ in plain]
        terms += ["type = ?" for _ in types]
        made.add(
            f"({' OR '.join([*terms, 'blob IS NOT NULL'])})",
            *(f"%{name}%" for _ in columns for name in plain),
            *types,
        )


def _plain(names: Iterable[str]) -> list[str]:
    """Return the names without their sign, or nothing if one could be written differently in a row."""
    bare = [name.removeprefix("@") for name in names]
    return bare if all(_PLAIN.fullmatch(name) for name in bare) else []


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _same_state(word: str) -> set[str]:
    stored = STORED_STATES.get(word, word)
    return {stored} | {alias for alias, meant in STORED_STATES.items() if meant == stored}
