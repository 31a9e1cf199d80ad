"""Errors on a wire: every error is written by its code and details, and made of them again."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from palaver.errors.roots import OtherError, PalaverError, Sentence, Trouble

_SHAPES: Final = frozenset({Sentence, Trouble})
"""What leaves are made of; they have no code of their own."""


def error_from_wire(code: str, sentence: str, details: Mapping[str, Any]) -> PalaverError:
    """Make the error again that a daemon wrote; what this version does not know as such is an `OtherError`.

    The details choose between classes that share a code.
    """
    for kind in _branch(PalaverError):
        if (
            kind.code == code
            and kind not in _SHAPES
            and (found := _made(kind, sentence, details)) is not None
        ):
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
