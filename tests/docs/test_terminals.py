"""The page about terminals lists exactly the reasons of a closed gate."""

import re
from pathlib import Path

from palaver.terminal.gates import REASONS

PAGE = Path(__file__).parents[2] / "docs" / "terminals.md"


def test_page_lists_every_reason_of_a_closed_gate() -> None:
    table = PAGE.read_text().split("| reason | what is the matter |")[1].split("\n\n")[0]

    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(REASONS)
