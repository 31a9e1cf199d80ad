"""Lines, tags, names and splitting of the IRC protocol."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.doors.irc.irc_wire import (
    BEFORE_REGISTRATION,
    CAPABILITIES,
    COMMANDS,
    GENERAL,
    ISUPPORT,
    LIMIT_CHANNEL_BYTES,
    LIMIT_CLIENT_TAGS_BYTES,
    LIMIT_LINE_BYTES,
    LIMIT_MULTILINE_BYTES,
    LIMIT_MULTILINE_LINES,
    LIMIT_NICK,
    LIMIT_TAGS_BYTES,
    NUMERICS,
    SERVER,
    BadIrcLine,
    ChannelRef,
    IrcReader,
    Line,
    TooLong,
    agent_of_channel,
    capability_words,
    channel_of_agent,
    channel_of_path,
    channel_of_thread,
    clean_text,
    clean_topic,
    client_tags,
    ctcp_of,
    cut_text,
    escape_tag,
    fit_line,
    fold,
    format_line,
    format_time,
    is_channel,
    is_middle,
    is_nick,
    isupport_lines,
    join_exactly,
    name_of,
    nick_of,
    nick_of_source,
    numeric,
    pack_words,
    parse_channel,
    parse_line,
    parse_time,
    path_of_channel,
    path_of_nick,
    room_for_text,
    source_of,
    split_exactly,
    split_text,
    standard_reply,
    thread_of_channel,
    unescape_tag,
)
from palaver.errors import PalaverError
from palaver.protocol.address import check_path
from palaver.protocol.agents import LIMIT_NAME
from palaver.protocol.display import safe
from palaver.protocol.text import check_text, check_thread

# Characters of one, two, three and four bytes, letters with marks, and an emoji of several characters.
SIGNS = "ab Z:;=\\ @#é€語\u0301\u200d\ufe0f👩💻🏽"
in_lines = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=40)
texts = st.text(st.sampled_from(SIGNS + "\n") | st.characters(codec="utf-8", exclude_characters="\0\r"))
words = in_lines.map(lambda text: text.replace(" ", "")).filter(bool)
commands = st.from_regex("[A-Z]{1,12}|[0-9]{3}", fullmatch=True)
tags = st.dictionaries(
    st.from_regex(r"\+?([a-z0-9.-]{1,9}/)?[a-zA-Z0-9.-]{1,9}", fullmatch=True),
    st.text(
        st.sampled_from("; \\\r\nx") | st.characters(codec="utf-8", exclude_characters="\0"), max_size=20
    ),
    max_size=5,
)
lines = st.builds(
    Line,
    command=commands,
    params=st.builds(
        lambda middle, last: (*middle, *last),
        st.lists(words.filter(lambda word: not word.startswith(":")), max_size=3),
        st.lists(in_lines, max_size=1),
    ),
    source=st.just("") | words,
    tags=tags,
)
agents = st.from_regex(r"([a-z][a-z0-9_-]{0,5}-)?[a-z][a-z0-9_]{0,9}(:[A-Z0-9]{1,4})?", fullmatch=True)
nicks = st.from_regex(r"[A-Za-z\[\]\\`_^{}|][A-Za-z0-9\[\]\\`_^{}|-]{0,20}", fullmatch=True)


def _is_allowed(check: Callable[[str], None], text: str) -> bool:
    try:
        check(text)
    except PalaverError:
        return False
    return True


threads = st.text(
    st.sampled_from("Aa ,%^+#-:🏽") | st.characters(codec="utf-8"), min_size=1, max_size=64
).filter(lambda name: _is_allowed(check_thread, name))


# --------------------
# Lines.


@given(lines)
@example(Line(command="PRIVMSG", params=("#c", "")))
@example(Line(command="PRIVMSG", params=("#c", ":) hi  ")))
@example(Line(command="001"))
@example(Line(command="TOPIC", params=("",)))
def test_line_survives_formatting_and_parsing(line: Line) -> None:
    written = format_line(line)

    assert parse_line(written, limit_tags_bytes=LIMIT_TAGS_BYTES) == line


@given(lines, st.sampled_from("\0\r\n"), st.integers(0, 40))
def test_formatted_line_is_always_one_line(line: Line, char: str, at: int) -> None:
    spoiled = Line(
        command=line.command,
        params=tuple(param[:at] + char + param[at:] for param in line.params),
        source=line.source[:at] + char + line.source[at:],
        tags=line.tags,
    )

    with pytest.raises(ValueError, match="NUL, CR or LF"):
        format_line(spoiled)
    with pytest.raises(ValueError, match="NUL, CR or LF"):
        format_line(Line(command="PRIVMSG", params=("#c", f"hi{char}QUIT")))
    assert format_line(line).count(b"\n") == format_line(line).count(b"\r") == 1


@given(st.binary(max_size=60) | in_lines.map(str.encode))
@example(b"@" + b"x" * 5000)
def test_arbitrary_bytes_are_a_line_or_have_a_fault(data: bytes) -> None:
    if _fault(data):
        assert _fault(data) in ("empty", "too_long", "invalid_utf8", "bad_character")
        return

    line = parse_line(data)

    assert not {"\0", "\r", "\n"} & set("".join((line.command, line.source, *line.params)))
    assert line.command == line.command.upper() != ""


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"PING", Line(command="PING")),
        (b"privmsg #c hi\r\n", Line(command="PRIVMSG", params=("#c", "hi"))),
        (b"  PRIVMSG   #c   ::-)  ", Line(command="PRIVMSG", params=("#c", ":-)  "))),
        (b":dan!d@h  JOIN  #c", Line(command="JOIN", params=("#c",), source="dan!d@h")),
        (b":irc CAP * LIST :", Line(command="CAP", params=("*", "LIST", ""), source="irc")),
        (b"A b:c d :e :f", Line(command="A", params=("b:c", "d", "e :f"))),
        (b"@id=1;rose;url= :a B", Line(command="B", source="a", tags={"id": "1", "rose": "", "url": ""})),
        (b"@a=1;a=2;+b/c=x\\:\\s\\\\ B", Line(command="B", tags={"a": "2", "+b/c": "x; \\"})),
        (b"@;=x;b\xc3\xa9=1;ok=1 B", Line(command="B", tags={"ok": "1"})),
    ],
)
def test_line_has_the_parts_of_the_specification(written: bytes, line: Line) -> None:
    assert parse_line(written) == line


@pytest.mark.parametrize(
    ("written", "fault", "line"),
    [
        (b"", "empty", None),
        (b"   \r\n", "empty", None),
        (b"@a=b", "empty", None),
        (b":source", "empty", None),
        (b":source :text", "empty", None),
        (b"x" * (LIMIT_LINE_BYTES - 1), "too_long", None),
        (b"PRIVMSG #c :a\0b", "bad_character", Line(command="PRIVMSG", params=("#c", "ab"))),
        (
            b"@label=1 PRIVMSG #c :a\xff",
            "invalid_utf8",
            Line(command="PRIVMSG", params=("#c", "a\ufffd"), tags={"label": "1"}),
        ),
    ],
)
def test_bad_line_says_what_is_wrong(written: bytes, fault: str, line: Line | None) -> None:
    with pytest.raises(BadIrcLine) as caught:
        parse_line(written)

    assert (caught.value.fault, caught.value.line) == (fault, line)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (Line(command="PRIV MSG"), "not a command"),
        (Line(command=""), "not a command"),
        (Line(command="X", source="a b"), "no spaces"),
        (Line(command="X", params=("", "b")), "only the last"),
        (Line(command="X", params=(":a", "b")), "only the last"),
        (Line(command="X", params=("a b", "c")), "only the last"),
        (Line(command="X", tags={"a b": ""}), "name of a tag"),
        (Line(command="X", tags={"+x": "y" * LIMIT_TAGS_BYTES}), "tags of a line"),
        (Line(command="X", params=("é" * 256,)), "has 516 bytes"),
    ],
)
def test_line_without_a_spelling_is_refused(line: Line, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        format_line(line)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (Line(command="PRIVMSG", params=("#c", "hi")), b"PRIVMSG #c :hi\r\n"),
        (Line(command="JOIN", params=("#c",)), b"JOIN #c\r\n"),
        (Line(command="QUIT", params=("bye",)), b"QUIT :bye\r\n"),
        (Line(command="X", tags={"+b": "1 2", "a": ""}), b"@a;+b=1\\s2 X\r\n"),
    ],
)
def test_line_is_written_as_simple_clients_expect(line: Line, written: bytes) -> None:
    assert format_line(line) == written


@given(words, commands, words.filter(is_middle), in_lines)
def test_text_with_the_room_of_a_line_fills_the_line(
    source: str, command: str, target: str, text: str
) -> None:
    room = room_for_text(source, command, target)
    line = Line(command=command, params=(target, text + "x" * (room - len(text.encode()))), source=source)

    assert len(format_line(line)) == LIMIT_LINE_BYTES


@given(texts, st.integers(-3, 40))
def test_cut_text_is_a_whole_beginning(text: str, limit_bytes: int) -> None:
    cut = cut_text(text, limit_bytes)

    assert text.startswith(cut)
    assert len(cut.encode()) <= max(limit_bytes, 0)
    assert cut == text or len(text[: len(cut) + 1].encode()) > limit_bytes


# --------------------
# Tags and times.


@given(st.text())
def test_tag_value_survives_escaping(value: str) -> None:
    escaped = escape_tag(value)

    assert unescape_tag(escaped) == value
    assert not set("; \r\n") & set(escaped)


@pytest.mark.parametrize(
    ("escaped", "value"),
    [("test\\", "test"), ("\\b", "b"), ("\\\\n", "\\n"), ("\\:\\s\\r\\n", "; \r\n"), ("a\\", "a")],
)
def test_invalid_escapes_lose_their_backslash(escaped: str, value: str) -> None:
    assert unescape_tag(escaped) == value


def test_only_tags_with_a_plus_are_passed_on() -> None:
    assert client_tags({"+a": "1", "label": "2", "+b/c": ""}) == {"+a": "1", "+b/c": ""}


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_time_survives_formatting_and_parsing(time_ms: int) -> None:
    assert parse_time(format_time(time_ms)) == time_ms


def test_time_beyond_the_years_of_the_tag_becomes_the_nearest_one() -> None:
    assert format_time(2**63 - 1) == "9999-12-31T23:59:59.999Z"
    assert format_time(-(2**63)) == "0001-01-01T00:00:00.000Z"


def test_time_has_the_form_of_the_specification() -> None:
    assert format_time(1_794_977_401_123) == "2026-11-18T04:50:01.123Z"
    assert parse_time("2026-11-18T04:50:01Z") == 1_794_977_401_000
    assert parse_time("2026-11-18T04:50:01.1Z") == 1_794_977_401_100
    assert parse_time("2026-11-18T04:50:01.123999Z") == 1_794_977_401_123
    assert parse_time("2016-12-31T23:59:60.000Z") == parse_time("2017-01-01T00:00:00.000Z")


@given(st.text() | st.sampled_from(["2026-13-01T00:00:00Z", "2026-01-01T00:00:61Z", "2026-01-01", "*", ""]))
def test_other_text_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|format|day|month"):
        parse_time(text)


# --------------------
# The stream.

streams = st.lists(
    st.binary(max_size=20)
    | st.sampled_from(
        [
            b"PING x\r\n",
            b"\n",
            b"\r",
            b"@label=7;+x ",
            b"@" + b"t" * (LIMIT_CLIENT_TAGS_BYTES - 2) + b" ",
            b"x" * (LIMIT_LINE_BYTES - 2),
            b"y" * LIMIT_LINE_BYTES,
        ]
    ),
    max_size=12,
).map(b"".join)


@given(streams, st.data())
def test_any_split_of_a_stream_gives_the_same_lines(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    whole, pieces, single = IrcReader(), IrcReader(), IrcReader()

    found = whole.feed(stream)

    assert found == [
        line
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for line in pieces.feed(stream[start:end])
    ]
    assert found == [line for at in range(len(stream)) for line in single.feed(stream[at : at + 1])]


@given(streams)
def test_reader_agrees_with_the_parser_about_long_lines(stream: bytes) -> None:
    found = IrcReader().feed(stream + b"\n")

    expected = [line for line in stream.replace(b"\r", b"\n").split(b"\n") if line]
    assert len(found) == len(expected)
    for line, written in zip(found, expected, strict=True):
        assert isinstance(line, TooLong) == (_fault(written) == "too_long")
        assert isinstance(line, TooLong) or line == written


def _fault(written: bytes) -> str:
    try:
        parse_line(written)
    except BadIrcLine as error:
        return error.fault
    return ""


def test_long_line_is_reported_once_and_skipped_whole() -> None:
    reader = IrcReader()

    assert reader.feed(b"x" * (LIMIT_LINE_BYTES - 2)) == []
    assert reader.feed(b"x") == [TooLong()]
    assert reader.feed(b"x" * 100_000) == []
    assert reader.feed(b" QUIT :not a command\r\nPING 1\r\n") == [b"PING 1"]


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (b"@label=7;+x=1 PRIVMSG #c :" + b"x" * LIMIT_LINE_BYTES, {"label": "7", "+x": "1"}),
        (b"@label=7;+x=" + b"x" * LIMIT_CLIENT_TAGS_BYTES + b" PING\r\n", {"label": "7"}),
        (b"@label=" + b"x" * LIMIT_CLIENT_TAGS_BYTES + b" PING\r\n", {}),
        (b"@label=\xff\0;a=\\s " + b"x" * LIMIT_LINE_BYTES, {"label": "\ufffd", "a": " "}),
    ],
)
def test_tags_of_a_long_line_are_known(line: bytes, labels: dict[str, str]) -> None:
    assert IrcReader().feed(line) == [TooLong(tags=labels)]


def test_limits_of_tags_and_line_are_separate() -> None:
    tags_ = b"@+x=" + b"y" * (LIMIT_CLIENT_TAGS_BYTES - 5) + b" "
    rest = b"PRIVMSG #c :" + b"z" * (LIMIT_LINE_BYTES - 14)

    assert IrcReader().feed(tags_ + rest + b"\r\n") == [tags_ + rest]
    assert len(tags_ + rest + b"\r\n") == LIMIT_CLIENT_TAGS_BYTES + LIMIT_LINE_BYTES
    assert IrcReader().feed(b"@" + tags_[1:-1] + b"y PING\r\n") != [b"@" + tags_[1:-1] + b"y PING"]
    assert IrcReader().feed(tags_ + rest + b"z\r\n") == [TooLong(tags=parse_line(tags_ + rest).tags)]


def test_reader_of_a_client_accepts_the_tags_of_servers() -> None:
    line = b"@" + b"x" * (LIMIT_TAGS_BYTES - 2) + b" PING"

    assert IrcReader(limit_tags_bytes=LIMIT_TAGS_BYTES).feed(line + b"\r\n") == [line]


# --------------------
# Nicks and channels.


@given(st.text())
def test_fold_changes_only_ascii_capitals(name: str) -> None:
    folded = fold(name)

    assert folded == "".join(char.lower() if char.isascii() else char for char in name)
    assert fold(folded) == folded


def test_brackets_are_different_nicks() -> None:
    assert fold("a[b]\\^") == "a[b]\\^" != fold("a{b}|~")


@given(agents)
def test_nick_of_an_agent_is_reversible(name: str) -> None:
    nick = nick_of(name)

    assert is_nick(nick)
    assert name_of(nick) == name_of(nick.upper()) == name


def test_nick_of_a_remote_agent_has_a_bar() -> None:
    assert nick_of("luna:BOXE") == "luna|BOXE"
    assert name_of("LUNA|boxe") == "luna:BOXE"
    assert len(nick_of(f"{'a' * LIMIT_NAME}:BOXE")) == LIMIT_NAME + 5 <= LIMIT_NICK


@given(nicks)
def test_guest_has_its_nick(nick: str) -> None:
    assert nick_of(f"irc/local/{nick}") == nick


@given(st.text())
def test_nick_of_any_sender_can_be_a_source(name: str) -> None:
    nick = nick_of(name)
    line = Line(command="PRIVMSG", params=("#c", "x"), source=source_of(nick, name))

    assert parse_line(format_line(line)) == line
    assert nick_of_source(line.source) == nick
    assert nick.isprintable()


def test_name_with_a_slash_is_not_a_nick_of_a_client() -> None:
    assert nick_of("irc/libera/luna") == "irc/libera/luna"
    assert not is_nick("irc/libera/luna")


@pytest.mark.parametrize(
    "nick",
    [
        "",
        "1a",
        "-a",
        "a b",
        "a!b",
        "a@b",
        "#a",
        "@a",
        "+a",
        "é",
        "a" * 71,
        "a\x1b",
        "a/b",
        "a.b",
        "a,b",
        ":a",
    ],
)
def test_other_text_is_not_a_nick(nick: str) -> None:
    assert not is_nick(nick)
    assert name_of(nick) == nick


@given(nicks)
def test_nick_of_a_client_is_accepted_and_has_a_path(nick: str) -> None:
    assert is_nick(nick)
    assert check_path(path_of_nick(nick)) == path_of_nick(nick)


@given(agents)
def test_channel_of_an_agent_is_reversible(name: str) -> None:
    channel = channel_of_agent(name)

    assert agent_of_channel(channel) == agent_of_channel(channel.upper()) == name
    assert is_channel(channel)
    assert is_channel(channel.upper())
    assert parse_channel(channel, lambda _: True) == ChannelRef(kind="agent", name=name)


@given(threads)
@example("Deploy API, 100% ^+")
@example("🏽" * 64)
@example("A" * 64)
@example("%" * 64)
def test_channel_of_a_thread_is_reversible(thread: str) -> None:
    channel = channel_of_thread(thread)

    assert thread_of_channel(channel) == thread_of_channel(_ascii_upper(channel)) == thread
    assert is_channel(channel)
    assert not set(" ,\0\a\r\n") & set(channel)
    assert len(channel.encode()) <= 264
    assert parse_channel(channel, lambda _: True) == ChannelRef(kind="thread", name=thread)


def _ascii_upper(text: str) -> str:
    return "".join(char.upper() if char.isascii() else char for char in text)


@given(threads, threads)
def test_threads_with_other_names_have_other_channels(first: str, second: str) -> None:
    assert (fold(channel_of_thread(first)) == fold(channel_of_thread(second))) == (first == second)


def test_channel_of_a_thread_is_readable() -> None:
    assert channel_of_thread("fix-login_2") == "#thread-fix-login_2"
    assert channel_of_thread("Deploy API, now") == "#thread-^deploy+^a^p^i%2c+now"


def test_message_fits_into_the_longest_channel_with_the_longest_nick() -> None:
    nick = "n" * LIMIT_NICK

    assert room_for_text(source_of(nick, nick), "PRIVMSG", channel_of_thread("🏽" * 64)) >= 80


@pytest.mark.parametrize(
    "channel",
    [
        "",
        "#",
        "general",
        "&local",
        "#a b",
        "#a,b",
        "#a\a",
        "#a\x1b[0m",
        "#a\u202eb",
        "#a\u200bb",
        "#a\ud800",
        "#" + "a" * LIMIT_CHANNEL_BYTES,
        "#" + "é" * 50,
        "#agent-",
        "#agent-1",
        "#agent-a.b",
        "#Agent-a:BOXE",
        "#agent-" + "a" * 71,
        "#thread-",
        "#thread-+",
        "#thread-%61",
        "#thread-%2C,",
        "#thread-%zz",
        "#thread-^",
        "#thread-" + "a" * 65,
        "#thread-a\u202e",
    ],
)
def test_other_text_is_not_a_channel(channel: str) -> None:
    assert not is_channel(channel)


@pytest.mark.parametrize(
    "channel", ["#a", "##", "#C++", "#日本", "#a/b", "#a:b", "#" + "a" * (LIMIT_CHANNEL_BYTES - 1)]
)
def test_ordinary_channel_is_accepted(channel: str) -> None:
    assert is_channel(channel)
    assert parse_channel(channel, lambda _: False) == ChannelRef(kind="other", name=fold(channel))
    assert parse_channel(channel, lambda room: room == fold(channel)[1:]) == ChannelRef(
        kind="room", name=fold(channel)[1:]
    )


def test_general_is_general_even_if_a_room_has_the_name() -> None:
    assert parse_channel("#GENERAL", lambda _: True) == ChannelRef(kind="general", name=GENERAL)


@given(st.text().map(lambda text: f"#{text}").filter(is_channel))
@example("#a/b")
@example("#a%2fb%25")
@example("#//")
def test_channel_has_one_path(channel: str) -> None:
    path = path_of_channel(channel)

    assert channel_of_path(path) == fold(channel)
    assert path.count("/") == 2
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path", ["irc/local/bob", "irc/local/#A", "irc/local/#a/b", "#a", "irc/other/#a", "irc/local/#%"]
)
def test_other_path_has_no_channel(path: str) -> None:
    assert channel_of_path(path) is None


# --------------------
# Texts.

FORMATTING = "\x01\x02\x03\x04\x0f\x11\x16\x1d\x1e\x1f"


@given(st.text(st.sampled_from(FORMATTING + "019,afAF é\n")))
def test_formatting_is_removed_and_nothing_else(text: str) -> None:
    clean = clean_text(text)

    assert not set(FORMATTING) & set(clean)
    assert clean_text(clean) == clean
    assert _is_allowed(check_text, clean)
    if not set("\x03\x04") & set(text):
        assert clean == "".join(char for char in text if char not in FORMATTING)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x02bold\x02 \x1ditalic\x0f", "bold italic"),
        ("\x034,12red\x03 1,2", "red 1,2"),
        ("\x03123", "3"),
        ("\x031,x", ",x"),
        ("\x03,5", ",5"),
        ("\x04ff0000,00ff00x \x04ff", "x ff"),
        ("\x03\x0312,4", ""),
        ("a\x1b[0m\x07", "a\x1b[0m\x07"),
        ("a\x01VERSION\x01", "aVERSION"),
    ],
)
def test_colours_are_removed_with_their_numbers(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@given(st.text(st.sampled_from(FORMATTING + "\t\x1b\x85\u202e\u200b\u2028é🙂 019,a"), max_size=500))
@example("x" * 389 + "é")
@example("x" * 388 + " \u202e")
def test_topic_is_one_short_line_that_the_broker_accepts(text: str) -> None:
    topic = clean_topic(text)

    check_text(topic, "the topic", 390)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028]", topic)
    assert clean_topic(topic) == topic == safe(topic).strip()


@pytest.mark.parametrize(
    ("text", "ctcp"),
    [
        ("\x01ACTION waves  twice\x01", ("ACTION", "waves  twice")),
        ("\x01action waves", ("ACTION", "waves")),
        ("\x01VERSION\x01", ("VERSION", "")),
        ("\x01\x01", ("", "")),
        ("\x01", ("", "")),
        ("waves", None),
        (" \x01ACTION waves\x01", None),
        ("", None),
    ],
)
def test_ctcp_is_recognised_at_the_start(text: str, ctcp: tuple[str, str] | None) -> None:
    assert ctcp_of(text) == ctcp


@given(texts, st.integers(4, 40))
def test_exact_pieces_fit_and_join_to_the_same_text(text: str, limit_bytes: int) -> None:
    pieces = split_exactly(text, limit_bytes)

    assert join_exactly(pieces) == text
    for piece, is_continued in pieces:
        assert len(piece.encode()) <= limit_bytes
        assert "\n" not in piece
        assert piece or not is_continued


@given(st.text("ab€ \n\r", max_size=60), st.integers(4, 20))
def test_every_line_end_becomes_one_line(text: str, limit_bytes: int) -> None:
    pieces = split_exactly(text, limit_bytes)

    assert join_exactly(pieces) == text.replace("\r\n", "\n").replace("\r", "\n")


def test_exact_pieces_end_after_a_space_where_one_is_near() -> None:
    assert split_exactly("x" * 30 + " " + "y" * 20, 32) == [("x" * 30 + " ", False), ("y" * 20, True)]
    assert split_exactly("x " + "y" * 40, 32) == [("x " + "y" * 30, False), ("y" * 10, True)]


@pytest.mark.parametrize("unit", ["x", "é", "語", "🏽", "xy ", "x\u0301\u0301", "👩\u200d💻"])
def test_largest_text_has_few_enough_pieces(unit: str) -> None:
    text = unit * (LIMIT_MULTILINE_BYTES // len(unit.encode()))
    nick = "n" * 30

    pieces = split_exactly(
        text, room_for_text(source_of(nick, nick), "PRIVMSG", "#channel-of-30-characters-00000")
    )

    assert join_exactly(pieces) == text
    assert len(pieces) <= LIMIT_MULTILINE_LINES


@given(texts, st.integers(4, 40))
def test_lines_for_people_fit_and_lose_only_spaces(text: str, limit_bytes: int) -> None:
    pieces = split_text(text, limit_bytes)

    assert all(len(piece.encode()) <= limit_bytes for piece in pieces)
    assert all(piece.strip() and "\n" not in piece for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@given(
    st.lists(st.tuples(st.text("abé語👩", min_size=1, max_size=8), st.text(" \n", min_size=1, max_size=3))),
    st.integers(32, 60),
)
def test_words_that_fit_are_never_cut(parts: list[tuple[str, str]], limit_bytes: int) -> None:
    text = "".join(word + space for word, space in parts)

    pieces = split_text(text, limit_bytes)

    assert [word for piece in pieces for word in piece.split()] == text.split()


@pytest.mark.parametrize("cut", [split_text, split_exactly], ids=["people", "exact"])
@pytest.mark.parametrize("cluster", ["e\u0301\u0323", "👩\u200d💻", "👍🏽", "❤\ufe0f"])
def test_letters_and_emoji_keep_their_marks(
    cut: Callable[[str, int], list[str] | list[tuple[str, bool]]], cluster: str
) -> None:
    found = cut(cluster * 20, 30)

    pieces = [piece if isinstance(piece, str) else piece[0] for piece in found]
    assert "".join(pieces) == cluster * 20
    assert all(piece.replace(cluster, "") == "" for piece in pieces)


def test_endless_marks_are_cut_anywhere() -> None:
    text = "e" + "\u0301" * 200

    assert join_exactly(split_exactly(text, 33)) == text
    assert "".join(split_text(text, 33)) == text


def test_indentation_of_lines_for_people_is_kept() -> None:
    assert split_text("def f():\n    return 1\n\n\ndone  ", 40) == ["def f():", "    return 1", "done"]
    assert split_text(" " * 50 + "x", 40) == ["x"]
    assert split_text("    abcdef", 6) == ["    ab", "cdef"]


@pytest.mark.parametrize("cut", [split_text, split_exactly], ids=["people", "exact"])
def test_limit_must_have_room_for_any_character(cut: Callable[[str, int], object]) -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        cut("x", 3)


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "line_splitting.json").read_text())


@pytest.mark.parametrize(
    ("parts", "sizes_bytes"), [(case["in"], case["out_bytes"]) for case in VECTORS["cases"]]
)
def test_lines_have_the_lengths_of_the_vectors(parts: list[tuple[str, int]], sizes_bytes: list[int]) -> None:
    text = "".join(part * times for part, times in parts)

    assert [len(piece.encode()) for piece in split_text(text, VECTORS["limit_bytes"])] == sizes_bytes


@given(st.lists(st.text("abé", min_size=1, max_size=9)), st.integers(1, 30), st.sampled_from([" ", ","]))
def test_packed_words_keep_their_order(items: list[str], limit_bytes: int, separator: str) -> None:
    packed = pack_words(items, limit_bytes, separator)

    assert [word for line in packed for word in line.split(separator)] == items
    assert all(len(line.encode()) <= limit_bytes or separator not in line for line in packed)
    for line, following in pairwise(packed):
        first = following.split(separator)[0]
        assert len(f"{line}{separator}{first}".encode()) > limit_bytes


# --------------------
# Replies.


@given(st.sampled_from(sorted(NUMERICS)), st.text(), st.lists(st.text(max_size=20), max_size=3), st.text())
def test_numeric_can_be_sent_whatever_it_repeats(code: str, nick: str, params: list[str], text: str) -> None:
    line = numeric(code, nick, *params, text=text)

    parsed = parse_line(format_line(line))
    assert parsed == line
    assert (parsed.source, parsed.command) == (SERVER, code)
    assert all(is_middle(param) for param in parsed.params[:-1])


def test_numeric_has_the_text_of_the_table_unless_another_is_given() -> None:
    assert numeric("401", "luna", "bob").params == ("luna", "bob", "No such nick/channel")
    assert numeric("401", "", "bob", text="x").params == ("*", "bob", "x")
    assert numeric("332", "luna", "#c", "the topic").params == ("luna", "#c", "the topic")
    assert numeric("461", "luna", "").params == ("luna", "*", "Not enough parameters")


def test_repeated_parameter_is_cut_to_a_line() -> None:
    line = numeric("403", "luna", "#" + "é" * 300)

    assert len(format_line(line)) in (LIMIT_LINE_BYTES - 1, LIMIT_LINE_BYTES)
    assert line.params[2] == "No such channel"


def test_line_that_fits_is_not_changed() -> None:
    line = Line(command="PRIVMSG", params=("#c", "x" * 400), source="a!b@c")

    assert fit_line(line) is line
    assert fit_line(Line(command="X")) == Line(command="X")


def test_standard_reply_has_command_code_context_and_sentence() -> None:
    line = standard_reply("FAIL", "PRIVMSG", "NOT_YOU", "luna", "two words", text="you are\nbob")

    assert line.params == ("PRIVMSG", "NOT_YOU", "luna", "two_words", "you are bob")
    assert standard_reply("WARN", "", "X", text="y").params == ("*", "X", "y")


def test_numerics_have_three_digits_and_unique_names() -> None:
    assert all(len(code) == 3 and code.isdigit() for code in NUMERICS)
    assert len({row.name for row in NUMERICS.values()}) == len(NUMERICS)
    assert list(NUMERICS) == sorted(NUMERICS)


def test_isupport_is_sent_in_lines_of_thirteen_tokens() -> None:
    sent = isupport_lines("luna")

    assert [token for line in sent for token in line.params[1:-1]] == list(ISUPPORT)
    assert all(len(line.params) <= 15 for line in sent)


def test_capabilities_have_values_only_since_302() -> None:
    assert capability_words(301) == list(CAPABILITIES)
    assert capability_words(302) == capability_words(307)
    assert "sasl=PLAIN" in capability_words(302)
    assert "draft/multiline=max-bytes=1048576,max-lines=4096" in capability_words(302)


def test_commands_before_registration_are_commands() -> None:
    assert BEFORE_REGISTRATION < COMMANDS
