"""Split terminal output into text, control characters and escape sequences. Pure.

An incomplete sequence at the end is kept until its rest arrives, so the result does not depend on where the
bytes are cut. Strings (OSC, DCS, APC and similar) over the limit are skipped, so a picture or a clipboard
uses no memory. Nothing here raises, whatever the bytes.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Final

STRING_LIMIT: Final = 8_192
PARAMS_LIMIT: Final = 256

_TOKEN: Final = re.compile(
    "(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    "|(?:\x1b\\[|\x9b)(?P<params>[0-?]*)(?P<final>[ -/]*[@-~])"
    "|(?:\x1b\\]|\x9d)(?P<osc>[^\x07\x18\x1a\x1b\x9c]*)"
    "(?:(?P<osc_end>[\x07\x9c]|(?=\x1b\\\\))|[\x18\x1a]|(?=\x1b[^\\\\]))"
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])(?P<string>[^\x18\x1a\x1b\x9c]*)(?:[\x18\x1a\x9c]|(?=\x1b[\\s\\S]))"
    "|\x1b(?P<escape>[ -/]+[0-~]|[0-OQ-WYZ\\\\`-~])"
    "|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])"
)
_UNFINISHED: Final = re.compile(
    "(?:\x1b[ -/]*|(?P<params>(?:\x1b\\[|\x9b)[0-?]*[ -/]*))\\Z"
    "|(?P<osc>(?:\x1b\\]|\x9d)[^\x07\x18\x1a\x1b\x9c]*)\x1b?\\Z"
    "|(?P<string>(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x18\x1a\x1b\x9c]*)\x1b?\\Z"
)
_BROKEN: Final = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*|[\\s\\S]")
_REST: Final = {
    "params": re.compile("[ -?]*(?P<end>[@-~]|(?=[^ -~]))?"),
    "osc": re.compile("[^\x07\x18\x1a\x1b\x9c]*(?P<end>[\x07\x18\x1a\x9c]|(?=\x1b))?"),
    "string": re.compile("[^\x18\x1a\x1b\x9c]*(?P<end>[\x18\x1a\x9c]|(?=\x1b))?"),
}
"""Patterns for the rest of a sequence that is too long, by its kind."""


class Sequences:
    """Splits output piece by piece. Keeps at most one incomplete sequence of limited length."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        self._skipping: re.Pattern[str] | None = None

    @property
    def tail(self) -> str:
        """The incomplete sequence at the end."""
        return self._tail

    def split(self, data: bytes) -> Iterator[re.Match[str]]:
        """Yield the matches in order. The name of the last matching group is the kind.

        `text`, `control`, `escape`; `final` with `params` for a control sequence; `osc_end` with `osc` for a
        complete operating system command. An `osc` without `osc_end` was cancelled; ignore `string`.
        """
        text = self._tail + self._decoder.decode(data)
        self._tail = ""
        at = self._skip(text)
        while at < len(text):
            if found := _TOKEN.match(text, at):
                at = found.end()
                if found.end() - found.start() <= STRING_LIMIT or found.lastgroup == "text":
                    yield found
            elif unfinished := _UNFINISHED.match(text, at):
                self._keep(text[at:], unfinished.lastgroup)
                return
            else:
                broken = _BROKEN.match(text, at)
                at = broken.end() if broken else len(text)

    def _skip(self, text: str) -> int:
        if self._skipping is None:
            return 0
        rest = self._skipping.match(text)
        if rest is None or rest["end"] is None:
            return len(text)
        self._skipping = None
        return rest.end()

    def _keep(self, tail: str, kind: str | None) -> None:
        if kind is not None and len(tail) > (PARAMS_LIMIT if kind == "params" else STRING_LIMIT):
            self._skipping = _REST[kind]
            # An escape at the end may be the start of the string terminator.
            self._tail = "\x1b" if tail.endswith("\x1b") else ""
        else:
            self._tail = tail
