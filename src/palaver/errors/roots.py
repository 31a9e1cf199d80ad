"""The root of the tree, its two branches, and the shapes that leaves have. Nobody raises these."""

from collections.abc import Mapping


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


class Sentence(RequestError):
    """A request error whose whole story is one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence


class Trouble(Unavailable):
    """An unavailability whose whole story is one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence
