"""The root of the error tree, its two branches, and base classes for the leaves. Never raised themselves."""

from collections.abc import Mapping


class PalaverError(Exception):
    """The root: each door catches it in exactly one place."""

    code: str = "error"

    @property
    def details(self) -> Mapping[str, object]:
        """The fields of this error, as they are sent on a wire."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class OtherError(PalaverError):
    """An error that this version has no class for. It keeps the received code, sentence and details."""

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
    """The request was valid; it cannot be served now."""

    code = "unavailable"


class Sentence(RequestError):
    """A request error that consists of one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


class Trouble(Unavailable):
    """An unavailability that consists of one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence
