"""Pushes of a real daemon: once, in order, without a gap; and what listening does not do."""

import json
import socket
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from tests.daemon.stage import Home, check_output, run_as_person, wait_until
from tests.doors.ws.stage import Client, Stage
from websockets.frames import Frame, Opcode

BIG = "x" * 90_000


@pytest.fixture
def token(stage: Stage) -> str:
    """A token that acts for every agent. There are two: luna and nova."""
    stage.join("luna", "nova")
    return stage.token("--acts-for", "all")


@pytest.fixture
def listener(stage: Stage, token: str) -> Client:
    """A connection that listens to luna."""
    client = stage.client(token)
    client.ok("msg.listen", agentId="luna")
    return client


@pytest.fixture
def writer(stage: Stage, token: str) -> Client:
    return stage.client(token)


def send(writer: Client, *commands: object, to: str = "luna", payload: object = None) -> list[str]:
    """Send messages, and return their ids."""
    return [
        writer.ok("msg.send", from_="nova", to=to, command=str(one), payload=payload)["messageId"]
        for one in commands
    ]


def commands(client: Client, number: int) -> list[str]:
    """Return the commands of the next pushes."""
    return [client.next()["message"]["command"] for _ in range(number)]


def test_listener_of_an_agent_gets_nothing_of_a_person_who_takes_the_name(
    stage: Stage, listener: Client, writer: Client
) -> None:
    stage.join("zed")
    listener.ok("msg.listen", agentId="zed")
    stage.shells["zed"].ok("leave")
    check_output(run_as_person(stage.home, "agent", "register", "zed", "--person"))

    stage.home.ok("send", "@zed", "--", "only for the person")
    send(writer, "go")

    assert listener.next()["agentId"] == "luna"


def test_push_has_the_message_its_agent_and_its_seq(stage: Stage, listener: Client, writer: Client) -> None:
    (id,) = send(writer, "go", payload={"a": 1})

    push = listener.next()

    (event,) = stage.home.events("--type", "message")
    assert push == {
        "type": "msg.push",
        "agentId": "luna",
        "seq": event["seq"],
        "message": {
            "id": id,
            "from": "nova",
            "path": "agent/luna",
            "command": "go",
            "payload": {"a": 1},
            "status": "pending",
            "timestamp": event["ts"],
            "source": "internal",
            "externalId": None,
            "handled": False,
        },
    }


def test_text_of_another_door_is_pushed_as_a_message(stage: Stage, listener: Client) -> None:
    stage.shells["nova"].ok("send", "luna", "--thread", "t", "--intent", "request", "--", "hello")

    message = listener.next()["message"]

    assert (message["command"], message["payload"]) == ("message", {"text": "hello"})
    assert (message["thread"], message["intent"]) == ("t", "request")


def test_push_comes_once_however_often_a_connection_listens(listener: Client, writer: Client) -> None:
    for _ in range(3):
        listener.ok("msg.listen", agentId="luna")

    send(writer, "one", "two")

    assert commands(listener, 2) == ["one", "two"]
    assert listener.ask("ping") == {"type": "pong"}


def test_every_connection_gets_its_own_push(stage: Stage, token: str, writer: Client) -> None:
    listeners = [stage.client(token) for _ in range(5)]
    for client in listeners:
        client.ok("msg.listen", agentId="luna")

    send(writer, "one")

    assert [commands(client, 1) for client in listeners] == [["one"]] * 5


def test_listening_ends_on_request(listener: Client, writer: Client) -> None:
    assert listener.ok("msg.unlisten", agentId="luna") == {"type": "msg.unlisten.ok", "agentId": "luna"}
    listener.ok("msg.unlisten", agentId="luna")

    send(writer, "one")

    assert listener.ask("ping") == {"type": "pong"}


def test_session_is_pushed_before_its_agent(stage: Stage, listener: Client, writer: Client) -> None:
    listener.ok("msg.session.listen", agentId="luna", sessionId="mon")
    listener.ok("msg.session.sub.add", agentId="luna", sessionId="mon", pattern="slack/**")

    writer.ok("msg.route", from_="nova", path="slack/a")

    first, second = listener.next(), listener.next()
    assert (first["type"], first["agentId"], first["sessionId"]) == ("msg.session.push", "luna", "mon")
    assert "handled" not in first["message"]
    assert (second["type"], second["agentId"]) == ("msg.push", "luna")
    assert second["message"]["handledBy"] == [{"agentId": "luna", "sessionId": "mon"}]
    assert first["seq"] == second["seq"]
    listener.ok("msg.unlisten", agentId="luna", sessionId="mon")
    writer.ok("msg.route", from_="nova", path="slack/b")
    assert listener.next()["type"] == "msg.push"
    assert listener.ask("ping") == {"type": "pong"}


def test_push_changes_nothing_in_the_ledger(stage: Stage, listener: Client, writer: Client) -> None:
    (id,) = send(writer, "one")
    listener.next()

    assert stage.home.events("--type", "delivery") == []
    assert [one["id"] for one in writer.ok("msg.receive", agentId="luna")["messages"]] == [id]


def test_listening_makes_no_agent_present_and_ends_without_a_goodbye(stage: Stage, token: str) -> None:
    stage.join("orla")
    stage.shells["orla"].close()
    wait_until(lambda: stage.home.events("--type", "agent.bye") != [])
    client = stage.client(token)
    absent = _agent(stage.home, "orla")
    before = stage.home.events()

    client.ok("msg.listen", agentId="orla")

    assert _agent(stage.home, "orla") == absent
    sent = client.ok("msg.broadcast", from_="nova")
    assert "orla" not in sent["message"]["deliveredTo"]
    client.socket.close()
    assert [event["type"] for event in stage.home.events()[len(before) :]] == ["message"]


def _agent(home: Home, name: str) -> dict[str, Any]:
    (found,) = (one for one in home.ok("list", "-v", "--json").lines if one["name"] == name)
    return found


# Continue from a seq


def test_everything_after_a_seq_is_replayed_and_then_pushed(stage: Stage, token: str, writer: Client) -> None:
    send(writer, *range(300))
    seqs = [event["seq"] for event in stage.home.events("--type", "message")]
    client = stage.client(token)

    client.ok("msg.listen", agentId="luna", after=seqs[49])
    send(writer, "new")

    assert commands(client, 251) == [*map(str, range(50, 300)), "new"]
    assert client.ask("ping") == {"type": "pong"}


def test_messages_sent_during_a_replay_follow_it_once(stage: Stage, token: str, writer: Client) -> None:
    numbers = count()
    send(writer, *(next(numbers) for _ in range(250)))
    clients = [stage.client(token) for _ in range(4)]

    for client in clients:
        client.send({"type": "msg.listen", "agentId": "luna", "after": 0})
        send(writer, *(next(numbers) for _ in range(20)))

    wanted = [str(number) for number in range(next(numbers))]
    for client in clients:
        assert client.next()["type"] == "msg.listen.ok"
        assert commands(client, len(wanted)) == wanted
        assert client.ask("ping") == {"type": "pong"}


def test_replayed_message_has_its_present_status(stage: Stage, token: str, writer: Client) -> None:
    send(writer, "one", "two")
    writer.ok("msg.receive", agentId="luna", options={"limit": 1})
    client = stage.client(token)

    client.ok("msg.listen", agentId="luna", after=0)

    assert [client.next()["message"]["status"] for _ in range(2)] == ["delivered", "pending"]


def test_archived_messages_are_replayed(stage: Stage, token: str, writer: Client) -> None:
    send(writer, "one", "two")
    seq = stage.home.events()[-1]["seq"]
    check_output(run_as_person(stage.home, "archive", "--before", str(seq + 1)))
    send(writer, "three")
    client = stage.client(token)

    client.ok("msg.listen", agentId="luna", after=0)

    assert commands(client, 3) == ["one", "two", "three"]


def test_listening_again_from_a_seq_repeats_what_follows_it(listener: Client, writer: Client) -> None:
    send(writer, "one", "two")
    first = listener.next()
    listener.next()

    listener.ok("msg.listen", agentId="luna", after=first["seq"])
    send(writer, "three")

    assert commands(listener, 2) == ["two", "three"]


def test_seq_of_the_future_replays_nothing(listener: Client, writer: Client) -> None:
    listener.ok("msg.listen", agentId="luna", after=10**9)

    send(writer, "one")

    assert commands(listener, 1) == ["one"]


def test_client_continues_after_a_restart(stage: Stage, listener: Client, writer: Client, token: str) -> None:
    send(writer, "one", "two")
    seq = listener.next()["seq"]
    stage.home.kill()
    stage.home.ok("up")
    client = stage.client(token)

    client.ok("msg.listen", agentId="luna", after=seq)

    assert commands(client, 1) == ["two"]


# Slow clients


def test_slow_client_is_disconnected_and_loses_nothing(stage: Stage, token: str, writer: Client) -> None:
    slow, others = _small_client(stage, token), [stage.client(token) for _ in range(5)]
    for client in (slow, *others):
        client.ok("msg.listen", agentId="luna")
    total = 150

    for number in range(total):
        send(writer, number, payload=BIG)
        assert [commands(client, 1) for client in others] == [[str(number)]] * 5

    seen = slow.rest()
    code, reason = slow.end()
    assert code == 4008
    seq = int(reason.removeprefix("too slow; continue with after "))
    assert [one["message"]["command"] for one in seen] == [str(number) for number in range(len(seen))]
    assert len(seen) < total
    assert seen[-1]["seq"] <= seq

    again = stage.client(token)
    again.ok("msg.listen", agentId="luna", after=seq)
    rest = commands(again, total - len(seen))
    assert rest == [str(number) for number in range(len(seen), total)]


def _small_client(stage: Stage, token: str) -> Client:
    """Open a connection whose system keeps little for a client that does not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    made.connect(stage.address)
    client = stage.open(sock=made, max_queue=1)
    client.ok("auth", token=token)
    return client


def test_client_that_sends_and_never_reads_is_not_read_from_either(stage: Stage, token: str) -> None:
    deaf = _small_client(stage, token)
    other = stage.client(token)
    big = {"type": "msg.history", "agentId": "luna", "options": {"limit": 1000}}
    for _ in range(20):
        other.ok("msg.send", from_="nova", to="luna", payload=BIG)

    deaf.socket.socket.setblocking(False)
    with suppress(BlockingIOError):  # The system has taken as much as it can keep for the daemon.
        while True:
            deaf.socket.socket.send(_masked(json.dumps(big)) * 100)

    assert other.ask("ping") == {"type": "pong"}


def _masked(text: str) -> bytes:
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=True)
