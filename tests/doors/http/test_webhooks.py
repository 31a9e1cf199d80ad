"""Webhooks: their targets, bodies and rates, and the events that they become."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send
from tests.doors.http.test_gate import NoPage
from tests.fakes import START_MS, Bus, open_memory, opened_bus

from palaver.domain.paths import has_wildcard
from palaver.doors.http.app import LIMIT_BODY_BYTES, LIMIT_READING, HttpGate
from palaver.doors.http.webhooks import (
    LIMIT_A_MINUTE,
    WebhookRefusal,
    Webhooks,
    is_webhook_target,
    parse_payload,
    parse_target,
    refusal_from,
)
from palaver.doors.tcp_door import Address, allowed_names
from palaver.errors import DiskFull
from palaver.identity.accounts import SCHEMES, WEBHOOKS_FILE, TokenBook, WebhookBook
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
from palaver.protocol.message import MESSAGE
from palaver.protocol.query import Query
from palaver.services.paths import PathService
from palaver.services.queries import Queries

SECRET = b"the secret of the service"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
Pairs = list[tuple[str, str]]


async def never(scope: Scope, receive: Receive, send: Send) -> None:
    """Stand for the application after the gate, which no webhook reaches."""
    raise AssertionError(scope["path"])


def sign(content: bytes, secret: bytes = SECRET) -> str:
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


def proof(scheme: str, body: bytes, *, now_ms: int = START_MS, secret: bytes = SECRET) -> Pairs:
    """Return the headers with which a service proves its secret."""
    time = str(now_ms // 1000)
    return {
        "bearer": [("authorization", f"Bearer {secret.decode('latin-1')}")],
        "github": [("x-hub-signature-256", f"sha256={sign(body, secret)}")],
        "slack": [
            ("x-slack-request-timestamp", time),
            ("x-slack-signature", f"v0={sign(b'v0:' + time.encode() + b':' + body, secret)}"),
        ],
        "hmac-sha256": [("x-signature", sign(body, secret))],
    }[scheme]


@dataclass
class Response:
    """A response of the door."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    content: bytes = b""

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.content)
        return found

    @property
    def refusal(self) -> tuple[int, str]:
        assert self.fields.keys() == {"error", "message"}
        return self.status, self.fields["error"]


@dataclass
class Door:
    """The gate with webhooks of all schemes, on a bus in memory. The name of a service is its scheme."""

    bus: Bus
    book: WebhookBook
    gate: HttpGate

    async def post(
        self,
        path: str,
        body: bytes = b"{}",
        headers: Pairs | None = None,
        *,
        kind: str | None = JSON,
        method: str = "POST",
        pieces: list[bytes] | None = None,
    ) -> Response:
        """Send a request. Without headers it has the proof of the service in its path."""
        service = path.removeprefix("/in/").partition("/")[0]
        if headers is None:
            headers = proof(service, body, now_ms=self.bus.clock.now_ms())
        pairs = [("host", "localhost"), *headers, *([("content-type", kind)] if kind is not None else [])]
        parts = self._parts(pieces if pieces is not None else [body])
        response = Response()

        async def receive() -> Message:
            return next(parts)

        async def send(message: Message) -> None:
            response.status = message.get("status", response.status)
            response.headers |= dict(message.get("headers", []))
            response.content += message.get("body", b"")

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
        }
        await self.gate(scope, receive, send)
        return response

    @staticmethod
    def _parts(pieces: list[bytes]) -> Iterator[Message]:
        for at, piece in enumerate(pieces):
            yield {"type": "http.request", "body": piece, "more_body": at + 1 < len(pieces)}
        while True:
            yield {"type": "http.disconnect"}

    async def events(self) -> list[Event]:
        return list(await self.bus.log.read(Query(types=(MESSAGE,))))

    async def only(self) -> MessageSent:
        """Return the only stored message."""
        (event,) = await self.events()
        assert isinstance(event.body, MessageSent)
        return event.body


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


def gate_on(bus: Bus, book: WebhookBook, home: Path, **options: float) -> HttpGate:
    queries = Queries(bus.log)
    webhooks = Webhooks(book, PathService(bus.broker, queries, bus.delivery), queries, bus.clock)
    names = allowed_names(Address("127.0.0.1", 7420), "")
    return HttpGate(never, TokenBook(home, bus.clock), names, never, webhooks, NoPage(), **options)


@pytest.fixture
async def door(bus: Bus, tmp_path: Path) -> Door:
    book = WebhookBook(tmp_path, bus.clock)
    for scheme in SCHEMES:
        await book.put(scheme, scheme=scheme, secret=SECRET, by="human")
    return Door(bus, book, gate_on(bus, book, tmp_path))


# Events


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_webhook_becomes_a_message_to_its_path(door: Door, scheme: str) -> None:
    answer = await door.post(f"/in/{scheme}/builds/main", b'{"state": "red"}')

    (event,) = await door.events()
    message = await door.only()
    assert (answer.status, answer.fields) == (
        202,
        {"messageId": event.id, "delivered": False, "unmatched": True},
    )
    assert (event.sender, message.dead) == (f"webhook/{scheme}", (f"webhook/{scheme}/builds/main",))
    assert (message.command, message.payload) == ("message", {"state": "red"})
    assert (message.source, message.external_id, message.sender_kind) == ("webhook", None, "external")


async def test_subscriber_gets_the_message(door: Door) -> None:
    luna = await door.bus.join("luna")
    paths = PathService(door.bus.broker, Queries(door.bus.log), door.bus.delivery)
    await paths.subscribe(luna, "luna", "webhook/github/*")

    answer = await door.post("/in/github/push")

    assert answer.fields["delivered"]
    (message,) = await paths.receive(luna, "luna")
    assert (message.id, message.path) == (answer.fields["messageId"], "webhook/github/push")


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_wrong_or_missing_proof_is_refused(door: Door, scheme: str) -> None:
    body = b'{"a":1}'
    wrong = proof(scheme, body, secret=b"another secret of someone")

    answers = [
        await door.post(f"/in/{scheme}/x", body, headers) for headers in (wrong, [], proof(scheme, b""))
    ]

    is_signed = scheme != "bearer"
    assert [one.refusal for one in answers[: 2 + is_signed]] == [(401, "who_are_you")] * (2 + is_signed)
    assert answers[0].content == answers[1].content
    assert SECRET not in answers[0].content
    assert len(await door.events()) == (not is_signed)


async def test_signature_covers_the_raw_body(door: Door) -> None:
    body = b'{ "b" : 1.50 ,\r\n "a":"\\u00e9" }\n'
    encoded_again = msgspec.json.encode(msgspec.json.decode(body))
    assert encoded_again != body

    accepted = await door.post("/in/github/x", body)
    refused = await door.post("/in/github/x", body, proof("github", encoded_again))

    assert (accepted.status, refused.status) == (202, 401)
    assert (await door.only()).payload == {"b": 1.5, "a": "é"}


async def test_time_of_slack_is_compared_with_the_clock(door: Door) -> None:
    old = proof("slack", b"{}")
    door.bus.clock.advance(301)

    refused = await door.post("/in/slack/x", b"{}", old)
    accepted = await door.post("/in/slack/x")

    assert (refused.refusal, accepted.status) == ((401, "who_are_you"), 202)


async def test_event_of_github_is_the_command(door: Door) -> None:
    headers = [*proof("github", b"{}"), ("x-github-event", "pull_request"), ("x-github-delivery", "7f-1")]

    await door.post("/in/github/repo", headers=headers)

    message = await door.only()
    assert (message.command, message.external_id) == ("pull_request", "7f-1")


async def test_event_header_means_nothing_to_other_schemes(door: Door) -> None:
    headers = [*proof("bearer", b"{}"), ("x-github-event", "push"), ("x-github-delivery", "7f-1")]

    await door.post("/in/bearer/repo", headers=headers)

    message = await door.only()
    assert (message.command, message.external_id) == ("message", None)


# Repeats


async def test_repeated_delivery_is_one_event(door: Door) -> None:
    def headers(body: bytes) -> Pairs:
        return [*proof("github", body), ("x-github-delivery", "7f-1")]

    first = await door.post("/in/github/a", b'{"n":1}', headers(b'{"n":1}'))
    again = await door.post("/in/github/a", b'{"n":1}', headers(b'{"n":1}'))
    other_body = await door.post("/in/github/a", b'{"n":2}', headers(b'{"n":2}'))
    other_topic = await door.post("/in/github/b", b'{"n":1}', headers(b'{"n":1}'))

    assert first.status == 202
    for one in (again, other_body, other_topic):
        assert (one.status, one.fields) == (202, first.fields)
    assert (await door.only()).payload == {"n": 1}


async def test_repeat_with_another_body_reports_the_first_delivery(door: Door) -> None:
    luna = await door.bus.join("luna")
    paths = PathService(door.bus.broker, Queries(door.bus.log), door.bus.delivery)
    await paths.subscribe(luna, "luna", "webhook/**")
    body = b'{"event_id":"Ev1"}'

    first = await door.post("/in/slack/x", body)
    again = await door.post("/in/slack/x", b'{"event_id":"Ev1","more":1}')

    assert first.fields["delivered"]
    assert again.fields == first.fields


async def test_same_delivery_id_of_another_service_is_another_event(door: Door) -> None:
    for service in ("a", "b"):
        await door.book.put(service, scheme="bearer", secret=SECRET, by="human", id_header="X-Id")
        headers = [*proof("bearer", b"{}"), ("x-id", "1")]
        assert (await door.post(f"/in/{service}/x", headers=headers)).status == 202

    first, second = await door.events()
    assert (first.sender, second.sender) == ("webhook/a", "webhook/b")
    assert first.id != second.id


async def test_requests_without_a_delivery_id_are_all_stored(door: Door) -> None:
    for _ in range(2):
        assert (await door.post("/in/bearer/x")).status == 202

    assert len(await door.events()) == 2


async def test_header_of_the_delivery_id_can_be_chosen(door: Door) -> None:
    await door.book.put("github", scheme="github", secret=SECRET, by="human", id_header="X-Own-Id")
    headers = [*proof("github", b"{}"), ("x-github-delivery", "theirs"), ("x-own-id", "ours")]

    await door.post("/in/github/x", headers=headers)

    assert (await door.only()).external_id == "ours"


@pytest.mark.parametrize("value", ["a\tb", "\x85", "é", "x" * 256, "\x1b[2J"])
async def test_invisible_or_long_delivery_id_is_refused(door: Door, value: str) -> None:
    for name in ("x-github-delivery", "x-github-event"):
        answer = await door.post("/in/github/x", headers=[*proof("github", b"{}"), (name, value)])
        assert answer.refusal == (400, "bad_request")
    answer = await door.post("/in/slack/x", json.dumps({"event_id": value}).encode())
    assert answer.refusal == (400, "bad_request")

    assert await door.events() == []


@pytest.mark.parametrize("name", ["x-github-delivery", "x-github-event", "content-type", "content-encoding"])
async def test_header_that_is_there_twice_is_refused(door: Door, name: str) -> None:
    headers = [*proof("github", b"{}"), (name, "a"), (name, "b")]

    answer = await door.post("/in/github/x", headers=headers, kind=None)

    assert answer.refusal == (400, "bad_request")
    assert await door.events() == []


@pytest.mark.parametrize("event_id", [None, 7, ["Ev1"], ""])
async def test_event_id_that_is_no_text_is_no_delivery_id(door: Door, event_id: object) -> None:
    await door.post("/in/slack/x", json.dumps({"event_id": event_id}).encode())

    assert (await door.only()).external_id is None


# Slack


async def test_challenge_of_slack_is_answered_and_not_stored(door: Door) -> None:
    body = b'{"type":"url_verification","challenge":"3eZbrw1a","token":"x"}'

    answer = await door.post("/in/slack/events", body)
    refused = await door.post("/in/slack/events", body, [])

    assert (answer.status, answer.fields) == (200, {"challenge": "3eZbrw1a"})
    assert refused.status == 401
    assert await door.events() == []


async def test_challenge_is_an_ordinary_body_for_other_schemes(door: Door) -> None:
    answer = await door.post("/in/bearer/x", b'{"type":"url_verification","challenge":"3eZbrw1a"}')

    assert answer.status == 202
    assert (await door.only()).payload == {"type": "url_verification", "challenge": "3eZbrw1a"}


@pytest.mark.parametrize("body", [b"[]", b'{"type":"url_verification"}', b'{"challenge":"x"}'])
async def test_body_without_a_challenge_is_stored(door: Door, body: bytes) -> None:
    assert (await door.post("/in/slack/x", body)).status == 202

    assert len(await door.events()) == 1


# Bodies


@pytest.mark.parametrize(
    ("kind", "body", "payload"),
    [
        (JSON, b'{"a":1}', {"a": 1}),
        (JSON, b"[1,[2]]", [1, [2]]),
        (JSON, b"[]", []),
        (JSON, b'"text"', "text"),
        (JSON, b"7", 7),
        (JSON, b"true", True),
        ("Application/JSON; charset=utf-8", b"\xef\xbb\xbf{}", {}),
        ("application/vnd.api+json", b"[1]", [1]),
        ("application/cloudevents+json; charset=utf-8", b"[1]", [1]),
        (FORM, b"payload=%7B%22a%22%3A+1%7D", {"a": 1}),
        (FORM, b"payload=%5B1%5D", [1]),
        (FORM, b"payload=hello", {"payload": "hello"}),
        (FORM, b"payload=1&x=2", {"payload": "1", "x": "2"}),
        (FORM, b"payload=1&payload=2", {"payload": ["1", "2"]}),
        (FORM, b"a=1&b=x+y%21&a=&c", {"a": ["1", ""], "b": "x y!", "c": ""}),
        (f"{FORM};charset=UTF-8", "a=é".encode(), {"a": "é"}),
        (FORM, b"", {}),
        ("text/plain", b'{"a":1}', '{"a":1}'),
        ("text/plain; charset=utf-8", "grün\n".encode(), "grün\n"),
        ("text/html", b"<p>", "<p>"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        ("", b'{"a":1}', {"a": 1}),
        ("", b"[2]", [2]),
        ("", b"build 7 failed", "build 7 failed"),
        ("", b"", ""),
        ("", b"[" * 5000, "[" * 5000),
    ],
)
def test_body_is_json_a_form_or_text(kind: str, body: bytes, payload: object) -> None:
    assert parse_payload(kind, body) == payload


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (JSON, b"{", 400),
        (JSON, b"", 400),
        (JSON, b"{}{}", 400),
        (JSON, b"NaN", 400),
        (JSON, b'"\xff"', 400),
        (JSON, b'"\\ud800"', 400),
        (JSON, b"[" * 5000, 400),
        (FORM, b"a=%ff", 400),
        (FORM, b"a=\xff", 400),
        (FORM, b"a=1&" * 10_001, 400),
        ("text/plain", b"\xff", 400),
        ("", b"\xff", 400),
        ("text/plain; charset=latin-1", b"a", 415),
        (f'{FORM}; charset="utf-16"', b"a", 415),
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("multipart/mixed", b"", 415),
        ("application/octet-stream", b"{}", 415),
        ("image/png", b"", 415),
        ("json", b"{}", 415),
        ("application/json-seq", b"{}", 415),
    ],
)
def test_body_that_cannot_be_read_is_refused(kind: str, body: bytes, status: int) -> None:
    with pytest.raises(WebhookRefusal) as raised:
        parse_payload(kind, body)

    assert raised.value.reply.status == status


texts = st.text(st.characters(codec="utf-8"))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
).map(lambda value: json.loads(json.dumps(value)))


@given(values)
def test_every_json_value_is_a_payload(value: object) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()

    assert parse_payload(JSON, body) == value
    assert parse_payload("", body) == value
    assert parse_payload(FORM, urlencode({"payload": body}).encode()) == value


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))), min_size=2
    )
)
def test_form_keeps_all_its_fields(pairs: list[tuple[str, str]]) -> None:
    parsed = parse_payload(FORM, urlencode(pairs).encode())

    assert isinstance(parsed, dict)
    flat = [
        (name, one)
        for name, value in parsed.items()
        for one in ([value] if isinstance(value, str) else value)
    ]
    assert sorted(flat) == sorted(pairs)


@given(st.binary(max_size=100), st.sampled_from([JSON, FORM, "text/plain", "", "image/png", "multipart/x"]))
def test_any_body_is_a_payload_or_a_refusal(body: bytes, kind: str) -> None:
    try:
        outcome: object = msgspec.json.encode(parse_payload(kind, body))
    except WebhookRefusal as refusal:
        outcome = refusal.reply.status

    assert isinstance(outcome, bytes) or outcome in (400, 415)


async def test_bad_json_stores_nothing(door: Door) -> None:
    answer = await door.post("/in/github/x", b'{"a":')

    assert answer.refusal == (400, "bad_request")
    assert await door.events() == []


async def test_compressed_body_is_refused(door: Door) -> None:
    headers = [*proof("bearer", b"{}"), ("content-encoding", "gzip")]

    assert (await door.post("/in/bearer/x", headers=headers)).refusal == (415, "bad_request")


async def test_payload_that_nests_too_deep_is_refused(door: Door) -> None:
    answer = await door.post("/in/bearer/x", b"[" * 300 + b"]" * 300)

    assert answer.refusal == (400, "bad_request")


@pytest.mark.parametrize("byte", [b"x", b"\n", b"\x00", b'"'])
async def test_body_of_one_mebibyte_is_stored(door: Door, byte: bytes) -> None:
    body = byte * LIMIT_BODY_BYTES

    answer = await door.post("/in/hmac-sha256/x", body, kind="text/plain")

    assert answer.status == 202
    assert (await door.only()).payload == body.decode()


@pytest.mark.parametrize("is_declared", [True, False])
async def test_larger_body_is_refused(door: Door, is_declared: bool) -> None:
    piece = b"x" * (LIMIT_BODY_BYTES // 2 + 1)
    length = [("content-length", str(2 * len(piece)))] if is_declared else []

    answer = await door.post("/in/bearer/x", headers=[*proof("bearer", b""), *length], pieces=[piece, piece])

    assert answer.refusal == (413, "message_too_large")
    assert answer.headers[b"connection"] == b"close"
    assert await door.events() == []


async def test_body_in_several_pieces_is_one_body(door: Door) -> None:
    answer = await door.post("/in/github/x", b'{"a":[1]}', pieces=[b'{"a"', b"", b":[1]}"])

    assert answer.status == 202
    assert (await door.only()).payload == {"a": [1]}


async def test_body_of_a_client_that_disconnects_is_not_stored(door: Door) -> None:
    answer = await door.post("/in/bearer/x", pieces=[])

    assert answer.status == 0
    assert await door.events() == []


# Targets


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/in/github/push", "webhook/github/push"),
        (b"/in/github/org/repo/push", "webhook/github/org/repo/push"),
        (b"/in/slack/%23general", "webhook/slack/#general"),
        (b"/in/slack/a%20b", "webhook/slack/a b"),
        (b"/in/my-ci_2/gr%C3%BCn", "webhook/my-ci_2/grün"),
        (b"/in/x/a+b", "webhook/x/a+b"),
        (b"/in/x/agent", "webhook/x/agent"),
        (b"/in/x/...", "webhook/x/..."),
        (b"/in/x/100%25", "webhook/x/100%"),
    ],
)
def test_target_names_a_path_below_its_service(raw: bytes, path: str) -> None:
    assert parse_target(raw) == (path.split("/")[1], path)


BAD_TARGETS = [
    *("/in/*/x", "/in/github/*", "/in/github/**", "/in/github/a/**/b", "/in/github/a*", "/in/%2A/x"),
    *("/in/github/%2A", "/in/github/%2a%2a", "/in/github/a%2Fb", "/in/github/%2f", "/in/..%2fagent/x"),
    *("/in/../x", "/in/github/..", "/in/github/../../x", "/in/github/%2e%2e/x", "/in/github/./x"),
    *("/in/github/a//b", "/in//x", "/in/github/x/", "/in/github/%", "/in/github/%4", "/in/github/%zz"),
    *("/in/github/%u0041", "/in/github/%ff", "/in/github/%c0%af", "/in/github/%ed%a0%80"),
    *("/in/github/%00", "/in/github/%0a", "/in/github/%0d%0aX: y", "/in/github/%7f", "/in/github/%09"),
    *("/in/github/%e2%80%ae", "/in/github/%1b[2J", "/in/Github/x", "/in/git%68ub%00/x", "/in/-x/x"),
    "/in/github/" + "a" * 1100,
    "/in/github" + "/a" * 70,
]


@pytest.mark.parametrize("path", BAD_TARGETS)
async def test_bad_target_is_refused(door: Door, path: str) -> None:
    answer = await door.post(path, headers=proof("github", b"{}"))

    assert answer.refusal == (400, "bad_request")
    assert await door.events() == []


@pytest.mark.parametrize("path", ["/in", "/in/", "/in/github", "/in/github/", "/in/github//"])
async def test_target_without_a_topic_is_not_found(door: Door, path: str) -> None:
    assert (await door.post(path, headers=proof("github", b"{}"))).refusal == (404, "not_found")


async def test_unknown_service_is_not_found(door: Door) -> None:
    assert (await door.post("/in/gitlab/x", headers=[])).refusal == (404, "not_found")


def parsed(raw: bytes) -> tuple[str, str] | int:
    """Return the service and the path of a target, or the status of its refusal."""
    try:
        return parse_target(raw)
    except WebhookRefusal as refusal:
        return refusal.reply.status


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_target_is_literal_or_refused(topic: str) -> None:
    path = f"webhook/github/{topic}"

    found = parsed(f"/in/github/{quote(topic, safe='')}".encode())

    assert found == 400 or (found == ("github", path) and not has_wildcard(path))


@given(st.binary())
def test_any_target_is_below_its_service_or_refused(rest: bytes) -> None:
    found = parsed(b"/in/" + rest)

    assert is_webhook_target(b"/in/" + rest)
    if isinstance(found, int):
        assert found in (400, 404)
    else:
        service, path = found
        assert path.startswith(f"webhook/{service}/")
        assert "*" not in path
        assert path.isprintable()


@pytest.mark.parametrize(
    "raw", [b"", b"/", b"/inn/x/y", b"/mcp", b"/%69n/x/y", b"http://h/in/x/y", b"//in/x/y"]
)
def test_other_paths_are_no_webhooks(raw: bytes) -> None:
    assert not is_webhook_target(raw)


# Limits and refusals


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "post"])
async def test_only_post_is_accepted(door: Door, method: str) -> None:
    answer = await door.post("/in/github/x", method=method)

    assert answer.refusal == (405, "bad_request")
    assert answer.headers[b"allow"] == b"POST"


async def test_too_many_requests_of_a_service_are_refused(door: Door) -> None:
    body = b'{"event_id":"1"}'
    for _ in range(LIMIT_A_MINUTE // 2):
        assert (await door.post("/in/slack/x", body)).status == 202
    door.bus.clock.advance(20)
    for _ in range(LIMIT_A_MINUTE // 2):
        assert (await door.post("/in/slack/x", body)).status == 202

    refused = await door.post("/in/slack/x", body)
    other = await door.post("/in/bearer/x", body)
    door.bus.clock.advance(39.5)
    still = await door.post("/in/slack/x", body)
    door.bus.clock.advance(0.5)
    accepted = await door.post("/in/slack/x", body)

    assert (refused.refusal, refused.headers[b"retry-after"]) == ((429, "rate_limited"), b"40")
    assert (still.status, still.headers[b"retry-after"]) == (429, b"1")
    assert (other.status, accepted.status) == (202, 202)


async def test_requests_without_a_proof_do_not_use_up_the_rate(door: Door) -> None:
    for _ in range(LIMIT_A_MINUTE):
        assert (await door.post("/in/slack/x", headers=[])).status == 401

    assert (await door.post("/in/slack/x")).status == 202


@pytest.mark.parametrize(
    ("header", "refusal"),
    [(("host", "evil.com"), (421, "not_allowed")), (("origin", "http://evil.com"), (403, "not_allowed"))],
)
async def test_host_and_origin_are_checked(
    door: Door, header: tuple[str, str], refusal: tuple[int, str]
) -> None:
    # The first header of a name counts.
    scope_headers = [header, *proof("github", b"{}")]

    answer = await _post_first(door, scope_headers)

    assert answer.refusal == refusal
    assert await door.events() == []


async def _post_first(door: Door, headers: Pairs) -> Response:
    """Post with headers that come before the usual ones."""
    response = Response()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        response.status = message.get("status", response.status)
        response.content += message.get("body", b"")

    pairs = headers if headers[0][0] == "host" else [("host", "localhost"), *headers]
    raw = [(name.encode(), value.encode()) for name, value in pairs]
    scope = {"type": "http", "method": "POST", "path": "", "raw_path": b"/in/github/x", "headers": raw}
    await door.gate(scope, receive, send)
    return response


async def test_slow_body_is_refused(door: Door, tmp_path: Path) -> None:
    door.gate = gate_on(door.bus, door.book, tmp_path, limit_body_s=0)
    response = Response()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        response.status = message.get("status", response.status)
        response.content += message.get("body", b"")

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "raw_path": b"/in/github/x", "headers": headers}
    await door.gate(scope, receive, send)

    assert response.refusal == (408, "bad_request")


async def test_few_bodies_are_read_at_once(door: Door) -> None:
    reading = asyncio.Semaphore(0)
    may_end = asyncio.Event()
    body = b"{}"
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + SECRET)]
    scope = {"type": "http", "method": "POST", "raw_path": b"/in/bearer/x", "headers": headers}
    statuses: list[int] = []

    async def receive() -> Message:
        reading.release()
        await may_end.wait()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if "status" in message:
            statuses.append(message["status"])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(LIMIT_READING):
            tasks.create_task(door.gate(dict(scope), receive, send))
        for _ in range(LIMIT_READING):
            await reading.acquire()
        refused = await door.post("/in/bearer/x")
        may_end.set()

    assert refused.refusal == (503, "unavailable")
    assert statuses == [202] * LIMIT_READING
    assert (await door.post("/in/bearer/x")).status == 202


async def test_unreadable_secrets_refuse_every_webhook(door: Door, tmp_path: Path) -> None:
    (tmp_path / WEBHOOKS_FILE).write_bytes(b"{")
    gate = gate_on(door.bus, WebhookBook(tmp_path, door.bus.clock), tmp_path)

    answer = await Door(door.bus, door.book, gate).post("/in/github/x")

    assert answer.refusal == (503, "storage_failed")


async def test_webhook_removed_while_its_body_arrives_is_unknown(door: Door) -> None:
    response = Response()

    async def receive() -> Message:
        await door.book.remove("github")
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        response.status = message.get("status", response.status)
        response.content += message.get("body", b"")

    headers = [(b"host", b"localhost"), (b"x-hub-signature-256", f"sha256={sign(b'{}')}".encode())]
    scope = {"type": "http", "method": "POST", "raw_path": b"/in/github/x", "headers": headers}
    await door.gate(scope, receive, send)

    assert response.refusal == (404, "not_found")


def test_full_disk_asks_the_service_to_try_again() -> None:
    reply = refusal_from(DiskFull("the disk is full"))

    assert (reply.status, reply.fields) == (503, {"error": "disk_full", "message": "the disk is full"})


async def test_body_without_the_secret_of_the_header_is_not_read(door: Door) -> None:
    response = await door.post("/in/bearer/x", headers=[("authorization", "Bearer wrong")], pieces=[])

    assert response.refusal == (401, "who_are_you")
    assert await door.events() == []
