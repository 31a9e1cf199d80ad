"""Webhooks: stored secrets, and the proof that a request comes from its service."""

import hashlib
import hmac
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import START_MS, FakeClock

from palaver.errors import BadName, BadRequest, StorageFailed
from palaver.identity.accounts import (
    LIMIT_SECRET_BYTES,
    SCHEMES,
    SLACK_WINDOW_MS,
    WEBHOOKS_FILE,
    RawHeaders,
    Scheme,
    Webhook,
    WebhookBook,
    check_service,
    is_authentic,
    only_header,
)
from palaver.protocol.agents import split_name

SECRET = b"a secret of more than 16 bytes"
NOW_S = START_MS // 1000


# Storage


async def _put(book: WebhookBook, service: str = "github", **options: str) -> Webhook:
    words = {"scheme": "github", "by": "human", **options}
    made, _ = await book.put(service, secret=SECRET, **words)
    return made


async def test_webhook_is_found_by_its_service_also_after_a_restart(tmp_path: Path) -> None:
    made = await _put(WebhookBook(tmp_path, FakeClock()), id_header="X-Id")

    book = WebhookBook(tmp_path, FakeClock())

    assert book.find("github") == made
    assert (made.scheme, made.secret, made.by, made.ts) == ("github", SECRET, "human", START_MS)
    assert made.id_header == "X-Id"
    assert book.find("slack") is None


async def test_file_with_the_secrets_is_private(tmp_path: Path) -> None:
    await _put(WebhookBook(tmp_path, FakeClock()))

    assert stat.S_IMODE((tmp_path / WEBHOOKS_FILE).stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [WEBHOOKS_FILE]


async def test_adding_a_service_again_replaces_it(tmp_path: Path) -> None:
    book = WebhookBook(tmp_path, FakeClock())
    await _put(book, "slack")
    await _put(book)

    changed, is_replaced = await book.put("github", scheme="bearer", secret=SECRET * 2, by="human")

    assert is_replaced
    assert [one.service for one in book.all()] == ["github", "slack"]
    assert WebhookBook(tmp_path, FakeClock()).find("github") == changed


async def test_removed_webhook_is_unknown(tmp_path: Path) -> None:
    book = WebhookBook(tmp_path, FakeClock())
    await _put(book)
    await _put(book, "slack")

    assert await book.remove("github")
    assert not await book.remove("github")

    assert [one.service for one in book.all()] == ["slack"]
    assert WebhookBook(tmp_path, FakeClock()).find("github") is None


async def test_unreadable_file_is_an_error_without_its_content(tmp_path: Path) -> None:
    (tmp_path / WEBHOOKS_FILE).write_text('[{"service": "x", "secret": "c2VjcmV0LXNlY3JldA"}]')

    with pytest.raises(StorageFailed) as raised:
        WebhookBook(tmp_path, FakeClock()).find("x")

    assert "c2Vj" not in str(raised.value)


async def test_webhook_that_cannot_be_stored_is_not_added(tmp_path: Path) -> None:
    book = WebhookBook(tmp_path / "gone", FakeClock())

    with pytest.raises(StorageFailed):
        await _put(book)

    assert book.all() == ()


@pytest.mark.parametrize(
    "service", ["", "Github", "git hub", "../x", "a/b", "*", "-x", "_x", "é", "a" * 65, "a\n"]
)
async def test_bad_name_of_a_service_is_refused(tmp_path: Path, service: str) -> None:
    with pytest.raises(BadRequest, match="cannot be the name of a service"):
        await _put(WebhookBook(tmp_path, FakeClock()), service)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("secret", "scheme", "reason"),
    [
        (b"", "github", "empty"),
        (b"short", "github", "openssl rand -hex 32"),
        (b"x" * 15, "github", "15 bytes"),
        (b"x" * (LIMIT_SECRET_BYTES + 1), "github", "more than 4096 bytes"),
        (b"two lines of\na secret", "bearer", "one line"),
        (b" blanks at its ends ", "bearer", "spaces at its ends"),
        (SECRET, "basic", "the schemes are bearer, github, slack, hmac-sha256"),
    ],
)
async def test_bad_secret_or_scheme_is_refused(
    tmp_path: Path, secret: bytes, scheme: str, reason: str
) -> None:
    with pytest.raises(BadRequest, match=reason):
        await WebhookBook(tmp_path, FakeClock()).put("x", scheme=scheme, secret=secret, by="human")

    assert os.listdir(tmp_path) == []


async def test_signing_secret_may_contain_any_bytes(tmp_path: Path) -> None:
    secret = bytes(range(256))

    await WebhookBook(tmp_path, FakeClock()).put("x", scheme="slack", secret=secret, by="human")

    found = WebhookBook(tmp_path, FakeClock()).find("x")
    assert found is not None
    assert found.secret == secret


@pytest.mark.parametrize(
    "header",
    ["a b", "x:", "é", "a" * 65, "Authorization", "cookie", "X-Slack-Signature", "x-hub-signature-256"],
)
async def test_header_that_is_no_delivery_id_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(BadRequest):
        await _put(WebhookBook(tmp_path, FakeClock()), id_header=header)


async def test_printed_webhook_shows_no_secret(tmp_path: Path) -> None:
    made = await _put(WebhookBook(tmp_path, FakeClock()))

    assert repr(made) == str(made) == "Webhook(github, github)"


@given(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True))
def test_sender_of_a_service_is_never_the_name_of_an_agent(service: str) -> None:
    webhook = Webhook(service=check_service(service), scheme="github", secret=SECRET, by="human", ts=0)

    with pytest.raises(BadName):
        split_name(webhook.sender)


# Proofs


def _webhook(scheme: Scheme, secret: bytes = SECRET) -> Webhook:
    return Webhook(service="x", scheme=scheme, secret=secret, by="human", ts=0)


def _sign(secret: bytes, content: bytes) -> bytes:
    return hmac.new(secret, content, hashlib.sha256).hexdigest().encode()


def proof(scheme: Scheme, secret: bytes, body: bytes, sent_s: int = NOW_S) -> list[tuple[bytes, bytes]]:
    """Return the headers that a service sends."""
    if scheme == "bearer":
        return [(b"authorization", b"Bearer " + secret)]
    if scheme == "github":
        return [(b"x-hub-signature-256", b"sha256=" + _sign(secret, body))]
    if scheme == "hmac-sha256":
        return [(b"x-signature-256", _sign(secret, body))]
    time = str(sent_s).encode()
    signature = b"v0=" + _sign(secret, b"v0:" + time + b":" + body)
    return [(b"x-slack-request-timestamp", time), (b"x-slack-signature", signature)]


def is_ok(scheme: Scheme, headers: RawHeaders, body: bytes = b"{}", now_ms: int = START_MS) -> bool:
    return is_authentic(_webhook(scheme), headers, body, now_ms)


schemes = st.sampled_from(SCHEMES)
bearer_secrets = (
    st.binary(min_size=16, max_size=64)
    .map(lambda secret: bytes(byte | 0x21 for byte in secret))
    .filter(lambda secret: b"\x7f" not in secret)
)


@given(schemes, bearer_secrets, st.binary(max_size=200), st.integers(-300, 300))
def test_request_with_the_secret_is_authentic(scheme: Scheme, secret: bytes, body: bytes, off_s: int) -> None:
    headers = [(b"host", b"x"), *proof(scheme, secret, body, NOW_S + off_s)]

    assert is_authentic(_webhook(scheme, secret), headers, body, NOW_S * 1000)


@given(schemes, bearer_secrets, st.binary(max_size=200))
def test_request_with_another_secret_is_not_authentic(scheme: Scheme, secret: bytes, body: bytes) -> None:
    assert not is_authentic(_webhook(scheme, secret + b"x"), proof(scheme, secret, body), body, START_MS)


@given(st.sampled_from(SCHEMES[1:]), st.binary(max_size=200), st.binary(max_size=200))
def test_signature_belongs_to_one_body(scheme: Scheme, body: bytes, other: bytes) -> None:
    headers = proof(scheme, SECRET, body)

    assert is_ok(scheme, headers, other) == (body == other)


@given(schemes, st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=80))), st.binary(max_size=50))
def test_any_other_headers_prove_nothing(
    scheme: Scheme, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    assert not is_ok(scheme, headers, body)


@given(schemes, st.data())
def test_changed_proof_proves_nothing(scheme: Scheme, data: st.DataObject) -> None:
    *others, (name, value) = proof(scheme, SECRET, b"{}")
    at = data.draw(st.integers(0, len(value) - 1))
    byte = data.draw(
        st.binary(min_size=1, max_size=1).filter(lambda one: one.lower() != value[at : at + 1].lower())
    )

    assert not is_ok(scheme, [*others, (name, value[:at] + byte + value[at + 1 :])])


def test_case_of_a_bearer_secret_matters() -> None:
    assert not is_ok("bearer", proof("bearer", SECRET.upper(), b"{}"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_repeated_header_counts_as_missing(scheme: Scheme) -> None:
    headers = proof(scheme, SECRET, b"{}")

    assert is_ok(scheme, headers)
    for header in headers:
        assert not is_ok(scheme, [*headers, header])
        assert not is_ok(scheme, [(header[0], b"x"), *headers])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_proof_of_another_scheme_is_not_accepted(scheme: Scheme) -> None:
    accepted = {one for one in SCHEMES if is_ok(scheme, proof(one, SECRET, b"{}"))}

    also = {"github"} if scheme == "hmac-sha256" else set()
    assert accepted == {scheme} | also


@pytest.mark.parametrize("name", [b"x-signature-256", b"x-signature", b"x-hub-signature-256"])
@pytest.mark.parametrize("prefix", [b"", b"sha256="])
def test_signature_may_be_in_several_headers(name: bytes, prefix: bytes) -> None:
    signature = _sign(SECRET, b"{}")

    assert is_ok("hmac-sha256", [(name, prefix + signature)])
    assert is_ok("hmac-sha256", [(name, prefix + signature.upper())])
    assert not is_ok("hmac-sha256", [(name, prefix + prefix + b"x" + signature)])
    assert not is_ok("hmac-sha256", [(b"x-signature-256", b"0" * 64), (b"x-signature", signature)])


@pytest.mark.parametrize(
    "time",
    [
        *("", "-1794000000", "+1794000000", "1e9", "NaN", "inf", "0x6a", "1_0", " 1", "9" * 12, "9" * 5000),
        "\u0661\u0662\u0663",
        "\u00b2",
    ],
)
def test_time_that_is_no_number_of_seconds_is_refused(time: str) -> None:
    sent = time.encode()
    signature = b"v0=" + _sign(SECRET, b"v0:" + sent + b":{}")
    headers = [(b"x-slack-request-timestamp", sent), (b"x-slack-signature", signature)]

    for now_ms in (START_MS, 0, 10**18):
        assert not is_ok("slack", headers, now_ms=now_ms)


def test_time_of_slack_must_be_close_to_now() -> None:
    headers = proof("slack", SECRET, b"{}")

    now = [
        NOW_S * 1000 + off
        for off in (-SLACK_WINDOW_MS - 1, -SLACK_WINDOW_MS, SLACK_WINDOW_MS, SLACK_WINDOW_MS + 1)
    ]
    assert [is_ok("slack", headers, now_ms=one) for one in now] == [False, True, True, False]


def test_unknown_words_before_the_secret_are_refused() -> None:
    values = [b"bearer " + SECRET, b"BEARER   " + SECRET, SECRET, b"Basic " + SECRET, b"Bearer", b"Bearer "]

    found = [is_ok("bearer", [(b"authorization", value)]) for value in values]

    assert found == [True, True, False, False, False, False]


def test_header_is_returned_only_if_it_is_there_once() -> None:
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]

    assert [only_header(headers, name) for name in ("a", "b", "c")] == [None, b"2", None]
