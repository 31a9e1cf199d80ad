"""Every exchange of the path broker's document, with three clients that know only this document.

The clients share one bus. Each exchange uses paths and sessions with the name of its client, so it does not
depend on the exchanges before it.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from tests.daemon.stage import new_home, write_settings
from tests.doors.ws.clients import (
    CONSOLE,
    FOREIGN,
    Client,
    Link,
    PythonClient,
    Refused,
    node_client,
    opened_page,
)
from tests.doors.ws.stage import Stage, opened_stage
from tests.limits import LIMIT_S
from websockets.sync.server import ServerConnection, serve

CLIENTS: Final = ("python", "node", "page")
AGENTS: Final = ("writer", "researcher", "analyst")
PUSHES: Final = ("msg.push", "msg.session.push")
MESSAGE_FIELDS: Final = {
    "id", "from", "path", "command", "payload", "status", "timestamp", "source", "externalId",
}  # fmt: skip

Frame = dict[str, Any]


class Bus:
    """A bus with three present agents, and the token of a bridge that acts for them and for itself."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.token = stage.token("--acts-for", ",".join((*AGENTS, "slack-bridge")))
        self.address = stage.address

    @property
    def url(self) -> str:
        """The URL of the WebSocket for programs on this machine."""
        host, port = self.address
        return f"ws://{host}:{port}/ws"

    def begin_again(self) -> None:
        """Start the stopped daemon. The door gets another port."""
        self.stage.home.start_daemon()
        self.address = self.stage.address


class Talk:
    """One connection, used as the document shows: a reply has the type of its request, a push has its own."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._pushes: list[Frame] = []

    def send(self, frame: Frame) -> None:
        self.link.send(json.dumps(frame))

    def read(self) -> Frame:
        """Return the next frame that is not a push."""
        while (frame := json.loads(self.link.read()))["type"] in PUSHES:
            self._pushes.append(frame)
        assert isinstance(frame, dict)
        return frame

    def ask(self, type: str, **fields: Any) -> Frame:
        """Send a request and return its reply."""
        self.send({"type": type, **{name.rstrip("_"): value for name, value in fields.items()}})
        return self.read()

    def ok(self, type: str, **fields: Any) -> Frame:
        """Send a request that must succeed."""
        reply = self.ask(type, **fields)
        assert reply["type"] == f"{type}.ok", reply
        return reply

    def error(self, type: str, **fields: Any) -> str:
        """Send a request that must fail. Return the sentence."""
        reply = self.ask(type, **fields)
        assert reply["type"] == f"{type}.error", reply
        return str(reply["error"])

    def fault(self, type: str, **fields: Any) -> tuple[str, str]:
        """Send something that is not a valid request. Return the type and the sentence of the reply."""
        return fault(self.ask(type, **fields))

    def push(self) -> Frame:
        """Return the next push."""
        if self._pushes:
            return self._pushes.pop(0)
        frame: Frame = json.loads(self.link.read())
        assert frame["type"] in PUSHES, frame
        return frame

    def no_push(self) -> None:
        """Check that no push came before the reply to a later request."""
        assert self.ask("ping") == {"type": "pong"}
        assert self._pushes == []


@dataclass
class Use:
    """One client at the bus, for one exchange."""

    bus: Bus
    client: Client
    name: str
    _links: list[Link] = field(default_factory=list)

    def connect(self, **headers: str) -> Talk:
        """Open a connection without authentication."""
        link = self.client.open(**headers)
        self._links.append(link)
        return Talk(link)

    def talk(self) -> Talk:
        """Open a connection and authenticate."""
        made = self.connect()
        assert made.ask("auth", token=self.bus.token) == {"type": "auth.ok"}
        return made

    def close(self) -> None:
        for link in self._links:
            link.close()

    @property
    def channel(self) -> str:
        """A path that only this client uses."""
        return f"slack/{self.name}/#general"

    @property
    def session(self) -> str:
        """A session that only this client uses."""
        return f"{self.name}-monitor"


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with new_home() as home:
        home.path.mkdir(mode=0o700)
        write_settings(home, http="127.0.0.1:0", http_hosts=CONSOLE)
        home.start_daemon()
        with opened_stage(home) as stage:
            stage.join(*AGENTS)
            yield Bus(stage)


@pytest.fixture(scope="module")
def python(bus: Bus) -> Client:
    return PythonClient(lambda: bus.url)


@pytest.fixture(scope="module")
def node(bus: Bus) -> Iterator[Client]:
    with node_client(lambda: bus.url) as made:
        yield made


@pytest.fixture(scope="module")
def page(bus: Bus) -> Iterator[Client]:
    with opened_page(lambda: bus.address) as made:
        yield made.client


@pytest.fixture(params=CLIENTS)
def use(request: pytest.FixtureRequest, bus: Bus) -> Iterator[Use]:
    made = Use(bus, request.getfixturevalue(request.param), request.param)
    yield made
    made.close()


def fault(reply: Frame) -> tuple[str, str]:
    """Return the type and the sentence of a frame about a fault. It also has a code for programs."""
    assert isinstance(reply["code"], str), reply
    return reply["type"], reply["error"]


def check_message(message: Frame, **expected: Any) -> None:
    """Check the form of a message, and some of its fields."""
    assert set(message) >= MESSAGE_FIELDS, message
    assert isinstance(message["id"], str)
    assert abs(message["timestamp"] - time.time() * 1000) < 600_000
    wanted = {name.rstrip("_"): value for name, value in expected.items()}
    assert {name: message[name] for name in wanted} == wanted


def patterns(reply: Frame) -> list[str]:
    assert all(isinstance(one["addedAt"], int) for one in reply["subscriptions"])
    return [one["pattern"] for one in reply["subscriptions"]]


# Authentication


def auth(use: Use) -> None:
    talk = use.connect()
    assert talk.ask("auth", token=use.bus.token) == {"type": "auth.ok"}
    assert talk.fault("auth", token=use.bus.token) == ("error", "Unknown message type: auth")


def auth_with_reqid(use: Use) -> None:
    reply = use.connect().ask("auth", token=use.bus.token, reqId="r1")
    assert reply == {"type": "auth.ok", "reqId": "r1"}


def wrong_token(use: Use) -> None:
    for fields in ({"token": "wrong"}, {"token": f"{use.bus.token}x"}, {"token": 5}, {"token": None}, {}):
        talk = use.connect()
        assert talk.fault("auth", **fields) == ("auth.error", "Invalid token")
        assert talk.link.closed() == (4003, "Invalid token")


def earlier_frame(use: Use) -> None:
    talk = use.connect()
    assert talk.fault("ping") == ("auth.error", "Must authenticate first")
    reply = talk.ask("msg.send", from_="writer", to="researcher", reqId="1")
    assert (reply["error"], reply["reqId"]) == ("Must authenticate first", "1")
    assert talk.ask("auth", token=use.bus.token) == {"type": "auth.ok"}


def null_before_auth(use: Use) -> None:
    talk = use.connect()
    for text in ("null", "5", '"auth"', "[]", "true", "not json", "", "{"):
        talk.link.send(text)
        assert talk.read()["type"] == "error"
    talk.link.send(b'{"type":"auth"}')
    assert talk.read()["type"] == "error"
    assert talk.ask("auth", token=use.bus.token) == {"type": "auth.ok"}


# Sending


def send(use: Use) -> None:
    talk = use.talk()
    reply = talk.ok("msg.send", from_="writer", to="researcher", command="analyze", payload={"a": [1, None]})

    assert reply["messageId"] == reply["message"]["id"]
    check_message(
        reply["message"], from_="writer", path="agent/researcher", command="analyze",
        payload={"a": [1, None]}, status="pending", source="internal", externalId=None, delivered=True,
        deliveredTo=["researcher"], deliveredToSessions=[], unmatched=False,
    )  # fmt: skip


def send_defaults(use: Use) -> None:
    talk = use.talk()
    for payload in (None, False, 0, ""):
        reply = talk.ok("msg.send", from_="writer", to="researcher", payload=payload)
        check_message(reply["message"], command="message", payload={})
    reply = talk.ok("msg.send", from_="writer", to="researcher", payload=[])
    check_message(reply["message"], command="message", payload=[])
    reply = talk.ok("msg.send", from_="writer", to="researcher")
    check_message(reply["message"], command="message", payload={})


def send_to_unknown(use: Use) -> None:
    reply = use.talk().ok("msg.send", from_="writer", to=f"ghost-{use.name}")
    check_message(reply["message"], delivered=False, unmatched=True, deliveredTo=[])


def send_to_self(use: Use) -> None:
    reply = use.talk().ok("msg.send", from_="researcher", to="researcher", command="again")
    check_message(reply["message"], delivered=True, deliveredTo=["researcher"])


def route(use: Use) -> None:
    talk = use.talk()
    talk.ok("msg.sub.add", agentId="researcher", pattern=use.channel)
    reply = talk.ok(
        "msg.route", from_="slack-bridge", path=f"/{use.channel}/", command="new_message",
        payload={"text": "hi"}, source="slack", externalId="ts-1234",
    )  # fmt: skip
    talk.ok("msg.sub.remove", agentId="researcher", pattern=use.channel)

    assert reply["delivered"] is True
    assert reply["deliveredTo"] == ["researcher"]
    check_message(
        reply, from_="slack-bridge", path=use.channel, command="new_message", payload={"text": "hi"},
        source="slack", externalId="ts-1234", unmatched=False,
    )  # fmt: skip


def broadcast(use: Use) -> None:
    talk = use.talk()
    reply = talk.ok("msg.broadcast", from_="writer", command="announce", payload={"from": use.name})

    assert reply["messageId"] == reply["message"]["id"]
    check_message(reply["message"], from_="writer", path="agent/**", command="announce", delivered=True)
    assert set(reply["message"]["deliveredTo"]) == {"researcher", "analyst"}


# Receiving


def receive(use: Use) -> None:
    talk = use.talk()
    talk.ok("msg.receive", agentId="analyst")
    sent = [
        talk.ok("msg.send", from_="writer", to="analyst", command=f"c{number}")["messageId"]
        for number in range(3)
    ]
    reply = talk.ok("msg.receive", agentId="analyst")

    assert reply["agentId"] == "analyst"
    assert [message["id"] for message in reply["messages"]] == sent
    for message in reply["messages"]:
        check_message(message, from_="writer", path="agent/analyst", status="delivered", handled=False)
    assert talk.ok("msg.receive", agentId="analyst")["messages"] == []
    assert use.bus.stage.shells["analyst"].ok("recv", "--json").out == ""


def listen(use: Use) -> None:
    listener, sender = use.talk(), use.talk()
    assert listener.ok("msg.listen", agentId="researcher") == {
        "type": "msg.listen.ok",
        "agentId": "researcher",
    }
    listener.ok("msg.listen", agentId="researcher")
    sent = [
        sender.ok("msg.send", from_="writer", to="researcher", command=f"c{number}", payload={"n": number})
        for number in range(3)
    ]

    for number, reply in enumerate(sent):
        push = listener.push()
        assert push["type"] == "msg.push"
        check_message(
            push["message"], id=reply["messageId"], from_="writer", path="agent/researcher",
            command=f"c{number}", payload={"n": number}, status="pending", handled=False,
        )  # fmt: skip
    listener.no_push()
    received = {message["id"] for message in sender.ok("msg.receive", agentId="researcher")["messages"]}
    assert {reply["messageId"] for reply in sent} <= received


def history(use: Use) -> None:
    talk = use.talk()
    talk.ok("msg.receive", agentId="analyst")
    first, second = (
        talk.ok("msg.send", from_="writer", to="analyst", command=f"h{number}")["message"]
        for number in (1, 2)
    )
    reply = talk.ok("msg.history", agentId="analyst", options={"limit": 2})
    assert reply["agentId"] == "analyst"
    assert [message["id"] for message in reply["messages"]] == [second["id"], first["id"]]
    check_message(reply["messages"][0], command="h2", status="pending", handled=False)

    talk.ok("msg.receive", agentId="analyst")
    (newest,) = talk.ok("msg.history", agentId="analyst", options={"limit": 1})["messages"]
    check_message(newest, id=second["id"], status="delivered")
    span = {"fromTime": first["timestamp"], "toTime": second["timestamp"]}
    found = talk.ok("msg.history", agentId="analyst", options=span)["messages"]
    assert {first["id"], second["id"]} <= {message["id"] for message in found}
    assert talk.ok("msg.history", agentId="analyst", options={"limit": 0})["messages"] == []
    assert talk.ok("msg.history", agentId="analyst", options={"toTime": 1})["messages"] == []


# Subscriptions


def subscriptions(use: Use) -> None:
    talk = use.talk()
    other = f"email/{use.name}/**"
    added = talk.ok("msg.sub.add", agentId="researcher", pattern=f"/{use.channel}")
    assert (added["agentId"], added["pattern"]) == ("researcher", f"/{use.channel}")
    assert patterns(added) == [use.channel]
    both = sorted([use.channel, other])  # they may have the same time
    assert sorted(patterns(talk.ok("msg.sub.add", agentId="researcher", pattern=other))) == both
    assert sorted(patterns(talk.ok("msg.sub.add", agentId="researcher", pattern=other))) == both
    listed = talk.ok("msg.sub.list", agentId="researcher")
    assert (listed["agentId"], sorted(patterns(listed))) == ("researcher", both)

    for pattern in (use.channel, other, "never/added"):
        removed = talk.ok("msg.sub.remove", agentId="researcher", pattern=pattern)
        assert (removed["agentId"], removed["pattern"]) == ("researcher", pattern)
    assert patterns(talk.ok("msg.sub.list", agentId="researcher")) == []


def automatic_subscription(use: Use) -> None:
    talk = use.talk()
    refusal = talk.error("msg.sub.remove", agentId="researcher", pattern="agent/researcher")
    assert refusal == "Cannot unsubscribe from auto-subscription"
    assert patterns(talk.ok("msg.sub.add", agentId="researcher", pattern="agent/researcher")) == []
    assert patterns(talk.ok("msg.sub.list", agentId="researcher")) == []


# Dead letters


def unmatched(use: Use) -> None:
    talk = use.talk()
    reply = talk.ok(
        "msg.route", from_="slack-bridge", path=f"webhook/{use.name}/push", command="pushed",
        payload={"n": 1}, source="webhook", externalId="e-1",
    )  # fmt: skip
    assert (reply["delivered"], reply["unmatched"]) == (False, True)
    (letter,) = talk.ok("msg.unmatched", options={"limit": 1})["messages"]
    expected = {
        "id": reply["id"], "from": "slack-bridge", "path": f"webhook/{use.name}/push", "command": "pushed",
        "payload": {"n": 1}, "source": "webhook", "externalId": "e-1", "reason": "no_subscribers",
        "timestamp": reply["timestamp"],
    }  # fmt: skip
    assert {name: letter[name] for name in expected} == expected

    assert talk.ok("msg.unmatched.clear") == {"type": "msg.unmatched.clear.ok", "cleared": True}
    assert talk.ok("msg.unmatched")["messages"] == []


# Sessions


def session_subscriptions(use: Use) -> None:
    talk = use.talk()
    who = {"agentId": "researcher", "sessionId": use.session}
    added = talk.ok("msg.session.sub.add", **who, pattern=use.channel)
    assert {name: added[name] for name in who} == who
    assert patterns(added) == [use.channel]
    assert patterns(talk.ok("msg.session.sub.list", **who)) == [use.channel]
    assert patterns(talk.ok("msg.sub.list", agentId="researcher")) == []
    removed = talk.ok("msg.session.sub.remove", **who, pattern=use.channel)
    assert ({name: removed[name] for name in who}, patterns(removed)) == (who, [])
    assert patterns(talk.ok("msg.session.sub.list", **who)) == []


def session_messages(use: Use) -> None:
    talk, listener = use.talk(), use.talk()
    who = {"agentId": "researcher", "sessionId": use.session}
    talk.ok("msg.receive", agentId="researcher")
    talk.ok("msg.session.sub.add", **who, pattern=use.channel)
    heard = listener.ok("msg.session.listen", **who)
    assert {name: heard[name] for name in who} == who
    sent = talk.ok("msg.route", from_="slack-bridge", path=use.channel, command="new_message", source="slack")
    assert sent["deliveredTo"] == ["researcher"]
    assert sent["deliveredToSessions"] == [who]

    push = listener.push()
    assert {name: push[name] for name in ("type", *who)} == {"type": "msg.session.push", **who}
    check_message(push["message"], id=sent["id"], path=use.channel, source="slack", status="pending")
    assert "handled" not in push["message"]
    (copy,) = talk.ok("msg.receive", agentId="researcher")["messages"]
    check_message(copy, id=sent["id"], handled=True, handledBy=[who])
    (kept,) = talk.ok("msg.session.receive", **who)["messages"]
    check_message(kept, id=sent["id"], status="delivered")
    assert not {"handled", "handledBy"} & set(kept)
    assert talk.ok("msg.session.receive", **who)["messages"] == []
    past = talk.ok("msg.session.history", **who, options={"limit": 50})["messages"]
    assert [(one["id"], one["status"]) for one in past] == [(sent["id"], "delivered")]
    talk.ok("msg.session.sub.remove", **who, pattern=use.channel)
    listener.no_push()


def session_hears_no_own_broadcast(use: Use) -> None:
    talk = use.talk()
    who = {"agentId": "writer", "sessionId": use.session}
    talk.ok("msg.session.sub.add", **who, pattern="agent/writer")
    talk.ok("msg.session.listen", **who)
    talk.ok("msg.broadcast", from_="writer", command="own")
    talk.no_push()
    talk.ok("msg.session.sub.remove", **who, pattern="agent/writer")


# The frame


def ping(use: Use) -> None:
    talk = use.talk()
    assert talk.ask("ping") == {"type": "pong"}
    assert talk.ask("ping", reqId=7) == {"type": "pong", "reqId": 7}


def reqid(use: Use) -> None:
    talk = use.talk()
    assert talk.ok("msg.send", from_="writer", to="researcher", reqId="z")["reqId"] == "z"
    assert talk.ask("msg.receive", reqId=3)["reqId"] == 3
    assert talk.ask("nope", reqId="n")["reqId"] == "n"
    assert "reqId" not in talk.ask("msg.sub.list", agentId="researcher")


def bad_frames(use: Use) -> None:
    talk = use.talk()
    talk.link.send("not json")
    assert fault(talk.read()) == ("error", "Invalid JSON")
    for text in ("null", "5", "[]", "{}", '{"type":5}'):
        talk.link.send(text)
        assert talk.read()["type"] == "error"
    talk.link.send(b"{}")
    assert talk.read()["type"] == "error"
    for kind in (
        "nope",
        "__proto__",
        "toString",
        "agent.list",
        "session.start",
        "agent.tools.list",
        "logs.search",
    ):
        assert talk.fault(kind) == ("error", f"Unknown message type: {kind}")
    assert talk.ask("ping") == {"type": "pong"}


def missing_fields(use: Use) -> None:
    talk = use.talk()
    for kind in ("msg.receive", "msg.listen", "msg.history", "msg.sub.list"):
        assert talk.error(kind) == "agentId is required"
    assert talk.error("msg.send", to="researcher") == "from is required"
    assert talk.error("msg.send", from_="writer") == "to is required"
    assert talk.error("msg.broadcast") == "from is required"
    assert talk.error("msg.route", from_="writer") == "path is required"
    assert talk.error("msg.route", from_="writer", path="///") == "path is required"
    assert talk.error("msg.sub.add", agentId="researcher") == "pattern is required"
    assert talk.error("msg.session.sub.add", agentId="researcher", pattern="x") == "sessionId is required"
    assert talk.error("msg.session.receive", agentId="researcher") == "sessionId is required"


def every_unicode_text(use: Use) -> None:
    talk = use.talk()
    payload = {"text": 'é 漢 🙂 \u2028 \x00 \x7f " \\ </script>', "n": [1, -0.5, 1e21, True, None]}
    reply = talk.ok("msg.send", from_="writer", to="researcher", command="grüße", payload=payload)
    check_message(reply["message"], command="grüße", payload=payload)


def another_name(use: Use) -> None:
    talk = use.talk()
    for kind, fields in (
        ("msg.send", {"from": "luna", "to": "researcher"}),
        ("msg.receive", {"agentId": "luna"}),
        ("msg.listen", {"agentId": "luna"}),
    ):
        reply = talk.ask(kind, **fields)
        assert (reply["type"], reply["code"]) == (f"{kind}.error", "not_you")


def restart(use: Use) -> None:
    """A client that passes the seq of its last push as `after` misses nothing and gets nothing twice."""
    listener, sender = use.talk(), use.talk()
    listener.ok("msg.listen", agentId="researcher")
    sent = [
        sender.ok("msg.send", from_="writer", to="researcher", command=f"r{n}")["messageId"] for n in range(3)
    ]
    pushes = [listener.push() for _ in sent]
    assert [push["message"]["id"] for push in pushes] == sent

    use.bus.stage.home.ok("down")
    assert listener.link.closed()[0] == 1012
    assert sender.link.closed()[0] == 1012
    use.bus.begin_again()

    sender = use.talk()
    sent += [
        sender.ok("msg.send", from_="writer", to="researcher", command=f"r{n}")["messageId"] for n in (3, 4)
    ]
    listener = use.talk()
    listener.ok("msg.listen", agentId="researcher", after=pushes[0]["seq"])
    sent.append(sender.ok("msg.send", from_="writer", to="researcher", command="r5")["messageId"])
    assert [listener.push()["message"]["id"] for _ in range(5)] == sent[1:]
    listener.no_push()


EXCHANGES: Final[tuple[Callable[[Use], None], ...]] = (
    auth, auth_with_reqid, wrong_token, earlier_frame, null_before_auth,
    send, send_defaults, send_to_unknown, send_to_self, route, broadcast,
    receive, listen, history,
    subscriptions, automatic_subscription, unmatched,
    session_subscriptions, session_messages, session_hears_no_own_broadcast,
    ping, reqid, bad_frames, missing_fields, every_unicode_text, another_name, restart,
)  # fmt: skip


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.__name__)
def test_client_runs_every_exchange(use: Use, exchange: Callable[[Use], None]) -> None:
    exchange(use)


def test_clients_without_authentication_are_closed(request: pytest.FixtureRequest) -> None:
    """All clients wait at the same time, because the limit of a real bus is five seconds."""
    talks: list[Talk] = []
    missing: list[str] = []
    for name in CLIENTS:
        try:
            client: Client = request.getfixturevalue(name)
        except pytest.skip.Exception as why:
            missing.append(str(why))
        else:
            talks.append(Talk(client.open()))

    for talk in talks:
        assert fault(talk.read()) == ("auth.error", "Authentication timeout")
        assert talk.link.closed() == (4001, "Authentication timeout")
        talk.link.close()
    if missing:
        pytest.skip("; ".join(missing))


@pytest.mark.parametrize("name", ["python", "node"])
def test_token_in_the_authorization_header_is_accepted(
    request: pytest.FixtureRequest, bus: Bus, name: str
) -> None:
    use = Use(bus, request.getfixturevalue(name), name)

    talk = use.connect(Authorization=f"Bearer {bus.token}")

    assert talk.ask("ping") == {"type": "pong"}
    use.close()


# Origins


def test_page_of_another_origin_is_refused(bus: Bus) -> None:
    host, port = bus.address
    urls = (
        f"ws://{host}:{port}/ws",  # its Origin is another one
        f"ws://localhost:{port}/ws",
        f"ws://{FOREIGN}:{port}/ws",  # the name means this machine, but the bus does not have it
    )
    with opened_page(lambda: bus.address, FOREIGN) as foreign, opened_server() as open_to_all:
        foreign.client.open(open_to_all).close()  # the browser itself allows such a connection

        for url in (*urls, foreign.client.url):
            with pytest.raises(Refused):
                foreign.client.open(url)


def _drain(connection: ServerConnection) -> None:
    for _ in connection:
        pass


@contextmanager
def opened_server() -> Iterator[str]:
    """Start a WebSocket server that accepts every page. Yield its URL."""
    with serve(_drain, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host, port = server.socket.getsockname()
        yield f"ws://{host}:{port}"
        server.shutdown()
        thread.join(LIMIT_S)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://foreign.test"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "file://"}, 403),
    ],
)
@pytest.mark.parametrize("name", ["python", "node"])
def test_foreign_origin_header_is_refused(
    request: pytest.FixtureRequest, name: str, headers: dict[str, str], status: int
) -> None:
    client: Client = request.getfixturevalue(name)

    with pytest.raises(Refused) as refused:
        client.open(**headers)

    assert refused.value.status == status
