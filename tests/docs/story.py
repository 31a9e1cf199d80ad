"""The story of the README: its commands, the terminal of each, and the expected output."""

import re

from tests.docs.pages import ROOT, blocks, sections

README = (ROOT / "README.md").read_text(encoding="utf-8")
STORY = sections(README, "##")["A story"]

_PROMPT = re.compile(r"^(\w+)\$ ", re.MULTILINE)


class Numbers:
    """The numbers of messages in the README, and those of this run."""

    def __init__(self) -> None:
        self._here: dict[str, str] = {}

    def learn(self, page: str, here: str) -> None:
        """Take the numbers of sent messages from an output, and those of messages seen for the first time."""
        found = (re.findall(r"^(?:sent )?#(\d+)", text, re.MULTILINE) for text in (page, here))
        for old, new in zip(*found, strict=True):
            self._here.setdefault(old, new)

    def replace(self, text: str) -> str:
        """Return a text of the README with the numbers of this run."""
        return re.sub(
            r"(#|--reply-to |receipts )(\d+)", lambda one: one[1] + self._here.get(one[2], one[2]), text
        )


def steps(text: str) -> list[tuple[str, str, str]]:
    """Return the terminal, the command and the output of each step, in order."""
    found = []
    for block in blocks(text, "console"):
        parts = _PROMPT.split(block)
        assert parts[0] == "", "a block begins with a prompt"
        for name, rest in zip(parts[1::2], parts[2::2], strict=True):
            command, _, out = rest.partition("\n")
            found.append((name, command, out))
    return found
