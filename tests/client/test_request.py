"""Requests: the daemon reads what the SDK writes, defaults and all."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.client import request as requests
from palaver.client.request import Request, Send, request_to_json
from palaver.doors.lines_wire import LaneOp, op_from_json
from palaver.errors import BadText, MessageTooLarge
from palaver.model.last_report import Outcome
from palaver.model.text import LIMIT_FRAME_BYTES

EXAMPLES = [
    requests.Join(),
    requests.Join(
        name="luna", tag="api", role="observer", harness="x", runtime="python", version="1", secret="s"
    ),
    requests.Leave(),
    requests.Send(text="hello"),
    requests.Send(
        text="hello",
        to=("@nova", "#room"),
        mentions=True,
        intent="request",
        thread="pr-123",
        reply_to="42",
        priority="idle",
        expires_ms=10,
        id="01",
        bundle_id="bundle:0123",
        yes=True,
        dry_run=True,
        expects_reply=True,
    ),
    requests.Listen(),
    requests.Ack(messages=(1, 2)),
    requests.Status(state="active"),
    requests.Status(state="active", detail="testing"),
    requests.Events(),
    requests.Events(
        types=("a",), agents=("b",), senders=("c",), threads=("d",), after=1, last=2, search="w", limit=3
    ),
    requests.Events(after=7, follow=True),
    requests.ListAgents(),
    requests.Receipts(message="42"),
    requests.Whoami(),
    requests.CallTool(tool="join_path", arguments={"context_path": "/src"}, cwd="/src", key="ab" * 16),
    requests.Leave(reason="exited with 0"),
    requests.Hold(pid=7),
    requests.Hold(pid=7, name="luna", ticket="t", secret="s", cols=80, rows=24, version="1"),
    requests.Accompany(harness="opencode", session="ses_1"),
    requests.Accompany(harness="opencode", session="ses_1", cwd="/src", version="1"),
    requests.Permission(request="per_1"),
    requests.Permission(
        request="per_1", name="luna", session="ses_1", tool="bash", input={"command": "x"}, outcome="gone"
    ),
    requests.Lane(kind="terminal"),
    requests.Lane(kind="terminal", reaches_busy=False, wakes_idle=False),
    requests.Gate(lane=1, open=True),
    requests.Gate(lane=1, open=False, paused=True, reason="dialog"),
    requests.Answer(lane=1, offer=2, answer="seen"),
    requests.Answer(lane=1, offer=2, answer="refused", grade="handed", reason="r", evidence="e"),
    requests.Typed(text="blue"),
    requests.SubBegin(key="a1"),
    requests.SubBegin(key="a1", name="luna", type="reviewer"),
    requests.SubEnd(key="a1", name="luna", reason="done"),
    requests.Tell(ask=3),
    requests.Tell(ask=3, ok={"text": "$ "}, error="bad_request", message="no", done=False),
]


@pytest.mark.parametrize("request_", EXAMPLES, ids=lambda one: type(one).__name__)
def test_the_daemon_reads_every_field_that_the_sdk_means(request_: Request) -> None:
    op = op_from_json(request_to_json(7, request_))

    assert op.req == 7
    for name, value in msgspec.structs.asdict(request_).items():
        assert getattr(op, name) == value


def test_there_is_an_example_of_every_request() -> None:
    kinds = {kind for kind in vars(requests).values() if isinstance(kind, type) and issubclass(kind, Request)}

    assert kinds - {Request, requests.Put} == {type(example) for example in EXAMPLES}


def test_an_envelope_is_put_as_it_is() -> None:
    line = request_to_json(1, requests.Put(envelope=msgspec.Raw(b'{"v":1}')))

    assert line == b'{"req":1,"op":"put","envelope":{"v":1}}'


@given(st.text(), st.lists(st.text()))
def test_a_text_survives_the_line(text: str, to: list[str]) -> None:
    line = request_to_json(1, Send(text=text, to=tuple(to)))

    read = json.loads(line)
    assert b"\n" not in line
    assert (read["text"], read.get("to", [])) == (text, to)


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(BadText) as raised:
        request_to_json(1, Send(text="ab\ud800"))

    assert (raised.value.codepoint, raised.value.position) == (0xD800, 2)


def test_a_line_that_the_daemon_would_not_read_is_refused() -> None:
    with pytest.raises(MessageTooLarge) as raised:
        request_to_json(1, Send(text="x" * LIMIT_FRAME_BYTES))

    assert raised.value.limit_bytes == LIMIT_FRAME_BYTES


def test_the_daemon_reads_what_a_holder_remembers_of_before() -> None:
    outcome = Outcome(messages=(1, 2), answer="seen", grade="handed")

    op = op_from_json(request_to_json(1, requests.Lane(kind="terminal", outcomes=(outcome,))))

    assert isinstance(op, LaneOp)
    assert [(one.messages, one.answer, one.grade) for one in op.outcomes] == [((1, 2), "seen", "handed")]
