"""The limits and the protocol on the IRC page agree with the tables of the code."""

import re

import pytest
from tests.docs.pages import first_cells, page, sections

from palaver.doors.irc.connection import IrcLimits
from palaver.doors.irc.irc_wire import (
    BEFORE_REGISTRATION,
    CAPABILITIES,
    COMMANDS,
    ISUPPORT,
    LIMIT_CLIENT_TAGS_BYTES,
    LIMIT_LABEL_BYTES,
    LIMIT_LINE_BYTES,
    LIMIT_MULTILINE_BYTES,
    LIMIT_MULTILINE_LINES,
    LIMIT_SASL_CHUNK_BYTES,
    LIMIT_TAGS_BYTES,
    NUMERICS,
    channel_of_thread,
    nick_of,
)

CHAPTERS = sections(page("irc.md"), "##")
PARTS = sections(CHAPTERS["The protocol"], "###")


def test_page_lists_every_capability_with_its_value() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (?:`([^`]+)` )?\|", PARTS["Capabilities"], re.MULTILINE)

    assert rows == list(CAPABILITIES.items())


def test_page_lists_every_command_and_those_before_registration_first() -> None:
    groups = [
        re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.*?) \|", PARTS["Commands"], re.MULTILINE)
    ]

    assert sorted(command for group in groups for command in group) == sorted(COMMANDS)
    assert set(groups[0]) == BEFORE_REGISTRATION


def test_page_lists_every_token_of_005() -> None:
    assert first_cells(PARTS["005"]) == list(ISUPPORT)


def test_page_lists_every_numeric_once() -> None:
    found = re.findall(r"`(\d{3}) (\w+)`", PARTS["Numerics"])

    assert sorted(found) == [(code, row.name) for code, row in NUMERICS.items()]


@pytest.mark.parametrize(
    ("limit", "numbers"),
    [
        ("a line without its tags, with CR LF", [LIMIT_LINE_BYTES]),
        ("the tags of a client's line", [LIMIT_CLIENT_TAGS_BYTES]),
        ("the tags of any line", [LIMIT_TAGS_BYTES]),
        ("a `label`", [LIMIT_LABEL_BYTES]),
        ("a multiline batch", [LIMIT_MULTILINE_BYTES, LIMIT_MULTILINE_LINES]),
        ("one AUTHENTICATE; a longer response has several", [LIMIT_SASL_CHUNK_BYTES]),
    ],
)
def test_page_has_the_limits_of_the_code(limit: str, numbers: list[int]) -> None:
    row = next(row for row in CHAPTERS["Limits"].splitlines() if row.startswith(f"| {limit} |"))

    assert [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", row.split("|")[2])] == numbers


@pytest.mark.parametrize(
    ("limit", "number"),
    [
        ("connections at once", IrcLimits().connections),
        ("of them not registered yet, or in a TLS handshake", IrcLimits().unregistered),
        ("time to register", IrcLimits().register_s),
        ("lines at once; a multiline batch counts as one line", IrcLimits().lines_at_once),
        ("then, lines a second", IrcLimits().lines_a_second),
        ("time without a line until a client gets a PING, and then to answer it", IrcLimits().idle_s),
        ("wrong passwords on one connection", IrcLimits().logins),
        ("channels of one client", IrcLimits().channels),
        ("data that may wait for a client that does not read", IrcLimits().waiting_bytes / 2**20),
    ],
)
def test_page_has_the_limits_of_connections(limit: str, number: float) -> None:
    row = next(row for row in CHAPTERS["Limits"].splitlines() if row.startswith(f"| {limit} |"))

    assert re.findall(r"\d+", row.split("|")[2]) == [f"{number:g}"]


def test_names_of_the_page_are_those_of_the_code() -> None:
    assert f"`{channel_of_thread('Deploy API, now')}`" in PARTS["Names"]
    assert f"`{nick_of('luna:BOXE')}`".replace("|", "\\|") in PARTS["Names"]
