"""The bridge with programs that are not good servers, and its login."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.bridges.stage import BadServer, Bridge, register, sasl_plain
from tests.daemon.stage import Home, new_home

from palaver.bridges import irc
from palaver.bridges.irc import IrcBridge, IrcLink, LinkLost
from palaver.protocol.envelope import Event
from palaver.protocol.lines import BridgeOrder

CHANNEL = ("--network", "net", "--channel", "#c")


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as made:
        made.start_daemon()
        yield made


def read_until(near: socket.socket, word: bytes) -> bytes:
    """Read until the client has written a word."""
    data = b""
    while word not in data:
        more = near.recv(4096)
        if not more:
            raise OSError("it has hung up")
        data += more
    return data


def test_server_that_closes_during_the_login_is_tried_again(home: Home) -> None:
    def behave(near: socket.socket, count: int) -> None:
        if count < 3:
            read_until(near, b"USER")
            near.sendall(b"ERROR :full\r\n" if count == 1 else b"")
        else:
            register(near).read()

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL)

    first, second = bridge.until("lost"), bridge.until("lost")
    bridge.until("connected")
    assert (first["reason"], first["next_s"]) == ("the server said: full", 2)
    assert (second["reason"], second["next_s"]) == ("the server closed the connection", 4)


def test_pause_begins_again_after_a_success(home: Home) -> None:
    def behave(near: socket.socket, count: int) -> None:
        if count == 3:
            lines = register(near)
            near.sendall(b"PING :still there\r\n")
            next(lines)

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL)

    pauses = [bridge.until("lost")["next_s"] for _ in range(3)]
    assert pauses == [2, 4, 2]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff\xfe\r\n\r\n:\r\n @ \r\n:x\r\nPRIVMSG\r\nPRIVMSG #c\r\nPING\r\nPONG\r\nKICK\r\n366\r\n",
        b"a" * 100_000 + b"\r\n",
        b"@" + b"t=1;" * 5_000 + b" PRIVMSG #c :x\r\n",
        b":a/b!u@h PRIVMSG #c :hi\r\n:#x!u@h PRIVMSG #c :hi\r\n:\xe2\x80\xae!u@h PRIVMSG #c :hi\r\n",
        b":"
        + b"n" * 100
        + b"!u@h PRIVMSG #c :hi\r\n:eve!u@h PRIVMSG #c :\x01\x01\r\n:eve!u@h PRIVMSG #c :   \r\n",
        b"CAP * ACK :sasl\r\nAUTHENTICATE +\r\n903\r\n904 :no\r\nERROR\r\n433 :no\r\n999 a b c\r\n",
    ],
)
def test_garbage_changes_nothing(home: Home, garbage: bytes) -> None:
    def behave(near: socket.socket, count: int) -> None:
        near.sendall(garbage)
        lines = register(near)
        near.sendall(garbage + b":eve!u@h PRIV")
        near.sendall(b"MSG #c :hal")
        near.sendall(b"f a line\r\n:eve!u@h PRIVMSG #c :b\xfcs\r\n")
        for line in lines:
            if line.startswith(b"PING"):
                near.sendall(b":s PONG s :" + line.split(b":")[1])

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL)
    bridge.until("stored")
    bridge.until("stored")
    home.ok("send", "irc/net/#c", "--", "it still sends")
    bridge.until("sent")

    texts = [event["payload"]["text"] for event in home.events("--type", "message")]
    assert texts == ["half a line", "b\ufffds", "it still sends"]
    assert "lost" not in [one["event"] for one in bridge.heard]


def test_line_without_a_reply_is_sent_again_and_no_other(home: Home) -> None:
    seen: list[bytes] = []

    def behave(near: socket.socket, count: int) -> None:
        for line in register(near):
            if line.startswith(b"PRIVMSG"):
                seen.append(line.split(b":")[1].strip())
                if b"two" in line and count == 1:
                    return
            elif line.startswith(b"PING"):
                near.sendall(b":s PONG s :" + line.split(b":")[1])

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL)
    bridge.until("connected")
    home.ok("send", "irc/net/#c", "--stdin", content=b"one\ntwo\nthree")
    bridge.until("connected")
    bridge.until("sent")

    assert seen == [b"<script> one", b"<script> two", b"<script> two", b"<script> three"]


def test_server_that_never_reads_does_not_fill_the_memory(home: Home) -> None:
    def behave(near: socket.socket, count: int) -> None:
        register(near)
        while True:
            near.sendall(b"PING :" + b"x" * 400 + b"\r\n")

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL)
    bridge.until("connected")

    assert bridge.until("lost")["reason"] == "the server does not read"


def test_refused_message_is_reported_and_the_next_one_is_sent(home: Home) -> None:
    def behave(near: socket.socket, count: int) -> None:
        for line in register(near):
            if b"first" in line:
                near.sendall(b":s 404 palaver #c :Cannot send to channel\r\n")
            elif line.startswith(b"PING"):
                near.sendall(b":s PONG s :" + line.split(b":")[1])

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL)
    bridge.until("connected")
    home.ok("send", "irc/net/#c", "--", "first")
    home.ok("send", "irc/net/#c", "--", "second")

    assert bridge.until("not_sent")["reason"] == "Cannot send to channel"
    assert bridge.until("sent")


# The account


def account_file(home: Home, content: str, mode: int = 0o600) -> str:
    path = home.path.parent / "account"
    path.write_text(content)
    path.chmod(mode)
    return str(path)


def sasl_server(near: socket.socket, expected: str) -> None:
    read_until(near, b"CAP REQ :sasl\r\n")
    near.sendall(b":s CAP * ACK :sasl\r\n")
    read_until(near, b"PLAIN\r\n")
    near.sendall(b"AUTHENTICATE +\r\n")
    data = read_until(near, b"\r\n")
    if expected.encode() not in data:
        near.sendall(b":s 904 * :SASL authentication failed\r\n")
        near.recv(4096)
        return
    near.sendall(b":s 903 * :ok\r\n")
    read_until(near, b"END\r\n")
    register(near).read()


def test_account_comes_from_its_file(home: Home) -> None:
    bad = BadServer(lambda near, count: sasl_server(near, sasl_plain("pal", "s3:cret")))
    file = account_file(home, "pal:s3:cret\n")

    bridge = Bridge(home, bad.port, *CHANNEL, "--sasl-file", file)

    bridge.until("connected")
    arguments = Path(f"/proc/{bridge.process.pid}/cmdline").read_bytes()
    assert b"account" in arguments
    assert b"s3:cret" not in arguments


def test_wrong_password_ends_the_bridge(home: Home) -> None:
    bad = BadServer(lambda near, count: sasl_server(near, sasl_plain("pal", "right")))

    bridge = Bridge(home, bad.port, *CHANNEL, "--sasl-file", account_file(home, "pal:wrong"))

    assert bridge.process.wait(home.limit_s) == 1
    assert "refuses the account pal" in bridge.errors()


@pytest.mark.parametrize(
    "reply", [b":s CAP * NAK :sasl\r\n", b":s 421 * CAP :Unknown\r\n:s 001 palaver :hi\r\n"]
)
def test_network_without_sasl_is_not_used_without_the_account(home: Home, reply: bytes) -> None:
    def behave(near: socket.socket, count: int) -> None:
        near.sendall(reply)
        near.recv(4096)
        near.recv(4096)

    bridge = Bridge(home, BadServer(behave).port, *CHANNEL, "--sasl-file", account_file(home, "pal:x"))

    assert bridge.process.wait(home.limit_s) == 1
    assert "does not offer SASL" in bridge.errors()


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        ("pal:x", 0o644, "mode 0600"),
        ("pal", 0o600, "ACCOUNT:PASSWORD"),
        (":x", 0o600, "ACCOUNT:PASSWORD"),
        ("pal:x\nmore:y", 0o600, "ACCOUNT:PASSWORD"),
    ],
)
def test_unsafe_account_file_is_refused(home: Home, content: str, mode: int, reason: str) -> None:
    file = account_file(home, content, mode)

    refused = home.pal("bridge", "irc", "--server", "127.0.0.1:1", *CHANNEL, "--sasl-file", file)

    assert refused.status == 1
    assert reason in refused.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--channel", "#c"), "--server HOST:PORT"),
        (("--server", "h"), "--channel '#c'"),
        (("--server", "h", "--channel", "c"), "begins with #"),
        (("--server", "h", "--channel", "#a,#b"), "cannot be a nick or a channel"),
        (("--server", "h:0", "--channel", "#c"), "not a port"),
        (("--server", "local", "--channel", "#c"), "cannot be the name of a network"),
        (("--server", "h", "--channel", "#c", "--nick", "a b"), "cannot be a nick"),
        (("--server", "h", "--channel", "#c", "--rate", "101"), "at most 100"),
        (("--server", "h", "--channel", "#c", "--sasl-file", "f"), "needs --tls"),
        (("--server", "h", "--channel", "#c", "--nick", "n", "--each"), "--each"),
    ],
)
def test_bad_options_are_refused(home: Home, words: tuple[str, ...], reason: str) -> None:
    refused = home.pal("bridge", "irc", *words)

    assert refused.status in (1, 2)
    assert reason in refused.err


# --------------------
# Connections in the process of the test, so that it sets their limits.


@asynccontextmanager
async def loop_server(
    talk: Callable[[asyncio.StreamWriter], None] = lambda writer: None,
) -> AsyncGenerator[BridgeOrder]:
    """Serve connections with `talk`, which gets each new one; afterwards nothing is written or read."""
    writers = []

    def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        talk(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield BridgeOrder(host="127.0.0.1", port=port, network="net", channels=("#c",), has_each=True)
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


def let_in(writer: asyncio.StreamWriter) -> None:
    writer.write(b":s 001 palaver :Welcome\r\n:s 366 palaver #c :End\r\n")


def test_login_that_never_ends_counts_as_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with loop_server() as order:
            link = IrcLink(order, "palaver", lambda link, line: None)
            with pytest.raises(LinkLost, match="did not finish the login"):
                await link.open()
            await link.close()

    monkeypatch.setattr(irc, "_REGISTER_S", 0)

    asyncio.run(scenario())


def test_missing_reply_to_a_line_counts_as_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with loop_server(let_in) as order:
            link = IrcLink(order, "palaver", lambda link, line: None)
            await link.open()
            with pytest.raises(LinkLost, match="no reply within"):
                await link.say("#c", "hello")
            await link.close()

    monkeypatch.setattr(irc, "_PONG_S", 0)

    asyncio.run(scenario())


def test_lost_connections_of_agents_do_not_count_for_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    payload: dict[str, object] = {"text": "hello", "scope": "broadcast", "sender_kind": "instance"}
    event = Event(
        type="message", sender="luna", payload=payload, to=(), id="01", ts=1, seq=1, device="BOXE", by=None
    )
    writers: list[asyncio.StreamWriter] = []

    def let_in_and_keep(writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        let_in(writer)

    async def scenario() -> None:
        async with loop_server(let_in_and_keep) as order:
            bridge = IrcBridge(str(tmp_path), order, None, lambda sentence, fields: None)
            first = await bridge._speaker(event)
            assert first is not None
            writers[0].close()
            await first.lost

            second = await bridge._speaker(event)

            assert second is not None
            assert second.agent == "luna"
            for link in (first, second):
                await link.close()

    monkeypatch.setattr(irc, "_LIMIT_LINKS", 1)

    asyncio.run(scenario())
