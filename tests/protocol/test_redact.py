"""Secrets are removed from texts, ordinary words stay, and no text takes long."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.protocol.envelope import Event
from palaver.protocol.redaction import REDACTED, redact, redact_event

LETTERS = "aB3dE5gH7jK9mN1pQ"


def key(beginning: str, length: int) -> str:
    """Return a key with this beginning. Built here, so that nothing in this file looks like a key."""
    return beginning + (LETTERS * 10)[:length]


KEYS = {
    "GitHub": [key(f"gh{letter}_", 36) for letter in "oprsu"],
    "GitHub, fine grained": [key("github_pat_", 22) + "_" + key("", 59)],
    "GitLab": [key("glpat-", 20), key("glrt-", 20)],
    "Google": [key("AIza", 35), key("ya29.", 60), key("GOCSPX-", 28)],
    "Slack": [key("xoxb-", 40), key("xoxp-", 40), key("xoxe.xoxp-", 40), key("xapp-1-", 40)],
    "AWS": ["AKIA" + "ABCD2345" * 2, "ASIA" + "ABCD2345" * 2, key("ABSK", 60) + "=="],
    "OpenAI": [key("sk-", 48), key("sk-proj-", 60), key("sk-svcacct-", 60)],
    "Anthropic": [key("sk-ant-api03-", 80)],
    "Stripe": [key("sk_live_", 24), key("rk_test_", 24), key("whsec_", 32)],
    "SendGrid": [key("SG.", 22) + "." + key("", 43)],
    "Twilio": ["SK" + "0123abcd" * 4],
    "Telegram": ["123456789:" + key("AA", 33)],
    "Hugging Face": [key("hf_", 34)],
    "npm": [key("npm_", 36)],
    "PyPI": [key("pypi-", 80)],
    "xAI and others": [key("xai-", 60), key("gsk_", 50), key("pplx-", 48), key("nvapi-", 60), key("r8_", 37)],
    "DigitalOcean": ["dop_v1_" + "0123abcd" * 8],
    "Docker": [key("dckr_pat_", 27)],
    "Atlassian": [key("ATATT3", 60)],
    "Vault": [key("hvs.", 90)],
    "Databricks": ["dapi" + "0123abcd" * 4],
    "Discord": [key("M", 23) + ".Ab-_9x." + key("", 27), key("OT", 24) + ".Ab-_9x." + key("", 38)],
    "Mailgun": ["key-" + "0123abcd" * 4],
    "Square": [key("sq0csp-", 43), key("sq0atp-", 22), key("EAAAE", 59)],
    "Facebook": [key("EAACEdEose0cBA", 160)],
    "age": ["AGE-SECRET-KEY-1" + "QPZRY9X8" * 7],
    "JSON web token": [".".join((key("eyJ", 20), key("eyJ", 40), key("", 43)))],
}


@pytest.mark.parametrize("secret", [one for some in KEYS.values() for one in some], ids=lambda one: one[:8])
@pytest.mark.parametrize("frame", ["{}", "use {} now", "({})", 'x="{}"', "a,{},b", "line\n{}\nline", "`{}`."])
def test_keys_of_vendors_are_removed(secret: str, frame: str) -> None:
    assert redact(frame.format(secret)) == frame.format(REDACTED)


def test_adjacent_keys_are_removed_together() -> None:
    assert redact(f"use {KEYS['age'][0]}{KEYS['GitHub'][0]} now") == f"use {REDACTED} now"


NAMED = [
    ("password: {}", "hunter2"),
    ("password = {}", "hunter2"),
    ("Password:{}", "hunter2"),
    ("passwd={}", "x"),
    ("the passphrase: {} is old", "correct-horse"),
    ("GITHUB_TOKEN={}", "abc"),
    ("export API_KEY={} && make", "abc,def"),
    ("MY_SECRET_VALUE={}", "abc"),
    ("KEY={}", "abc"),
    ("DBPASSWORD={}", "abc"),
    ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=="),
    ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG"),
    ("  api-key: {}", "abc"),
    ("x-api-key: {}", "abc"),
    ("apiKey: '{}',", "a b c"),
    ("accessToken := `{}`", "abc"),
    ('{{"password": "{}", "user": "luna"}}', "it's"),
    ('{{"password":"{}"}}', 'a\\"b'),
    ('{{\\"client_secret\\":\\"{}\\",\\"b\\":1}}', "abc"),
    ('config["password"] = "{}"', "a b"),
    ("{{'db.password' => '{}'}}", "abc"),
    ("if password == '{}':", "abc"),
    ("connect(password={})", "hunter2"),
    ("https://h/?access_token={}&user=luna", "abc"),
    ("postgres://luna:{}@host:5432/db", "geheim"),
    ("token: {}", "abc123def"),
    ("secret={}", "abc123def"),
    ("login --token {} now", "abc123def"),
    ("login --password '{}' now", "abc123def"),
    ("Authorization: Basic {}", "bHVuYTpnZWhlaW0="),
    ('-H "authorization: token {}"', "abc"),
    ("Authorization: {}", "abc123def"),
    ("sent as Bearer {}", "0123456789abcdef"),
    ("https://hooks.slack.com/services/{}", "T000/B000/abcdef"),
    ("MYSQL_PWD={}", "abc"),
    ("smtp_pass: {}", "abc"),
    (
        "https://a.blob.core.windows.net/c?sv=2022-11-02&sig={}&se=1",
        "aB3%2FdE5gH7jK9mN1pQ%2BaB3dE5gH7jK9mN1pQ%3D",
    ),
    ("curl -u luna:{} https://h/v1", "hunter2"),
    ("curl -s -uluna:{} https://h/v1", "hunter2"),
    ("curl -X POST -su 'luna:{}' https://h/v1", "two words"),
    ('curl https://h/v1 --user "luna:{}"', "a:b"),
    ("curl --user=luna:{}", "x"),
]


@pytest.mark.parametrize(("frame", "secret"), NAMED, ids=lambda one: one[:24])
def test_value_named_as_a_secret_is_removed(frame: str, secret: str) -> None:
    assert redact(frame.format(secret)) == frame.format(REDACTED)


ORDINARY = [
    "",
    "fixed in 656d91512ab3c4d5e6f708192a3b4c5d6e7f8091, see there",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "md5 d41d8cd98f00b204e9800998ecf8427e",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "550e8400-e29b-41d4-a716-446655440000",
    "def login(password: str, token: str = '') -> None:",
    "password: Optional",
    "password=$DB_PASSWORD and token=${TOKEN}",
    "password: <your password>",
    "password: ***",
    'password=""',
    "password:",
    "the password is wrong",
    "a token for the bot",
    "use --token to pass one",
    "--tokens 12",
    "The secret: tests",
    "secrets: inherit",
    "max_tokens=4096 and tokenizer=bpe",
    "sorted(names, key=len)",
    '{"key": "agent/luna", "keyboard": "us"}',
    "KEY: value",
    "PASS: test_login2",
    "PWD=/home/luna2",
    "token::Kind::Word2 and secret://x1y2z3",
    "Bearer tokens; bearer authentication-scheme",
    "authorization: required for everybody",
    "install sk-learn, see sk-translations-of-the-page",
    "npm_config_registry_url_of_the_mirror",
    "pypi-publish-workflow-for-all-branches",
    "http://localhost:8080/a@b",
    "mail luna@example.org: hello",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "the line -----BEGIN PRIVATE KEY----- comes first",
    "eyJ is how it begins",
    "sig=short and signal=abcdefghijklmnopqrstuvwxyz",
    "curl -u luna https://h:80/v1",
    "curl -u luna:$PASS https://h/v1 && curl -u '$WHO:${PASS}' h",
    "docker run -u 1000:1000 image; curl -sS h | docker run -u 0:0 image",
    "key-value stores, key-0123abcd, MIDI.sounds.good, EAA is short",
    "@luna: the tests are green → merge #42?",
    "--- a/x.py\n+++ b/x.py",
    "___ === ... ---",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "PGP "])
@pytest.mark.parametrize("end", ["\n", "\\n"])
def test_private_key_is_removed_up_to_its_end(kind: str, end: str) -> None:
    block = " BLOCK" if kind == "PGP " else ""
    head, tail = f"-----BEGIN {kind}PRIVATE KEY{block}-----", f"-----END {kind}PRIVATE KEY{block}-----"
    text = end.join(["see", head, "Version: 1-2", key("", 64), key("", 30) + "==", tail, "so"])

    assert redact(text) == f"see{end}{head}{REDACTED}{tail}{end}so"


def test_truncated_private_key_is_removed_completely() -> None:
    text = f"-----BEGIN PRIVATE KEY-----\n{key('', 64)}\n{key('', 64)}\nand then?"

    assert redact(text) == f"-----BEGIN PRIVATE KEY-----{REDACTED}\nand then?"


def test_shared_vectors_are_met_and_their_gaps_are_closed() -> None:
    path = Path(__file__).parents[1] / "vectors" / "secret_redaction.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]

    assert [redact(case["in"]) for case in cases] == [case["out"] for case in cases]


FRAGMENTS = st.sampled_from(
    [
        *(secret for secrets in KEYS.values() for secret in secrets),
        *(frame.format(secret) for frame, secret in NAMED),
        *ORDINARY,
        *("password", "token", "KEY", "API_KEY", "--token", "authorization", "bearer", "sk-", "ghp_", "eyJ"),
        *(
            ":",
            "=",
            "=>",
            "==",
            " ",
            "\t",
            "\n",
            '"',
            "'",
            "`",
            '\\"',
            "\\",
            ",",
            ";",
            "&",
            ")",
            "]",
            "}",
            "@",
            "/",
        ),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "://",
            "a1b2c3d4",
            "curl -u ",
            "luna:",
            "$",
            "sig=",
            "[redacted]",
            "é",
            ".",
        ),
    ]
)


@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=4)), max_size=12).map("".join))
@example("token: abc123defDBPASSWORD=abc\x1f")  # whitespace to some, and part of the value to us
def test_redacting_twice_is_the_same_as_once(text: str) -> None:
    once = redact(text)

    assert redact(once) == once


@given(
    st.sampled_from([secret for secrets in KEYS.values() for secret in secrets]),
    st.text(st.characters(exclude_categories=("L", "N", "Cs"), exclude_characters="_-.+/="), max_size=8),
    st.text(st.characters(exclude_categories=("L", "N", "Cs"), exclude_characters="_-.+/="), max_size=8),
)
def test_key_is_found_between_any_signs(secret: str, before: str, after: str) -> None:
    assert secret not in redact(before + secret + after)


HARD = [
    *(
        "sk-",
        "sk-a",
        "eyJ",
        "eyJaaaaaaaa-",
        "eyJaaaaaaaa.",
        "ghp_",
        "xoxb-",
        "SG.aaaaaaaaaaaaaaaaaaaa-",
        "Maaaaaaaaaaaaaaaaaaaaaaa.",
        "EAA",
        "key-0",
        "sig=",
        "curl ",
        "curl -u",
        "curl -u a",
        "curl -u a:",
        "curl -u 'a:$a",
        "1:AA",
    ),
    *(
        "token=",
        "token:",
        "password=",
        "password:",
        "token='",
        "token=\"a token='a ",
        'token=\\"',
        "KEY_",
        "a-",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n" + "a" * 20 + "-",
        "-",
        "-----",
        "://",
        "://a:",
    ),
    *(
        "authorization: basic ",
        "bearer ",
        "bearer a",
        "--token ",
        "&",
        "a&",
        "token=&",
        "token=,",
        "\\",
        "\\'",
        "'",
    ),
    *("A", "a", "Aa", "0", " ", "\t", "\n", "é", "[redacted]", "$", "<a", "password=<a "),
]


@pytest.mark.parametrize("part", HARD)
def test_long_texts_made_to_be_hard_are_processed(part: str) -> None:
    """With steps quadratic in the length, these would take far too long."""
    text = part * (50_000 // len(part))

    for end in ("", "=x"):
        assert isinstance(redact(text + end), str)


def event(**payload: object) -> Event:
    return Event(
        seq=1, id="id", type="message", sender="luna", to=("nova",), ts=1, device="BOXE", payload=payload
    )


@pytest.mark.parametrize("before", [b"", b"\xff\x00", b"\xff\x00\xfe\n"])
def test_encoded_bytes_that_contain_a_secret_are_removed_completely(before: bytes) -> None:
    content = before + b"TOKEN=" + KEYS["GitHub"][0].encode() + b"\x00"
    encoded = b64encode(content).decode()
    given_event = event(files=[{"path": "a.bin", "base64": encoded}, {"base64": encoded.rstrip("=")}])

    redacted = redact_event(given_event)

    expected = f"[redacted: {len(content)} bytes]"
    assert redacted.payload == {"files": [{"path": "a.bin", "base64": expected}, {"base64": expected}]}
    assert redact_event(redacted) == redacted


def test_encoded_bytes_without_a_secret_stay_and_invalid_ones_are_text() -> None:
    harmless = b64encode(bytes(range(256))).decode()
    given_event = event(base64=harmless, files=[{"base64": f"{KEYS['GitHub'][0]} "}, {"base64": "a"}])

    redacted = redact_event(given_event)

    assert redacted.payload == {"base64": harmless, "files": [{"base64": f"{REDACTED} "}, {"base64": "a"}]}


def test_event_is_redacted_at_any_depth_and_by_the_names_of_its_fields() -> None:
    secret = KEYS["GitHub"][0]
    given_event = event(
        text=f"use {secret}",
        thread="pr-123",
        payload={"files": [{"content": f"TOKEN={secret}"}, f"{secret}\n"], "password": "a b", "number": 3},
        token="abc123def",
        secret="plain",
        headers={"x-api-key": ["one", "two"], "key": "agent/luna"},
        password=None,
        passwords=("hunter2",),
    )

    redacted = redact_event(given_event)

    assert redacted == replace(
        given_event,
        payload={
            "text": f"use {REDACTED}",
            "thread": "pr-123",
            "payload": {
                "files": [{"content": f"TOKEN={REDACTED}"}, f"{REDACTED}\n"],
                "password": REDACTED,
                "number": 3,
            },
            "token": REDACTED,
            "secret": "plain",
            "headers": {"x-api-key": [REDACTED, REDACTED], "key": "agent/luna"},
            "password": None,
            "passwords": ["hunter2"],
        },
    )
    assert redact_event(redacted) == redacted
