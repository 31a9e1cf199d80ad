"""The page through a proxy that encrypts: its cookie is sent only over encrypted connections."""

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.app.person import Person
from tests.doors.web.client import PageClient, address_of, bus_with_page, code_at
from tests.doors.web.stage import Watched, chromium
from tests.limits import LIMIT_S

_OPENSSL = shutil.which("openssl")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


class EncryptingProxy:
    """Accepts TLS on a port of this machine, and passes everything on to the bus."""

    def __init__(self, certificate: Path, key: Path, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._target = port
        self._started: Future[tuple[int, Callable[[], object]]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        self.port, self._end = self._started.result(LIMIT_S)

    async def _run(self) -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        port = server.sockets[0].getsockname()[1]
        self._started.set_result((port, partial(loop.call_soon_threadsafe, ended.set)))
        await ended.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))

    def close(self) -> None:
        self._end()
        self._thread.join(LIMIT_S)


@contextmanager
def _encrypting(port: int, folder: Path) -> Iterator[EncryptingProxy]:
    if _OPENSSL is None:
        pytest.skip("there is no program 'openssl' on this machine")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    options = [
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        [_OPENSSL, "req", "-x509", *options, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    proxy = EncryptingProxy(certificate, key, port)
    try:
        yield proxy
    finally:
        proxy.close()


def test_cookie_is_secure_behind_a_proxy_that_encrypts(tmp_path: Path) -> None:
    with bus_with_page(http_hosts="localhost") as home, chromium() as browser:
        port = int(address_of(home).rpartition(":")[2])
        with _encrypting(port, tmp_path) as proxy, browser.new_context(ignore_https_errors=True) as context:
            watched = Watched(context.new_page())
            person = Person(home)
            person.run("pal web")
            watched.page.goto(f"https://localhost:{proxy.port}/")
            watched.page.get_by_label("Code").fill(code_at(person))
            watched.page.get_by_role("button", name="Sign in").click()
            person.until(b"[y/N] ")
            person.press(b"y\r")
            person.until(b"status ")
            person.close()

            expect(watched.page.get_by_text("bus up")).to_be_visible()
            (cookie,) = context.cookies()
            assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
            home.ok("send", "@human", "--intent", "request", "--", "through the proxy")
            expect(watched.page.get_by_role("option", name="through the proxy")).to_be_visible()
            assert watched.errors == []


def test_cookie_of_the_plain_door_is_not_secure() -> None:
    """The browser would not send it back over the connection it came from."""
    with bus_with_page() as home:
        client = PageClient(home)
        client.sign_in()

    assert "Secure" not in client.set_cookie
    assert "HttpOnly; SameSite=Strict" in client.set_cookie
