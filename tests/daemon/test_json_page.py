"""Every command with --json prints what docs/json.md says: the form, and the fields of each object."""

import json
import re
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.app.person import Person
from tests.bridges.stage import BadServer, Bridge, close_all, register
from tests.daemon.stage import Home, Result, new_home, run_as_person
from tests.doors.web.client import PageClient
from tests.harness.transcript_samples import SESSIONS, install_samples
from tests.limits import LIMIT_S
from tests.path_broker import write_source

from palaver.doors.cli.run import HANDLERS, TABLE
from palaver.doors.cli.spec import trace
from palaver.harness.marks import SESSION_MARKS
from palaver.services.results import COMMON_WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
_ROW = re.compile(r"^\| `pal ([a-z ]+)` \| (one|lines) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")

SAME_AS = {
    ("claude",): ("run",),
    ("codex",): ("run",),
    ("gemini",): ("run",),
    ("opencode",): ("run",),
    ("start",): ("run",),
    ("fork",): ("run",),
    ("release",): ("receipts",),
    ("redeliver",): ("receipts",),
    ("approve",): ("deny",),
    ("deny",): ("approve",),
    ("stick", "takeover"): ("stick", "claim"),
}
"""Commands that need a harness, a held message or a permission request, and print what another one prints."""


@dataclass(frozen=True)
class Row:
    """A row of the page: the form and the fields of one command."""

    form: str
    always: frozenset[str]
    at_times: frozenset[str]


def rows() -> dict[tuple[str, ...], Row]:
    """Return the tables of the page."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {
        tuple(path.split()): Row(form, frozenset(_CODE.findall(always)), frozenset(_CODE.findall(at_times)))
        for path, form, always, at_times in found
    }


def without_json() -> set[tuple[str, ...]]:
    """Return the commands that the page lists as having no JSON."""
    text = PAGE.read_text(encoding="utf-8").split("## Commands without JSON", 1)[1]
    return {
        tuple(name.removeprefix("pal ").split()) for name in _CODE.findall(text) if name.startswith("pal ")
    }


def with_json(line: str) -> list[str]:
    """Return the words of a command line with --json after the first one."""
    first, *others = line.split()
    return [first, "--json", *others]


def bridged(home: Home) -> Result:
    """Run a bridge until a message was sent, and return what it has printed."""

    def behave(near: socket.socket, count: int) -> None:
        for line in register(near):
            if line.startswith(b"PING"):
                near.sendall(b":s PONG s " + line[5:])

    bridge = Bridge(home, BadServer(behave).port, "--channel", "#c")
    bridge.until("connected")
    home.ok("send", "irc/127.0.0.1/#c", "--", "hello")
    bridge.until("sent")
    status = bridge.end()
    bridge.until("ended")
    close_all()
    return Result(status, "".join(f"{json.dumps(line)}\n" for line in bridge.heard), "")


def browsing(home: Home) -> Result:
    """Sign a browser in, and return what `pal web` has printed."""
    run_as_person(home, "up", "--http", "127.0.0.1:0")
    terminal = Person(home, cols=400)
    try:
        terminal.run("pal web --json")
        terminal.until(b'"expires"')
        terminal.until(b"}")
        (code,) = re.findall(r'"code":"(\w+)"', terminal.shown.decode())
        client = PageClient(home)
        with ThreadPoolExecutor(1) as threads:
            posting = threads.submit(client.post, "/api/sign-in", {"code": code})
            terminal.until(b"[y/N] ")
            terminal.press(b"y\r")
            posting.result(LIMIT_S)
        terminal.until(b"status 0")
    finally:
        terminal.close()
    found = re.findall(r"\{.*\}", terminal.shown.decode())
    return Result(0, "".join(f"{line}\n" for line in found), "")


def play(home: Home) -> Iterator[tuple[str, Result]]:
    """Run every command once, in a story of two agents, a script and a person."""
    folder = home.path.parent / "app"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("content\n")

    def script(line: str) -> tuple[str, Result]:
        return line, home.pal(*with_json(line))

    def person(line: str) -> tuple[str, Result]:
        return line, run_as_person(home, *with_json(line))

    luna, nova, vega = home.shell(), home.shell(), home.shell()
    for shell in (luna, nova, vega):
        shell.begin_script(f"cd {folder}").end()

    def agent(line: str) -> tuple[str, Result]:
        return line, luna.pal(*with_json(line))

    def other(line: str) -> tuple[str, Result]:
        return line, nova.pal(*with_json(line))

    yield script("up")
    yield agent("join --name luna")
    yield other("join --name nova")
    vega.ok("join", "--name", "vega")
    yield "leave", vega.pal("leave", "--json")
    yield agent("whoami")
    yield agent("send @nova --intent request --thread t hello")
    seq = home.events("--type", "message")[-1]["seq"]
    yield script("list -v")
    yield script("status")
    yield script("status luna")
    yield script("status --stats")
    yield agent("status set active --detail testing --tool Bash")
    yield agent("tag luna api")
    yield agent("tag luna --remove")
    yield other("inbox")
    yield other("recv")
    yield script(f"show {seq}")
    yield script(f"receipts {seq}")
    yield script(f"trace {seq}")
    home.ok("send", "@nova", "--", "again")
    yield other(f"ack {home.events('--type', 'message')[-1]['seq']}")
    yield script("thread list")
    yield script("thread show t")
    yield agent("session create luna chat --title Team --harness-session h1")
    yield agent("sub add chat/* --session chat")
    yield agent("sub add agent/luna")
    yield agent("sub list")
    yield other("put build.done --to luna --to @observers")
    yield agent("recv")
    yield other("route chat/team --command new --payload [] --external-id 7")
    yield other("route news/x")
    yield agent("inbox --session chat")
    yield agent("recv")
    yield script(f"receipts {home.events('--type', 'message')[-2]['seq']}")
    yield agent("recv --session chat")
    yield agent("history")
    yield agent("history --session chat")
    yield script("dead")
    yield agent("dead --clear")
    yield agent("session list luna")
    yield agent("session show luna chat")
    yield agent("sub rm chat/* --session chat")
    yield agent("session rm luna chat")
    yield agent("bundle create Review --files a.txt")
    bundle = home.ok("bundle", "list", "--json").json["bundle_id"]
    yield script("bundle list")
    yield script(f"bundle show {bundle}")
    yield script(f"bundle cat {bundle}")
    yield agent("room join")
    yield other("room join")
    yield agent("room list")
    yield agent("room state")
    yield agent("stick wait --timeout 1")
    yield agent("stick heartbeat")
    yield other("stick claim")
    yield agent("stick pass nova --status done --next review")
    yield other("stick claim")
    yield other("stick release --status done --next review")
    yield agent("note add remember")
    note = home.ok("note", "list", "--room", luna.ok("room", "list", "--json").json["room"], "--json").json[
        "id"
    ]
    yield agent("note list")
    yield agent(f"note resolve {note}")
    yield agent("task create Test --to nova")
    task = home.ok("task", "list", "--json").json["seq"]
    yield script("task list")
    yield script(f"task show {task}")
    yield other(f"task update {task} --status in_progress")
    yield other(f"task complete {task} --summary done")
    yield script("events --last 3")
    yield agent("events sub --idle nova")
    yield agent("events subs")
    yield agent(f"events unsub {luna.ok('events', 'subs', '--json').lines[0]['id']}")
    yield agent("token create")
    yield script("token list")
    yield agent("token revoke luna")
    yield person("agent register scout")
    yield script("agent list")
    yield person("agent rotate scout")
    yield person("agent revoke scout")
    yield person("irc code")
    yield person("irc verbosity #general full")
    secret = home.path.parent / "secret.txt"
    secret.write_text("a secret of a service\n")
    yield person(f"webhook add ci --secret-file {secret} --id-header X-Id")
    yield person(f"webhook add shop --secret-file {secret}")
    yield script("webhook list")
    yield person("webhook rm ci")
    yield "web", browsing(home)
    yield script("web list")
    yield person("web revoke all")
    yield other("room leave")
    yield agent("room join")
    nova.ok("room", "join")
    room = luna.ok("room", "list", "--json").json["room"]
    yield person(f"room kick nova --force --reason test --room {room}")
    options = {
        option.name for command in TABLE.commands for option in command.options if command.path[-1] == "close"
    }
    yield person(f"room close --room {room}{' --yes' if '--yes' in options else ''}")
    yield script("run --name runner --detach -- cat")
    yield script("peek runner")
    yield person("pause runner")
    yield person("unpause runner")
    yield person("stop runner")
    yield person("resume runner --detach")
    yield person("kill runner")
    nova.ok("status", "set", "blocked", "--detail", "a question")
    yield script("pending")
    install_samples(home.path.parent)
    mark = {SESSION_MARKS["codex"][0]: SESSIONS["codex"]}
    assert home.shell().pal("join", "--name", "kira", env=mark).status == 0
    yield script("transcript kira 1-2 --detail full")
    yield script("install claude --print")
    yield script("uninstall claude --print")
    yield script("config list")
    yield script("config get hints")
    yield person("config set brake_hops 9")
    yield person("config unset brake_hops")
    yield person("config set hints none --agent luna")
    yield script("config list --agent luna")
    run_as_person(home, "config", "set", "auto_turn_command", "cat")
    yield person("turn start")
    yield script("turn set nova on")
    yield script("turn list")
    yield script("turn run nova --text hello")
    yield script("turn stats")
    yield person("turn stop")
    yield "bridge irc", bridged(home)
    yield script("doctor")
    yield script("export --type message")
    exported = home.path.parent / "log.jsonl"
    exported.write_text(home.ok("export").out)
    yield person(f"import {exported}")
    yield person(f"import messages {write_source(home.path.parent / 'project')}")
    yield person("archive --before 3")
    yield person(f"redact {seq}")
    yield person(f"backup {home.path.parent / 'copy.tar'}")
    yield script("help send")
    yield script("down")


@pytest.fixture(scope="module")
def printed() -> Iterator[Mapping[str, Result]]:
    """The output of each command line."""
    with new_home() as home:
        yield dict(play(home))


def command_of(line: str) -> tuple[str, ...]:
    return trace(TABLE, line.split()).entry.command.path


def test_page_has_every_command() -> None:
    shown = {command.path for command in TABLE.commands if not command.is_hidden}

    assert set(rows()) | without_json() == (set(HANDLERS) | {("help",)}) & shown
    assert not set(rows()) & without_json()


def test_every_command_is_run_here_or_prints_what_another_prints(printed: Mapping[str, Result]) -> None:
    run = {command_of(line) for line in printed}

    assert set(rows()) - run == set(SAME_AS)
    for path, same in SAME_AS.items():
        page = rows()
        assert (page[path].always, page[path].at_times) == (page[same].always, page[same].at_times), path


def test_output_has_the_form_and_the_fields_of_the_page(printed: Mapping[str, Result]) -> None:
    for line, result in printed.items():
        row = rows()[command_of(line)]
        assert result.out, (line, result)
        assert row.form == "lines" or len(result.lines) == 1, line
        for one in result.lines:
            assert row.always <= one.keys() <= row.always | row.at_times, (line, one)


_OTHER_WORDS = frozenset({"payload", "tools", "whole", "arguments", "options"})
"""Fields with stored words of an event, tools and lines of a transcript, and the texts of help."""


def objects(value: object) -> Iterator[dict[str, Any]]:
    """Return an object and all objects in it that have words of Palaver for agents and times."""
    if isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if name not in _OTHER_WORDS:
                yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def test_every_command_has_the_common_words(printed: Mapping[str, Result]) -> None:
    for line, result in printed.items():
        for one in objects(result.lines):
            is_room = "room_id" in one
            words = {
                new for old, new in COMMON_WORDS.items() if old in one and not (is_room and old == "name")
            }
            assert words <= one.keys(), (line, one)


def test_page_lists_the_common_words() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| common word |", 1)[1].split("\n\n", 1)[0]
    listed = {
        old: new
        for new, olds in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
        for old in _CODE.findall(olds)
    }

    assert listed == COMMON_WORDS


def test_empty_list_prints_nothing(bus: Home) -> None:
    bus.shell().ok("join", "--name", "luna")

    for line in (
        "inbox --as luna",
        "task list",
        "bundle list",
        "thread list",
        "room list",
        "token list",
        "agent list",
        "pending",
    ):
        assert bus.ok(*with_json(line)).out == "", line
