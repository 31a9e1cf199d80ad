"""The pure parts of the bridge: what goes out and comes in, pauses, limits and nicks."""

import asyncio
import errno
import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.bridges import irc
from palaver.bridges.irc import (
    LIMIT_LINES,
    FloodLimit,
    LinkLost,
    NickChoice,
    Position,
    ReconnectPause,
    SaslAccount,
    is_service,
    lines_for,
    targets_of,
    text_of_line,
)
from palaver.doors.irc.irc_wire import Line, ctcp_of, format_line, parse_line
from palaver.protocol.envelope import Event
from palaver.protocol.lines import BridgeOrder

ORDER = BridgeOrder(host="h", port=1, network="net", channels=("#C", "#d"))
PREFIXES = st.sampled_from(["", "\x01", "\r\n", "\x01ACTION ", "QUIT ", ":x ", " "])


def message(text: str = "hello", to: tuple[str, ...] = (), **fields: object) -> Event:
    payload: dict[str, object] = {"text": text, "scope": "path", "sender_kind": "instance", **fields}
    sender = str(payload.pop("sender", "luna"))
    return Event(
        type="message", sender=sender, payload=payload, to=to, id="01", ts=1, seq=42, device="BOXE", by=None
    )


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (message(to=("irc/net/#c",)), ["#c"]),
        (message(to=("irc/net/#C", "irc/net/#c", "irc/net/bob", "@nova")), ["#c", "bob"]),
        (message(scope="broadcast"), ["#c", "#d"]),
        (message(scope="broadcast", room="r"), []),
        (message(to=("irc/other/#c", "irc/net/*", "irc/**", "irc/net", "agent/luna")), []),
        (message(to=("irc/net/#c",), sender="irc/net/bob"), []),
        (message(to=("irc/net/#c",), sender="irc/other/bob"), []),
        (message(scope="broadcast", sender="irc/local/guest"), []),
        (message(scope="broadcast", sender_kind="system"), []),
        (message(scope="broadcast", held="too fast"), []),
        (message(scope="broadcast", expires=1_000), []),
        (message(scope="broadcast", expires=1_001), ["#c", "#d"]),
        (message(scope="broadcast", migrated=[]), []),
        (message(to=("irc/net/#c",), raw="x"), []),
    ],
)
def test_only_messages_for_the_network_go_out(event: Event, expected: list[str]) -> None:
    assert targets_of(event, ORDER, 1_000) == expected


def test_routed_text_is_sent_as_text_and_other_content_as_json() -> None:
    text = message("", command="message", payload={"text": "hi"}, source="internal")
    other = message("", command="deploy", payload={"to": "prod"}, source="internal")

    assert [line.relayed for line in lines_for(text, "#c")] == ["<luna> hi"]
    assert [line.relayed for line in lines_for(other, "#c")] == ['<luna> deploy {"to":"prod"}']


@given(st.tuples(PREFIXES, st.text(max_size=3_000)).map("".join), st.sampled_from(["#c", "bob"]))
def test_every_body_is_harmless_lines_that_fit(body: str, target: str) -> None:
    lines = lines_for(message(body), target)

    assert len(lines) <= LIMIT_LINES
    for line in lines:
        for text in (line.text, line.relayed):
            data = format_line(Line(command="PRIVMSG", params=(target, text)))
            assert data.count(b"\r\n") == 1
            assert data.endswith(b"\r\n")
            assert parse_line(data).params == (target, text)
            assert ctcp_of(text) is None
            assert not set(text) & set(map(chr, range(32)))


@given(st.text(alphabet="ab \n", max_size=400))
def test_no_word_of_a_short_body_is_lost(body: str) -> None:
    sent = [line.text for line in lines_for(message(body), "#c")]

    if len(sent) < LIMIT_LINES:
        assert " ".join(sent).split() == body.split()


@given(st.text(max_size=300).filter(lambda text: "\0" not in text))
def test_incoming_text_has_no_control_characters(written: str) -> None:
    text = text_of_line(Line(command="PRIVMSG", params=("#c", written), source="bob!u@h"), "bob")

    assert not set(text) & set(map(chr, [*range(9), *range(10, 32), 127, 0x202E, 0x2028]))


def test_pauses_double_up_to_a_minute_and_begin_again() -> None:
    backoff = ReconnectPause()

    pauses = [backoff.next_s() for _ in range(7)]
    backoff.reset()

    assert pauses == [2, 4, 8, 16, 32, 60, 60]
    assert backoff.next_s() == 2


@given(st.lists(st.floats(min_value=0, max_value=5), min_size=1, max_size=60), st.integers(1, 100))
def test_flood_limit_is_kept_for_any_times(gaps: list[float], rate: int) -> None:
    limit, now, written = FloodLimit(rate), 100.0, []
    for gap in gaps:
        now += gap
        now += limit.wait_s(now)
        written.append(now)

    for first in range(len(written)):
        for last in range(first, len(written)):
            count = last - first + 1
            assert count <= FloodLimit.BURST + (written[last] - written[first]) * rate + 1e-6


def test_refused_nick_gets_underscores_and_becomes_shorter() -> None:
    choice = NickChoice(wanted="claude-myrepo")

    tried = [choice.nick]
    for code in ("433", "432", "433"):
        choice = choice.after(code)
        tried.append(choice.nick)

    assert tried == ["claude-myrepo", "claude-myrepo_", "claude-m_", "claude-__"]


def test_nicks_come_to_an_end() -> None:
    choice = NickChoice(wanted="luna")
    for _ in range(9):
        choice = choice.after("433")

    with pytest.raises(LinkLost, match="no nick like luna"):
        choice.after("433")


def test_services_are_known_in_any_case() -> None:
    assert [
        nick for nick in ("NickServ", "chanserv", "Q", "bob", "server", "Global") if is_service(nick)
    ] == [
        "NickServ",
        "chanserv",
        "Q",
        "Global",
    ]


def test_long_login_is_sent_in_pieces_that_end() -> None:
    for size in (1, 299, 300, 301, 600):
        pieces = SaslAccount(account="a", password="p" * (size - 4)).responses() if size > 4 else ["x"]
        assert all(0 < len(piece) <= 400 for piece in pieces)
        assert len(pieces[-1]) < 400


def test_password_is_not_part_of_the_text_form() -> None:
    assert "secret" not in repr(SaslAccount(account="a", password="secret"))


def test_position_knows_the_sent_lines_of_one_message() -> None:
    position = Position(seq=41, next_seq=42, lines=3)

    assert [position.sent_of(seq) for seq in (41, 42, 43)] == [0, 3, 0]


class FullAfterOneLine(io.StringIO):
    """A standard output whose disk is full after the first line."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def flush(self) -> None:
        if self.getvalue().count("\n") > 1:
            raise OSError(errno.ENOSPC, "No space left on device")


class ReportingBridge:
    """A bridge that reports a line in one of its tasks, and then runs until it is cancelled."""

    def __init__(self, home: str, order: object, sasl: object, report: Callable[..., None]) -> None:
        self._report = report

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connect())
            await asyncio.Event().wait()

    async def _connect(self) -> None:
        self._report("connected", {"event": "connected"})


def test_full_disk_ends_the_bridge_with_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "out", "wb") as out:
        monkeypatch.setattr(irc, "IrcBridge", ReportingBridge)
        monkeypatch.setattr("sys.stdout", FullAfterOneLine(out.fileno()))

        with pytest.raises(OSError, match="No space left on device"):
            irc.main([msgspec.json.encode(ORDER).decode()], {"PALAVER_HOME": str(tmp_path)})
