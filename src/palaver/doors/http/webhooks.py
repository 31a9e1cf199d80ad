"""Webhooks at `/in/<service>/<topic>`: check a request with the secret of its service, and route its body.

The gate in `app.py` has checked the host, the origin and the size of a request, and has read its body. A
service is an external sender: it has no token, no agent and no mailbox. It reaches only literal paths below
`webhook/<service>/`.
"""

import asyncio
import codecs
import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from palaver.clock import Clock
from palaver.doors.tcp_door import HttpReply
from palaver.errors import BadRequest, IdTaken, MessageTooLarge, PalaverError, RequestError, Unavailable
from palaver.identity.accounts import RawHeaders, Webhook, WebhookBook, check_service, is_authentic
from palaver.ids import derived_id
from palaver.protocol.address import ONE, check_path
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.message import EXTERNAL
from palaver.protocol.paths import DEFAULT_COMMAND, WEBHOOK, Content, delivered_of
from palaver.protocol.text import LIMIT_WEBHOOK_BYTES
from palaver.services.paths import PathService
from palaver.services.queries import Queries

LIMIT_A_MINUTE: Final = 600
"""Authentic requests of one service in a minute. More get a 429."""
_LARGE_BYTES: Final = 64 * 1024
"""A larger body is parsed in a thread."""
_ID_HEADERS: Final = {"github": "x-github-delivery"}
"""The header with the id of a delivery, for the schemes that have one."""
_GITHUB_EVENT: Final = "x-github-event"
BEARER: Final = "bearer"
_PROOFS: Final = {
    BEARER: "send 'Authorization: Bearer SECRET' with its secret",
    "github": "sign the body with its secret, in the header X-Hub-Signature-256",
    "slack": "sign the time and the body with its secret, in the header X-Slack-Signature; the time in "
    "X-Slack-Request-Timestamp must be within five minutes of now",
    "hmac-sha256": "sign the body with its secret, in the header X-Signature-256",
}
"""The proof of each scheme. A refusal does not say which part of it is wrong."""


class WebhookRefusal(Exception):
    """A request that is refused: its status, its code and a sentence."""

    def __init__(self, status: int, code: str, sentence: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(status, code, sentence)
        self.reply = HttpReply(
            status=status, fields={"error": code, "message": sentence}, headers=tuple(headers)
        )


def refusal_from(error: PalaverError) -> HttpReply:
    """Return the reply to a request that the bus refused."""
    status = 413 if isinstance(error, MessageTooLarge) else 400
    return WebhookRefusal(503 if isinstance(error, Unavailable) else status, error.code, str(error)).reply


# --------------------
# The target of a request: the service and the path. Pure.

_PREFIX: Final = b"/in/"
_SEGMENT: Final = re.compile(rb"(?:[!-$&-.0-~]|%[0-9A-Fa-f]{2})+")
"""Visible ASCII characters except the slash; every percent sign begins the code of a byte."""


def is_webhook_target(raw_path: bytes) -> bool:
    """Return whether a request is for a webhook, valid or not."""
    return raw_path.startswith(_PREFIX) or raw_path == _PREFIX[:-1]


def parse_target(raw_path: bytes) -> tuple[str, str]:
    """Return the service and the path of a request, from the path of its URL as it was sent.

    Raises WebhookRefusal. The result never contains a wildcard.
    """
    service, *topic = raw_path[len(_PREFIX) :].split(b"/")
    if not any(topic):
        raise WebhookRefusal(404, "not_found", "a webhook is at /in/SERVICE/TOPIC; this URL has no topic")
    try:
        words = [_parse_segment(segment) for segment in (service, *topic)]
        return check_service(words[0]), check_path("/".join((WEBHOOK, *words)))
    except RequestError as error:
        raise WebhookRefusal(400, BadRequest.code, str(error)) from None


def _parse_segment(raw: bytes) -> str:
    try:
        segment = unquote_to_bytes(raw).decode() if _SEGMENT.fullmatch(raw) else ""
    except UnicodeDecodeError:
        segment = ""
    if not segment:
        raise BadRequest("a part of the path is empty, or its percent encoding is not valid UTF-8")
    if ONE in segment or "/" in segment or segment in (".", "..") or not segment.isprintable():
        raise BadRequest(
            "no part of the path may be '.' or '..', or contain a star, a slash or an invisible character"
        )
    return segment


# --------------------
# The body of a request as a payload. Pure.

_LIMIT_FIELDS: Final = 10_000
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = re.compile(r"application/json|[a-z]+/[^/]+\+json")
_TEXT: Final = re.compile(r"text/[^/]+|application/xml|[a-z]+/[^/]+\+xml")
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]*)", re.IGNORECASE)
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_NOT_UTF_8: Final = "the body is not valid UTF-8; nothing was stored"
_decode: Final = msgspec.json.Decoder().decode


def parse_payload(content_type: str, body: bytes) -> object:
    """Return the payload of a body: a JSON value, an object of the fields of a form, or a text.

    Raises WebhookRefusal.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if _JSON.fullmatch(kind):
        try:
            return _decoded(body)
        except ValueError as error:
            why = str(error).removeprefix("JSON is malformed: ")
            raise WebhookRefusal(400, BadRequest.code, f"the body is not JSON: {why}") from None
    is_text = _TEXT.fullmatch(kind) is not None
    charset = _CHARSET.search(content_type)
    if not (is_text or kind in ("", _FORM)) or (charset and charset[1].lower() not in _CHARSETS):
        sentence = "the body must be JSON, a form (not multipart) or a text, in UTF-8: see its Content-Type"
        raise WebhookRefusal(415, BadRequest.code, sentence)
    try:
        # The codec drops the byte order mark, which some programs write before every text.
        text = body.decode("utf-8-sig")
        if kind == _FORM:
            return _parse_form(text)
        return text if is_text else _decoded(body)
    except UnicodeDecodeError:
        raise WebhookRefusal(400, BadRequest.code, _NOT_UTF_8) from None
    except ValueError:
        return text  # without a type, and not JSON


def _decoded(body: bytes) -> object:
    """Return a JSON value. Raises ValueError."""
    try:
        # JSON may not begin with this mark, but some programs write it before every text.
        return _decode(body.removeprefix(codecs.BOM_UTF8))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _parse_form(text: str) -> object:
    """Return the fields of a form. A form with only the field `payload` is the JSON value in it."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_LIMIT_FIELDS)
    except UnicodeDecodeError:
        raise  # it is a ValueError too, but says nothing about the number of fields
    except ValueError:
        sentence = f"a form has at most {_LIMIT_FIELDS} fields"
        raise WebhookRefusal(400, BadRequest.code, sentence) from None
    # GitHub and Slack can send their JSON in this way.
    if len(pairs) == 1 and pairs[0][0] == "payload":
        try:
            return _decoded(pairs[0][1].encode())
        except ValueError:
            pass  # an ordinary field of this name
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


# --------------------
# The rate of the requests of each service.


@dataclass(slots=True)
class RequestRates:
    """The authentic requests of each service in the last minute, in memory."""

    clock: Clock
    _times: dict[str, deque[float]] = field(default_factory=dict)

    def wait_s(self, service: str) -> int:
        """Count one request and return 0. Above the limit, return the seconds until the next one may come."""
        # Monotonic, so that a change of the clock neither extends the wait nor ends the limit.
        times, now_s = self._times.setdefault(service, deque()), self.clock.monotonic_s()
        while times and times[0] <= now_s - 60:
            times.popleft()
        if len(times) >= LIMIT_A_MINUTE:
            return max(1, math.ceil(times[0] + 60 - now_s))
        times.append(now_s)
        return 0


# --------------------
# The webhooks: one request in, one event and its reply out.

_VISIBLE: Final = re.compile(r"[ -~]{1,255}")


class Webhooks:
    """The handler of all webhooks. `refusal` is asked before the body is read."""

    def __init__(self, book: WebhookBook, paths: PathService, queries: Queries, clock: Clock) -> None:
        self._book = book
        self._paths = paths
        self._queries = queries
        self._clock = clock
        self._rates = RequestRates(clock)

    def refusal(self, method: str, raw_path: bytes, headers: RawHeaders) -> HttpReply | None:
        """Refuse a request by its method, target and headers; None if its body is wanted.

        A secret in a header is checked already here, so that no one without it can keep others from sending.
        """
        if method != "POST":
            sentence = "a webhook accepts only POST"
            return WebhookRefusal(405, BadRequest.code, sentence, (b"allow", b"POST")).reply
        try:
            webhook = self._find(parse_target(raw_path)[0])
            if webhook.scheme == BEARER:
                self._check_proof(webhook, headers, b"")
        except WebhookRefusal as refusal:
            return refusal.reply
        except PalaverError as error:
            return refusal_from(error)
        return None

    async def receive(self, raw_path: bytes, headers: RawHeaders, body: bytes) -> HttpReply:
        """Check a request and route it. The reply is made when the event is durable."""
        try:
            service, path = parse_target(raw_path)
            return await self._route(self._find(service), path, headers, body)
        except WebhookRefusal as refusal:
            return refusal.reply
        except PalaverError as error:
            return refusal_from(error)

    def _find(self, service: str) -> Webhook:
        webhook = self._book.find(service)
        if webhook is None:
            sentence = f"there is no webhook {service} here; a person must add it first"
            raise WebhookRefusal(404, "not_found", sentence)
        return webhook

    def _check_proof(self, webhook: Webhook, headers: RawHeaders, body: bytes) -> None:
        if not is_authentic(webhook, headers, body, self._clock.now_ms()):
            sentence = f"this is not a request of the webhook {webhook.service}: {_PROOFS[webhook.scheme]}"
            raise WebhookRefusal(401, "who_are_you", sentence)

    async def _route(self, webhook: Webhook, path: str, headers: RawHeaders, body: bytes) -> HttpReply:
        # The proof comes first: other requests must not use up the rate of the service.
        self._check_proof(webhook, headers, body)
        if wait_s := self._rates.wait_s(webhook.service):  # only known services are counted, so few
            raise WebhookRefusal(
                429,
                "rate_limited",
                f"a webhook sends at most {LIMIT_A_MINUTE} requests a minute; try again in {wait_s} s",
                (b"retry-after", str(wait_s).encode()),
            )
        # Unpacked, a small body could have any size.
        if _header(headers, "content-encoding").lower() not in ("", "identity"):
            raise WebhookRefusal(415, BadRequest.code, "the body must not be compressed")
        content_type = _header(headers, "content-type")
        if len(body) > _LARGE_BYTES:
            payload = await asyncio.to_thread(parse_payload, content_type, body)
        else:
            payload = parse_payload(content_type, body)
        if (challenge := _challenge(webhook, payload)) is not None:
            return HttpReply(status=200, fields={"challenge": challenge})
        content = Content(
            command=_command(webhook, headers),
            payload=payload,
            source=WEBHOOK,
            external_id=_delivery_id(webhook, headers, payload),
            limit_bytes=LIMIT_WEBHOOK_BYTES,
        )
        return await self._store(webhook, path, content)

    async def _store(self, webhook: Webhook, path: str, content: Content) -> HttpReply:
        """Write the event, or find the one of an earlier delivery with the same id."""
        delivery = content.external_id
        # Derived, so that the log itself finds a repeat, also after a restart. The service is part of it,
        # because two services may use the same id.
        id_ = derived_id(WEBHOOK, webhook.service, delivery) if delivery else ""
        # The lowest standing that can send.
        caller = Caller(name=webhook.sender, standing=Standing.GUEST, kind=EXTERNAL)
        try:
            sent = await self._paths.route(caller, path, content, id=id_)
        except IdTaken as taken:  # The same delivery with another body or topic: the first one counts.
            first = await self._queries.fetch(taken.seq)
            return _accepted(taken.id, is_delivered=first is not None and delivered_of(first) is not None)
        return _accepted(sent.result.message_id, is_delivered=sent.result.delivered)


def _accepted(id_: str, *, is_delivered: bool) -> HttpReply:
    fields = {"messageId": id_, "delivered": is_delivered, "unmatched": not is_delivered}
    return HttpReply(status=202, fields=fields)


class _SlackBody(msgspec.Struct, frozen=True):
    """The fields of a body of Slack that are read here. Any of them may be missing or of another type."""

    type: object = None
    challenge: object = None
    event_id: object = None


def _slack_body(webhook: Webhook, payload: object) -> _SlackBody:
    """Return the fields of a body of Slack; empty ones for another scheme."""
    if webhook.scheme != "slack" or not isinstance(payload, dict):
        return _SlackBody()
    return msgspec.convert(payload, _SlackBody)


def _challenge(webhook: Webhook, payload: object) -> str | None:
    """Return the challenge with which Slack verifies a new URL; None for any other request."""
    body = _slack_body(webhook, payload)
    is_asked = body.type == "url_verification" and isinstance(body.challenge, str)
    return str(body.challenge) if is_asked else None


def _command(webhook: Webhook, headers: RawHeaders) -> str:
    if webhook.scheme != "github":
        return DEFAULT_COMMAND
    return _visible(_GITHUB_EVENT, _header(headers, _GITHUB_EVENT)) or DEFAULT_COMMAND


def _delivery_id(webhook: Webhook, headers: RawHeaders, payload: object) -> str:
    """Return the id of a delivery, as the service names it; empty without one."""
    name = webhook.id_header.lower() or _ID_HEADERS.get(webhook.scheme, "")
    if name:
        return _visible(name, _header(headers, name))
    found = _slack_body(webhook, payload).event_id
    return _visible("event_id", found) if isinstance(found, str) else ""


def _visible(what: str, value: str) -> str:
    if value and not _VISIBLE.fullmatch(value):
        sentence = f"{what} must have at most 255 characters, all of them visible ASCII; nothing was stored"
        raise WebhookRefusal(400, BadRequest.code, sentence)
    return value


def _header(headers: RawHeaders, name: str) -> str:
    """Return the value of a header; empty if it is missing. Refuse one that is there twice."""
    found = [value for known, value in headers if known == name.encode()]
    if len(found) > 1:
        raise WebhookRefusal(400, BadRequest.code, f"the request has several headers {name}")
    return found[0].decode("latin-1").strip(" \t") if found else ""
