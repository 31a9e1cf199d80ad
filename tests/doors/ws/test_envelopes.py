"""Envelopes at every door: an envelope leaves as it came in, and a wrong one is refused by each of them."""

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.daemon.stage import Shell
from tests.daemon.wires import LinesWire
from tests.doors.ws.stage import Client, Stage
from tests.limits import LIMIT_S

import palaver
from palaver.protocol.envelope import Draft, Event

_NUMBERS = count()
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=10,
)
_WORDS = st.text("abcdefghijklmnop", min_size=1, max_size=8)
_TYPES = st.lists(_WORDS | st.just("größe") | st.just("日本"), min_size=1, max_size=3).map(
    lambda words: ".".join(["x", *words])
)
_IDS = st.text("abcXYZ019-_:./ é", min_size=1, max_size=12).map(lambda text: f"{text}{next(_NUMBERS)}")
_RECIPIENTS = st.sampled_from(
    [
        (),
        ("@all",),
        ("@workers",),
        ("@reader-*", "sdk-reader", "lines-reader"),
        ("@observers", "reader-ws", "reader-cli", "sdk-reader", "lines-reader"),
    ]
)
_ENVELOPES = st.builds(
    Draft,
    type=_TYPES,
    id=_IDS,
    sender=st.just(""),
    to=_RECIPIENTS,
    ts=st.integers(-(2**63), 2**63 - 1) | st.just(0),
    payload=st.dictionaries(_TEXTS, _VALUES, max_size=4),
)


class Doors:
    """One sender and one reader at each door."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.join("ws-sender", "cli-sender", "reader-ws", "reader-cli")
        self.sending = stage.client(stage.token("ws-sender"))
        self.listening = stage.client(stage.token("reader-ws"))
        self.listening.ok("msg.listen", agentId="reader-ws")
        self.lines = LinesWire(stage.home.path)
        self.lines.ask("join", name="lines-sender")
        self.mail = LinesWire(stage.home.path)
        self.mail.ask("join", name="lines-reader")
        self.mail.ask("listen")
        self.runner = asyncio.Runner()
        self.sdk = palaver.connect("sdk-sender", home=stage.home.path)
        self.reader = palaver.connect("sdk-reader", home=stage.home.path)
        self.got: asyncio.Queue[Draft] = asyncio.Queue()
        self.reader.on("*")(self.got.put)
        self.runner.run(self._open())

    async def _open(self) -> None:
        await self.sdk.__aenter__()
        await self.reader.__aenter__()
        self.handling = asyncio.create_task(self.reader.handle())

    async def _close(self) -> None:
        self.handling.cancel()
        await asyncio.wait([self.handling])
        await self.sdk.__aexit__(None, None, None)
        await self.reader.__aexit__(None, None, None)

    def close(self) -> None:
        self.runner.run(self._close())
        self.runner.close()
        self.lines.close()
        self.mail.close()

    def put(self, door: str, envelope: Draft) -> Draft:
        """Send an envelope at a door. Return it as it must leave."""
        sent = replace(envelope, sender=f"{door}-sender")
        match door:
            case "lines":
                self.lines.ask("put", envelope=json.loads(sent.to_json()))["ok"]
            case "ws":
                self.sending.ok("msg.put", envelope=json.loads(sent.to_json()))
            case "sdk":
                self.runner.run(self.sdk.put(sent))
            case _:
                to = [word for token in sent.to for word in ("--to", token)]
                (self.stage.home.path.parent / "p.json").write_text(json.dumps(sent.payload))
                payload = ("--file", "p.json") if sent.payload else ()
                shell = self.stage.shells["cli-sender"]
                reply = shell.ok("put", sent.type, *to, *payload, "--json").json
                # The command chooses the id and the time.
                around = ("--after", str(reply["seq"] - 1), "--before", str(reply["seq"] + 1))
                (event,) = _lines(self.stage.home.ok("events", *around, "--json").out)
                sent = replace(sent, id=reply["id"], ts=event["sent_ts"])
                assert sent.ts > 0
        return sent

    def leave(self, sent: Draft) -> dict[str, Draft]:
        """Return an envelope as it leaves at each door."""
        found = {"ws push": self._pushed(sent.id), "sdk handler": self.runner.run(self._handled(sent.id))}
        found["sdk events"] = self.runner.run(self.sdk.events(types=[sent.type], last=1))[0].envelope
        answer = self.lines.ask("events", types=[sent.type], last=1)["ok"]["events"][-1]
        found["lines events"] = self._event(json.dumps(answer)).envelope
        found["lines push"] = self._mailed(sent.id)
        printed = self.stage.home.ok("events", "--type", sent.type, "--last", "1", "--json").out
        found["cli events"] = self._event(printed).envelope
        letter = _lines(self.stage.shells["reader-cli"].ok("recv", "--json").out)[-1]
        found["cli recv"] = _flat(letter)
        return found

    def _pushed(self, id: str) -> Draft:
        while (frame := self.listening.next())["type"] != "msg.push" or frame["message"]["id"] != id:
            pass
        message = frame["message"]
        assert (message["command"], message["payload"]) == (
            message["envelope"]["type"],
            message["envelope"].get("payload", {}),
        )
        made = palaver.Envelope.from_json(json.dumps(message["envelope"]))
        assert isinstance(made, Draft)
        return made

    async def _handled(self, id: str) -> Draft:
        async with asyncio.timeout(LIMIT_S):
            while (envelope := await self.got.get()).id != id:
                pass
        return envelope

    def _mailed(self, id: str) -> Draft:
        while (line := self.mail.next_line()).get("push") != "message" or line["message"]["id"] != id:
            assert line
        self.mail.tell("ack", messages=[line["message"]["seq"]])
        return _flat(line["message"])

    def _event(self, line: str) -> Event:
        event = palaver.Envelope.from_json(line)
        assert isinstance(event, Event)
        return event


def _lines(out: str) -> list[dict[str, Any]]:
    """Parse lines of JSON. A payload may contain other characters that end a line in Python."""
    return [json.loads(line) for line in out.split("\n") if line]


def _flat(fields: dict[str, object]) -> Draft:
    """Return the envelope that a flat object has."""
    names = {"v": 1, "type": fields["type"], "id": fields["id"], "from": fields["from"], "to": fields["to"]}
    made = palaver.Envelope.from_json(
        json.dumps({**names, "ts": fields["sent_ts"], "payload": fields["payload"]})
    )
    assert isinstance(made, Draft)
    return made


@pytest.fixture
def doors(stage: Stage) -> Iterator[Doors]:
    made = Doors(stage)
    try:
        yield made
    finally:
        made.close()


def test_envelope_leaves_at_every_door_as_it_came_in_at_any(doors: Doors) -> None:
    @settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(_ENVELOPES, st.sampled_from(["lines", "sdk", "cli", "ws"]))
    def leaves_unchanged(envelope: Draft, door: str) -> None:
        sent = doors.put(door, envelope)

        left = doors.leave(sent)

        assert left == dict.fromkeys(left, sent)

    leaves_unchanged()


@pytest.mark.parametrize("door", ["lines", "sdk", "cli", "ws"])
def test_large_envelope_is_whole_at_every_door(doors: Doors, door: str) -> None:
    payload: dict[str, object] = {"text": "日" * 30_000}
    sent = doors.put(door, Draft(type="x.large", id="large", sender="", payload=payload))

    left = doors.leave(sent)

    assert left == dict.fromkeys(left, sent)


@pytest.fixture
def luna(stage: Stage) -> Client:
    """The connection of luna, which has a token for itself. There is another agent, nova."""
    stage.join("luna", "nova")
    return stage.client(stage.token("luna"))


def envelope(**fields: object) -> dict[str, object]:
    return {"v": 1, "type": "build.done", "id": "e1", "from": "luna", "to": ["nova"], **fields}


def test_put_returns_the_seq_and_the_recipients(luna: Client) -> None:
    first = luna.ok("msg.put", envelope=envelope(), reqId=7)
    again = luna.ok("msg.put", envelope=envelope(ts=9))
    other = luna.refused("msg.put", envelope=envelope(payload={"a": 1}))
    group = luna.ok("msg.put", envelope=envelope(id="e2", to=["@observers", "nova"]))

    assert (first["id"], first["deliveredTo"], first["reqId"]) == ("e1", ["nova"], 7)
    assert (again["seq"], again["deliveredTo"], again["repeat"]) == (first["seq"], ["nova"], True)
    assert other[0] == "id_taken"
    assert (group["emptyGroups"], group["deliveredTo"]) == (["@observers"], ["nova"])


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        (None, "bad_request", "envelope is required"),
        ("text", "bad_request", "envelope"),
        ({**envelope(), "v": 2}, "bad_request", "`v`"),
        (envelope(type=""), "bad_request", "`type`"),
        (envelope(id=""), "bad_request", "`id`"),
        (envelope(to="nova"), "bad_request", "to"),
        (envelope(ts="now"), "bad_request", "ts"),
        (envelope(payload=[1]), "bad_request", "payload"),
        (envelope(type="delivery"), "reserved_type", "delivery"),
        (envelope(to=["@nova"]), "unknown_recipient", "@nova"),
        ({**envelope(), "from": "nova"}, "not_you", "nova"),
        ({**envelope(), "from": "@luna"}, "not_you", "luna"),
    ],
)
def test_wrong_envelope_is_refused_and_not_stored(
    stage: Stage, luna: Client, wrong: object, code: str, named: str
) -> None:
    refused, sentence = luna.refused("msg.put", envelope=wrong)

    assert (refused, named in sentence) == (code, True), sentence
    assert stage.home.events("--type", "build.done") == []


def test_token_for_several_names_puts_in_each_of_them(stage: Stage) -> None:
    stage.join("luna", "nova")
    bridge = stage.client(stage.token("--acts-for", "luna,slack-bridge"))

    bridge.ok("msg.put", envelope=envelope())
    bridge.ok("msg.put", envelope={**envelope(), "from": "slack-bridge"})

    assert [event["from"] for event in stage.home.events("--type", "build.done")] == ["luna", "slack-bridge"]


@pytest.fixture
def shell(stage: Stage) -> Shell:
    stage.join("luna", "nova")
    return stage.shells["luna"]


def test_put_reads_the_payload_from_a_file_or_standard_input(stage: Stage, shell: Shell) -> None:
    (stage.home.path.parent / "m.json").write_text('{"a": 1}')

    shell.ok("put", "x.file", "--to", "nova", "--file", "m.json")
    shell.begin_script("echo '{\"b\": 2}' | pal put x.input --to nova --stdin").end()
    shell.ok("put", "x.none", "--to", "nova")

    found = {event["type"]: event.get("payload") for event in stage.home.events("--from", "luna")}
    assert (found["x.file"], found["x.input"], found["x.none"]) == ({"a": 1}, {"b": 2}, None)


def test_same_id_again_is_one_event_at_the_command_line(stage: Stage, shell: Shell) -> None:
    words = ("put", "x.y", "--to", "nova", "--id", "01hx9z00000000000000000000")

    first, again = shell.ok(*words), shell.ok(*words)
    taken = shell.pal(*words, "--payload", '{"a": 1}')

    (event,) = stage.home.events("--type", "x.y")
    assert event["id"] == "01HX9Z00000000000000000000"
    assert first.out == f"sent #{event['seq']} to nova\n"
    assert again.out == f"#{event['seq']} was sent before, to nova\n"
    assert (taken.status, "is taken" in taken.err) == (1, True), taken


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("x", "--payload", "[1]"), "object"),
        (("x", "--payload", "{"), "--payload"),
        (("x", "--id", "short"), "--id"),
        (("",), "type"),
        (("delivery",), "delivery"),
        (("x", "--to", "@nova"), "@nova"),
        (("x", "--payload", "{}", "--stdin"), "--stdin"),
    ],
)
def test_wrong_command_line_is_refused(
    stage: Stage, shell: Shell, words: tuple[str, ...], named: str
) -> None:
    before = len(stage.home.events())

    result = shell.pal("put", *words)

    assert result.status != 0
    assert named in result.err
    assert len(stage.home.events()) == before


def test_group_without_members_is_reported(shell: Shell) -> None:
    result = shell.ok("put", "x", "--to", "@observers")

    assert "to no agent" in result.out
    assert "@observers has no members now" in result.out
