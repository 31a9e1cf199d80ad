r"""Parse the text that an agent reads, as documented, without using any code that writes it.

One message is `<pal>[head] sender → recipient (+N others): text</pal>`; several messages begin with their
number and are separated by ` | `. Body text that only looks like a mark contains a backslash; backslashes are
removed from the result.
"""

import re
from dataclasses import dataclass

HEAD = re.compile(
    r"\[(?:(?P<intent>request|inform|ack)(?::(?P<topic>(?:\\.|[^\]\\])+?))?"
    r"|thread:(?P<thread>(?:\\.|[^\]\\])+?)|new message)"
    r" #(?P<seq>\d+)(?::[A-Z]+)?\] "
    r"(?P<sender>\S+) → (?P<recipient>\S+?)(?: \(\+(?P<others>\d+)(?: others?)?\))?: "
)
COUNT = re.compile(r"\[(\d+) new messages\] \| ")
REST = re.compile(r" \| \(\+(\d+) more: pal recv\)$")
TAIL = re.compile(r"(?: \| \(pal: (?:(?! \| \(pal: ).)*\))+$", re.DOTALL)
"""Hints and tips. In a body, similar text has a backslash before its bracket."""


@dataclass(frozen=True, slots=True)
class Read:
    """One message as an agent understands it."""

    seq: int
    sender: str
    recipient: str
    others: int
    intent: str
    thread: str
    text: str


@dataclass(frozen=True, slots=True)
class Fence:
    """The content of one fence; `rest` is the reported number of further messages."""

    lines: list[Read]
    rest: int


def read_fence(text: str) -> Fence:
    """Parse a fence; fail on any deviation from the documented form."""
    assert text.startswith("<pal>")
    assert text.endswith("</pal>\n")
    inner = text.removeprefix("<pal>").removesuffix("</pal>\n")
    assert not re.search(r"<\s*/?\s*pal\b", inner, re.IGNORECASE), "a body closed the fence or opened one"
    inner = TAIL.sub("", inner)
    rest = REST.search(inner)
    inner = REST.sub("", inner)
    count = COUNT.match(inner)
    lines = _read_lines(inner[count.end() :] if count else inner)
    assert len(lines) == (int(count[1]) if count else 1)
    return Fence(lines, int(rest[1]) if rest else 0)


def _read_lines(inner: str) -> list[Read]:
    """Split at the heads. A head is at the start or after ` | `; any match there is a head."""
    positions = [0, *(found.end() for found in re.finditer(r" \| ", inner))]
    heads = [found for found in (HEAD.match(inner, position) for position in positions) if found]
    assert heads
    assert heads[0].start() == 0
    ends = [found.start() - len(" | ") for found in heads[1:]] + [len(inner)]
    return [
        Read(
            seq=int(found["seq"]),
            sender=found["sender"],
            recipient=found["recipient"],
            others=int(found["others"] or 0),
            intent=found["intent"] or "",
            thread=(found["topic"] or found["thread"] or "").replace("\\", ""),
            text=inner[found.end() : end].replace("\\", ""),
        )
        for found, end in zip(heads, ends, strict=True)
    ]
