"""Record the pictures of the README on a real bus: its story in three terminals, and the dashboard.

`make picture` runs it and writes `docs/palaver.svg` and `docs/ui.svg`. The story has the
commands of the README, so its picture shows what a reader gets.
"""

import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyte
from tests.app.person import Person, persons
from tests.app.ui.terminals import ScreenPerson
from tests.daemon.stage import Home
from tests.docs.story import STORY, Numbers, steps
from tools.terminal_svg import CELL_W, GAP, PADDING, Window, draw

DOCS = Path(__file__).resolve().parents[1] / "docs"
DESCRIPTION = (
    "Three terminals. The agents kira and theo share a folder: kira asks, theo answers and passes the stick "
    "with a handoff. You watch, and see that your message was read."
)
DASHBOARD = (
    "The dashboard. Its screen Now lists a blocked agent and a request of kira. Its screen Talk shows the "
    "conversation with kira: the request, your reply, and that kira has not read it yet, with the reason."
)
COLS, ROWS = 70, 22
WIDE, FLAT = 2 * COLS + round((GAP + 2 * PADDING) / CELL_W), 15
NARROW = 104
PROMPTS = {"kira": "35", "theo": "36", "you": "32"}
"""The colour of each prompt."""


class Seat:
    """A person at a terminal, with a screen that can be drawn."""

    def __init__(self, home: Home, name: str, cols: int, rows: int) -> None:
        self.person = Person(home, cols=cols, rows=rows, term="xterm-256color")
        self.screen = pyte.Screen(cols, rows)
        prompt = f"\\[\\e[1;{PROMPTS[name]}m\\]{name}$\\[\\e[0m\\] "
        # Without bracketed paste, whose control sequences would be around every prompt.
        self.person.run(f"bind 'set enable-bracketed-paste off'; cd shop; PS1='{prompt}'")
        self.person.until(b"status 0")
        self.person.until(b"$\x1b[0m ")
        # The picture begins with a prompt, and not with the commands above.
        self.person.shown = b"\x1b[1;%sm%s$\x1b[0m " % (PROMPTS[name].encode(), name.encode())

    def run(self, command: str) -> str:
        """Type a command and wait for the next prompt; return the text that the terminal showed."""
        before = len(self.person.shown)
        self.person.press(f"{command}\r".encode())
        prompts = self.person.shown.count(b"$\x1b[0m ")
        self.person.until_count(b"$\x1b[0m ", prompts + 1)
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self.person.shown[before:].decode())  # without colours

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


def record_dashboard(folder: Path) -> str:
    """Let two agents and a person write to each other, and return the picture of `pal ui`."""
    (folder / "shop").mkdir()
    home = Home(folder / ".palaver")
    try:
        with persons(home) as people:
            kira, theo, you = (Person(home) for _ in range(3))
            now, talk = (ScreenPerson(home, cols=NARROW, rows=rows) for rows in (14, 16))
            people += [kira, theo, you, now, talk]
            for person, name in ((kira, "kira"), (theo, "theo")):
                person.output_of(f"stty -echo; cd shop; pal join --name {name} --yes; pal room join")
            kira.output_of("pal send @theo -- I take the lexer")
            theo.output_of("pal recv")
            theo.output_of("pal status set blocked --detail 'Bash: make install'")
            sent = kira.output_of("pal send @human --intent request -- which port should the server use?")
            now.run("stty -echo; pal ui")
            now.sees("> blocked", "2 need you")
            now.press(b"j")
            now.sees("> request", "has no reply yet")
            above = Window(title="pal ui: Now", screen=now.screen)
            seq = sent.partition("#")[2].split()[0]
            you.output_of(f"pal send --reply-to {seq} -- use 8080")
            talk.run("stty -echo; pal ui")
            talk.sees("> blocked")
            talk.press(b"3")
            talk.sees("use 8080", "waiting: kira", "answered: you")
            below = Window(title="pal ui: Talk", screen=talk.screen, y=above.height + GAP)
    finally:
        home.close()
    return draw([above, below], DASHBOARD)


def main() -> None:
    """Record each picture in a temporary home."""
    for name, make in (("palaver.svg", record), ("ui.svg", record_dashboard)):
        folder = Path(tempfile.mkdtemp(prefix="pal-")).resolve()
        try:
            (DOCS / name).write_text(make(folder), encoding="utf-8")
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # a process that ends may still write there
        print(f"{DOCS / name} written")


if __name__ == "__main__":
    main()
