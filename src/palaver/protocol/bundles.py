"""Bundles: their ids, contents and limits, and which files are allowed in one.

Pure: opens no file and follows no link. The caller passes in the results of the file system.
"""

import hashlib
import posixpath
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.errors import BadRequest, NotFound, NotPerson, cut_name
from palaver.protocol.envelope import Event
from palaver.protocol.events import Bundle, ForeignBody, KeptFile, MessageSent, Unreadable
from palaver.protocol.transcript import Excerpt

BUNDLE: Final = "bundle"

LIMIT_FILE_BYTES: Final = 1024 * 1024
LIMIT_BUNDLE_BYTES: Final = 4 * 1024 * 1024
LIMIT_FILES: Final = 200
LIMIT_EVENTS: Final = 1000
"""Seqs in all event ranges of one bundle together."""
LIMIT_TITLE_BYTES: Final = 256
LIMIT_FILE_PATH_BYTES: Final = 4096

_PREFIX: Final = "bundle:"
# The alphabet of ULIDs in lower case, without i, l, o and u: the key is the end of an event's id.
_KEY: Final = re.compile("[0-9a-hjkmnp-tv-z]{8}")
_KEY_LENGTH: Final = 8


class BundleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read."""

    path: str
    content: bytes


class CreateBundle(msgspec.Struct, frozen=True, kw_only=True):
    """Combine files, events and parts of transcripts under a title. It cannot be changed afterwards."""

    title: str
    description: str = ""
    files: tuple[BundleFile, ...] = ()
    events: tuple[tuple[int, int], ...] = ()
    transcripts: tuple[Excerpt, ...] = ()
    extends: str = ""


def parse_bundle_id(reference: str) -> str:
    """Return the eight characters that identify a bundle, in lower case.

    The prefix `bundle:` is optional, and case does not matter. The pair of `format_bundle_id`.
    """
    key = reference.lower().removeprefix(_PREFIX)
    if not _KEY.fullmatch(key):
        raise BadRequest(f"{cut_name(reference)!r} is not a bundle; write its id, such as bundle:a1b2c3d4")
    return key


def format_bundle_id(key: str) -> str:
    """Format a bundle's id as it is stored and shown."""
    return _PREFIX + key


def bundle_key(event_id: str) -> str:
    """Return the eight characters of the bundle that an event with this ULID creates."""
    # The end is random. The beginning is the time, which bundles of the same second share. The broker draws
    # another id if the key is in use.
    return event_id[-_KEY_LENGTH:].lower()


def keep_file(file: BundleFile) -> KeptFile:
    """Return the stored form of a file; the pair of `file_content`."""
    text = _text(file.content)
    return KeptFile(
        path=file.path,
        size=len(file.content),
        sha256=hashlib.sha256(file.content).hexdigest(),
        content=text,
        base64=b64encode(file.content).decode() if text is None else None,
    )


def file_content(file: KeptFile) -> bytes:
    """Return a file's bytes, exactly as they were read."""
    return b64decode(file.base64 or "") if file.content is None else file.content.encode()


def _text(content: bytes) -> str | None:
    """Return the content as text, or None if it is not text.

    Control characters take six bytes each in JSON: content with many of them is not text, so that an event
    stays below twice its limit, which every wire can carry.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    # Two more, because JSON adds two quotes to the text.
    return text if len(msgspec.json.encode(text)) <= 2 * len(content) + 2 else None


def bundle_of(event: Event) -> Bundle:
    """Return the bundle of an event; raise `NotFound` if its content is lost or is not a bundle."""
    if isinstance(bundle := event.body, Bundle):
        return bundle
    reason = bundle.error if isinstance(bundle, Unreadable) else f"#{event.seq} is not a bundle"
    if event.missing_blob is not None:
        reason = "its file in blobs/ is lost"
    raise NotFound(f"content of {_id_of(event)}", reason)


def _id_of(event: Event) -> str:
    """Return the id of a bundle whose content may be lost: it follows from the id of its event."""
    return format_bundle_id(bundle_key(event.id))


def payload_of_bundle(bundle: Bundle) -> dict[str, object]:
    """Return the payload of a bundle without empty fields."""
    made: dict[str, object] = msgspec.to_builtins(bundle)
    return made


def bundle_summary(event: Event) -> str:
    """Return a short summary of a bundle's contents, for lists of events. It says if they cannot be read."""
    if not isinstance(bundle := event.body, Bundle):
        return f"{_id_of(event)} (its content cannot be read)"
    parts = [f"{bundle.bundle_id} {bundle.title}".rstrip()]
    for found, one in (
        (bundle.files, "file"),
        (bundle.events, "event range"),
        (bundle.transcripts, "transcript"),
    ):
        if found:
            parts.append(f"{len(found)} {one}{'' if len(found) == 1 else 's'}")
    if bundle.extends:
        parts.append(f"extends {bundle.extends}")
    return ", ".join(parts)


def bundle_hint(messages: Iterable[Event]) -> str:
    """Return a hint that names the messages with a bundle and how to read it; empty if there are no bundles.

    An invalid id is skipped: in a foreign envelope the sender can write anything.
    """
    return "; ".join(
        f"#{message.seq} comes with a bundle: pal bundle show {body.bundle_id}"
        for message in messages
        if isinstance(body := message.body, MessageSent | ForeignBody)
        and _KEY.fullmatch((body.bundle_id or "").removeprefix(_PREFIX))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A file that is allowed in a bundle: its path there, and the path to read, free of links."""

    path: str
    real: str


def locate_file(
    given: str,
    *,
    cwd: str,
    roots: Sequence[str] = (),
    is_human: bool,
    real: Callable[[str], str],
) -> Located:
    """Return the file that a path names, and refuse one outside.

    A file must be in the working directory or in a root, both before and after all links are followed (`real`
    does that), with `..` resolved. Only the human may name a file outside, by its absolute path. In the
    bundle a file has its path relative to the working directory, or its absolute path if it is elsewhere.
    """
    if not given or "\0" in given:
        raise BadRequest("a file name cannot be empty or contain a NUL character")
    here = _absolute("/", cwd)
    wanted = _absolute(here, given)
    found = Located(path=_path_in_bundle(wanted, here), real=real(wanted))
    is_absolute = given.startswith("/")
    if is_absolute and is_human:
        return found
    # Both forms of the path are checked: as written, `..` could lead out; after links are followed, a link
    # could.
    allowed = (here, *(_absolute(here, root) for root in roots))
    # An absolute path may reach the directory by another route than the working directory does.
    is_in = is_absolute or any(_is_within(wanted, root) for root in allowed)
    # The roots are followed too, because the working directory may itself be reached through a link.
    if is_in and any(_is_within(found.real, real(root)) for root in allowed):
        return found
    if is_human:
        raise BadRequest(
            f"{given} is outside the working directory; use its absolute path, or name its directory with "
            "--root"
        )
    raise NotPerson(
        f"{given} is outside the working directory; only a person can put it into a bundle, by its "
        "absolute path or with --root"
    )


def path_in_bundle(given: str, cwd: str) -> str:
    """Return the path that a file would have in a bundle made in this directory."""
    here = _absolute("/", cwd)
    return _path_in_bundle(_absolute(here, given), here)


def _path_in_bundle(wanted: str, here: str) -> str:
    return wanted[len(here) :].lstrip("/") or "." if _is_within(wanted, here) else wanted


def _absolute(here: str, given: str) -> str:
    whole = given if given.startswith("/") else f"{here}/{given}"
    # Two slashes at the start would stay two, and mean the same as one.
    return "/" + posixpath.normpath(f"/{whole}").lstrip("/")


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root == "/" else f"{root}/")
