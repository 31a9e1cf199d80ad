"""Everything that can go wrong and has a name.

    PalaverError
    ├── OtherError              whatever it is called: a daemon of another version knows more codes
    ├── RequestError            the caller must change something
    │   ├── BadRequest          bad_request
    │   ├── UsageError          usage
    │   ├── UnknownRecipient    unknown_recipient
    │   ├── AmbiguousRecipient  ambiguous_recipient
    │   ├── MessageTooLarge     message_too_large
    │   ├── BadText             bad_text
    │   ├── BadName             bad_name
    │   ├── NameTaken           name_taken
    │   ├── AlreadyJoined       already_joined
    │   ├── WhoAreYou           who_are_you
    │   ├── NotYou              not_you
    │   ├── NotAllowed          not_allowed
    │   ├── NotPerson           not_allowed
    │   ├── ReservedType        reserved_type
    │   ├── NotFound            not_found
    │   ├── RateLimited         rate_limited
    │   └── BadQuery            bad_query
    └── Unavailable             try again, or mend the machine
        ├── DiskFull            disk_full
        ├── StorageFailed       storage_failed
        ├── NewerSchema         newer_schema
        ├── ShuttingDown        shutting_down
        ├── TooSlow             too_slow
        └── Disconnected        disconnected

The code is for machines and never changes; the fields are for programs; the sentence is for people. An error
can be written onto a wire by its code and details, and `error_from_wire` makes the same error of them again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class PalaverError(Exception):
    """The root: what each door catches in exactly one place."""

    code: str = "error"

    @property
    def details(self) -> Mapping[str, object]:
        """The fields of this error, as they go onto a wire."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class OtherError(PalaverError):
    """A refusal that this version has no class for. It keeps the code, sentence and details it came with."""

    def __init__(self, code: str, sentence: str, details: Mapping[str, object]) -> None:
        super().__init__(code, sentence, details)
        self.code = code
        self._sentence = sentence
        self._details = dict(details)

    @property
    def details(self) -> Mapping[str, object]:
        return self._details

    def __str__(self) -> str:
        return self._sentence


class RequestError(PalaverError):
    """The caller must change something."""

    code = "bad_request"


class Unavailable(PalaverError):
    """The request was fine; it cannot be served now."""

    code = "unavailable"


class _Sentence(RequestError):
    """A request error whose whole story is one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


class BadRequest(_Sentence):
    """The request cannot be read, or its parts do not fit together."""

    code = "bad_request"


class UsageError(_Sentence):
    """The command line cannot be read."""

    code = "usage"


class UnknownRecipient(RequestError):
    """Nobody answers to one or more of the addresses. Nothing was sent."""

    code = "unknown_recipient"

    def __init__(self, unmatched: Mapping[str, Sequence[str]]) -> None:
        """Take each unmatched address as it was written, with its nearest names (maybe none)."""
        super().__init__(unmatched)
        self.unmatched = {address: list(near) for address, near in unmatched.items()}

    def __str__(self) -> str:
        parts = []
        for address, near in self.unmatched.items():
            hint = f" (nearest: {', '.join(near)})" if near else ""
            parts.append(f"{address}{hint}")
        return f"nobody answers to {'; '.join(parts)}; nothing was sent. 'pal list' shows who is there"


class AmbiguousRecipient(RequestError):
    """A prefix that several names begin with."""

    code = "ambiguous_recipient"

    def __init__(self, address: str, candidates: Sequence[str]) -> None:
        super().__init__(address, candidates)
        self.address = address
        self.candidates = list(candidates)

    def __str__(self) -> str:
        return (
            f"{self.address} could be {', '.join(self.candidates)}; write more of the name. Nothing was sent"
        )


class MessageTooLarge(RequestError):
    """A body, note or name over its limit. Never truncated."""

    code = "message_too_large"

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(what, size_bytes, limit_bytes)
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return f"{self.what} has {self.size_bytes} bytes, the limit is {self.limit_bytes}; nothing was stored"


class BadText(RequestError):
    """A character that may not stand in a text, name or thread."""

    code = "bad_text"

    def __init__(self, what: str, codepoint: int, position: int) -> None:
        super().__init__(what, codepoint, position)
        self.what = what
        self.codepoint = codepoint
        self.position = position

    def __str__(self) -> str:
        return (
            f"{self.what} holds the character U+{self.codepoint:04X} at position {self.position}, "
            "which is not allowed; nothing was stored"
        )


class BadName(RequestError):
    """A name, tag or role that nobody can have."""

    code = "bad_name"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot be used: {self.reason}"


class NameTaken(RequestError):
    """The name belongs to somebody else, who is here or has been."""

    code = "name_taken"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"the name {self.name} is taken: {self.reason}"


class AlreadyJoined(RequestError):
    """The process is somebody already."""

    code = "already_joined"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"this process is already {self.name}; 'pal leave' gives the name up"


class WhoAreYou(_Sentence):
    """The request needs a name and the caller has none, or several."""

    code = "who_are_you"


class NotYou(RequestError):
    """A sender that is not the caller's own name."""

    code = "not_you"

    def __init__(self, claimed: str, actual: str) -> None:
        super().__init__(claimed, actual)
        self.claimed = claimed
        self.actual = actual

    def __str__(self) -> str:
        return f"you are {self.actual} and cannot speak as {self.claimed}"


class NotAllowed(RequestError):
    """The caller's standing is too low for the request."""

    code = "not_allowed"

    def __init__(self, request: str, standing: str, needed: str) -> None:
        super().__init__(request, standing, needed)
        self.request = request
        self.standing = standing
        self.needed = needed

    def __str__(self) -> str:
        return f"{self.request} needs the standing of {self.needed}; you have that of {self.standing}"


class NotPerson(_Sentence):
    """What only the human, or the same harness session again, may do."""

    code = "not_allowed"


class ReservedType(RequestError):
    """An event type that only Palaver itself writes."""

    code = "reserved_type"

    def __init__(self, type: str) -> None:
        super().__init__(type)
        self.type = type

    def __str__(self) -> str:
        return f"events of type {self.type!r} are written by Palaver only"


class NotFound(RequestError):
    """What was asked for is not there."""

    code = "not_found"

    def __init__(self, what: str, reason: str = "") -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"there is no {self.what}" + (f": {self.reason}" if self.reason else "")


class RateLimited(RequestError):
    """A brake held the message. It is stored, and `pal release` lets it through."""

    code = "rate_limited"

    def __init__(self, message: int, reason: str) -> None:
        super().__init__(message, reason)
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"message #{self.message} is held: {self.reason}; "
            f"a person can let it through with 'pal release {self.message}'"
        )


class BadQuery(_Sentence):
    """A filter, search or WHERE clause that cannot be used."""

    code = "bad_query"


class _Trouble(Unavailable):
    """An unavailability whose whole story is one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


class DiskFull(_Trouble):
    """There is no room. Nothing was stored; what is stored is whole."""

    code = "disk_full"


class StorageFailed(_Trouble):
    """The log could not be written or read."""

    code = "storage_failed"


class NewerSchema(Unavailable):
    """The log was written by a newer Palaver."""

    code = "newer_schema"

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found, known)
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the log has schema {self.found} and this Palaver knows {self.known}: install the newer version"
        )


class ShuttingDown(_Trouble):
    """The daemon is on its way out."""

    code = "shutting_down"


class TooSlow(_Trouble):
    """A read ran past its time limit and was cut."""

    code = "too_slow"


class Disconnected(_Trouble):
    """The daemon cannot be reached."""

    code = "disconnected"


def error_from_wire(code: str, sentence: str, details: Mapping[str, Any]) -> PalaverError:
    """Make the error again that a daemon wrote; what this version does not know as such is an `OtherError`.

    The details choose between classes that share a code.
    """
    for kind in _branch(PalaverError):
        is_public = not kind.__name__.startswith("_")
        if kind.code == code and is_public and (found := _made(kind, sentence, details)) is not None:
            return found
    return OtherError(code, sentence, details)


def _made(kind: type[PalaverError], sentence: str, details: Mapping[str, Any]) -> PalaverError | None:
    try:
        found = kind(**details) if details else kind(sentence)
        is_same = found.details == details and bool(str(found))
    except (TypeError, ValueError, AttributeError):
        return None
    return found if is_same else None


def error_codes() -> frozenset[str]:
    """Every code there is: each door's table is compared with it."""
    return frozenset(kind.code for kind in _branch(PalaverError))


def _branch(kind: type[PalaverError]) -> Iterator[type[PalaverError]]:
    """Walk a branch of the tree, what is furthest from the root first: a class before the one it refines."""
    for child in kind.__subclasses__():
        yield from _branch(child)
    yield kind
