"""The requests of the page: from this machine, from the page itself, and with both secrets of a session."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from tests.app.person import Person
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, run_as_person
from tests.doors.web.client import PageClient, bus_with_page, code_at, records_in
from tests.limits import LIMIT_S

from palaver.doors.web.page import FILES, POLICY
from palaver.identity.web_sessions import LIMIT_WRONG

# --------------------
# Files.


def test_files_are_served_to_everybody_with_the_policy(bus: Home) -> None:
    client = PageClient(bus)

    for path in FILES:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_known_file_is_not_sent_again(bus: Home) -> None:
    client = PageClient(bus)
    tag = client.get("/main.js").headers["etag"]

    again = client.get("/main.js", **{"If-None-Match": tag})
    head = httpx2.head(f"{client.url}/main.js")

    assert (again.status_code, again.content) == (304, b"")
    assert (head.status_code, head.content) == (200, b"")


def test_files_are_small_and_load_nothing_from_elsewhere() -> None:
    paths = set(FILES) - {"/", "/favicon.ico"}

    assert sum(len(FILES[path].content) for path in paths) <= 150_000
    for path in paths:
        text = FILES[path].content.decode()
        # The name space of SVG is not an address.
        assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
            assert way not in text, (path, way)


# --------------------
# Refused requests.


@pytest.mark.parametrize("path", ["/api/session", "/api/view", "/events"])
def test_request_without_a_session_is_refused(bus: Home, path: str) -> None:
    answer = PageClient(bus).get(path)

    assert (answer.status_code, answer.json()["error"]) == (401, "who_are_you")
    assert answer.headers["content-security-policy"] == POLICY


def test_cookie_alone_and_key_alone_are_refused(bus: Home, signed_in: PageClient) -> None:
    cookie, key = PageClient(bus), PageClient(bus)
    cookie.cookies, key.key = signed_in.cookies, signed_in.key

    assert signed_in.get("/api/session").status_code == 200
    assert cookie.get("/api/session").status_code == 401
    assert key.get("/api/session").status_code == 401


def test_cookies_of_other_programs_on_this_machine_do_not_disturb(signed_in: PageClient) -> None:
    ((name, value),) = signed_in.cookies.items()
    client = PageClient(signed_in.home)
    client.key = signed_in.key
    others = 'theme={"dark": true}; a name without a value; ' + f"{name}=of-another-path"

    answer = client.get("/api/session", Cookie=f"{others}; {name}={value}; last=[1, 2]")

    assert answer.status_code == 200


def test_cookie_of_another_home_is_refused(signed_in: PageClient) -> None:
    with bus_with_page() as other:
        client = PageClient(other)
        (value,) = signed_in.cookies.values()
        client.cookies = {**signed_in.cookies, next(iter(_names(other))): value}
        client.key = signed_in.key

        assert client.get("/api/session").status_code == 401
        assert client.act(do="send", to=["@all"], text="x").status_code == 401


def _names(home: Home) -> set[str]:
    client = PageClient(home)
    client.sign_in()
    return set(client.cookies)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Dest": "iframe"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_request_that_another_page_could_send_is_refused(
    signed_in: PageClient, headers: dict[str, str], status: int
) -> None:
    before = signed_in.home.texts()

    answer = signed_in.post(
        "/api/act", {"do": "send", "key": "0" * 32, "to": ["@all"], "text": "x"}, **headers
    )

    assert answer.status_code == status
    assert signed_in.home.texts() == before


@pytest.mark.parametrize("missing", ["X-Palaver", "Origin"])
def test_write_without_origin_or_our_header_is_refused(signed_in: PageClient, missing: str) -> None:
    headers = {name: value for name, value in signed_in.headers.items() if name != missing}

    answer = httpx2.post(
        f"{signed_in.url}/api/act",
        headers={**headers, "Content-Type": "application/json"},
        content="{}",
        cookies=signed_in.cookies,
    )

    assert answer.status_code == 403
    assert missing in answer.json()["message"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_file_is_refused_to_another_site_and_in_a_frame(bus: Home, site: str) -> None:
    client = PageClient(bus)

    assert client.get("/", **{"Sec-Fetch-Site": site}).status_code == 403
    assert client.get("/", **{"Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert client.get("/", **{"Sec-Fetch-Site": "none"}).status_code == 200


def test_token_of_an_agent_is_no_session(bus: Home) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "tova")
    token = shell.ok("token", "create", "--json").json["token"]

    answer = PageClient(bus).get("/api/view", Authorization=f"Bearer {token}")

    assert answer.status_code == 401


def test_session_is_no_token(signed_in: PageClient) -> None:
    answer = signed_in.post("/mcp", {})

    assert (answer.status_code, answer.json()["error"]) == (401, "who_are_you")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 405),
        ("GET", "/api/act", 405),
        ("PUT", "/api/act", 405),
        ("DELETE", "/events", 405),
        ("GET", "/api/nothing", 404),
        ("GET", "/api/../etc/passwd", 404),
    ],
)
def test_unknown_path_and_method_are_refused(
    signed_in: PageClient, method: str, path: str, status: int
) -> None:
    answer = httpx2.request(
        method, signed_in.url + path, headers=signed_in.headers, cookies=signed_in.cookies
    )

    assert answer.status_code in (status, 401)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '{"do": "fly", "key": "00000000000000000000000000000000"}',
        '{"do": "release", "message": "1"}',
        '{"do": "release", "message": "1", "key": "short"}',
        '{"do": "seen", "messages": [-1], "key": "00000000000000000000000000000000"}',
        '{"do": "pause", "names": [], "key": "00000000000000000000000000000000"}',
        "[" * 5000,
        '"\ud800"',
    ],
)
def test_invalid_body_is_a_clear_error(signed_in: PageClient, body: str) -> None:
    for path in ("/api/act", "/api/ask"):
        answer = httpx2.post(
            signed_in.url + path,
            headers={**signed_in.headers, "Content-Type": "application/json"},
            content=body.encode("utf-8", "surrogatepass"),
            cookies=signed_in.cookies,
        )

        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), answer.text


# --------------------
# Codes.


def test_session_is_a_strict_cookie_that_scripts_cannot_read(bus: Home) -> None:
    client = PageClient(bus)

    answer = client.sign_in()

    assert answer.status_code == 200
    assert client.set_cookie.startswith("palaver_")
    assert client.set_cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    stored = (bus.path / "web_sessions.json").read_text()
    assert client.key not in stored
    assert all(value not in stored for value in client.cookies.values())


def test_denied_sign_in_gets_no_session(bus: Home) -> None:
    client = PageClient(bus)

    answer = client.sign_in(reply="n")

    assert answer.status_code == 403
    assert client.cookies == {}


def test_guessed_code_ends_and_a_new_one_is_shown(bus: Home) -> None:
    client, person = PageClient(bus), Person(bus)
    try:
        person.run("pal web")
        old = code_at(person)

        guesses = [client.post("/api/sign-in", {"code": "22222222"}) for _ in range(LIMIT_WRONG)]
        new = code_at(person)

        assert {answer.status_code for answer in guesses} == {403}
        assert new != old
        assert client.post("/api/sign-in", {"code": old}).status_code == 403
        assert b"[y/N]" not in person.shown
        person.press(b"\x03")
    finally:
        person.close()


def test_code_of_an_ended_command_is_invalid(bus: Home) -> None:
    client, person = PageClient(bus), Person(bus)
    try:
        person.run("pal web")
        code = code_at(person)
        person.press(b"\x03")
        person.run("true")
        person.until(b"status ")

        answer = client.post("/api/sign-in", {"code": code})

        assert answer.status_code == 403
        assert client.cookies == {}
    finally:
        person.close()


# --------------------
# Rights.


def test_agents_and_scripts_cannot_run_the_command(bus: Home) -> None:
    shell = bus.shell()
    shell.ok("join", "--name", "nosy")

    for result in (
        bus.pal("web", "--json"),
        shell.pal("web", "--json"),
        shell.pal("web", "--json", env={"CLAUDECODE": "1"}),
        run_as_person(bus, "web", "--as", "nosy", "--json"),
        run_as_person(bus, "web", "--json", env={"CLAUDECODE": "1"}),
        bus.pal("web", "revoke", "all", "--json"),
        shell.pal("web", "revoke", "all", "--json"),
    ):
        assert result.status == 1, result
        assert result.error["error"] == "not_allowed", result


def test_person_without_a_terminal_to_reply_at_is_refused(bus: Home) -> None:
    """The output of this command goes into files."""
    result = run_as_person(bus, "web", "--json")

    assert (result.status, result.error["error"]) == (1, "not_allowed")
    assert "at a terminal" in result.error["message"]


def test_read_only_session_reads_and_changes_nothing(bus: Home) -> None:
    client = PageClient(bus)
    client.sign_in("--read-only")

    answer = client.act(do="send", to=["@all"], text="hello")

    assert client.get("/api/session").json()["read_only"] is True
    assert client.ask(what="agents")["rows"] is not None
    assert (answer.status_code, answer.json()["error"]) == (403, "not_allowed")


def test_revoked_session_ends_with_its_stream(bus: Home) -> None:
    client = PageClient(bus)
    client.sign_in()
    id = client.get("/api/session").json()["id"]

    with client.events() as records:
        next(records)
        listed = bus.ok("web", "list", "--json").lines
        revoked = run_as_person(bus, "web", "revoke", id, "--json")
        rest = list(records)

    assert id in {one["id"] for one in listed}
    assert revoked.json == {"id": id, "revoked": True}
    assert [kind for _, kind, _ in rest if kind == "snapshot"] == []
    assert client.get("/api/session").status_code == 401


def test_signed_out_session_ends(bus: Home) -> None:
    client = PageClient(bus)
    client.sign_in()

    assert client.post("/api/sign-out", {}).status_code == 200
    assert client.get("/api/session").status_code == 401


# --------------------
# The stream.


def test_stream_begins_with_a_snapshot_and_goes_on_without_a_gap(signed_in: PageClient) -> None:
    with signed_in.events() as records:
        first, kind, snapshot = next(records)
        signed_in.home.ok("send", "@all", "--yes", "--", "one")
        seq, after = first, snapshot["seq"]
        texts: list[str] = []
        while not any("one" in text for text in texts):
            seq, kind, changes = next(records)
            assert (kind, changes["after"], changes["seq"]) == ("changes", after, seq)
            after = seq
            texts += [event.get("text", "") for event in changes.get("events", ())]

    assert snapshot["me"] == "human"
    assert seq > first


def test_stream_continues_after_the_last_event(signed_in: PageClient) -> None:
    with signed_in.events() as records:
        last, _, _ = next(records)
    sent = signed_in.home.ok("send", "@all", "--yes", "--json", "--", "two").json["seq"]

    with signed_in.events(**{"Last-Event-ID": str(last)}) as records:
        seq, kind, snapshot = next(records)

    assert (kind, seq >= sent) == ("snapshot", True)
    assert snapshot["is_continued"] is True
    assert [event["seq"] for event in snapshot["events"]] == list(range(last + 1, seq + 1))


@pytest.mark.parametrize("last", ["999999999", "-1", "x", "1.5", "", "9" * 40])
def test_wrong_or_future_event_id_gets_a_new_snapshot(signed_in: PageClient, last: str) -> None:
    with signed_in.events(**{"Last-Event-ID": last}) as records:
        seq, kind, snapshot = next(records)

    assert (kind, snapshot["seq"]) == ("snapshot", seq)
    assert "is_continued" not in snapshot


def test_browser_that_stopped_reading_delays_no_sender_and_misses_nothing(bus: Home) -> None:
    client = PageClient(bus)
    client.sign_in()
    with socket.create_connection(("127.0.0.1", int(client.url.rpartition(":")[2])), LIMIT_S) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = [f"{name}: {value}" for name, value in {**client.headers, "Host": client.url[7:]}.items()]
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        wire.sendall("\r\n".join(["GET /events HTTP/1.1", *head, f"Cookie: {cookie}", "", ""]).encode())
        program = (
            "import asyncio, palaver\n"
            "async def main():\n"
            "    async with palaver.connect(name='loud') as me:\n"
            "        for start in range(0, 3000, 100):\n"
            "            texts = (f'{n} ' + 'x' * 290 for n in range(start, start + 100))\n"
            "            await asyncio.gather(*(me.send('@loud', text) for text in texts))\n"
            "asyncio.run(main())\n"
        )
        subprocess.run([sys.executable, "-c", program], env=bus.environment, check=True, timeout=LIMIT_S)
        last = bus.ok("send", "@loud", "--json", "--", "the end").json["seq"]

        records = list(_read_until(wire, last))

    for (before, _, _), (_, kind, record) in pairwise(records):
        assert kind == "snapshot" or record["after"] == before
    assert records[-1][0] >= last


def _read_until(wire: socket.socket, last: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Read records until one is complete up to a seq."""
    with wire.makefile("rb") as stream:
        while stream.readline().strip():
            pass  # the head of the response
        text = b""
        while size := int(stream.readline(), 16):
            text += stream.read(size)
            stream.readline()
            *parts, text = text.split(b"\n\n")
            for part in parts:
                if b"data: " in part:
                    for record in records_in([*part.decode().split("\n"), ""]):
                        yield record
                        if record[0] >= last:
                            return


# --------------------
# The screen of an agent.


@pytest.fixture
def luna(bus: Home) -> Iterator[FakeHolder]:
    """An agent whose terminal is held by the test. Each test has another one."""
    with FakeHolder(bus) as holder:
        yield holder.hold(ticket_of(words_of(bus, "run", "--", "bash")))


def test_screen_is_sent_as_text_once_it_is_another_one(signed_in: PageClient, luna: FakeHolder) -> None:
    """A known screen that has not changed is not sent again."""
    name, shown = luna.held["name"], "\x1b[31m<b>$ ls</b>"
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(signed_in.post, "/api/screen", {"name": luna.held["name"]})
        push = luna.next_push()
        luna.ok("tell", ask=push["ask"], ok={"text": shown, "cols": 80, "rows": 24})
        screen = first.result(LIMIT_S).json()
        second = threads.submit(signed_in.post, "/api/screen", {"name": name, "known": screen["digest"]})
        again = luna.next_push()
        luna.ok("tell", ask=again["ask"], ok={"text": shown, "cols": 80, "rows": 24})
        same = second.result(LIMIT_S).json()

    assert (push["verb"], push["digest"], again["digest"]) == ("peek", "", screen["digest"])
    assert screen["text"] == shown
    assert same == {"digest": screen["digest"]}


def test_screen_of_an_agent_without_terminal_is_refused(bus: Home, signed_in: PageClient) -> None:
    bus.shell().ok("join", "--name", "mira")

    for name in ("mira", "nobody", "<img src=x>"):
        answer = signed_in.post("/api/screen", {"name": name})
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert signed_in.post("/api/screen", {"name": 3}).status_code == 400
    assert PageClient(bus).post("/api/screen", {"name": "mira"}).status_code == 401


def test_screen_is_not_sent_after_the_session_has_ended(bus: Home, luna: FakeHolder) -> None:
    client = PageClient(bus)
    client.sign_in("--read-only")
    id = client.get("/api/session").json()["id"]

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.post, "/api/screen", {"name": luna.held["name"]})
        push = luna.next_push()
        assert run_as_person(bus, "web", "revoke", id).status == 0
        luna.ok("tell", ask=push["ask"], ok={"text": "secret", "cols": 80, "rows": 24})

        assert waiting.result(LIMIT_S).status_code == 401


def test_holder_that_refuses_or_leaves_is_reported(signed_in: PageClient, luna: FakeHolder) -> None:
    with ThreadPoolExecutor(1) as threads:
        refused = threads.submit(signed_in.post, "/api/screen", {"name": luna.held["name"]})
        luna.ok("tell", ask=luna.next_push()["ask"], error="bad_request", message="no screen")
        assert refused.result(LIMIT_S).json()["message"] == "no screen"

        lost = threads.submit(signed_in.post, "/api/screen", {"name": luna.held["name"]})
        luna.next_push()
        luna.wire.close()
        assert lost.result(LIMIT_S).status_code == 503
