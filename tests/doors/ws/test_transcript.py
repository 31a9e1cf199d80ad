"""The exchanges of the source, frame by frame, with a client that knows only its document.

Where Palaver decides otherwise:

- `messageIds` is missing: every copy of a message has the same id, which is `id` and `messageId`.
- `_deliveredTo` is missing: a push names its agent and session, and a reply repeats those of its request.
- Every error also has a `code`, and every push a `seq` and an `agentId`.
- A connection that listens twice gets a push once.
- `history` and `unmatched` return the newest message first. The source compared only times, and these
  messages were sent in one millisecond.
- A number as a frame, and an unknown type such as `toString` or `__proto__`, gets a clear error. So does
  `null`, which crashed the source.
- Dead letters have a `seq`.
"""

import json
from pathlib import Path
from typing import Any

from tests.doors.ws.stage import Client, Stage

VECTORS: dict[str, Any] = json.loads(Path("tests/vectors/websocket.json").read_text())
NEW = {"code", "seq", "messageId"}
"""Fields that replies and pushes have in addition."""
OLD = {"messageIds", "_deliveredTo"}
"""Fields of the source that do not exist any more."""


def like(value: Any) -> Any:
    """Return a reply of Palaver in the form of the recording: without ids and times."""
    if isinstance(value, list):
        return [like(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: like(one) for name, one in value.items() if name not in NEW}
    made |= {name: "<uuid>" for name in made if name == "id"}
    made |= {name: "<ms>" for name in made if name in ("timestamp", "addedAt")}
    if value.get("type") == "msg.push":
        del made["agentId"]
    return made


def recorded(value: Any) -> Any:
    """Return a reply of the recording without the fields that Palaver does not have."""
    if isinstance(value, list):
        return [recorded(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: recorded(one) for name, one in value.items() if name not in OLD | NEW}


def test_every_exchange_of_the_source_works(stage: Stage) -> None:
    stage.join("writer", "researcher")
    token = stage.token("--acts-for", "all")
    client = stage.open()
    for step in VECTORS["transcript"][:-1]:
        client = _follow(stage, client, step, token)


def _follow(stage: Stage, client: Client, step: dict[str, Any], token: str) -> Client:
    sent = step["send"]
    if isinstance(sent, dict) and sent.get("token") == "sekret":
        sent = {**sent, "token": token}
    client.send(sent)
    wanted = expected(step)
    found = [like(client.next()) for _ in wanted]
    assert found == wanted, step
    if step["closed"] is None:
        return client
    assert client.end() == tuple(step["closed"])
    return stage.open()


def expected(step: dict[str, Any]) -> list[Any]:
    """Return the replies of Palaver to one step: those of the source, or those that the design decides."""
    sent: Any = step["send"]
    wanted: list[Any] = recorded(step["replies"])
    kind = sent.get("type") if isinstance(sent, dict) else None
    if sent in ("null", "5"):
        return [{"type": "error", "error": "a frame must be a JSON object"}]
    if kind in ("toString", "__proto__"):
        return [{"type": "error", "error": f"Unknown message type: {kind}"}]
    if wanted[:1] == wanted[1:2]:  # two listeners of one connection
        return wanted[1:]
    if kind == "msg.history":
        wanted[0]["messages"][0]["command"] = "twice"
    if kind == "msg.unmatched":
        newest = {"from": "x", "path": "slack/a/b", "source": "external"}
        wanted[0]["messages"][0] |= newest
    return wanted


def test_listeners_end_with_their_connection(stage: Stage) -> None:
    """The last step of the recording: `listeners removed`."""
    stage.join("writer", "researcher")
    token = stage.token("--acts-for", "all")
    listener, writer = stage.client(token), stage.client(token)
    listener.ok("msg.listen", agentId="researcher")
    listener.socket.close()

    sent = writer.ok("msg.send", from_="writer", to="researcher")

    assert sent["message"]["deliveredTo"] == ["researcher"]
    assert writer.ask("ping") == {"type": "pong"}
