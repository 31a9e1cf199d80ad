"""The page: its files, its sign-in, its stream of changes, its questions and its acts.

The gate of the HTTP door has checked the host and the origin of a request and has read its body. Here a
request must come from this machine and from the page itself, and, except for the files and the sign-in, with
the cookie and the key of a session. Every error is a JSON object with `error` and `message`.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.types import Receive, Scope, Send

from palaver.doors.tcp_door import HttpReply
from palaver.doors.web.acts import Acts, AnyAct
from palaver.errors import (
    BadRequest,
    NotAllowed,
    NotFound,
    NotPerson,
    PalaverError,
    RequestError,
    ShuttingDown,
    Unavailable,
    WhoAreYou,
    error_from_wire,
)
from palaver.identity.web_sessions import CODE_S, WebSession
from palaver.protocol.lines import error_object, screen_digest
from palaver.protocol.message import HUMAN
from palaver.protocol.views import AnyAsk
from palaver.services.agents import PEEK
from palaver.services.services import Services
from palaver.services.view_hub import OpenView, ViewRecord

# --------------------
# The files, read once: a newer version of the daemon has newer ones.

_FOLDER: Final = Path(__file__).parent / "static"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
SAFETY: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every response here."""


class _File(msgspec.Struct, frozen=True):
    """One file of the page."""

    content: bytes
    kind: str
    tag: str


def _read_files() -> dict[str, _File]:
    """Return the files by their paths in the address."""
    found: dict[str, _File] = {}
    for path in sorted(_FOLDER.iterdir()):
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        found[f"/{path.name}"] = _File(content, _KINDS[path.suffix], tag)
    # Browsers ask for `/favicon.ico` by themselves, whatever icon the page names.
    return found | {"/": found["/index.html"], "/favicon.ico": found["/icon.svg"]}


FILES: Final = _read_files()

# --------------------
# Requests.

SIGN_IN: Final = "/api/sign-in"
EVENTS: Final = "/events"
_API: Final = "/api/"
_SESSION: Final = "palaver.web_session"
OWN_HEADER: Final = "x-palaver"
"""Carries the key of the session. A page of another site cannot send it, nor can a form."""
IDLE_HEADER: Final = "x-palaver-idle"
"""The page sends it when the person has not touched it for a while: the session is then not used."""
NOT_SIGNED_IN: Final = "this browser is not signed in: run 'pal web' at a terminal, and type its code here"
_LIMIT_STREAMS: Final = 200
"""Open streams of changes; further ones get a 503."""
_STATUSES: Final[tuple[tuple[type[PalaverError], int], ...]] = (
    (NotFound, 404),
    (NotAllowed, 403),
    (NotPerson, 403),
    (RequestError, 400),
)
"""The status of the first class that fits; 503 otherwise. 401 only means that a session is needed."""

_logger: Final = logging.getLogger("palaver.doors")
_encode: Final = msgspec.json.Encoder().encode
_Result = TypeVar("_Result")


class _SignInBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The code that a person has typed."""

    code: Annotated[str, msgspec.Meta(max_length=100)]


_decode_sign_in: Final = msgspec.json.Decoder(_SignInBody).decode
_decode_ask: Final = msgspec.json.Decoder(AnyAsk).decode
_decode_act: Final = msgspec.json.Decoder(AnyAct).decode


class _ScreenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An agent, and the digest of its screen that the page shows; empty for the first one."""

    name: Annotated[str, msgspec.Meta(max_length=200)]
    known: Annotated[str, msgspec.Meta(max_length=64)] = ""


_decode_screen: Final = msgspec.json.Decoder(_ScreenBody).decode
_SCREEN_S: Final = 20.0
"""Seconds that a holder may take to send a screen. It waits up to 15 s for another one than is known."""
_LIMIT_SCREENS: Final = 50
"""Requests that wait for a screen; further ones get a 503."""


def is_page_target(path: str) -> bool:
    """Return whether a path belongs to the page."""
    return path in FILES or path == EVENTS or path.startswith(_API)


def is_open_target(path: str) -> bool:
    """Return whether a path of the page needs no session."""
    return path in FILES or path == SIGN_IN


class Page:
    """The application for the paths of the page."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions = services.callers.web
        self._acts = Acts(services)
        self._streams = 0
        self._looking = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams of changes."""
        self._closing.set()

    # Checks, before the body of a request is read.

    def refusal(self, scope: Scope) -> HttpReply | None:
        """Return why a request is refused; None if it is accepted. Then its session is in its scope."""
        headers = Headers(scope=scope)
        path, method = scope["path"], scope["method"]
        return (
            _refused_peer(scope)
            or _refused_fetch(headers, is_file=path in FILES)
            or _refused_method(path, method)
            or (None if method in ("GET", "HEAD") else _refused_write(headers))
            or (None if is_open_target(path) else self._refused_session(scope, headers))
        )

    def _refused_session(self, scope: Scope, headers: Headers) -> HttpReply | None:
        cookie = _cookie(headers, self._sessions.cookie_name)
        try:
            # Both are needed: a browser sends the cookie to every program that listens on this machine.
            found = self._sessions.find(cookie, headers.get(OWN_HEADER, ""))
        except PalaverError as error:
            return _refused(500, error.code, str(error))
        if found is None:
            return _refused(401, "who_are_you", NOT_SIGNED_IN)
        scope[_SESSION] = found
        return None

    # Responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if (file := FILES.get(path)) is not None:
            await _send_file(scope, send, file)
            return
        if path == SIGN_IN:
            await self._guarded(send, lambda: self._sign_in(scope, receive))
            return
        session: WebSession = scope[_SESSION]
        if IDLE_HEADER not in Headers(scope=scope):
            await self._sessions.use(session)
        # It may have ended while the body was read, or during the await.
        if not self._sessions.is_valid(session):
            await _send(send, _error(401, WhoAreYou(NOT_SIGNED_IN)))
            return
        if path == EVENTS:
            await self._stream(session, scope, receive, send)
            return
        await self._guarded(send, lambda: self._answer(path, session, receive))

    async def _guarded(self, send: Send, make: "Callable[[], Awaitable[_Made]]") -> None:
        """Send a response, or the error that was raised instead."""
        try:
            made = await make()
        except msgspec.DecodeError as error:
            made = _error(400, BadRequest(f"the body is not a valid request: {error}"))
        except (UnicodeDecodeError, RecursionError):
            made = _error(400, BadRequest("the body is not valid JSON"))
        except PalaverError as error:
            made = _error(next((code for kind, code in _STATUSES if isinstance(error, kind)), 503), error)
        except Exception:
            _logger.exception("a request of the page failed")
            made = _error(500, BadRequest("an internal error in the daemon; see daemon.log in its home"))
        await _send(send, made)

    async def _sign_in(self, scope: Scope, receive: Receive) -> "_Made":
        """Use up a code, and wait for the person's reply at the terminal, or until the browser leaves."""
        code = _decode_sign_in(await _body(receive))
        try:
            entered = self._sessions.sign_ins.enter(code.code)
        except PalaverError as error:
            return _error(403, error)
        # `pal web` waits CODE_S for the reply. A little longer, so that the browser still gets its outcome.
        grant = await self._unless_gone(entered.granted(), receive, CODE_S + 5)
        if grant is None:
            return _error(403, NotPerson("the sign-in was not allowed at the terminal of 'pal web'"))
        # A proxy may encrypt. Without one the cookie must not be `Secure`: the browser would not send it.
        is_secure = Headers(scope=scope).get("origin", "").startswith("https:")
        return _Made(
            _encode({"key": grant.key}),
            headers=((b"set-cookie", _cookie_header(self._sessions.cookie_name, grant.cookie, is_secure)),),
        )

    async def _answer(self, path: str, session: WebSession, receive: Receive) -> "_Made":
        live = self._services.live
        match path:
            case "/api/session":
                return _Made(_encode(self._describe(session)))
            case "/api/view":
                return _Made(await self._snapshot())
            case "/api/ask":
                return _Made(_encode(await live.answer(_decode_ask(await _body(receive)))))
            case "/api/act":
                if session.is_read_only:
                    raise NotPerson("this browser can only read: it was signed in with 'pal web --read-only'")
                act = _decode_act(await _body(receive))
                result = await self._acts.perform(act)
                _logger.info("web session %s: %s", session.id, type(act).__name__)
                return _Made(_encode(result))
            case "/api/screen":
                return await self._screen(session, _decode_screen(await _body(receive)), receive)
            case _:  # /api/sign-out
                await self._sessions.revoke({session.id})
                return _Made(_encode({}))

    async def _snapshot(self) -> bytes:
        """Return a new snapshot, for a tab that gets its changes from another one."""
        view = self._services.live.open()
        try:
            return (await anext(view)).data
        except StopAsyncIteration:
            raise ShuttingDown("the bus is stopping") from None
        finally:
            view.close()

    async def _screen(self, session: WebSession, asked: _ScreenBody, receive: Receive) -> "_Made":
        """Return the screen of an agent as text, once it is another one than is known, or after a while.

        While no page waits here, the daemon asks no holder and keeps no screen.
        """
        holds = self._services.agents.holds
        hold = holds.get(asked.name)
        if hold is None or not hold.cols:
            hint = "it does not run in a terminal of Palaver, or its holder is reconnecting"
            raise NotFound(f"terminal of {asked.name}", hint)
        if self._looking >= _LIMIT_SCREENS:
            raise Unavailable("too many pages show the screen of an agent: close some")
        self._looking += 1
        try:
            question = holds.ask_once(asked.name, PEEK, limit_s=_SCREEN_S, lines=0, digest=asked.known)
            # The question ends before, with an error that says what is wrong.
            reply = await self._unless_gone(question, receive, _SCREEN_S + 5)
        finally:
            self._looking -= 1
        # The session may have ended during the wait.
        if reply is None or not self._sessions.is_valid(session):
            return _error(401, WhoAreYou(NOT_SIGNED_IN))
        if reply.error:
            raise error_from_wire(reply.error, reply.message, {})
        text = str(reply.ok.get("text", ""))
        digest = screen_digest(text)
        return _Made(
            _encode({"digest": digest} if digest == asked.known else {"digest": digest, "text": text})
        )

    async def _unless_gone(
        self, work: Awaitable[_Result], receive: Receive, limit_s: float
    ) -> _Result | None:
        """Return the result of `work`; None if the browser leaves first, or after `limit_s`.

        Raises ShuttingDown if the daemon stops first.
        """
        working = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(receive))
        closing = asyncio.ensure_future(self._closing.wait())
        tasks = {working, gone, closing}
        try:
            await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if closing.done() and not working.done():
                raise ShuttingDown("the bus is stopping")
            return working.result() if working.done() else None
        finally:
            for task in tasks:
                task.cancel()

    def _describe(self, session: WebSession) -> dict[str, object]:
        settings = self._services.daemon.settings.now
        return {
            "me": HUMAN,
            "id": session.id,
            "read_only": session.is_read_only,
            "approvals": bool(settings.web_approvals) and not session.is_read_only,
            "version": self._services.daemon.version,
        }

    async def _stream(self, session: WebSession, scope: Scope, receive: Receive, send: Send) -> None:
        """Send changes until the browser leaves, the session ends or the daemon stops."""
        if self._streams >= _LIMIT_STREAMS:
            await _send(send, _error(503, BadRequest("too many pages are open: close some")))
            return
        self._streams += 1
        ended = asyncio.Event()

        def check() -> None:
            if not self._sessions.is_valid(session):
                ended.set()

        stop = self._sessions.watch(check)
        closing = asyncio.ensure_future(self._closing.wait())
        closing.add_done_callback(lambda _: ended.set())
        headers = Headers(scope=scope)
        view = self._services.live.open(
            _seq(headers.get("last-event-id", "")), QueryParams(scope["query_string"]).get("epoch", "")
        )
        try:
            await _follow(view, receive, send, ended, check)
        finally:
            closing.cancel()
            stop()
            self._streams -= 1


def _seq(written: str) -> int:
    """Return the seq to continue after; 0, which is a new snapshot, for anything that is not one."""
    is_number = written.isascii() and written.isdigit() and len(written) <= 18
    return int(written) if is_number else 0


# --------------------
# Checks of one request. Pure.


def _refused_peer(scope: Scope) -> HttpReply | None:
    """Refuse other machines: the connection is not encrypted, and a session has all rights of the person."""
    client = scope.get("client")
    try:
        is_here = client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        is_here = False
    return None if is_here else _refused(403, "not_allowed", "the page is only for browsers on this machine")


def _refused_fetch(headers: Headers, *, is_file: bool) -> HttpReply | None:
    """Refuse requests that a page of another site has caused, and frames."""
    # All current browsers send these headers. For a client without them the other checks decide.
    site = headers.get("sec-fetch-site", "same-origin")
    # In a frame of another site, a person could click on this page without seeing it.
    is_frame = headers.get("sec-fetch-dest", "") in ("iframe", "frame", "embed", "object")
    # `none` means that the person opened the address directly, which loads files only.
    if (site == "same-origin" or (site == "none" and is_file)) and not is_frame:
        return None
    return _refused(403, "not_allowed", "a page of another site may not call this bus: open it directly")


_METHODS: Final = {
    "/api/session": "GET",
    "/api/view": "GET",
    EVENTS: "GET",
    SIGN_IN: "POST",
    "/api/sign-out": "POST",
    "/api/ask": "POST",
    "/api/act": "POST",
    "/api/screen": "POST",
}


def _refused_method(path: str, method: str) -> HttpReply | None:
    if path not in FILES and path not in _METHODS:
        return _refused(404, "not_found", f"there is no {path[:100]} here")
    allowed = ("GET", "HEAD") if path in FILES else (_METHODS[path],)
    if method in allowed:
        return None
    return _refused(405, "bad_request", f"use the method {allowed[0]} here", (b"allow", allowed[0].encode()))


def _refused_write(headers: Headers) -> HttpReply | None:
    """Refuse a POST that a form or another site could send. The gate has checked the value of the origin."""
    if headers.get("origin") is None:
        return _refused(403, "not_allowed", "a request of the page has the header Origin")
    if OWN_HEADER not in headers:
        return _refused(403, "not_allowed", "a request of the page has the header X-Palaver")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        sentence = "the body must be JSON: send 'Content-Type: application/json'"
        return _refused(415, "bad_request", sentence)
    return None


def _refused(status: int, code: str, sentence: str, *headers: tuple[bytes, bytes]) -> HttpReply:
    fields: dict[str, object] = {"error": code, "message": sentence}
    return HttpReply(status=status, fields=fields, headers=(*SAFETY, *headers))


def _cookie(headers: Headers, name: str) -> str:
    """Return the value of a cookie; empty if it is missing."""
    found = ""
    # Not `SimpleCookie`, which drops everything after a cookie that it cannot read: the browser also sends
    # those of programs at other ports of this machine, and many of them contain JSON.
    for part in headers.get("cookie", "").split(";"):
        key, _, value = part.partition("=")
        if key.strip() == name:
            found = value.strip()  # the last one: a browser sends cookies for the path / after all others
    return found


def _cookie_header(name: str, value: str, is_secure: bool) -> bytes:
    secure = "; Secure" if is_secure else ""
    # With HttpOnly no script can read the cookie, and with Strict no page of another site can make a
    # browser send it.
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}".encode()


# --------------------
# Responses.


class _Made(msgspec.Struct, frozen=True):
    """A response with JSON."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


def _error(status: int, error: PalaverError) -> _Made:
    return _Made(_encode(error_object(error)), status)


async def _send(send: Send, made: _Made) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(made.body)).encode()),
        (b"cache-control", b"no-store"),
        *SAFETY,
        *made.headers,
    ]
    await send({"type": "http.response.start", "status": made.status, "headers": headers})
    await send({"type": "http.response.body", "body": made.body})


async def _send_file(scope: Scope, send: Send, file: _File) -> None:
    is_known = Headers(scope=scope).get("if-none-match", "") == file.tag
    content = b"" if is_known or scope["method"] == "HEAD" else file.content
    headers = [
        (b"etag", file.tag.encode()),
        # The browser asks each time, so that it never uses the files of an earlier version of the daemon.
        (b"cache-control", b"no-cache"),
        *SAFETY,
        *(
            []
            if is_known
            else [
                (b"content-type", file.kind.encode()),
                (b"content-length", str(len(file.content)).encode()),
            ]
        ),
    ]
    await send({"type": "http.response.start", "status": 304 if is_known else 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _body(receive: Receive) -> bytes:
    """Return the body, which the gate has read."""
    message = await receive()
    return bytes(message.get("body", b""))


async def _disconnected(receive: Receive) -> None:
    """Wait until the browser has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


# --------------------
# The stream of changes: server-sent events. `id` is the seq, `event` is snapshot or changes.
#
# Nothing is buffered here: while a browser does not read, `send` waits, and the view drops its backlog.

_BEAT_S: Final = 15.0
"""Seconds after which an empty line is sent: the browser then knows that the connection is alive."""


def sse_event(record: ViewRecord) -> bytes:
    """Return one record of a view as a server-sent event. JSON has no line ends."""
    kind = b"snapshot" if record.is_snapshot else b"changes"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (record.seq, kind, record.data)


async def _follow(
    view: OpenView, receive: Receive, send: Send, ended: asyncio.Event, check: Callable[[], None]
) -> None:
    """Send the records of a view until `ended`, or until the browser leaves. `check` may set `ended`."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), *SAFETY]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.ensure_future(_disconnected(receive))
    over = asyncio.ensure_future(ended.wait())
    writing = asyncio.ensure_future(_write_records(view, send, check))
    try:
        await asyncio.wait({gone, over, writing}, return_when=asyncio.FIRST_COMPLETED)
        # The last `send` ends the response, so no other one may be in progress.
        writing.cancel()
        await asyncio.wait({writing})
        # If the view was closed or has failed, the browser connects again. Any other error must be logged.
        with suppress(asyncio.CancelledError, StopAsyncIteration, PalaverError):
            writing.result()
        if not gone.done():
            await send({"type": "http.response.body", "body": b""})
    finally:
        for task in (gone, over, writing):
            task.cancel()
        view.close()


async def _write_records(view: OpenView, send: Send, check: Callable[[], None]) -> None:
    following = asyncio.ensure_future(anext(view))
    try:
        while True:
            # Not `wait_for`, which cancels `anext` at its timeout: a record could be lost.
            done, _ = await asyncio.wait({following}, timeout=_BEAT_S)
            check()  # the session may have ended by its time
            body = b": beat\n\n"
            if done:
                body = sse_event(following.result())
                following = asyncio.ensure_future(anext(view))
            await send({"type": "http.response.body", "body": body, "more_body": True})
    finally:
        following.cancel()
