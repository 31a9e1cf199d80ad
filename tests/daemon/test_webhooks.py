"""Webhooks with a real daemon: schemes, repeats, restarts, the commands, and the secrets."""

import hashlib
import hmac
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.daemon.clocked import clocked_daemon
from tests.daemon.mcp_stage import over_http
from tests.daemon.stage import (
    Home,
    check_output,
    run_as_person,
    run_script_as_person,
    write_settings,
)
from tests.docs.pages import blocks, page
from tests.fakes import START_MS
from tests.limits import LIMIT_S

SECRET = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
SCHEMES = ("bearer", "github", "slack", "hmac-sha256")


@pytest.fixture
def secret_file(home: Home) -> Path:
    path = home.path.parent / "secret.txt"
    path.write_text(f"{SECRET}\n")
    return path


@pytest.fixture
def open_bus(home: Home) -> Home:
    """A bus whose HTTP door is open at a free port."""
    write_settings(home, http="127.0.0.1:0")
    home.ok("up")
    return home


@pytest.fixture
def services(open_bus: Home, secret_file: Path) -> Home:
    """A bus with a webhook of each scheme, named like it."""
    for scheme in SCHEMES:
        add(open_bus, scheme, "--scheme", scheme, "--secret-file", str(secret_file))
    return open_bus


def add(home: Home, *words: str) -> None:
    check_output(run_as_person(home, "webhook", "add", *words))


def url_of(home: Home) -> str:
    found: str = home.ok("status", "--json").json["doors"]["http"]
    return found


def sign(content: bytes) -> str:
    return hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()


def proof(scheme: str, body: bytes, now_s: int | None = None) -> dict[str, str]:
    now = str(int(time.time()) if now_s is None else now_s)
    return {
        "bearer": {"authorization": f"Bearer {SECRET}"},
        "github": {"x-hub-signature-256": f"sha256={sign(body)}", "x-github-event": "push"},
        "slack": {
            "x-slack-request-timestamp": now,
            "x-slack-signature": f"v0={sign(b'v0:' + now.encode() + b':' + body)}",
        },
        "hmac-sha256": {"x-signature-256": sign(body)},
    }[scheme]


def post(home: Home, path: str, body: bytes | Iterator[bytes], headers: dict[str, str]) -> httpx2.Response:
    wanted = {"content-type": "application/json", **headers}
    return httpx2.post(f"{url_of(home)}{path}", headers=wanted, content=body, timeout=LIMIT_S)


def messages(home: Home) -> list[dict[str, Any]]:
    return home.events("--type", "message")


# Requests


@pytest.mark.parametrize("scheme", SCHEMES)
def test_authentic_request_reaches_its_subscriber(services: Home, scheme: str) -> None:
    luna = services.shell()
    luna.ok("join", "--name", "luna")
    luna.ok("sub", "add", f"webhook/{scheme}/**")
    body = b'{ "state" : "red" , "n": 1.0 }'

    accepted = post(services, f"/in/{scheme}/builds/main", body, proof(scheme, body))
    refused = post(services, f"/in/{scheme}/builds/main", body, {})

    received = luna.ok("recv", "--json").json
    assert (accepted.status_code, accepted.json()) == (
        202,
        {"messageId": received["id"], "delivered": True, "unmatched": False},
    )
    assert (refused.status_code, refused.json()["error"]) == (401, "who_are_you")
    assert received["from"] == f"webhook/{scheme}"
    assert received["payload"] == {"state": "red", "n": 1.0}
    assert received["command"] == ("push" if scheme == "github" else "message")
    assert received["source"] == "webhook"
    assert len(messages(services)) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_repeated_delivery_is_one_event_also_after_a_restart(
    services: Home, secret_file: Path, scheme: str
) -> None:
    if scheme in ("bearer", "hmac-sha256"):
        add(services, scheme, "--scheme", scheme, "--secret-file", str(secret_file), "--id-header", "X-Id")
    body = b'{"event_id": "d-1"}'
    ids = {"x-github-delivery": "d-1", "x-id": "d-1"}

    first = post(services, f"/in/{scheme}/x", body, proof(scheme, body) | ids)
    again = post(services, f"/in/{scheme}/x", body, proof(scheme, body) | ids)
    services.kill()
    services.ok("up")
    later = post(services, f"/in/{scheme}/x", body, proof(scheme, body) | ids)

    assert [one.status_code for one in (first, again, later)] == [202, 202, 202]
    assert first.json() == again.json() == later.json()
    (stored,) = messages(services)
    assert (stored["id"], stored["payload"]["external_id"]) == (first.json()["messageId"], "d-1")


@pytest.mark.parametrize("command", ["archive --before {after}", "redact {seq}"])
def test_repeat_of_an_archived_or_redacted_delivery_is_not_stored(services: Home, command: str) -> None:
    body = b'{"a": "the password"}'
    headers = proof("github", body) | {"x-github-delivery": "d-1"}
    first = post(services, "/in/github/x", body, headers)
    (stored,) = messages(services)
    words = command.format(seq=stored["seq"], after=stored["seq"] + 1).split()
    check_output(run_as_person(services, *words))

    again = post(services, "/in/github/x", body, headers)

    assert (again.status_code, again.json()) == (202, first.json())
    assert {one["seq"] for one in messages(services)} <= {stored["seq"]}


def test_forms_lists_and_texts_are_payloads(services: Home) -> None:
    bodies = [
        ("application/json", b"[1, [2]]", [1, [2]]),
        ("application/x-www-form-urlencoded", b"payload=%7B%22a%22%3A1%7D", {"a": 1}),
        ("application/x-www-form-urlencoded", b"a=1&b=2&a=3", {"a": ["1", "3"], "b": "2"}),
        ("text/plain", b"the build is red", "the build is red"),
    ]
    for kind, body, _ in bodies:
        answer = post(services, "/in/github/x", body, proof("github", body) | {"content-type": kind})
        assert answer.status_code == 202

    assert [one["payload"]["payload"] for one in messages(services)] == [payload for _, _, payload in bodies]


@pytest.mark.skipif(not (which("curl") and which("openssl")), reason="needs curl and openssl")
def test_examples_of_the_page_work(open_bus: Home) -> None:
    examples = [one for one in blocks(page("webhooks.md"), "sh") if "curl" in one or "webhook add" in one]
    folder = open_bus.path.parent / "examples"
    folder.mkdir()
    url = url_of(open_bus)
    script = "\n".join(examples).replace("http://127.0.0.1:7420", url).replace("curl ", "curl -s ")
    secrets = "openssl rand -hex 32 | tee secret.txt > slack-secret.txt"
    before = f"{secrets}; pal webhook add ci --secret-file secret.txt"

    ended = run_script_as_person(open_bus, f"set -e; cd {folder}; {before}; {script.strip()}")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count('"delivered":false,"unmatched":true') == 4
    assert [one["from"] for one in messages(open_bus)] == [
        "webhook/ci",
        "webhook/github",
        "webhook/slack",
        "webhook/shop",
    ]
    assert messages(open_bus)[-1]["payload"]["payload"] == {"order": "17", "item": ["tea", "milk"]}


def test_path_without_a_subscriber_is_a_dead_letter(services: Home) -> None:
    answer = post(services, "/in/bearer/x", b"{}", proof("bearer", b""))

    assert (answer.status_code, answer.json()["unmatched"]) == (202, True)
    (dead,) = services.ok("dead", "--json").lines
    assert (dead["from"], dead["path"]) == ("webhook/bearer", "webhook/bearer/x")


def test_large_body_is_stored_and_a_larger_one_is_refused(services: Home) -> None:
    luna = services.shell()
    luna.ok("join", "--name", "luna")
    luna.ok("sub", "add", "webhook/**")
    text = "x" * (1024 * 1024 - 2)

    accepted = post(services, "/in/bearer/x", f'"{text}"'.encode(), proof("bearer", b""))
    declared = post(services, "/in/bearer/x", f'"{text}x"'.encode(), proof("bearer", b""))
    chunked = post(services, "/in/bearer/x", iter([b" " * 2**19] * 3), proof("bearer", b""))

    assert [one.status_code for one in (accepted, declared, chunked)] == [202, 413, 413]
    assert chunked.json()["error"] == "message_too_large"
    shown = luna.ok("recv").out
    assert len(shown) < 101_000
    (seq,) = [one["seq"] for one in messages(services)]
    assert f"(1048584 characters; 'pal show {seq}' prints all of them)" in shown
    assert services.ok("show", str(seq), "--json").json["payload"] == text
    assert text in services.ok("show", str(seq)).out


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/in/gitlab/x", {}, 404),
        ("/in/bearer", {}, 404),
        ("/in/bearer/*", {}, 400),
        ("/in/bearer/%2A%2A", {}, 400),
        ("/in/bearer/a%2Fb", {}, 400),
        ("/in/bearer/%zz", {}, 400),
        ("/in/bearer/%0A", {}, 400),
        ("/in/..%2f..%2fagent/luna", {}, 400),
        ("/in/bearer/x", {"content-type": "multipart/form-data; boundary=x"}, 415),
        ("/in/bearer/x", {"host": "evil.com"}, 421),
        ("/in/bearer/x", {"origin": "http://evil.com"}, 403),
        ("/in/bearer/x", {"authorization": ""}, 401),
        ("/in/bearer/x", {"authorization": f"Bearer {SECRET}\xff"}, 401),
    ],
)
def test_bad_request_is_refused_and_stores_nothing(
    services: Home, path: str, headers: dict[str, str], status: int
) -> None:
    lines = [f"POST {path} HTTP/1.1", "connection: close", "content-length: 2"]
    wanted = {"host": "localhost", "content-type": "application/json", **proof("bearer", b""), **headers}
    lines += [f"{name}: {value}" for name, value in wanted.items()]

    answer = send_raw(services, ("\r\n".join(lines) + "\r\n\r\n{}").encode("latin-1"))

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b'{"error":"' in answer
    assert messages(services) == []


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 2\r\ncontent-length: 20",
        b"content-length: 20\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"content-length: +2",
        b"x-id: a\r\n b\r\ncontent-length: 2\r\nx-bad\x00: 1",
    ],
)
def test_smuggled_request_stores_nothing_of_its_own(services: Home, head: bytes) -> None:
    inner = b"POST /in/bearer/smuggled HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
    start = b"POST /in/bearer/x HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n"

    answer = send_raw(services, start + head + b"\r\n\r\n0\r\n\r\n" + inner)

    assert b" 202 " not in answer
    assert messages(services) == []


def test_body_that_ends_early_stores_nothing(services: Home) -> None:
    head = f"POST /in/bearer/x HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {SECRET}\r\n"

    answer = send_raw(services, f"{head}content-type: text/plain\r\ncontent-length: 10\r\n\r\npart".encode())

    assert b" 202 " not in answer
    assert post(services, "/in/bearer/x", b"{}", proof("bearer", b"")).status_code == 202
    assert len(messages(services)) == 1


def send_raw(home: Home, data: bytes) -> bytes:
    """Send bytes to the door, end the sending side, and return everything that comes back."""
    parts = urlsplit(url_of(home))
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 0), timeout=LIMIT_S) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_time_and_rate_use_the_clock_of_the_bus(home: Home, secret_file: Path) -> None:
    home.path.mkdir(mode=0o700, exist_ok=True)
    write_settings(home, http="127.0.0.1:0")
    with clocked_daemon(home) as daemon:
        add(home, "slack", "--scheme", "slack", "--secret-file", str(secret_file))
        body = b'{"type": "url_verification", "challenge": "c-1"}'
        headers = {"content-type": "application/json", **proof("slack", body, START_MS // 1000)}
        with httpx2.Client(timeout=LIMIT_S) as client:
            url = f"{url_of(home)}/in/slack/x"
            answers = [client.post(url, headers=headers, content=body) for _ in range(601)]
            daemon.advance(60)
            next_minute = client.post(url, headers=headers, content=body)
            daemon.advance(300)
            too_late = client.post(url, headers=headers, content=body)

    assert [one.status_code for one in answers] == [200] * 600 + [429]
    assert (answers[0].json(), answers[-1].json()["error"]) == ({"challenge": "c-1"}, "rate_limited")
    assert answers[-1].headers["retry-after"] == "60"
    assert (next_minute.status_code, too_late.status_code) == (200, 401)


# Commands


def test_only_a_person_adds_and_removes_a_webhook(services: Home, secret_file: Path) -> None:
    luna = services.shell()
    luna.ok("join", "--name", "luna", "--role", "worker")
    words = ("webhook", "add", "x", "--secret-file", str(secret_file), "--json")

    refused = [
        services.pal(*words),
        luna.pal(*words),
        luna.pal("webhook", "rm", "github", "--json"),
        run_as_person(services, *words, env={"CLAUDECODE": "1"}),
        run_as_person(services, *words, "--as", "luna"),
    ]

    assert [(one.status, one.error["error"]) for one in refused] == [(1, "not_allowed")] * 5
    listed = luna.ok("webhook", "list", "--json").lines
    assert [one["service"] for one in listed] == sorted(SCHEMES)


async def test_no_door_shows_a_secret(services: Home) -> None:
    token: str = check_output(
        run_script_as_person(services, "pal join --name boss --role operator >&2; pal token create --json")
    ).json["token"]
    body = b'{"a":1}'
    post(services, "/in/github/x", body, proof("github", body))
    post(services, "/in/bearer/x", body, proof("bearer", body))
    post(services, "/in/bearer/x", body, {"authorization": f"Bearer {SECRET[:-1]}"})

    shown = [
        services.ok(*words).out
        for words in (
            ("webhook", "list"),
            ("webhook", "list", "--json"),
            ("events", "--json"),
            ("status", "--json"),
            ("config", "list", "--json"),
            ("__complete", "--", "webhook", "rm", ""),
        )
    ]
    async with over_http(url_of(services), token, is_modern=True) as model:
        tools = str(await model.session.list_tools())
    unseen = httpx2.get(
        f"{url_of(services)}/in/github/x", headers={"authorization": f"Bearer {token}"}, timeout=LIMIT_S
    )

    assert "github" in shown[0]
    assert shown[-1] == "bearer\tbearer\ngithub\tgithub\nhmac-sha256\thmac-sha256\nslack\tslack\n"
    assert "webhook" not in tools
    assert unseen.status_code == 405
    assert SECRET not in "".join([*shown, unseen.text])
    for file in services.path.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()  # in webhooks.json it is encoded


def test_secrets_are_in_a_private_file_and_in_backups(services: Home) -> None:
    path = services.path / "webhooks.json"

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    backup = services.path.parent / "backup.tar"
    check_output(run_as_person(services, "backup", str(backup)))
    assert b"webhooks.json" in backup.read_bytes()


def test_added_webhook_is_replaced_and_removed(open_bus: Home, secret_file: Path) -> None:
    first = run_as_person(open_bus, "webhook", "add", "ci", "--secret-file", str(secret_file))
    again = run_script_as_person(
        open_bus, f"printf '%s\\r\\n' {SECRET}22 | pal webhook add ci --secret-file - --scheme hmac-sha256"
    )
    changed = open_bus.ok("webhook", "list", "--json").json
    old = post(open_bus, "/in/ci/x", b"{}", proof("bearer", b""))
    signature = hmac.new(f"{SECRET}22".encode(), b"{}", hashlib.sha256).hexdigest()
    new = post(open_bus, "/in/ci/x", b"{}", {"x-signature": f"sha256={signature}"})
    removed = run_as_person(open_bus, "webhook", "rm", "ci")
    gone = post(open_bus, "/in/ci/x", b"{}", {"x-signature": signature})
    unknown = run_as_person(open_bus, "webhook", "rm", "ci")

    assert first.out == f"the webhook ci is added (bearer): it posts to {url_of(open_bus)}/in/ci/TOPIC\n"
    assert again.out.startswith("the webhook ci is replaced (hmac-sha256)")
    assert changed.keys() == {"ts", "service", "scheme", "by", "created"}
    assert (old.status_code, new.status_code, gone.status_code) == (401, 202, 404)
    assert removed.out == "the webhook ci is removed\n"
    assert (unknown.status, unknown.err) == (
        1,
        "pal: there is no webhook ci: 'pal webhook list' shows them\n",
    )
    assert "there are no webhooks" in open_bus.ok("webhook", "list").out


@pytest.mark.parametrize(
    ("words", "status", "hint"),
    [
        (("ci",), 2, "--secret-file requires the name of a file"),
        (("Ci", "--secret-file", "secret.txt"), 1, "cannot be the name of a service"),
        (("ci", "--secret-file", "missing.txt"), 1, "No such file"),
        (("ci", "--secret-file", "/dev/null"), 1, "the secret is empty"),
        (("ci", "--secret-file", "short.txt"), 1, "needs at least 16: 'openssl rand -hex 32'"),
        (("ci", "--secret-file", "secret.txt", "--scheme", "basic"), 2, "hmac-sha256"),
        (("ci", "--secret-file", "secret.txt", "--id-header", "Authorization"), 1, "delivery id"),
    ],
)
def test_bad_command_says_what_to_do(
    open_bus: Home, secret_file: Path, words: tuple[str, ...], status: int, hint: str
) -> None:
    (secret_file.parent / "short.txt").write_text("short\n")
    command = " ".join(("pal", "webhook", "add", *words))

    refused = run_script_as_person(open_bus, f"cd {secret_file.parent} && {command}")

    assert refused.status == status
    assert hint in refused.err
    assert not (open_bus.path / "webhooks.json").exists()


def test_closed_door_is_mentioned_and_near_names_are_suggested(bus: Home, secret_file: Path) -> None:
    added = run_as_person(bus, "webhook", "add", "github", "--secret-file", str(secret_file))
    near = run_as_person(bus, "webhook", "rm", "gitub")

    assert "'pal up --http' enables it" in added.err
    assert "did you mean github?" in near.err


def test_reply_to_a_webhook_is_refused_with_its_reason(services: Home) -> None:
    post(services, "/in/bearer/x", b"{}", proof("bearer", b""))
    (stored,) = messages(services)

    refused = services.pal("send", "--reply-to", str(stored["seq"]), "--json", "--", "thanks")

    assert refused.error["error"] == "bad_request"
    assert "webhook/bearer has no mailbox" in refused.error["message"]
