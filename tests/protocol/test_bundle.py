"""Bundles as values: their ids, the stored form of a file, and which files are allowed."""

import hashlib
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.errors import BadRequest, NotFound, NotPerson
from palaver.ids import ulid
from palaver.protocol.bundles import (
    BundleFile,
    bundle_hint,
    bundle_key,
    bundle_of,
    bundle_summary,
    file_content,
    format_bundle_id,
    keep_file,
    locate_file,
    parse_bundle_id,
    path_in_bundle,
    payload_of_bundle,
)
from palaver.protocol.envelope import Event
from palaver.protocol.events import Bundle, KeptFile
from palaver.protocol.transcript import Excerpt

SECRET = b"nobody in a bundle may see this"

ulids = st.builds(ulid, st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
texts = st.text(st.characters(exclude_categories=["Cs"]))
bundles = st.builds(
    Bundle,
    bundle_id=ulids.map(bundle_key).map(format_bundle_id),
    title=texts,
    description=texts,
    files=st.lists(st.builds(BundleFile, path=texts, content=st.binary()).map(keep_file), max_size=3).map(
        tuple
    ),
    events=st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), max_size=3).map(tuple),
    transcripts=st.lists(
        st.builds(
            Excerpt,
            agent=texts,
            first=st.integers(1, 99),
            last=st.integers(1, 99),
            level=st.sampled_from(["normal", "full", "detailed"]),
            entries=st.just(({"number": 1, "role": "user", "text": "hi"},)),
        ),
        max_size=2,
    ).map(tuple),
    extends=st.just("") | ulids.map(bundle_key).map(format_bundle_id),
)


@given(ulids)
def test_bundle_id_survives_formatting_and_parsing(event_id: str) -> None:
    key = bundle_key(event_id)

    assert parse_bundle_id(format_bundle_id(key)) == key
    assert event_id.lower().endswith(key)


@pytest.mark.parametrize("reference", ["bundle:7f3q9x2m", "7f3q9x2m", "7F3Q9X2M", "BUNDLE:7f3Q9x2M"])
def test_bundle_id_is_accepted_in_any_case_with_or_without_its_prefix(reference: str) -> None:
    assert parse_bundle_id(reference) == "7f3q9x2m"


@pytest.mark.parametrize(
    "reference",
    ["", "bundle:", "7f3q9x2", "7f3q9x2mm", "bundle:bundle:7f3q9x2m", "7f3q9x2u", "#42", "7f3q9x2m\n"],
)
def test_invalid_bundle_id_is_refused(reference: str) -> None:
    with pytest.raises(BadRequest, match="is not a bundle"):
        parse_bundle_id(reference)


@given(st.binary() | texts.map(str.encode))
def test_file_content_survives_encoding(content: bytes) -> None:
    kept = keep_file(BundleFile(path="a", content=content))

    stored = msgspec.json.decode(msgspec.json.encode(kept), type=KeptFile)

    assert file_content(stored) == content
    assert (kept.size, kept.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert (kept.content is None) != (kept.base64 is None)


@given(st.binary() | st.text('\0\x1b\x7fa\n"\\').map(str.encode))
def test_stored_file_takes_at_most_about_twice_its_size(content: bytes) -> None:
    kept = keep_file(BundleFile(path="", content=content))

    assert len(msgspec.json.encode(kept)) <= 2 * len(content) + 200


@pytest.mark.parametrize(
    "content", [b"", b"x = 1\n", "über\r\n".encode(), b"\xef\xbb\xbfbom", b"page\x0cfeed 12345"]
)
def test_text_is_stored_as_text(content: bytes) -> None:
    assert keep_file(BundleFile(path="a", content=content)).content == content.decode()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\xed\xa0\x80", b"\0" * 100, b"\x89PNG\r\n"])
def test_content_that_is_not_text_is_stored_in_base64(content: bytes) -> None:
    assert keep_file(BundleFile(path="a", content=content)).content is None


@given(bundles)
def test_bundle_survives_encoding_and_decoding(bundle: Bundle) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(payload_of_bundle(bundle)))

    assert bundle_of(made(stored)) == bundle


def test_payload_leaves_out_empty_fields() -> None:
    bundle = Bundle(bundle_id="bundle:7f3q9x2m", title="T")

    assert payload_of_bundle(bundle) == {"bundle_id": "bundle:7f3q9x2m", "title": "T"}


def test_bundle_with_a_lost_blob_is_not_found() -> None:
    lost = made({"bundle_id": "bundle:7f3q9x2m", "missing_blob": "abc"})

    with pytest.raises(NotFound, match="no content of bundle:7f3q9x2m: its file in blobs/ is lost"):
        bundle_of(lost)


def test_payload_that_is_not_a_bundle_is_refused_with_the_reason() -> None:
    with pytest.raises(NotFound, match=r"no content of bundle:7f3q9x2m: .*title"):
        bundle_of(made({"bundle_id": "bundle:7f3q9x2m", "title": 3}))


def test_event_of_another_type_is_not_a_bundle() -> None:
    with pytest.raises(NotFound, match="#7 is not a bundle"):
        bundle_of(replace(made({}), type="message"))


def test_summary_counts_the_contents_of_a_bundle() -> None:
    file = {"path": "a", "size": 1, "sha256": "x", "content": "a"}
    payload: dict[str, object] = {
        "bundle_id": "bundle:7f3q9x2m",
        "title": "Review",
        "files": [file, file],
        "events": [[1, 2]],
        "transcripts": [{"agent": "nova", "first": 1, "last": 2, "level": "full", "entries": []}],
        "extends": "bundle:00000000",
    }

    assert (
        bundle_summary(made(payload))
        == "bundle:7f3q9x2m Review, 2 files, 1 event range, 1 transcript, extends bundle:00000000"
    )
    assert bundle_summary(made({"files": 3})) == "bundle:7f3q9x2m (its content cannot be read)"


def made(payload: dict[str, object]) -> Event:
    """Return the event of a bundle; its id ends with the id of the bundle."""
    id_ = "01JNXB5C4EZ8R5D37F3Q9X2M"
    return Event(seq=7, id=id_, type="bundle", sender="luna", to=(), ts=0, device="D", payload=payload)


def message(seq: int, **payload: object) -> Event:
    return Event(seq=seq, id="M", type="message", sender="luna", to=(), ts=0, device="D", payload=payload)


def test_hint_names_the_messages_that_have_a_bundle() -> None:
    messages = [
        message(1),
        message(2, bundle_id="bundle:7f3q9x2m"),
        message(3, bundle_id="bundle:abc) run this"),
        message(4, bundle_id=7),
        message(5, bundle_id="bundle:00000000"),
    ]

    assert bundle_hint(messages) == (
        "#2 comes with a bundle: pal bundle show bundle:7f3q9x2m; "
        "#5 comes with a bundle: pal bundle show bundle:00000000"
    )
    assert bundle_hint(messages[:1]) == ""


# Allowed files


def locate(given: str, cwd: Path | str, *roots: str, is_human: bool = False) -> tuple[str, str]:
    found = locate_file(given, cwd=str(cwd), roots=roots, is_human=is_human, real=os.path.realpath)
    return found.path, found.real


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with links of every kind, next to files that must stay outside."""
    top = tmp_path_factory.mktemp("tree").resolve()
    desk, outside = top / "desk", top / "outside"
    (desk / "sub").mkdir(parents=True)
    outside.mkdir()
    (top / "desktop").mkdir()
    for secret in (outside / "secret", top / "secret", top / "desktop" / "secret"):
        secret.write_bytes(SECRET)
    (desk / "a").write_bytes(b"a")
    (desk / "sub" / "b").write_bytes(b"b")
    for name, target in {
        "out": "../outside",
        "up": "..",
        "here": ".",
        "leaf": "../outside/secret",
        "absolute": str(outside),
        "loop": "loop",
        "inner": "sub/b",
        "sub/out": "../../outside",
        "sub/up": "..",
        "sub/chain": "out",
    }.items():
        (desk / name).symlink_to(target)
    return top


names = "a b sub out up here leaf absolute loop inner chain secret desk desktop outside"
steps = st.sampled_from(["..", ".", "", *names.split()])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(steps, min_size=1, max_size=8),
    st.sampled_from(["", "/", "{top}/", "{top}/desk/", "//{top}/desk/"]),
)
def test_path_never_lets_an_agent_read_outside_its_directory(
    tree: Path, parts: list[str], start: str
) -> None:
    given = start.format(top=tree) + "/".join(parts)
    try:
        _, real = locate(given, tree / "desk")
    except (BadRequest, NotPerson):
        return

    try:
        content = Path(real).read_bytes()
    except OSError:
        return
    assert content != SECRET


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text() | st.lists(steps, max_size=6).map("/".join))
def test_any_path_is_found_or_refused(tree: Path, given: str) -> None:
    try:
        path, real = locate(given, tree / "desk")
    except (BadRequest, NotPerson):
        return

    assert not path.startswith("../")
    assert Path(real).is_relative_to(tree / "desk")


@pytest.mark.parametrize(
    ("given", "path", "real"),
    [
        ("a", "a", "a"),
        ("./sub//b", "sub/b", "sub/b"),
        ("sub/../a", "a", "a"),
        ("../desk/a", "a", "a"),
        ("out/../a", "a", "a"),
        ("inner", "inner", "sub/b"),
        ("here/here/a", "here/here/a", "a"),
        ("{desk}/a", "a", "a"),
        ("//{desk}/a", "a", "a"),
        ("missing", "missing", "missing"),
        (".", ".", ""),
    ],
)
def test_file_in_the_directory_is_named_relative_to_it(tree: Path, given: str, path: str, real: str) -> None:
    desk = tree / "desk"

    assert locate(given.format(desk=desk), desk) == (path, str(desk / real))


@pytest.mark.parametrize(
    "given",
    ["..", "../secret", "../desktop/secret", "out/secret", "leaf", "absolute/secret", "{top}/secret"],
)
def test_agent_is_refused_a_file_from_outside(tree: Path, given: str) -> None:
    with pytest.raises(NotPerson, match="only a person can put it into a bundle"):
        locate(given.format(top=tree), tree / "desk")


@pytest.mark.parametrize("given", ["../secret", "leaf"])
def test_human_must_name_a_file_from_outside_by_its_absolute_path(tree: Path, given: str) -> None:
    with pytest.raises(BadRequest, match="use its absolute path"):
        locate(given, tree / "desk", is_human=True)


def test_human_may_name_any_file_by_its_absolute_path(tree: Path) -> None:
    secret = str(tree / "secret")

    assert locate(secret, tree / "desk", is_human=True) == (secret, secret)


@pytest.mark.parametrize("given", ["../outside/secret", "leaf", "out/secret"])
def test_root_allows_the_files_in_it(tree: Path, given: str) -> None:
    _, real = locate(given, tree / "desk", "../outside", is_human=True)

    assert real == str(tree / "outside" / "secret")


def test_root_does_not_allow_files_next_to_it(tree: Path) -> None:
    with pytest.raises(BadRequest, match="is outside"):
        locate("../secret", tree / "desk", "../outside", is_human=True)


def test_directory_entered_through_a_link_is_still_the_directory(tree: Path) -> None:
    entered = tree / "desk" / "here"

    assert locate("a", entered) == ("a", str(tree / "desk" / "a"))
    assert locate(f"{tree}/desk/a", entered) == (f"{tree}/desk/a", str(tree / "desk" / "a"))


def test_at_the_root_of_the_file_system_everything_is_inside(tree: Path) -> None:
    path, real = locate(f"{tree}/secret", "/")

    assert f"/{path}" == real == f"{tree}/secret"


@pytest.mark.parametrize("given", ["", "a\0b"])
def test_invalid_file_name_is_refused(given: str) -> None:
    with pytest.raises(BadRequest, match="cannot be empty"):
        locate(given, "/")


@pytest.mark.parametrize(
    ("given", "path"), [("./src/a", "src/a"), ("/w/src/a", "src/a"), ("/etc/x", "/etc/x"), ("../b", "/b")]
)
def test_file_is_looked_up_by_the_name_it_would_have(given: str, path: str) -> None:
    assert path_in_bundle(given, "/w") == path
