"""Record how a person answers three agents in `pal ui`: the real program, in a real tmux, on a real bus.

`make picture` runs it and writes `docs/ui-recording.svg`. Four agents are shells that run `pal`: luna asks
for a permission, nova writes too fast and is held, mira waits for a message, and kilo asks the person. The
person starts `pal ui`, sees all three and answers them. After each answer the log must have its effect;
otherwise nothing is written.
"""

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte
from tests.daemon.stage import Home, write_settings
from tests.daemon.tmux import HAS_TMUX, Pane
from tools.terminal_svg import CELL_W, GAP, PADDING, Shot, Window, draw_recording

TARGET = Path(__file__).resolve().parents[1] / "docs" / "ui-recording.svg"
DESCRIPTION = (
    "Four agents and a person. luna waits for a permission, a message of nova is held, and kilo asks the "
    "person. The person starts pal ui, sees all three on the screen Now, approves, releases and replies, and "
    "each agent continues."
)
NAMES = LUNA, NOVA, MIRA, KILO = ("luna", "nova", "mira", "kilo")
YOU = "you"
SMALL = (58, 8)
LARGE = (2 * SMALL[0] + round((GAP + 2 * PADDING) / CELL_W), 20)
COLOURS = {LUNA: "35", NOVA: "36", MIRA: "33", KILO: "34", YOU: "32"}
"""The colour of each prompt."""
ASKED = {
    "session_id": "s1",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "make install", "description": "Install the package for all users"},
}
HELD = "please rebase on main"
QUESTION = "which branch do we release from?"
ANSWER = "From release-2."
_STYLE = re.compile(r"\x1b\[([\d;]*)m")
_GREY = "90"
"""The drawing of terminals has no dim text: it is grey there."""


class Stage:
    """All panes, and what was recorded so far."""

    def __init__(self, home: Home, panes: Mapping[str, Pane]) -> None:
        self.home = home
        self.panes = panes
        self.shots: list[Shot] = []

    @property
    def you(self) -> Pane:
        """The pane of the person."""
        return self.panes[YOU]

    def record(self, caption: str, duration_s: float) -> None:
        """Capture every pane."""
        windows = []
        x = y = 0.0
        # Two panes of agents next to each other, and the pane of the person below all of them.
        for at, name in enumerate((*NAMES, YOU)):
            window = Window(title=name, screen=_screen(self.panes[name], *_size(name)), x=x, y=y)
            windows.append(window)
            x = 0.0 if at % 2 else window.width + GAP
            y += window.height + GAP if at % 2 else 0.0
        self.shots.append(Shot(windows=windows, caption=caption, duration_s=duration_s))

    def has(self, what: str, *, is_so: bool) -> None:
        """Require that the log has the effect of an answer."""
        if not is_so:
            raise SystemExit(f"recording: the log does not have it: {what}; nothing was written")
        print(f"recording: the log has it: {what}")


def _size(name: str) -> tuple[int, int]:
    return LARGE if name == YOU else SMALL


def _screen(pane: Pane, columns: int, rows: int) -> pyte.Screen:
    """Return the captured screen of a pane, with its colours."""
    screen = pyte.Screen(columns, rows)
    shown = "\r\n".join(pane.screen(with_colours=True))
    pyte.Stream(screen).feed(_with_grey(shown))
    return screen


def _with_grey(shown: str) -> str:
    """Replace dim text of the usual colour by grey text, unless it is reversed."""
    is_dim = is_reverse = False

    def replaced(style: re.Match[str]) -> str:
        nonlocal is_dim, is_reverse
        numbers = style[1].split(";")
        if {"38", "48"}.intersection(numbers):  # a colour by its number
            return style[0]
        for at, number in enumerate(numbers):
            is_reverse = number == "7" or (is_reverse and number not in ("", "0", "27"))
            is_dim = number == "2" or (is_dim and number not in ("", "0", "22"))
            numbers[at] = _GREY if is_dim and not is_reverse and number in ("2", "39") else number
        return f"\x1b[{';'.join(numbers)}m"

    return _STYLE.sub(replaced, shown)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Open a bus and five terminals; end all of them with the block."""
    (folder / "shop").mkdir()
    home = Home(folder / ".palaver")
    opened: dict[str, Pane] = {}
    try:
        write_settings(home, approvals=1, approvals_wait_s=600, brake_per_minute=1)
        home.ok("up")
        for name in (*NAMES, YOU):
            prompt = f"\\[\\e[1;{COLOURS[name]}m\\]{name}$\\[\\e[0m\\] "
            pane = Pane(home.spare_path(), {**home.environment, "TERM": "xterm-256color"})
            shell = shlex.join(["env", f"PS1={prompt}", "bash", "--norc", "--noprofile"])
            pane.open(f"cd {shlex.quote(str(folder / 'shop'))} && exec {shell}", *_size(name))
            opened[name] = pane
            pane.shows(f"{name}$")
        yield Stage(home, opened)
    finally:
        for pane in opened.values():
            pane.close()
        home.close()


def prepare(scene: Stage) -> None:
    """Let the four agents join, and three of them come to a point where only the person can help."""
    for name in NAMES:
        scene.panes[name].say(f"pal join --name {name} --harness claude --yes")
        scene.panes[name].shows(f"you are {name}")
    luna, nova, mira, kilo = (scene.panes[name] for name in NAMES)
    nova.say("pal send @mira -- the lexer is done")
    nova.shows("to mira")
    nova.say(f"pal send @mira -- {HELD}")
    nova.shows("held")
    mira.say("pal recv --follow --text")
    mira.shows("the lexer is done")
    kilo.say(f"pal send @human --intent request -- '{QUESTION}'")
    kilo.shows("#")
    kilo.say("pal recv --wait --text")
    (scene.home.path.parent / "shop" / "ask.json").write_text(json.dumps(ASKED))
    # The hook of a real harness, with the input that the harness would send: it waits for the decision.
    luna.say("pal hook claude PermissionRequest <ask.json; echo")
    scene.you.press("C-l")


def play(scene: Stage) -> None:
    """Let the person see and answer all three."""
    you, home = scene.you, scene.home
    scene.record("luna waits for a permission, a message of nova is held, and kilo asks you", 4)
    you.type("pal ui")
    you.shows("pal ui")
    scene.record("You start pal ui", 1.5)
    you.press("Enter")
    you.shows("3 need you", "permission", "held", "request")
    scene.record("It shows all three, oldest first", 4)
    you.press("j")
    you.press("j")
    you.shows("> permission")
    scene.record("j moves to the permission of luna", 2.5)
    you.type("a")
    you.shows("y yes", '"command": "make install"')
    scene.record("a shows the whole request, and asks", 4)
    you.type("y")
    you.shows("2 need you", "allowed: luna")
    scene.panes[LUNA].shows('"behavior":"allow"')
    scene.record("y allows it: luna continues", 3.5)
    answered = home.events("--type", "permission.answered")
    decisions = [(event["from"], event["payload"]["decision"]) for event in answered]
    scene.has("the person has allowed the request of luna", is_so=decisions == [("human", "allow")])

    you.press("k")
    you.shows("> held")
    scene.record("k moves to the held message of nova, with the reason", 4)
    you.type("l")
    you.shows("y yes", "release?", f"{NOVA} → @{MIRA}")
    scene.record("l asks before it is released", 3)
    you.type("y")
    you.shows("1 needs you")
    scene.panes[MIRA].shows(HELD)
    scene.record("y releases it: mira has the message", 3.5)
    (held,) = [event for event in home.events("--type", "message") if event["payload"]["text"] == HELD]
    (receipt,) = home.ok("receipts", str(held["seq"]), "--json").json["receipts"]
    scene.has("the message of nova was released and seen by mira", is_so=receipt["state"] == "seen")

    you.shows("> request")
    you.type("r")
    you.shows("to @kilo, reply to #")
    scene.record("r replies to the request of kilo", 2.5)
    you.type(ANSWER)
    you.shows(ANSWER)
    scene.record("You write, and Enter sends", 2)
    you.press("Enter")
    you.shows("0 need you", "Nothing waits for you.")
    scene.panes[KILO].shows(ANSWER)
    scene.record("kilo has your answer, and nothing waits for you any more", 4)
    reply = home.events("--type", "message", "--from", "human")[-1]
    (asked,) = [event for event in home.events("--type", "message") if event["payload"]["text"] == QUESTION]
    (receipt,) = home.ok("receipts", str(asked["seq"]), "--json").json["receipts"]
    is_answered = (reply["payload"]["text"], receipt["state"]) == (ANSWER, "answered")
    scene.has("the request of kilo is answered", is_so=is_answered)

    you.type("3")
    you.shows("answered: you", f"seen: {KILO}")
    scene.record("3 opens Talk: kilo has read your answer", 5)
    you.type("q")


def main() -> None:
    """Record in a temporary home."""
    if not HAS_TMUX:
        raise SystemExit("recording: tmux is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pal-")).resolve()
    try:
        with stage(folder) as scene:
            prepare(scene)
            play(scene)
        TARGET.write_text(draw_recording(scene.shots, DESCRIPTION), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a process that ends may still write there
    print(f"{TARGET} written")


if __name__ == "__main__":
    main()
