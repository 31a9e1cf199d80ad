"""A search is parsed without syntax errors, and means the same with and without FTS5."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.log.search import Phrase, format_search, is_found, parse_search, words_of


@pytest.mark.parametrize(
    ("search", "phrases"),
    [
        ("one two", (Phrase("one"), Phrase("two"))),
        ('"one two" three', (Phrase("one two"), Phrase("three"))),
        ("beg*", (Phrase("beg", is_open=True),)),
        ('"one beg"*', (Phrase("one beg", is_open=True),)),
        ('"never closed', (Phrase("never closed"),)),
        ('left"middle"right', (Phrase("left"), Phrase("middle"), Phrase("right"))),
        ("src/main.py luna_reviewer_1", (Phrase("src/main.py"), Phrase("luna_reviewer_1"))),
        ("one\0two \ud800", (Phrase("one"), Phrase("two"))),
        ('!? ** () ""', ()),
    ],
)
def test_search_is_parsed_as_intended(search: str, phrases: tuple[Phrase, ...]) -> None:
    assert parse_search(search) == phrases


@given(st.text())
def test_search_survives_formatting_and_parsing(search: str) -> None:
    phrases = parse_search(search)

    assert parse_search(format_search(phrases)) == phrases


def test_words_ignore_case_and_accents() -> None:
    assert words_of("Grüße, ÉTÉ_1!") == ["gruße", "ete", "1"]


@given(
    st.text('ab"* -é', max_size=12).map(parse_search).filter(bool),
    st.text("ab -.é_", max_size=20),
)
def test_phrase_is_found_where_fts5_finds_it(phrases: tuple[Phrase, ...], text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')")
    connection.execute("INSERT INTO t VALUES (?)", (text,))

    found = connection.execute("SELECT count(*) FROM t WHERE t MATCH ?", (format_search(phrases),)).fetchone()
    connection.close()

    assert is_found(phrases, text) == bool(found[0])


def test_no_phrase_finds_nothing() -> None:
    assert not is_found((), "text")
