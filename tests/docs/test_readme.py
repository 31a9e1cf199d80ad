"""The commands of the README, run in their order in a throw-away home, each in the terminal of its prompt."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import Home
from tests.docs.pages import ROOT, blocks, sections
from tests.docs.story import README, STORY, Numbers, steps

from palaver.app.ui.app import SCREENS

TABLE = sections(README, "##")["Commands"]

HARNESSES = {
    f"pal {name}" for name in ("claude", "codex", "opencode", "gemini", "start claude:2 codex --tag api")
}
"""Started by the tests with real harnesses."""
IN_STORY = {"pal stick wait", "pal stick pass"}
"""Part of the story."""
OPEN = {
    "pal attach luna": (b"luna | ", b"\x1cd"),
    "pal chat": (b"/help shows the commands", b"\x04"),
    "pal events --follow": (b"seen live", b"\x03"),
    "pal notify": (b"sending notices", b"\x03"),
    "pal ui": (b"1 Now", b"q"),
    "pal web": (b"\ncode  ", b"\x03"),
    "pal run --name otto -- python3 -i": (b">>>", b"\x1cd"),
}
"""Commands that run until the person leaves: a sign that they are there, and the keys to leave."""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="pal-readme-")).resolve()
    (made / "shop").mkdir()
    yield made
    shutil.rmtree(made, ignore_errors=True)  # a process that ends may still write there


@pytest.fixture
def seats(folder: Path) -> Iterator["Seats"]:
    home = Home(folder / ".palaver")
    with persons(home) as people:
        yield Seats(home, people)
    home.close()


class Seats:
    """The terminals of the story, each with its own shell in the folder `shop`."""

    def __init__(self, home: Home, people: list[Person]) -> None:
        self.home = home
        self._people = people
        self._named: dict[str, Person] = {}

    def at(self, name: str, term: str = "dumb") -> Person:
        """Return the terminal with this name; open it if necessary."""
        if name not in self._named:
            person = Person(self.home, cols=160, rows=50, term=term)
            self._people.append(person)
            person.run("stty -echo; cd shop")
            person.until(b"status 0")
            self._named[name] = person
        return self._named[name]

    def run(self, name: str, command: str) -> str:
        """Run a command in a terminal; return its output. It must succeed."""
        return self.at(name).output_of(command)


def normal(text: str) -> str:
    """Return an output without the parts that differ in each run."""
    # Shortly before midnight a lease ends on the next day, and its time is printed with the date.
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d|\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\(in \d+m\)", "(in TIME)", text)
    text = re.sub(r"shop-[a-z0-9]{4}", "ROOM", text)
    text = re.sub(r"note [a-z0-9]{8} ", "note ID ", text)
    return re.sub(r"/\S+/shop", "/shop", text)


def table_commands() -> list[str]:
    """Return every command of the table, in order."""
    cells = re.findall(r"^\| [^`|]*(?:`pal`)?[^`|]* \| (.*) \|$", TABLE, re.MULTILINE)
    return [command for cell in cells for command in re.findall(r"`(pal [^`]+)`", cell)]


def test_every_command_of_the_story_works_when_it_is_reached(seats: Seats) -> None:
    numbers = Numbers()
    story_steps = steps(STORY)

    for name, command, page in story_steps:
        here = seats.run(name, numbers.replace(command))
        numbers.learn(page, here)
        assert normal(here) == normal(numbers.replace(page)), command

    assert {name for name, _, _ in story_steps} == {"kira", "theo", "you"}
    assert len(story_steps) > 12


def test_every_command_of_the_table_works(seats: Seats) -> None:
    seats.run("you", "pal run --name luna --detach -- cat")
    seats.run("you", "pal run --count 2 --tag api -- cat")
    sent = seats.run("you", "pal send @luna -- first")
    seq = sent.split("#")[1].split()[0]
    left = [one for one in table_commands() if one not in HARNESSES | IN_STORY]
    seats.run("kira", "pal join --name kira --yes")
    seats.run("you", "pal up --http 127.0.0.1:0")  # any free port for the page
    seats.run("you", "printf 0123456789abcdef0123456789abcdef >secret.txt")

    for command in left:
        if command in OPEN:
            sign, keys = OPEN[command]
            person = seats.at("viewer", "xterm-256color")
            person.shown = b""
            person.run(command)
            while command == "pal events --follow" and sign not in person.shown:
                seats.run("kira", "pal send @human -- seen live")  # earlier events are not shown
                person.drain()
            person.until(sign)
            person.press(keys)
            if keys == b"\x03":  # the shell drops the rest of the line
                person.run("true")
            person.until(b"status 0")
        elif command == "pal room join":
            seats.run("kira", command)
        elif command == "pal recv --wait":
            seats.run("kira", "pal send @human -- hello")
            assert "hello" in seats.run("you", command)
        elif command.startswith(("pal install", "pal uninstall")):
            seats.run("you", f"{command} --yes")
        elif command == "pal up --irc":
            assert "irc://127.0.0.1:" in seats.run("you", f"{command} 127.0.0.1:0")  # any free port
        else:
            seats.run("you", command.replace(" 42", f" {seq}"))

    assert set(OPEN) < set(left)
    assert len(left) > 15


def test_commands_of_the_quick_start_start_two_harnesses() -> None:
    quick = sections(README, "##")["Quick start"]

    started = [line.split("#")[0].strip() for block in blocks(quick, "sh") for line in block.splitlines()]

    assert started == ["pal claude --name luna", "pal codex --name nova"]
    assert [name for name, _, _ in steps(quick)] == ["you"] * 3


def test_removal_steps_are_those_that_the_command_prints(seats: Seats) -> None:
    page = blocks(sections(README, "##")["Remove it"], "sh")[0]
    named = [line.split(" #")[0].strip() for line in page.splitlines()]

    shown = seats.run("you", named[0])

    printed = [line.strip() for line in shown.splitlines()[1:]]
    assert printed == [*named[1:-1], f"rm -r {seats.home.path}"]
    assert named[-1] == "rm -r ~/.palaver"
    for command in (printed[0], printed[-1]):
        seats.run("you", command)
    assert not seats.home.path.exists()


def test_readme_ends_with_links_to_the_pages() -> None:
    last = README.rpartition("\n## ")[2]

    assert last.startswith("Read on\n")
    assert len(re.findall(r"\]\(docs/[\w-]+\.md\)", last)) > 10


def test_picture_shows_the_story() -> None:
    shown = re.sub(r"<[^>]+>", "", (ROOT / "docs" / "palaver.svg").read_text(encoding="utf-8"))

    short = [command for _, command, _ in steps(STORY) if not re.search(r"[\d\"]", command)]
    assert [command for command in short if command not in shown] == []
    assert len(short) > 8


def test_recording_shows_the_three_answers_and_has_no_script() -> None:
    recording = (ROOT / "docs" / "ui-recording.svg").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", recording)

    answers = ("approve this request of luna?", "release?", "reply to #", "Nothing waits for you.")
    assert [text for text in ("3 need you", *answers) if text not in shown] == []
    assert re.findall(r"<script|\bon\w+=|https?://(?!www\.w3\.org/2000/svg)", recording) == []
    assert len(recording) < 400_000
    assert "(docs/ui-recording.svg)" in README


def test_picture_of_the_dashboard_names_all_its_screens() -> None:
    shown = re.sub(r"<[^>]+>", "", (ROOT / "docs" / "ui.svg").read_text(encoding="utf-8"))

    assert "(docs/ui.svg)" in README
    assert [title for _, _, title in SCREENS.values() if title not in shown] == []
