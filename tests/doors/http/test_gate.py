"""The HTTP gate: accepted requests, and the errors of refused ones."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.fakes import FakeClock, open_memory, opened_bus

from palaver.doors.http.app import LIMIT_BODY_BYTES, TOKEN, HttpGate
from palaver.doors.http.webhooks import Webhooks
from palaver.doors.tcp_door import Address, HttpReply, allowed_names
from palaver.identity.accounts import FILE_NAME, Token, TokenBook, WebhookBook
from palaver.services.paths import PathService
from palaver.services.queries import Queries

NAMES = allowed_names(Address("127.0.0.1", 7420), "")


@dataclass
class Inside:
    """An application that records its requests and returns success."""

    bodies: list[bytes] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        self.bodies.append(message["body"])
        self.tokens.append(scope[TOKEN])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class NoPage:
    """The page, which no request of these tests is for."""

    def refusal(self, scope: Scope) -> HttpReply | None:
        raise AssertionError("a request for the page")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("a request for the page")


@dataclass
class Visit:
    """One request and its response."""

    gate: HttpGate
    headers: dict[str, str]
    method: str = "POST"
    status: int = 0
    body: bytes = b""
    more: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Further headers, which may repeat a name."""

    async def pay(self, *pieces: bytes, is_cut: bool = False) -> "Visit":
        parts = self._parts(pieces, is_cut=is_cut)

        async def receive() -> Message:
            return next(parts)

        async def send(message: Message) -> None:
            self.status = message.get("status", self.status)
            self.body += message.get("body", b"")

        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        headers += self.more
        await self.gate({"type": "http", "method": self.method, "headers": headers}, receive, send)
        return self

    def _parts(self, pieces: tuple[bytes, ...], *, is_cut: bool) -> Iterator[Message]:
        for index, piece in enumerate(pieces):
            more = is_cut or index + 1 < len(pieces)
            yield {"type": "http.request", "body": piece, "more_body": more}
        while True:
            yield {"type": "http.disconnect"}

    @property
    def error(self) -> dict[str, str]:
        return msgspec.json.decode(self.body, type=dict[str, str])


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
async def webhooks(tmp_path: Path) -> AsyncIterator[Webhooks]:
    async with opened_bus(open_memory, tmp_path) as bus:
        queries = Queries(bus.log)
        paths = PathService(bus.broker, queries, bus.delivery)
        yield Webhooks(WebhookBook(tmp_path, bus.clock), paths, queries, bus.clock)


@pytest.fixture
async def secret(tmp_path: Path) -> str:
    made, _ = await TokenBook(tmp_path, FakeClock()).create("luna", standing="worker", by="human")
    return made


@pytest.fixture
def visit(inside: Inside, tmp_path: Path, secret: str, webhooks: Webhooks) -> Visit:
    """A request that is accepted."""
    headers = {
        "host": "127.0.0.1:7420",
        "authorization": f"Bearer {secret}",
        "content-type": "application/json; charset=utf-8",
    }
    return Visit(
        HttpGate(inside, TokenBook(tmp_path, FakeClock()), NAMES, inside, webhooks, NoPage()), headers
    )


async def test_token_is_accepted_and_identifies_the_caller(visit: Visit, inside: Inside) -> None:
    visit.headers["authorization"] = visit.headers["authorization"].replace("Bearer", "bearer")

    await visit.pay(b'{"a":', b"1}")

    assert visit.status == 200
    assert inside.bodies == [b'{"a":1}']
    assert [token.name for token in inside.tokens] == ["luna"]


@pytest.mark.parametrize("word", ["", "Bearer pal_wrong", "Basic bHVuYTo=", "Bearer", "Bearer \xff"])
async def test_request_without_a_valid_token_is_refused(visit: Visit, inside: Inside, word: str) -> None:
    visit.headers["authorization"] = word

    await visit.pay(b"{}")

    assert (visit.status, visit.error["error"]) == (401, "who_are_you")
    assert "Ask a person for a new one" in visit.error["message"]
    assert inside.bodies == []


@pytest.mark.parametrize("host", ["evil.com", "", "127.0.0.1.evil.com"])
async def test_foreign_host_is_refused_before_anything_else(visit: Visit, inside: Inside, host: str) -> None:
    visit.headers |= {"host": host, "authorization": ""}

    await visit.pay(b"{}")

    assert visit.status == 421
    assert visit.error["error"] == "not_allowed"
    assert inside.bodies == []


async def test_foreign_origin_is_refused_and_own_origin_is_accepted(visit: Visit) -> None:
    visit.headers["origin"] = "http://evil.com"
    refused = await visit.pay(b"{}")
    assert (refused.status, refused.error["error"]) == (403, "not_allowed")

    visit.headers["origin"] = f"http://{visit.headers['host']}"
    assert (await visit.pay(b"{}")).status == 200


async def test_foreign_origin_after_an_allowed_one_is_refused(visit: Visit) -> None:
    visit.more = [(b"origin", f"http://{visit.headers['host']}".encode()), (b"origin", b"http://evil.com")]

    refused = await visit.pay(b"{}")

    assert (refused.status, refused.error["error"]) == (403, "not_allowed")


async def test_origin_on_another_local_port_is_foreign(visit: Visit) -> None:
    visit.headers |= {"host": "localhost:7420", "origin": "http://localhost:3000"}

    refused = await visit.pay(b"{}")

    assert (refused.status, refused.error["error"]) == (403, "not_allowed")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
async def test_only_json_is_accepted(visit: Visit, kind: str) -> None:
    visit.headers["content-type"] = kind

    await visit.pay(b"{}")

    assert (visit.status, visit.error["error"]) == (415, "bad_request")


async def test_request_without_a_body_needs_no_content_type(visit: Visit) -> None:
    del visit.headers["content-type"]
    visit.method = "GET"

    assert (await visit.pay(b"")).status == 200


@pytest.mark.parametrize("length", [str(LIMIT_BODY_BYTES + 1), "9" * 30, "-1", "x", "\xb2"])
async def test_body_declared_too_large_is_not_read(visit: Visit, length: str) -> None:
    visit.headers["content-length"] = length

    await visit.pay()

    assert (visit.status, visit.error["error"]) == (413, "message_too_large")


async def test_body_that_grows_too_large_is_refused(visit: Visit, inside: Inside) -> None:
    half = b" " * (LIMIT_BODY_BYTES // 2 + 1)

    await visit.pay(half, half, half)

    assert visit.status == 413
    assert inside.bodies == []


async def test_partial_body_of_a_client_that_disconnects_is_dropped(visit: Visit, inside: Inside) -> None:
    await visit.pay(b"{", is_cut=True)

    assert (visit.status, inside.bodies) == (0, [])


async def test_unreadable_tokens_are_a_server_error(visit: Visit, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"{")

    await visit.pay(b"{}")

    assert (visit.status, visit.error["error"]) == (500, "storage_failed")
    assert inside.bodies == []


async def test_request_of_another_kind_is_ignored(inside: Inside, tmp_path: Path, webhooks: Webhooks) -> None:
    async def nobody(*_: object) -> Message:
        raise AssertionError

    gate = HttpGate(inside, TokenBook(tmp_path, FakeClock()), NAMES, inside, webhooks, NoPage())
    await gate({"type": "lifespan"}, nobody, nobody)  # type: ignore[arg-type]  # neither is used

    assert inside.bodies == []


async def test_token_of_a_person_is_refused(visit: Visit, inside: Inside, tmp_path: Path) -> None:
    secret, _ = await TokenBook(tmp_path, FakeClock()).create("ann", standing="guest", by="human")

    visit.headers["authorization"] = f"Bearer {secret}"

    await visit.pay(b"{}")

    assert (visit.status, visit.error["error"], inside.bodies) == (403, "who_are_you", [])
    assert "IRC only" in visit.error["message"]


async def test_token_for_several_agents_is_refused(visit: Visit, inside: Inside, tmp_path: Path) -> None:
    secret, _ = await TokenBook(tmp_path, FakeClock()).create(
        "", standing="worker", by="human", acts_for=("luna", "nova")
    )
    visit.headers["authorization"] = f"Bearer {secret}"

    await visit.pay(b"{}")

    assert (visit.status, visit.error["error"]) == (403, "who_are_you")
    assert inside.bodies == []
