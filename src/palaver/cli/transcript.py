"""`pal transcript`, and the transcripts of a bundle, in the client's own process and with its rights.

The daemon has decided whose transcript it is. Long ones are read twice instead of kept in memory.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NoReturn

import msgspec

from palaver.cli.transcript_page import entry_text
from palaver.cli.transcript_search import Search
from palaver.cli.transcript_source import Transcript, find_transcript
from palaver.doors.argv.style import paint_for, safe_for_agent
from palaver.doors.argv.transcript_order import (
    EXCERPTS,
    ReadOrder,
    excerpt_order_from_word,
    read_order_from_word,
)
from palaver.doors.lines_wire import error_object
from palaver.errors import NotFound, PalaverError, UsageError
from palaver.model.transcript import Entry, Excerpt, entry_at_level, take_excerpt

_encode: Final = msgspec.json.Encoder().encode

Numbered = tuple[int, Entry]


def read_transcript(word: str, environment: Mapping[str, str]) -> int:
    """Print the entries that an order asks for. Return the exit status."""
    order = read_order_from_word(word)
    try:
        transcript = find_transcript(order.known, environment)
        _print(order, transcript, environment)
    except PalaverError as error:
        return _complain(error, is_json=order.is_refusal_json)
    except OSError as error:
        sys.stderr.write(f"pal: {error.filename or 'standard output'}: {error.strerror}\n")
        os._exit(1)  # a later write would fail too
    if transcript.passed_over:
        sys.stderr.write(f"pal: lines that are too long to read: {transcript.passed_over}\n")
    return 0


def _print(order: ReadOrder, transcript: Transcript, environment: Mapping[str, str]) -> None:
    """Write the entries one by one; for a range from the end they are counted first, and then read again."""
    paint = paint_for(environment, is_terminal=sys.stdout.isatty())
    skipped = 0
    if order.newest:
        skipped = max(0, sum(1 for _ in _chosen(order, transcript)) - order.newest)
    shown = 0
    for number, entry in islice(_chosen(order, transcript), skipped, None):
        shown += 1
        if order.is_json:
            data = _encode(entry_at_level(entry, number, order.level)) + b"\n"
        else:
            text = entry_text(entry, number, order.level, paint=paint, zone=None)
            data = text.encode("utf-8", "backslashreplace")
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    if not shown:
        sys.stderr.write("pal: no matching entries\n" if order.search else "pal: the transcript is empty\n")
    elif skipped and not order.search and sys.stderr.isatty():
        sys.stderr.write(f"pal: {skipped} before these; 'pal transcript {order.known.agent} 1-' shows all\n")


def _chosen(order: ReadOrder, transcript: Transcript) -> Iterator[Numbered]:
    """Yield the entries of the range that match the search, with their numbers."""
    search = Search(order.search, order.level) if order.search else None
    number = 0
    for number, entry in enumerate(islice(transcript.entries(), order.last), 1):
        if number >= order.first and (search is None or search.is_in(entry, number)):
            yield number, entry
    if order.first > 1 and number < order.first:
        has = f"{number} entr{'y' if number == 1 else 'ies'}"
        raise NotFound(f"entry {order.first} in the transcript of {order.known.agent}", f"it has {has}")


def take_excerpts(word: str, argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Take the excerpts for a bundle, and repeat the same request with them."""
    order = excerpt_order_from_word(word)
    excerpts: list[Excerpt] = []
    for known, stretch in order.wanted:
        try:
            transcript = find_transcript(known, environment)
            excerpts.append(take_excerpt(transcript.reader, transcript.lines(), stretch, known.agent))
        except PalaverError as error:
            return _complain(error, is_json=order.is_json)
    return _ask_again(argv, _encode(excerpts), environment)


def _ask_again(argv: Sequence[str], content: bytes, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the client with the same request and an unnamed file, which ends with it."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        own = {**environment, EXCERPTS: f"/dev/fd/{file.fileno()}"}
        words = [sys.executable, "-m", "palaver.cli.thin", *argv]
        os.execve(sys.executable, words, own)  # noqa: S606 - our own client, in our own Python


def _complain(error: PalaverError, *, is_json: bool) -> int:
    if is_json:
        sys.stderr.write(_encode(error_object(error)).decode() + "\n")
    else:
        sys.stderr.write(f"pal: {safe_for_agent(str(error), keep_lines=True)}\n")
    return 2 if isinstance(error, UsageError) else 1
