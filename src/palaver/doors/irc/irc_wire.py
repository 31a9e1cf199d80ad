"""The text protocol of IRC: lines, tags, names, splitting, and the tables of the server. Pure.

Used by the IRC door and by the IRC bridge. Nothing here knows a socket, a client or the bus. The rules are
those of modern.ircdocs.horse and of the IRCv3 specifications.

A value of this module can be sent as it is: `format_line` refuses everything that would be two lines.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from palaver.errors import PalaverError
from palaver.protocol.agents import full_name, split_name
from palaver.protocol.display import safe
from palaver.protocol.events import LIMIT_TOPIC_BYTES
from palaver.protocol.text import check_thread, exact

SERVER: Final = "pal"
"""The name of this server: the source of numerics, of notices and of standard replies."""
NETWORK: Final = "palaver"
"""The host of every user, and the name of the network."""

LIMIT_LINE_BYTES: Final = 512
"""A line without its tags, with CR LF."""
LIMIT_CLIENT_TAGS_BYTES: Final = 4_096
"""The tags of a client's line, with the `@` and the space."""
LIMIT_TAGS_BYTES: Final = 8_191
"""The tags of any line, with the `@` and the space: 4,094 bytes each from the server and from a client."""
LIMIT_NICK: Final = 70
"""Characters of a nick: an agent's name, `|` and its device."""
LIMIT_CHANNEL_BYTES: Final = 100
"""A channel that a client may create. The channel of a thread can be longer: see `channel_of_thread`."""
LIMIT_TARGETS: Final = 4
"""Targets of one command, separated by commas."""
LIMIT_MONITOR: Final = 100
LIMIT_HISTORY: Final = 500
"""Messages of one CHATHISTORY."""
LIMIT_LABEL_BYTES: Final = 64
LIMIT_MULTILINE_BYTES: Final = 1_048_576
LIMIT_MULTILINE_LINES: Final = 4_096
LIMIT_SASL_CHUNK_BYTES: Final = 400
"""A longer response is sent as several AUTHENTICATE commands of this size."""

_END: Final = b"\r\n"
_MOST_BYTES: Final = 4
"""The bytes of the longest character."""


# --------------------
# Lines.

Fault = Literal["empty", "too_long", "invalid_utf8", "bad_character"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of IRC. The command is in capitals, tag values are not escaped."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    """A tag without a value has the value ``""``."""


class BadIrcLine(Exception):
    """A received line that is not a message, with the reason and, where it is known, the meant line."""

    def __init__(self, fault: Fault, line: Line | None = None) -> None:
        super().__init__(fault, line)
        self.fault = fault
        self.line = line
        """The line as far as it can be read: for the command and the label of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """A line over the limit, which is dropped as a whole. Its tags are known, for the label of a reply."""

    tags: Mapping[str, str] = field(default_factory=dict)


_FORBIDDEN: Final = re.compile("[\0\r\n]")
_COMMAND: Final = re.compile("[A-Za-z]+|[0-9]{3}", re.ASCII)
_TAG: Final = re.compile(r"\+?(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9.-]+", re.ASCII)
_SPACES: Final = re.compile(" +")
# The last parameter of these always has its colon, because simple clients expect it.
_WITH_COLON: Final = frozenset({"PING", "PONG", "QUIT", "ERROR", "SETNAME"})


def parse_line(
    data: bytes,
    *,
    limit_bytes: int = LIMIT_LINE_BYTES,
    limit_tags_bytes: int = LIMIT_CLIENT_TAGS_BYTES,
) -> Line:
    """Parse a line with or without its end; the pair of `format_line`. Raise BadIrcLine."""
    body = data.rstrip(_END)
    if _is_too_long(body, limit_bytes, limit_tags_bytes):
        raise BadIrcLine("too_long")
    text = body.decode(errors="replace")
    if _FORBIDDEN.search(text):
        raise BadIrcLine("bad_character", _parsed(_FORBIDDEN.sub("", text)))
    line = _parsed(text)
    if line is None:
        raise BadIrcLine("empty")
    # Last, because the reply to a line that is not UTF-8 names its command.
    try:
        body.decode()
    except UnicodeDecodeError:
        raise BadIrcLine("invalid_utf8", line) from None
    return line


def _parsed(text: str) -> Line | None:
    """Return the parts of a line, or None if there is no command."""
    tags, source = "", ""
    rest = text.lstrip(" ")
    if rest.startswith("@"):
        tags, _, rest = rest[1:].partition(" ")
        rest = rest.lstrip(" ")
    if rest.startswith(":"):
        source, _, rest = rest[1:].partition(" ")
        rest = rest.lstrip(" ")
    # With a space before it, a rest that begins with a colon has no command.
    words, colon, last = f" {rest}".partition(" :")
    command, *params = _SPACES.split(words.strip(" "))
    if not command:
        return None
    if colon:
        params.append(last)
    return Line(command=command.upper(), params=tuple(params), source=source, tags=_parse_tags(tags))


def format_line(line: Line) -> bytes:
    """Format a line with its CR LF; the pair of `parse_line`.

    Raise ValueError for a line that would not be read as the same line: too long, or with a character or an
    empty parameter that the protocol has no spelling for.
    """
    if not _COMMAND.fullmatch(line.command):
        raise ValueError(f"not a command of IRC: {line.command[:50]!r}")
    if " " in line.source:
        raise ValueError(f"the source of a line has no spaces: {line.source[:100]!r}")
    *middle, last = line.params or ("",)
    for param in middle:
        if not is_middle(param):
            raise ValueError(f"only the last parameter may be {param[:50]!r}")
    words = [line.command.upper(), *middle]
    if line.params:
        has_colon = bool(middle) or line.command.upper() in _WITH_COLON or not is_middle(last)
        words.append(f":{last}" if has_colon else last)
    body = f":{line.source} " if line.source else ""
    body += " ".join(words)
    tags = _format_tags(line.tags)
    if _FORBIDDEN.search(tags + body):
        raise ValueError("a line contains no NUL, CR or LF")
    encoded = body.encode() + _END
    if len(encoded) > LIMIT_LINE_BYTES:
        raise ValueError(f"the line has {len(encoded)} bytes; at most {LIMIT_LINE_BYTES} are allowed")
    # The tags of most lines are so short that they need not be encoded to be measured.
    if len(tags) * _MOST_BYTES > LIMIT_TAGS_BYTES and len(tags.encode()) > LIMIT_TAGS_BYTES:
        raise ValueError(f"the tags of a line have at most {LIMIT_TAGS_BYTES} bytes")
    return tags.encode() + encoded


def is_middle(param: str) -> bool:
    """Return whether others may follow a parameter: it is not empty, and has no space and no colon first."""
    return bool(param) and " " not in param and not param.startswith(":")


def room_for_text(source: str, command: str, target: str) -> int:
    """Return the bytes that are left for the text of a message with this source and target."""
    return LIMIT_LINE_BYTES - len(f":{source} {command} {target} :".encode()) - len(_END)


def cut_text(text: str, limit_bytes: int) -> str:
    """Return the beginning of a text that fits; no character is cut."""
    return text.encode()[: max(limit_bytes, 0)].decode(errors="ignore")


def fit_line(line: Line) -> Line:
    """Return a line whose longest parameter is cut so far that the line can be formatted.

    For replies that repeat a parameter of the client, which may fill a line alone. Never for a message.
    """
    fixed_bytes = len(f":{line.source} {line.command} :".encode()) + len(_END)
    over_bytes = fixed_bytes + len(" ".join(line.params).encode()) - LIMIT_LINE_BYTES
    if over_bytes <= 0 or not line.params:
        return line
    params = list(line.params)
    at = max(range(len(params)), key=lambda index: len(params[index].encode()))
    # One cut is enough: a reply repeats at most one parameter that can be long.
    params[at] = cut_text(params[at], len(params[at].encode()) - over_bytes)
    return replace(line, params=tuple(params))


# --------------------
# Tags.

_ESCAPES: Final = {";": r"\:", " ": r"\s", "\\": r"\\", "\r": r"\r", "\n": r"\n"}
_TO_ESCAPE: Final = re.compile(r"[; \\\r\n]")
_UNESCAPES: Final = {sequence[1]: char for char, sequence in _ESCAPES.items()}
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)


def escape_tag(value: str) -> str:
    """Return the value of a tag as it is written in a line; the pair of `unescape_tag`."""
    return _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], value)


def unescape_tag(value: str) -> str:
    """Return a tag's value. A backslash before any other character, or at the end, is dropped."""
    return _ESCAPED.sub(lambda found: _UNESCAPES.get(found[1], found[1]), value)


def client_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that a client passes on to others: those that begin with a plus."""
    return {name: value for name, value in tags.items() if name.startswith("+")}


def has_room_for_tags(tags: Mapping[str, str]) -> bool:
    """Return whether the tags of a client leave enough room in a line for those of the server."""
    return len(_format_tags(tags).encode()) <= LIMIT_CLIENT_TAGS_BYTES


def _parse_tags(text: str) -> dict[str, str]:
    tags = {}
    for word in text.split(";"):
        name, _, value = word.partition("=")
        # The last of several values counts. A name that is not one has no meaning, and could not be sent on.
        if _TAG.fullmatch(name):
            tags[name] = unescape_tag(value)
    return tags


def _format_tags(tags: Mapping[str, str]) -> str:
    """Return the tags with `@` and space, those of the server first, or nothing."""
    if not tags:
        return ""
    words = []
    for name in sorted(tags, key=lambda name: name.startswith("+")):
        if not _TAG.fullmatch(name):
            raise ValueError(f"not the name of a tag: {name[:50]!r}")
        words.append(f"{name}={escape_tag(tags[name])}" if tags[name] else name)
    return f"@{';'.join(words)} "


_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d):(\d\d)(?:\.(\d{1,3})\d*)?Z", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def format_time(time_ms: int) -> str:
    """Return a time as in the tag `time`: `2026-11-18T04:50:01.123Z`. The pair of `parse_time`."""
    # A foreign envelope can have any 64-bit time. The tag has no form for a year outside 1 to 9999, so such a
    # time becomes the nearest one that it has.
    time = _EPOCH + timedelta(milliseconds=min(max(time_ms, _FIRST_MS), _LAST_MS))
    return f"{time.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def parse_time(text: str) -> int:
    """Return the milliseconds since 1970 of a time as in the tag `time`. Raise ValueError."""
    found = _TIME.fullmatch(text)
    if found is None or int(found[2]) > 60:  # 60 is a leap second
        raise ValueError(f"not a time such as 2026-11-18T04:50:01.123Z: {text[:50]!r}")
    # Without the seconds, because a `datetime` cannot have the second 60.
    minute = datetime.strptime(f"{found[1]}+0000", "%Y-%m-%dT%H:%M%z")
    fraction_ms = int((found[3] or "0").ljust(3, "0"))
    return (minute - _EPOCH) // timedelta(milliseconds=1) + int(found[2]) * 1000 + fraction_ms


# --------------------
# The stream of bytes.


class IrcReader:
    """Splits a stream of bytes into lines without their ends. CR LF, LF and CR end a line.

    Empty lines are skipped. A line over the limit is reported once, as soon as it is too long, and skipped as
    a whole. At most one line within the limits is kept.
    """

    def __init__(
        self, *, limit_bytes: int = LIMIT_LINE_BYTES, limit_tags_bytes: int = LIMIT_CLIENT_TAGS_BYTES
    ) -> None:
        self._limit_bytes = limit_bytes
        self._limit_tags_bytes = limit_tags_bytes
        self._begun = b""
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """Add bytes, and return each line that they complete, and each line that they make too long."""
        lines: list[bytes | TooLong] = []
        *complete, rest = data.replace(b"\r", b"\n").split(b"\n")
        for piece in complete:
            if piece:
                self._extend(piece, lines)
            if self._begun:
                lines.append(self._begun)
            self._begun = b""
            self._is_skipping = False
        self._extend(rest, lines)
        return lines

    def _extend(self, piece: bytes, lines: list[bytes | TooLong]) -> None:
        """Add a piece to the current line, unless the line is or becomes too long."""
        if self._is_skipping:
            return
        self._begun += piece
        if _is_too_long(self._begun, self._limit_bytes, self._limit_tags_bytes):
            lines.append(TooLong(tags=_tags_of(self._begun, self._limit_tags_bytes)))
            self._begun = b""
            self._is_skipping = True


def _is_too_long(body: bytes, limit_bytes: int, limit_tags_bytes: int) -> bool:
    """Return whether a line without its end, complete or not, is over one of the two limits."""
    if body.startswith(b"@"):
        space = body.find(b" ", 0, limit_tags_bytes)
        if space < 0:
            return len(body) >= limit_tags_bytes
        return len(body) - space - 1 > limit_bytes - len(_END)
    return len(body) > limit_bytes - len(_END)


def _tags_of(body: bytes, limit_tags_bytes: int) -> dict[str, str]:
    """Return the tags of a line that is too long: those that are complete within the limit."""
    if not body.startswith(b"@"):
        return {}
    written, space, _ = body[1:limit_tags_bytes].partition(b" ")
    if not space:
        written = written.rpartition(b";")[0]
    return _parse_tags(_FORBIDDEN.sub("", written.decode(errors="replace")))


# --------------------
# Nicks.

_NICK: Final = re.compile(
    rf"[A-Za-z\[\]\\`_^{{}}|][A-Za-z0-9\[\]\\`_^{{}}|-]{{0,{LIMIT_NICK - 1}}}", re.ASCII
)
_NOT_IN_NICK: Final = re.compile(r"[^A-Za-z0-9\[\]\\`_^{}|/.-]", re.ASCII)
_CAPITALS: Final = str.maketrans({code: code + 32 for code in range(ord("A"), ord("Z") + 1)})

LOCAL: Final = "irc/local/"
"""The paths of the channels and of the guests of this server begin with it."""


def fold(name: str) -> str:
    """Return a nick or channel as it is compared. With CASEMAPPING=ascii only A to Z are equal to a to z."""
    return name.translate(_CAPITALS)


def is_nick(text: str) -> bool:
    """Return whether a client may have this nick, if no other has it."""
    return _NICK.fullmatch(text) is not None


def nick_of(name: str) -> str:
    """Return the nick of a sender: `luna:BOXE` is `luna|BOXE`. The pair of `name_of` for agents.

    A guest, `irc/local/bob`, has its nick. Any other sender has its name, with `_` for each character that a
    source cannot have. A slash or dot stays, and no client can choose a nick with one.
    """
    if name.startswith(LOCAL) and is_nick(guest := name.removeprefix(LOCAL)):
        return guest
    return _NOT_IN_NICK.sub("_", name.replace(":", "|"))[:LIMIT_NICK] or "_"


def name_of(nick: str) -> str:
    """Return the name of the agent with a nick, in any case. Any other nick is returned unchanged."""
    return _agent_of_nick(nick) or nick


def _agent_of_nick(nick: str) -> str | None:
    try:
        name = split_name(nick.replace("|", ":"))
    except PalaverError:
        return None
    return full_name(name.base, name.tag, name.device) if is_nick(nick) else None


def source_of(nick: str, user: str) -> str:
    """Return the source of a line: `luna!luna@palaver`. The user name is made fit for it."""
    return f"{nick}!{_NOT_IN_NICK.sub('_', user)[:LIMIT_NICK] or '_'}@{NETWORK}"


def nick_of_source(source: str) -> str:
    """Return the nick in the source of a line, or the name of the server."""
    return re.split("[!@]", source, maxsplit=1)[0]


# --------------------
# Channels.

GENERAL: Final = "#general"
AGENT_PREFIX: Final = "#agent-"
THREAD_PREFIX: Final = "#thread-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRef:
    """The part of the bus that a channel shows."""

    kind: Literal["general", "room", "agent", "thread", "other"]
    name: str = ""
    """The name of the room, agent or thread as the bus writes it; else the folded channel."""


def is_channel(text: str) -> bool:
    """Return whether a client may use this as a channel.

    Every character is visible, and there is no space or comma. After `#agent-` follows an agent's nick, and
    after `#thread-` the spelling of a thread.
    """
    folded = fold(text)
    if folded.startswith(AGENT_PREFIX):
        return agent_of_channel(folded) is not None
    if folded.startswith(THREAD_PREFIX):
        return thread_of_channel(folded) is not None
    return (
        1 < len(text.encode(errors="replace")) <= LIMIT_CHANNEL_BYTES
        and text.startswith("#")
        and not re.search("[ ,]", text)
        and exact(text) == text
    )


def parse_channel(channel: str, is_room: Callable[[str], bool]) -> ChannelRef:
    """Return what a channel for which `is_channel` holds shows. `is_room` tells whether a room has a name."""
    folded = fold(channel)
    if folded == GENERAL:
        return ChannelRef(kind="general", name=folded)
    if (agent := agent_of_channel(folded)) is not None:
        return ChannelRef(kind="agent", name=agent)
    if (thread := thread_of_channel(folded)) is not None:
        return ChannelRef(kind="thread", name=thread)
    if is_room(folded[1:]):
        return ChannelRef(kind="room", name=folded[1:])
    return ChannelRef(kind="other", name=folded)


def channel_of_agent(name: str) -> str:
    """Return the channel of an agent: `#agent-luna|BOXE`. The pair of `agent_of_channel`."""
    return f"{AGENT_PREFIX}{nick_of(name)}"


def agent_of_channel(channel: str) -> str | None:
    """Return the agent whose messages a channel shows; None for other channels."""
    if not fold(channel).startswith(AGENT_PREFIX):
        return None
    return _agent_of_nick(channel[len(AGENT_PREFIX) :])


# Channels have no case, no space and no comma. `^` is before a capital, `+` is a space. Any other ASCII
# character that must not be in a channel, or that has a meaning here, is its number: a comma is `%2c`.
_TO_SPELL: Final = re.compile(r"[A-Z%^+ ,\x00-\x1f\x7f]")
_SPELLED: Final = re.compile(r"\^([a-z])|%([0-9a-f]{2})|\+")


def channel_of_thread(thread: str) -> str:
    """Return the channel of a thread; the pair of `thread_of_channel`.

    `Deploy API` is `#thread-^deploy+^a^p^i`. A thread has up to 64 characters, and no character is spelled
    with more than four bytes. So the channel of a thread has up to 264 bytes, also more than CHANNELLEN.
    """
    return THREAD_PREFIX + _TO_SPELL.sub(_spell, thread)


def thread_of_channel(channel: str) -> str | None:
    """Return the thread that a channel shows; None for other channels and for wrong spellings."""
    folded = fold(channel)
    if not folded.startswith(THREAD_PREFIX):
        return None
    thread = _SPELLED.sub(_unspell, folded[len(THREAD_PREFIX) :])
    try:
        check_thread(thread)
    except PalaverError:
        return None
    # Only one spelling is valid: with another one a thread would have several channels.
    return thread if channel_of_thread(thread) == folded else None


def _spell(found: re.Match[str]) -> str:
    char = found[0]
    if char == " ":
        return "+"
    return f"^{fold(char)}" if char.isalpha() else f"%{ord(char):02x}"


def _unspell(found: re.Match[str]) -> str:
    capital, code = found.groups()
    if capital:
        return str(capital).upper()
    return chr(int(code, 16)) if code else " "


def path_of_channel(channel: str) -> str:
    """Return the path of a channel of this server: `irc/local/#ops`. The pair of `channel_of_path`.

    A slash in the channel is `%2f` in the path, so that a channel is one segment.
    """
    # The percent sign first: otherwise that of `%2f` would be replaced too.
    return LOCAL + fold(channel).replace("%", "%25").replace("/", "%2f")


def channel_of_path(path: str) -> str | None:
    """Return the channel whose lines are on a path; None for other paths."""
    name = path.removeprefix(LOCAL)
    if name == path or not name.startswith("#"):
        return None
    # In this order, because `%252f` is the text `%2f` and not a slash.
    channel = name.replace("%2f", "/").replace("%25", "%")
    return channel if path_of_channel(channel) == path else None


def path_of_nick(nick: str) -> str:
    """Return the path of a guest: `irc/local/bob`."""
    return LOCAL + fold(nick)


# --------------------
# Texts.

_DIGITS: Final = "[0-9]{1,2}"
_HEX: Final = "[0-9A-Fa-f]{6}"
# Bold, italic, underline, strikethrough, monospace, reverse, reset; colours with their numbers; CTCP.
_FORMATTING: Final = re.compile(
    rf"[\x01\x02\x0f\x11\x16\x1d-\x1f]|\x03(?:{_DIGITS}(?:,{_DIGITS})?)?|\x04(?:{_HEX}(?:,{_HEX})?)?"
)
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_LINE_ENDS: Final = re.compile("\r\n|\r|\n")
_JOINER: Final = "\u200d"
_LONGEST_CLUSTER: Final = 16
"""Characters that are kept together at most, where a base has many marks."""
_SPACE_SHARE: Final = 8
"""An exact piece ends at a space only in the last eighth of it: else 1 MiB would have too many pieces."""


def clean_text(text: str) -> str:
    """Return a text without the formatting of IRC and without CTCP. Other control characters stay."""
    return _FORMATTING.sub("", text)


def clean_topic(text: str) -> str:
    """Return a topic as it is stored: at most `LIMIT_TOPIC_BYTES`, without formatting and control characters.

    A longer one is cut between characters. Direction marks and invisible characters are made visible.
    """
    kept = _CONTROLS.sub("", clean_text(text))
    return cut_text(safe(kept).strip(), LIMIT_TOPIC_BYTES).rstrip()


def ctcp_of(text: str) -> tuple[str, str] | None:
    """Return the CTCP command of a text in capitals and its parameters; None for an ordinary text."""
    if not text.startswith("\x01"):
        return None
    command, _, rest = text[1:].partition("\x01")[0].partition(" ")
    return command.upper(), rest


def split_text(text: str, limit_bytes: int) -> list[str]:
    """Return a text as lines for people: cut at line ends, then at spaces, then between characters.

    Blank lines and the spaces at a cut are dropped. The rest is kept, also the spaces before the first word.
    Raise ValueError for a limit that is too small for some characters.
    """
    _check_limit(limit_bytes)
    pieces = (piece for line in _LINE_ENDS.split(text) for piece in _readable_pieces(line, limit_bytes))
    return [piece for piece in pieces if piece]


def _readable_pieces(written: str, limit_bytes: int) -> Iterator[str]:
    line = written.rstrip()
    start = 0
    while start < len(line):
        # A piece has at most as many characters as bytes.
        rest = line[start : start + limit_bytes + 1]
        length = len(cut_text(rest, limit_bytes))
        if length < len(rest):
            # The character after the piece may be the space.
            space = rest.rfind(" ", 0, length + 1)
            has_word = space > 0 and not rest[:space].isspace()
            length = space if has_word else _between_clusters(rest, length)
        yield rest[:length].rstrip()
        start += length
        while line[start : start + 1] == " ":
            start += 1


def split_exactly(text: str, limit_bytes: int) -> list[tuple[str, bool]]:
    """Return the pieces of a text for `draft/multiline`, and whether a piece continues the line before it.

    `join_exactly` returns the text again; only CR LF and CR become LF, because a line cannot contain a CR.
    A piece that continues a line is never empty. Raise ValueError for a limit that is too small for some
    characters.
    """
    _check_limit(limit_bytes)
    return [piece for line in _LINE_ENDS.split(text) for piece in _exact_pieces(line, limit_bytes)]


def join_exactly(pieces: Iterable[tuple[str, bool]]) -> str:
    """Return the text of pieces: a piece that does not continue a line begins the next one."""
    joined: list[str] = []
    for piece, is_continued in pieces:
        if joined and not is_continued:
            joined.append("\n")
        joined.append(piece)
    return "".join(joined)


def _exact_pieces(line: str, limit_bytes: int) -> Iterator[tuple[str, bool]]:
    start = 0
    is_continued = False
    while True:
        # A piece has at most as many characters as bytes.
        rest = line[start : start + limit_bytes + 1]
        length = len(cut_text(rest, limit_bytes))
        if length == len(rest):
            yield rest, is_continued
            return
        space = rest.rfind(" ", length - length // _SPACE_SHARE, length)
        length = space + 1 if space >= 0 else _between_clusters(rest, length)
        yield rest[:length], is_continued
        start += length
        is_continued = True


def _between_clusters(text: str, at: int) -> int:
    """Return a position up to `at` that does not separate a letter or emoji from its marks, or `at`."""
    for index in range(at, max(at - _LONGEST_CLUSTER, 0), -1):
        if not _is_mark(text[index]) and text[index - 1] != _JOINER:
            return index
    return at


def _is_mark(char: str) -> bool:
    """Return whether a character changes the one before it: accents, emoji variants, skin colours."""
    return char == _JOINER or "\U0001f3fb" <= char <= "\U0001f3ff" or unicodedata.category(char)[0] == "M"


def _check_limit(limit_bytes: int) -> None:
    if limit_bytes < _MOST_BYTES:
        raise ValueError(f"{limit_bytes} bytes have no room for every character")


def pack_words(words: Iterable[str], limit_bytes: int, separator: str = " ") -> list[str]:
    """Return words joined into as few lines as possible, in order. A word over the limit has its own line."""
    lines: list[str] = []
    size_bytes = 0
    for word in words:
        word_bytes = len(word.encode())
        if lines and size_bytes + len(separator) + word_bytes <= limit_bytes:
            lines[-1] += separator + word
            size_bytes += len(separator) + word_bytes
        else:
            lines.append(word)
            size_bytes = word_bytes
    return lines


# --------------------
# What the server offers.

CAPABILITIES: Final[Mapping[str, str]] = {
    "sasl": "PLAIN",
    "message-tags": "",
    "server-time": "",
    "batch": "",
    "labeled-response": "",
    "echo-message": "",
    "account-tag": "",
    "account-notify": "",
    "extended-join": "",
    "away-notify": "",
    "multi-prefix": "",
    "cap-notify": "",
    "setname": "",
    "standard-replies": "",
    "draft/multiline": f"max-bytes={LIMIT_MULTILINE_BYTES},max-lines={LIMIT_MULTILINE_LINES}",
    "draft/chathistory": "",
    "palaver/envelope": "",
}
"""The capabilities and their values, in the order of `CAP LS`."""

CAP_VALUES_VERSION: Final = 302
"""From this version of CAP LS on, capabilities have values and replies may have several lines."""

COMMANDS: Final = frozenset(
    re.findall(
        r"\w+",
        "NICK USER PASS CAP AUTHENTICATE PING PONG JOIN PART PRIVMSG NOTICE TAGMSG NAMES WHO WHOIS LIST "
        "TOPIC MODE AWAY MONITOR CHATHISTORY LUSERS MOTD VERSION TIME INFO HELP USERHOST ISON QUIT "
        "BATCH SETNAME",
    )
)
"""Every other command gets 421. BATCH and SETNAME belong to the capabilities draft/multiline and setname."""

BEFORE_REGISTRATION: Final = frozenset(
    {"CAP", "AUTHENTICATE", "PASS", "NICK", "USER", "PING", "PONG", "QUIT"}
)
"""Commands that a client may send before it is registered; every other one gets 451."""

ISUPPORT: Final = (
    "CASEMAPPING=ascii",
    "CHANTYPES=#",
    f"NICKLEN={LIMIT_NICK}",
    f"CHANNELLEN={LIMIT_CHANNEL_BYTES}",
    f"TOPICLEN={LIMIT_TOPIC_BYTES}",
    f"MAXTARGETS={LIMIT_TARGETS}",
    "PREFIX=(ov)@+",
    f"MONITOR={LIMIT_MONITOR}",
    f"CHATHISTORY={LIMIT_HISTORY}",
    "MSGREFTYPES=msgid,timestamp",
    "UTF8ONLY",
    "WHOX",
)
"""The tokens of 005."""
_TOKENS_PER_LINE: Final = 13


def capability_words(version: int) -> list[str]:
    """Return the words of `CAP LS` for a client's version: only from 302 on with their values."""
    has_values = version >= CAP_VALUES_VERSION
    return [f"{name}={value}" if value and has_values else name for name, value in CAPABILITIES.items()]


def isupport_lines(nick: str) -> list[Line]:
    """Return the lines 005 for a client, with at most 13 tokens each."""
    starts = range(0, len(ISUPPORT), _TOKENS_PER_LINE)
    return [numeric("005", nick, *ISUPPORT[start : start + _TOKENS_PER_LINE]) for start in starts]


class Numeric(NamedTuple):
    """A reply of the server: its name, and its last parameter unless that is different each time."""

    name: str
    text: str = ""


NUMERICS: Final[Mapping[str, Numeric]] = {
    "001": Numeric("RPL_WELCOME"),
    "002": Numeric("RPL_YOURHOST"),
    "003": Numeric("RPL_CREATED"),
    "004": Numeric("RPL_MYINFO"),
    "005": Numeric("RPL_ISUPPORT", "are supported by this server"),
    "221": Numeric("RPL_UMODEIS"),
    "251": Numeric("RPL_LUSERCLIENT"),
    "252": Numeric("RPL_LUSEROP", "operator(s) online"),
    "253": Numeric("RPL_LUSERUNKNOWN", "unknown connection(s)"),
    "254": Numeric("RPL_LUSERCHANNELS", "channels formed"),
    "255": Numeric("RPL_LUSERME"),
    "301": Numeric("RPL_AWAY"),
    "302": Numeric("RPL_USERHOST"),
    "303": Numeric("RPL_ISON"),
    "305": Numeric("RPL_UNAWAY", "You are no longer marked as being away"),
    "306": Numeric("RPL_NOWAWAY", "You have been marked as being away"),
    "311": Numeric("RPL_WHOISUSER"),
    "312": Numeric("RPL_WHOISSERVER"),
    "313": Numeric("RPL_WHOISOPERATOR", "is an operator"),
    "315": Numeric("RPL_ENDOFWHO", "End of WHO list"),
    "317": Numeric("RPL_WHOISIDLE", "seconds idle, signon time"),
    "318": Numeric("RPL_ENDOFWHOIS", "End of /WHOIS list"),
    "319": Numeric("RPL_WHOISCHANNELS"),
    "321": Numeric("RPL_LISTSTART", "Users  Name"),
    "322": Numeric("RPL_LIST"),
    "323": Numeric("RPL_LISTEND", "End of /LIST"),
    "324": Numeric("RPL_CHANNELMODEIS"),
    "329": Numeric("RPL_CREATIONTIME"),
    "330": Numeric("RPL_WHOISACCOUNT", "is logged in as"),
    "331": Numeric("RPL_NOTOPIC", "No topic is set"),
    "332": Numeric("RPL_TOPIC"),
    "333": Numeric("RPL_TOPICWHOTIME"),
    "351": Numeric("RPL_VERSION"),
    "352": Numeric("RPL_WHOREPLY"),
    "353": Numeric("RPL_NAMREPLY"),
    "354": Numeric("RPL_WHOSPCRPL"),
    "366": Numeric("RPL_ENDOFNAMES", "End of /NAMES list"),
    "368": Numeric("RPL_ENDOFBANLIST", "End of channel ban list"),
    "371": Numeric("RPL_INFO"),
    "372": Numeric("RPL_MOTD"),
    "374": Numeric("RPL_ENDOFINFO", "End of /INFO list"),
    "375": Numeric("RPL_MOTDSTART", f"- {SERVER} Message of the day - "),
    "376": Numeric("RPL_ENDOFMOTD", "End of /MOTD command"),
    "391": Numeric("RPL_TIME"),
    "401": Numeric("ERR_NOSUCHNICK", "No such nick/channel"),
    "402": Numeric("ERR_NOSUCHSERVER", "No such server"),
    "403": Numeric("ERR_NOSUCHCHANNEL", "No such channel"),
    "404": Numeric("ERR_CANNOTSENDTOCHAN", "Cannot send to channel"),
    "405": Numeric("ERR_TOOMANYCHANNELS", "You have joined too many channels"),
    "407": Numeric("ERR_TOOMANYTARGETS", f"Too many targets: at most {LIMIT_TARGETS} in one command"),
    "409": Numeric("ERR_NOORIGIN", "No origin specified"),
    "410": Numeric("ERR_INVALIDCAPCMD", "Invalid CAP command"),
    "411": Numeric("ERR_NORECIPIENT", "No recipient given"),
    "412": Numeric("ERR_NOTEXTTOSEND", "No text to send"),
    "417": Numeric("ERR_INPUTTOOLONG", "Input line was too long"),
    "421": Numeric("ERR_UNKNOWNCOMMAND", "Unknown command"),
    "431": Numeric("ERR_NONICKNAMEGIVEN", "No nickname given"),
    "432": Numeric("ERR_ERRONEUSNICKNAME", "Erroneous nickname"),
    "433": Numeric("ERR_NICKNAMEINUSE", "Nickname is already in use"),
    "442": Numeric("ERR_NOTONCHANNEL", "You're not on that channel"),
    "451": Numeric("ERR_NOTREGISTERED", "You have not registered"),
    "461": Numeric("ERR_NEEDMOREPARAMS", "Not enough parameters"),
    "462": Numeric("ERR_ALREADYREGISTERED", "You may not reregister"),
    "464": Numeric("ERR_PASSWDMISMATCH", "Password incorrect"),
    "470": Numeric("ERR_LINKCHANNEL", "This is the short name of a room; you are in its channel"),
    "477": Numeric("ERR_NEEDREGGEDNICK", "You need to be logged in to use that channel"),
    "482": Numeric("ERR_CHANOPRIVSNEEDED", "You're not channel operator"),
    "501": Numeric("ERR_UMODEUNKNOWNFLAG", "Unknown MODE flag"),
    "502": Numeric("ERR_USERSDONTMATCH", "Can't change mode for other users"),
    "524": Numeric("ERR_HELPNOTFOUND", "No help available on this topic"),
    "704": Numeric("RPL_HELPSTART"),
    "705": Numeric("RPL_HELPTXT"),
    "706": Numeric("RPL_ENDOFHELP", "End of /HELP"),
    "730": Numeric("RPL_MONONLINE"),
    "731": Numeric("RPL_MONOFFLINE"),
    "732": Numeric("RPL_MONLIST"),
    "733": Numeric("RPL_ENDOFMONLIST", "End of MONITOR list"),
    "734": Numeric("ERR_MONLISTFULL", "Monitor list is full"),
    "900": Numeric("RPL_LOGGEDIN"),
    "901": Numeric("RPL_LOGGEDOUT", "You are now logged out"),
    "902": Numeric("ERR_NICKLOCKED", "You must use a nick assigned to you"),
    "903": Numeric("RPL_SASLSUCCESS", "SASL authentication successful"),
    "904": Numeric("ERR_SASLFAIL", "SASL authentication failed"),
    "905": Numeric("ERR_SASLTOOLONG", "SASL message too long"),
    "906": Numeric("ERR_SASLABORTED", "SASL authentication aborted"),
    "907": Numeric("ERR_SASLALREADY", "You have already authenticated using SASL"),
    "908": Numeric("RPL_SASLMECHS", "are available SASL mechanisms"),
}
"""The numerics of the server."""


def numeric(code: str, nick: str, *params: str, text: str = "") -> Line:
    """Return a numeric for a client; a client without a nick is `*`. The table's text is the last parameter.

    `text` replaces that of the table. A parameter can be any text, also one that a client chose: it is made
    fit to be sent, and the longest one is cut if the line is too long.
    """
    last = text or NUMERICS[code].text
    return _reply(code, nick or "*", *params, *([last] if last else []))


def standard_reply(
    kind: Literal["FAIL", "WARN", "NOTE"], command: str, code: str, *context: str, text: str
) -> Line:
    """Return a standard reply with a code and a sentence for people. Without a command it is `*`."""
    return _reply(kind, command or "*", code, *context, text)


def _reply(command: str, *params: str) -> Line:
    *middle, last = (_FORBIDDEN.sub(" ", param) for param in params)
    fitting = (_SPACES.sub("_", param).lstrip(":") or "*" for param in middle)
    return fit_line(Line(source=SERVER, command=command, params=(*fitting, last)))
