"""Errors that a caller must fix, in any request. Errors that only rooms raise are in `rooms`."""

from collections.abc import Mapping, Sequence

from palaver.errors.roots import RequestError, Sentence


class BadRequest(Sentence):
    """The request cannot be read, or its parts do not fit together."""

    code = "bad_request"


class UsageError(Sentence):
    """The command line cannot be read."""

    code = "usage"


class UnknownRecipient(RequestError):
    """No agent matches one or more of the addresses. Nothing was sent."""

    code = "unknown_recipient"

    def __init__(self, unmatched: Mapping[str, Sequence[str]]) -> None:
        """Take each unmatched address as it was written, with its nearest names, if any."""
        super().__init__(unmatched)
        self.unmatched = {address: list(near) for address, near in unmatched.items()}

    def __str__(self) -> str:
        parts = []
        for address, near in self.unmatched.items():
            hint = f" (did you mean {', '.join(near)}?)" if near else ""
            parts.append(f"{address}{hint}")
        return f"no such agent: {'; '.join(parts)}; nothing was sent. 'pal list' shows the agents"


class AmbiguousRecipient(RequestError):
    """A prefix that several names begin with."""

    code = "ambiguous_recipient"

    def __init__(self, address: str, candidates: Sequence[str]) -> None:
        super().__init__(address, candidates)
        self.address = address
        self.candidates = list(candidates)

    def __str__(self) -> str:
        return (
            f"{self.address} is ambiguous: it matches {', '.join(self.candidates)}; write a longer name. "
            "Nothing was sent"
        )


class MessageTooLarge(RequestError):
    """A body, note or name over its limit. Never truncated."""

    code = "message_too_large"

    def __init__(self, what: str, size_bytes: int | None, limit_bytes: int) -> None:
        """`size_bytes` is None if it was not read to its end."""
        super().__init__(what, size_bytes, limit_bytes)
        self.what = what
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        if self.size_bytes is None:
            return f"{self.what} is larger than the limit of {self.limit_bytes} bytes; nothing was stored"
        return f"{self.what} has {self.size_bytes} bytes; the limit is {self.limit_bytes}. Nothing was stored"


class BadText(RequestError):
    """A character that is not allowed in a text, name or thread."""

    code = "bad_text"

    def __init__(self, what: str, codepoint: int, position: int) -> None:
        super().__init__(what, codepoint, position)
        self.what = what
        self.codepoint = codepoint
        self.position = position

    def __str__(self) -> str:
        return (
            f"{self.what} contains the character U+{self.codepoint:04X} at position {self.position}, "
            "which is not allowed; nothing was stored"
        )


class BadName(RequestError):
    """A name, tag or role that is not allowed."""

    code = "bad_name"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot be used: {self.reason}"


class NameTaken(RequestError):
    """The name belongs to another agent, present or former."""

    code = "name_taken"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"the name {self.name} is taken: {self.reason}"


class IdTaken(RequestError):
    """The sender has stored something else under this id."""

    code = "id_taken"

    def __init__(self, id: str, seq: int) -> None:
        super().__init__(id, seq)
        self.id = id
        self.seq = seq

    def __str__(self) -> str:
        return (
            f"the id {self.id} is taken: you used it for #{self.seq}, a different event; nothing was stored. "
            "Leave out the id, or use a new one"
        )


class AlreadyJoined(RequestError):
    """The process already has an agent."""

    code = "already_joined"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"this process is already {self.name}; to give up the name, run 'pal leave'"


class WhoAreYou(Sentence):
    """The request needs a name, and the caller has no name or several."""

    code = "who_are_you"


class NotYou(RequestError):
    """A sender that is not the caller's own name."""

    code = "not_you"

    def __init__(self, claimed: str, actual: str) -> None:
        super().__init__(claimed, actual)
        self.claimed = claimed
        self.actual = actual

    def __str__(self) -> str:
        return f"you are {self.actual} and cannot act as {self.claimed}; use your own name"


class NotAllowed(RequestError):
    """The caller's standing is too low for the request."""

    code = "not_allowed"

    def __init__(self, request: str, standing: str, needed: str) -> None:
        super().__init__(request, standing, needed)
        self.request = request
        self.standing = standing
        self.needed = needed

    def __str__(self) -> str:
        return f"{self.request} requires {_with_article(self.needed)}; you are {_with_article(self.standing)}"


def _with_article(standing: str) -> str:
    """Write a standing for a sentence. A phrase of several words stays as it is."""
    if " " in standing:
        return standing
    noun = {"human": "person", "external": "script"}.get(standing, standing)
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


class NotPerson(Sentence):
    """Only the human, or the same harness session, may do this."""

    code = "not_allowed"


class ReservedType(RequestError):
    """An event type that only Palaver itself writes."""

    code = "reserved_type"

    def __init__(self, type: str) -> None:
        super().__init__(type)
        self.type = type

    def __str__(self) -> str:
        return f"only Palaver writes events of type {self.type!r}; use another type"


class NotFound(RequestError):
    """The requested thing does not exist."""

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
            f"a person can release it with 'pal release {self.message}'"
        )


class BadQuery(Sentence):
    """A filter, search or WHERE clause that cannot be used."""

    code = "bad_query"
