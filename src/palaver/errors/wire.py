"""Errors on a wire: written as code and details, and rebuilt from them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from palaver.errors.roots import OtherError, PalaverError, Sentence, Trouble

_SHAPES: Final = frozenset({Sentence, Trouble})
"""Base classes of leaves, without a code."""


def error_from_wire(code: str, sentence: str, details: Mapping[str, Any]) -> PalaverError:
    """Rebuild an error that a daemon wrote; an `OtherError` if this version does not know it.

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
    """Return every code: each door's table is compared with it."""
    return frozenset(kind.code for kind in _branch(PalaverError))


def _branch(kind: type[PalaverError]) -> Iterator[type[PalaverError]]:
    """Yield a branch of the tree, leaves first: a class before the one it refines."""
    for child in kind.__subclasses__():
        yield from _branch(child)
    yield kind
