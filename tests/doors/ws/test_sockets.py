"""The sockets of a real daemon: the upgrade, bad input, and the end of connections."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys

import httpx2
import pytest
from tests.daemon.stage import check_output, run_as_person, wait_until
from tests.doors.ws.stage import Client, Stage
from tests.limits import LIMIT_S
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

UPGRADE = (
    b"GET %s HTTP/1.1\r\nhost: %s\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n"
)


class Raw:
    """A connection that sends any bytes as they are."""

    def __init__(
        self, stage: Stage, path: bytes = b"/ws", headers: bytes = b"", *, waits: bool = True
    ) -> None:
        """Without `waits` only the request is sent; `read_head` must follow."""
        self.socket = socket.create_connection(stage.address, timeout=LIMIT_S)
        host = "{}:{}".format(*stage.address).encode()
        self.socket.sendall(UPGRADE % (path, host, headers))
        self._read = self.socket.makefile("rb")
        self.status = 0
        if waits:
            self.read_head()

    def read_head(self) -> None:
        """Read the reply to the request, up to its first frame."""
        self.status = int(self._read.readline().split()[1])
        while self._read.readline().strip():
            pass

    def send(self, *frames: Frame) -> None:
        self.socket.sendall(b"".join(frame.serialize(mask=True) for frame in frames))

    def send_text(self, frame: object) -> None:
        self.send(Frame(Opcode.TEXT, json.dumps(frame).encode()))

    def next(self) -> Frame:
        """Return the next frame, of any kind."""
        first, length = self._read.read(2)
        if length == 126:
            length = struct.unpack("!H", self._read.read(2))[0]
        return Frame(Opcode(first & 0x0F), self._read.read(length))

    def reply(self) -> dict[str, object]:
        """Return the next frame, which must be JSON."""
        found: dict[str, object] = json.loads(bytes(self.next().data))
        return found

    def closed(self) -> tuple[int, str]:
        """Return the code and the reason of the close frame, which must be next."""
        frame = self.next()
        assert frame.opcode is Opcode.CLOSE, frame
        return struct.unpack("!H", frame.data[:2])[0], bytes(frame.data[2:]).decode()

    def close(self) -> None:
        self._read.close()
        self.socket.close()


@pytest.fixture
def token(stage: Stage) -> str:
    """A token of luna."""
    stage.join("luna")
    return stage.token("luna")


@pytest.fixture
def luna(stage: Stage, token: str) -> Client:
    return stage.client(token)


# The upgrade


@pytest.mark.parametrize(
    ("path", "options", "status", "code"),
    [
        ("/ws", {"origin": "http://evil.example"}, 403, "not_allowed"),
        ("/", {}, 404, "not_found"),
        ("/mcp", {}, 404, "not_found"),
        ("/ws/", {}, 404, "not_found"),
    ],
)
def test_upgrade_is_refused_with_a_reason(
    stage: Stage, path: str, options: dict[str, str], status: int, code: str
) -> None:
    url = stage.url.removesuffix("/ws") + path
    with pytest.raises(InvalidStatus) as refused:
        stage.open_at(url, **options)

    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["error"] == code


def test_refused_upgrade_is_not_logged(stage: Stage) -> None:
    with pytest.raises(InvalidStatus):
        stage.open(origin="http://evil.example")

    stage.home.ok("status")  # a later request
    lines = (stage.home.path / "daemon.log").read_text().splitlines()
    assert [line for line in lines if " INFO listening " not in line] == []


def test_upgrade_with_another_host_name_is_refused(stage: Stage) -> None:
    made = socket.create_connection(stage.address, timeout=LIMIT_S)
    with pytest.raises(InvalidStatus) as refused:
        stage.open_at("ws://evil.example/ws", sock=made)

    assert refused.value.response.status_code == 421


def test_page_of_the_bus_itself_may_connect(stage: Stage, token: str) -> None:
    client = stage.open(origin=stage.url.replace("ws", "http", 1).removesuffix("/ws"))

    assert client.ask("auth", token=token) == {"type": "auth.ok"}


def test_token_in_the_header_needs_no_frame(stage: Stage, token: str) -> None:
    client = stage.open(additional_headers={"Authorization": f"Bearer {token}"})

    assert client.ask("ping") == {"type": "pong"}


def test_wrong_token_in_the_header_is_refused(stage: Stage) -> None:
    client = stage.open(additional_headers={"Authorization": "Bearer pal_wrong"})

    assert client.next() == {"type": "auth.error", "error": "Invalid token", "code": "who_are_you"}
    assert client.end() == (4003, "Invalid token")


@pytest.mark.parametrize("token", [None, 5, {}, "pal_wrong"])
def test_wrong_token_ends_the_connection(stage: Stage, token: object) -> None:
    client = stage.open()

    assert client.ask("auth", token=token, reqId=1) == {
        "type": "auth.error",
        "error": "Invalid token",
        "code": "who_are_you",
        "reqId": 1,
    }
    assert client.end() == (4003, "Invalid token")


def test_connections_without_a_token_are_limited(stage: Stage, token: str) -> None:
    # All at once: on a slow machine the first ones would be closed before the last ones are open.
    waiting = [Raw(stage, waits=False) for _ in range(64)]
    for one in waiting:
        one.read_head()

    with pytest.raises(InvalidStatus) as refused:
        stage.open()
    assert refused.value.response.status_code == 503
    stage.open(additional_headers={"Authorization": f"Bearer {token}"})

    waiting[0].send_text({"type": "auth", "token": token})
    assert waiting[0].reply() == {"type": "auth.ok"}
    stage.client(token)
    for one in waiting:
        one.close()


def test_headers_that_are_too_long_are_refused(stage: Stage) -> None:
    raw = Raw(stage, headers=b"cookie: " + b"x" * 9000 + b"\r\n")

    assert raw.status == 431
    raw.close()


def test_nothing_is_compressed(stage: Stage) -> None:
    client = stage.open(compression="deflate")

    assert client.socket.protocol.extensions == []


# Bad input


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ("not json", "Invalid JSON"),
        ("", "Invalid JSON"),
        ('{"type":"ping"', "Invalid JSON"),
        ('{"type":"ping"}x', "Invalid JSON"),
        ('"\\ud800"', "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        ("null", "a frame must be a JSON object"),
        ("5", "a frame must be a JSON object"),
        ("[]", "a frame must be a JSON object"),
        (b'{"type":"ping"}', "a frame must be a text"),
        ('{"type":"ping","reqId":{}}', "reqId must be a text or a number"),
    ],
)
def test_bad_input_gets_an_error_and_the_connection_stays_open(
    stage: Stage, token: str, sent: str | bytes, error: str
) -> None:
    client = stage.open()
    for _ in range(2):  # before it is identified, and afterwards
        client.send(sent)
        assert client.next() == {"type": "error", "error": error, "code": "bad_request"}
        client.send({"type": "auth", "token": token})
        client.next()
    assert client.ask("ping") == {"type": "pong"}


def test_frame_without_a_type_is_refused(luna: Client) -> None:
    for type in (None, 5, ""):
        luna.send({"type": type, "reqId": 1})
        assert luna.next() == {
            "type": "error",
            "error": "type is required",
            "code": "bad_request",
            "reqId": 1,
        }


def test_frame_of_a_mebibyte_is_read_and_a_longer_one_disconnects(luna: Client) -> None:
    luna.send(json.dumps({"type": "ping"}).ljust(1024 * 1024))
    assert luna.next() == {"type": "pong"}

    luna.send(json.dumps({"type": "ping"}).ljust(3 * 1024 * 1024))
    assert luna.end()[0] == 1009


def test_fragments_of_a_message_are_counted_together(stage: Stage) -> None:
    raw = Raw(stage)
    half = b" " * (600 * 1024)

    raw.send(Frame(Opcode.TEXT, half, fin=False), Frame(Opcode.CONT, half, fin=True))

    assert raw.closed()[0] == 1009
    raw.close()


def test_endless_fragments_end_the_connection(stage: Stage) -> None:
    raw = Raw(stage)
    raw.send(Frame(Opcode.TEXT, b"", fin=False))

    raw.send(*[Frame(Opcode.CONT, b"", fin=False)] * 10_100)

    assert raw.closed() == (1009, "a message has at most 10000 fragments")
    raw.close()


@pytest.mark.parametrize(
    "frames",
    [
        (Frame(Opcode.TEXT, b"\xff"),),
        (Frame(Opcode.TEXT, b"\xc3", fin=False), Frame(Opcode.CONT, b"(")),
        (Frame(Opcode.TEXT, "\ud800".encode("utf-8", "surrogatepass")),),
    ],
)
def test_text_that_is_not_utf8_ends_the_connection(stage: Stage, frames: tuple[Frame, ...]) -> None:
    raw = Raw(stage)

    raw.send(*frames)

    assert raw.closed()[0] == 1007
    raw.close()


def test_character_may_be_divided_between_fragments(stage: Stage, token: str) -> None:
    raw = Raw(stage)
    text = json.dumps({"type": "é"}, ensure_ascii=False).encode()
    middle = text.index(b"\xc3") + 1

    raw.send_text({"type": "auth", "token": token})
    assert raw.reply() == {"type": "auth.ok"}
    raw.send(Frame(Opcode.TEXT, text[:middle], fin=False), Frame(Opcode.CONT, text[middle:]))

    assert raw.reply()["error"] == "Unknown message type: é"
    raw.close()


def test_half_a_frame_and_lost_clients_disturb_no_other_client(
    stage: Stage, luna: Client, token: str
) -> None:
    whole = Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True)
    for cut in range(len(whole)):
        raw = Raw(stage)
        raw.socket.sendall(whole[:cut])
        if cut % 2:  # a reset instead of an end
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()

    assert luna.ask("ping") == {"type": "pong"}


def test_rest_of_a_frame_may_come_later(stage: Stage) -> None:
    raw = Raw(stage)
    whole = Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True)

    for index in range(len(whole)):
        raw.socket.sendall(whole[index : index + 1])

    assert raw.reply()["error"] == "Must authenticate first"
    raw.close()


LISTENER = """
import json, sys
from websockets.sync.client import connect
with connect(sys.argv[1], compression=None) as client:
    for frame in ({"type": "auth", "token": sys.argv[2]}, {"type": "msg.listen", "agentId": "luna"}):
        client.send(json.dumps(frame))
        client.recv()
    print("listens", flush=True)
    client.recv()
"""


def test_killed_clients_leave_nothing_behind(stage: Stage, luna: Client, token: str) -> None:
    before = len(os.listdir(f"/proc/{stage.home.pid}/fd"))
    clients = [
        subprocess.Popen([sys.executable, "-c", LISTENER, stage.url, token], stdout=subprocess.PIPE)
        for _ in range(5)
    ]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == b"listens\n"
    assert len(os.listdir(f"/proc/{stage.home.pid}/fd")) >= before + 5

    for client in clients:
        client.send_signal(signal.SIGKILL)
        client.communicate()

    wait_until(lambda: len(os.listdir(f"/proc/{stage.home.pid}/fd")) <= before)
    luna.ok("msg.send", from_="luna", to="luna")
    assert "agent.bye" not in {event["type"] for event in stage.home.events()}


# The end of a connection


def test_stopped_bus_closes_its_connections(stage: Stage, luna: Client) -> None:
    stage.home.ok("down")

    assert luna.end() == (1012, "the bus restarts or stops")


def test_daemon_that_stops_does_not_wait_for_a_client_that_does_not_close(stage: Stage, token: str) -> None:
    raw = Raw(stage)
    raw.send_text({"type": "auth", "token": token})
    raw.next()

    stage.home.ok("down")

    assert raw.closed()[0] == 1012
    raw.close()


def test_revoked_token_ends_its_connections_at_once(stage: Stage, luna: Client) -> None:
    luna.ok("msg.listen", agentId="luna")

    check_output(run_as_person(stage.home, "token", "revoke", "luna"))

    assert luna.end() == (4003, "the token has ended")


def test_expired_token_ends_its_connections_at_once(stage: Stage) -> None:
    stage.join("luna")
    client = stage.client(stage.token("luna", "--expires", "2s"))

    assert client.end() == (4003, "the token has ended")


def test_agent_that_leaves_ends_the_connections_of_its_token(stage: Stage, luna: Client) -> None:
    stage.shells["luna"].ok("leave")

    assert luna.end() == (4003, "the token has ended")


def test_token_for_several_agents_is_valid_only_for_the_websocket(stage: Stage) -> None:
    url = stage.url.replace("ws", "http", 1).removesuffix("/ws")
    token = stage.token("--acts-for", "all")

    refused = httpx2.post(f"{url}/mcp", json={}, headers={"Authorization": f"Bearer {token}"})
    plain = httpx2.get(f"{url}/ws", headers={"Authorization": f"Bearer {token}"})

    assert (refused.status_code, refused.json()["error"]) == (403, "who_are_you")
    assert plain.status_code == 403
