"""Record the picture of the README: its story, played in three real terminals on a real bus.

`make picture` runs it and writes `docs/palaver.svg`. The commands are those of the README, so the picture
shows what a reader gets.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyte
from tests.app.person import Person, persons
from tests.daemon.stage import Home
from tests.docs.story import STORY, Numbers, steps
from tools.terminal_svg import CELL_W, GAP, PADDING, Window, draw

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "palaver.svg"
DESCRIPTION = (
    "Three terminals. The agents kira and theo share a folder: kira asks, theo answers and passes the stick "
    "with a handoff. You watch, and see that your message was read."
)
COLS, ROWS = 70, 22
WIDE, FLAT = 2 * COLS + round((GAP + 2 * PADDING) / CELL_W), 15
PROMPTS = {"kira": "35", "theo": "36", "you": "32"}
"""The colour of each prompt."""


class Seat:
    """A person at a terminal, with a screen that can be drawn."""

    def __init__(self, home: Home, name: str, cols: int, rows: int) -> None:
        self.person = Person(home, cols=cols, rows=rows, term="xterm-256color")
        self.screen = pyte.Screen(cols, rows)
        prompt = f"\\[\\e[1;{PROMPTS[name]}m\\]{name}$\\[\\e[0m\\] "
        self.person.run(f"bind 'set enable-bracketed-paste off'; cd shop; PS1='{prompt}'")
        self.person.until(b"status 0")
        self.person.until(b"$\x1b[0m ")
        self.person.shown = b"\x1b[1;%sm%s$\x1b[0m " % (PROMPTS[name].encode(), name.encode())

    def run(self, command: str) -> str:
        """Type a command and wait for the next prompt; return everything that the terminal showed."""
        before = len(self.person.shown)
        self.person.press(f"{command}\r".encode())
        prompts = self.person.shown.count(b"$\x1b[0m ")
        self.person.until_count(b"$\x1b[0m ", prompts + 1)
        return self.person.shown[before:].decode()

    def drawn(self) -> pyte.Screen:
        """Return the screen after all output so far."""
        pyte.ByteStream(self.screen).feed(self.person.shown)
        return self.screen


def record(folder: Path) -> str:
    """Play the story in a folder, and return the picture."""
    (folder / "shop").mkdir()
    home = Home(folder / ".palaver")
    try:
        with persons(home) as people:
            sizes = {"kira": (COLS, ROWS), "theo": (COLS, ROWS), "you": (WIDE, FLAT)}
            seats = {name: Seat(home, name, *size) for name, size in sizes.items()}
            people += [seat.person for seat in seats.values()]
            numbers = Numbers()
            for name, command, page in steps(STORY):
                numbers.learn(page, seats[name].run(numbers.replace(command)))
            kira, theo, you = (Window(title=name, screen=seat.drawn()) for name, seat in seats.items())
    finally:
        home.close()
    theo = replace(theo, x=kira.width + GAP)
    return draw([kira, theo, replace(you, y=kira.height + GAP)], DESCRIPTION)


def main() -> None:
    """Record the picture in a temporary home."""
    folder = Path(tempfile.mkdtemp(prefix="pal-")).resolve()
    try:
        PICTURE.write_text(record(folder), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a process that ends may still write there
    print(f"{PICTURE} written")


if __name__ == "__main__":
    main()
