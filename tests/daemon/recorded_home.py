"""A home that an older version has made, with the output of that version about it.

    python -m tests.daemon.recorded_home PAL    # record it again, with the client of that version

The home has everything that is stored: agents, messages in every state, threads, bundles, rooms with a stick,
notes, tasks, subscriptions, tokens, settings, an archive and a removed text. Its daemon was killed while a
message was on its way. The times of rooms are long, so that no turn ends before the home is opened.
"""

import hashlib
import io
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, check_output, run_as_person, wait_until, write_settings

from palaver.services.results import COMMON_WORDS

FOLDER: Final = Path(__file__).parent / "recorded"
WORKSPACE: Final = Path(tempfile.gettempdir()) / "palaver-recorded"

Output = dict[str, list[object]]
"""The lines that each reading command prints as JSON, by the words of the command."""

_YEARS_S: Final = 3_000_000_000
_LARGE: Final = "large " * 16_000
"""A text that is stored in its own file."""
_LATER: Final = "later"
_NOT_COMPARED: Final = frozenset({"home", "pid", "meaning", "recent"})
"""Fields with values of this machine or of the last day, and the help texts of settings, which may change."""
_LONG: Final = 2_000
"""Characters of a text that is recorded as its hash."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the older version about the home, and where its recording ended."""

    last: int
    """The seq of the last event that the older version wrote before it was killed."""
    end_ms: int
    output: Output


class OldHome(Home):
    """A home whose daemon is also of the older version: it is installed next to its client."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "PALAVER_PYTHON": str(Path(self.client).parent / "python")}


# Reading


def reading_commands(home: Home) -> Iterator[tuple[str, ...]]:
    """Yield every reading command for the events that the home has."""
    yield from (
        ("events", "--all"),
        ("events", "--archived"),
        ("list", "-v"),
        ("pending",),
        ("thread", "list"),
        ("thread", "show", "pr-123"),
        ("bundle", "list"),
        ("room", "list", "--all"),
        ("task", "list", "--all"),
        ("events", "subs", "--all"),
        ("token", "list"),
        ("config", "list"),
        ("export",),
    )
    for agent in home.ok("list", "-v", "--json").lines:
        yield ("status", str(agent["name"]))
        yield ("inbox", "--as", str(agent["name"]), "--limit", "100")
    for room in home.ok("room", "list", "--all", "--json").lines:
        yield ("room", "state", "--room", str(room["room_id"]))
        yield ("note", "list", "--all", "--room", str(room["room_id"]))
    for event in home.ok("events", "--archived", "--json").lines:
        yield ("show", str(event["seq"]))
        if event["type"] == "message":
            yield ("receipts", str(event["seq"]))
            yield ("trace", str(event["seq"]))
        if event["type"] == "task.create":
            yield ("task", "show", str(event["seq"]))
        if event["type"] == "bundle":
            yield ("bundle", "show", str(event["payload"]["bundle_id"]))


def read_all(home: Home, commands: Sequence[Sequence[str]], last: int, end_ms: int) -> Output:
    """Run reading commands. Later events and times, and fields that may differ, are left out."""
    found: Output = {}
    for words in commands:
        # A person may read as any agent; a script may not when its own parent has ended.
        result = run_as_person(home, *words, "--json") if "--as" in words else home.pal(*words, "--json")
        lines = result.lines or [json.loads(line) for line in result.err.splitlines()]
        kept = [
            _in_older_words(line)
            for line in lines
            if int(line.get("seq") or 0) <= last
            and line.get("key") not in _NEW_SETTINGS
            and line.get("kind") not in _NEW_KINDS
        ]
        found[" ".join(words)] = [_comparable(line, last, end_ms) for line in kept]
    return found


def _in_older_words(line: Mapping[str, object]) -> dict[str, object]:
    """Leave out the common words that the older version did not print next to its own."""
    own = {key: one for key, one in line.items() if all(key != COMMON_WORDS.get(word) for word in line)}
    return {key: _nested_in_older_words(one) for key, one in own.items()}


def _nested_in_older_words(value: object) -> object:
    if isinstance(value, list):
        return [_nested_in_older_words(one) for one in value]
    return _in_older_words(value) if isinstance(value, Mapping) else value


_NEW_OF_AGENTS = frozenset({"cwd", "rooms", "tool", "doing", "folder"})
"""Fields of an agent that the older version did not print."""
_NEW_KINDS = frozenset({"request", "unconfirmed", "dead", "stick", "stale"})
"""Entries of `pal pending` that the older version did not print."""
_NEW_OF_PENDING = frozenset({"key", "kind", "what", "why", "actions", "seq"})
_NEW_SETTINGS = frozenset(
    {
        "metrics",
        "metrics_names",
        "otel_endpoint",
        "notify",
        "notify_command",
        "notify_text",
        "agent_commands",
        "irc",
        "irc_remote",
        "irc_tls_cert",
        "irc_tls_key",
        "irc_guests",
        "window",
        "web_approvals",
        "auto_turn_triage_model",
        "auto_turn_debounce_ms",
        "auto_turn_max_batch",
        "auto_turn_triage_timeout_s",
        "auto_turn_timeout_s",
        "auto_turn_limit_per_hour",
        "auto_turn_triage_command",
        "auto_turn_command",
    }
)


def _comparable(value: object, last: int, end_ms: int) -> object:
    if isinstance(value, Mapping):
        hidden = _NOT_COMPARED | (_NEW_OF_AGENTS if "joined" in value else frozenset())
        hidden |= {"files"} if "delivered_to" in value else frozenset()  # The files of a message are new too.
        hidden |= {"wait"} if "state" in value else frozenset()  # So are the reasons why messages wait.
        hidden |= {"waiting"} if "read_by" in value or "queue" in value else frozenset()
        hidden |= _NEW_OF_PENDING if "answerable" in value else frozenset()
        # The older version showed tasks as JSON, and of a held message not why it is held.
        is_sentence = str(value.get("type")).startswith("task.") or str(value.get("text")).startswith("(held")
        hidden |= {"text"} if is_sentence else frozenset()
        shown = {key: one for key, one in value.items() if key not in hidden}
        return {key: _comparable(one, last, end_ms) for key, one in shown.items()}
    if isinstance(value, list):
        is_later = [isinstance(one, Mapping) and _seq_of(one) > last for one in value]
        return [
            _comparable(one, last, end_ms) for one, later in zip(value, is_later, strict=True) if not later
        ]
    if isinstance(value, str) and len(value) > _LONG:
        return f"sha256 {hashlib.sha256(value.encode()).hexdigest()}"
    # A reservation ends where it was stored to end. A lease is given again when the home is opened.
    is_stored = isinstance(value, int) and _YEARS_S * 500 < value - end_ms < _YEARS_S * 1_000
    return _LATER if isinstance(value, int) and value > end_ms and not is_stored else value


def _seq_of(line: Mapping[object, object]) -> int:
    found = line.get("seq") or line.get("event_seq")
    return found if isinstance(found, int) else 0


@contextmanager
def opened_copy(client: str | None = None) -> Iterator[Home]:
    """Unpack the home into a new folder, and open it with a client; with today's by default."""
    folder = Path(tempfile.mkdtemp(prefix="pal-recorded-"))
    try:
        with tarfile.open(FOLDER / "home.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        home = OldHome(folder / "home", client) if client else Home(folder / "home")
        try:
            home.ok("up")
            # The daemon first finds out that no process of the recorded agents runs.
            wait_until(lambda: not any(line["present"] for line in home.ok("list", "-v", "--json").lines))
            yield home
        finally:
            home.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_recorded() -> Recorded:
    """Return the output of the older version."""
    found = msgspec.json.decode(lzma.decompress((FOLDER / "output.json.xz").read_bytes()), type=Recorded)
    output = {
        words: [_comparable(line, found.last, found.end_ms) for line in lines]
        for words, lines in found.output.items()
    }
    return msgspec.structs.replace(found, output=output)


# Recording


def use_every_part(home: Home) -> None:
    """Use every part of the bus once, then kill the daemon while a message is on its way."""
    write_settings(
        home,
        brake_per_minute=3,
        hints="be brief",
        room_lease_s=_YEARS_S,
        room_heartbeat_s=_YEARS_S,
        room_claim_s=_YEARS_S,
        room_presence_s=_YEARS_S,
        room_owner_idle_s=_YEARS_S,
    )
    home.ok("up")
    luna, nova, kira, mira = (home.shell() for _ in range(4))
    mira.ok("join", "--name", "mira")
    mira.ok("leave")
    luna.ok("join", "--name", "luna", "--harness", "claude")
    nova.ok("join", "--name", "nova", "--harness", "codex")
    kira.ok("join", "--name", "kira", "--tag", "api")
    # Messages: seen, answered, queued, held, dead, expired, large, removed
    asked = luna.ok("send", "@nova", "--intent", "request", "--thread", "pr-123", "--json", "--", "why?").json
    nova.ok("recv", "--json")
    nova.ok("send", "@luna", "--intent", "ack", "--reply-to", str(asked["seq"]), "--json", "--", "so")
    luna.ok("recv", "--json")
    urgent = luna.ok("send", "@nova", "--interrupt", "--json", "--", "now").json
    nova.ok("ack", f"#{urgent['seq']}")
    luna.ok("send", "@nova", "--priority", "idle", "--expects-reply", "--thread", "pr-123", "--", "later")
    held = luna.pal("send", "@nova", "--json", "--", "the fourth in a minute")
    assert held.error["error"] == "rate_limited", held
    home.ok("send", "build/linux/**", "--", "for no agent")
    home.ok("send", "@api-", "--", "for a tag")
    soon = home.ok("send", "@kira", "--expires", "1ms", "--json", "--", "too late").json["seq"]
    wait_until(lambda: _state(home, soon) == "expired")
    home.ok("send", "@kira", "--stdin", content=_LARGE.encode())
    secret = home.ok("send", "@kira", "--json", "--", "hunter2-correcthorse").json["seq"]
    check_output(run_as_person(home, "redact", str(secret)))
    kira.ok("send", "@all", "--yes", "--", "to all agents")
    # Bundles, subscriptions, tokens, states
    (home.path.parent / "app.css").write_text("body {}\n")
    made = luna.ok("bundle", "create", "Review", "--files", "app.css", "--events", "1-3", "--json").json
    luna.ok("send", "@kira", "--bundle", str(made["bundle_id"]), "--", "see the bundle")
    luna.ok("events", "sub", "--idle", "nova", "--once", "--text", "look")
    kira.ok("events", "sub", "--type", "message", "--thread", "pr-123")
    gone = kira.ok("events", "sub", "--collision", "--json").json
    kira.ok("events", "unsub", str(gone["id"]))
    kira.ok("token", "create", "--json")
    nova.ok("status", "set", "active", "--detail", "running the tests")
    luna.ok("status", "set", "idle")
    # Rooms: a stick with an owner, one that is reserved, and a closed room
    work = (WORKSPACE / "app", WORKSPACE / "docs", WORKSPACE / "old")
    for folder in work:
        folder.mkdir(parents=True)
        for shell in (luna, nova, kira):
            shell.ok("room", "join", str(folder), "--new")
    luna.ok("stick", "claim", "--room", str(work[0]))
    kira.ok("send", "--room", str(work[0]), "--", "she has it")
    note = luna.ok("note", "add", "beware", "--room", str(work[0]), "--json").json
    kira.ok("note", "add", "and this", "--room", str(work[0]))
    luna.ok("note", "resolve", str(note["note_id"]), "--room", str(work[0]))
    nova.ok("stick", "claim", "--room", str(work[1]))
    nova.ok("stick", "pass", "kira", "--status", "done", "--next", "review", "--room", str(work[1]))
    kira.ok("stick", "claim", "--room", str(work[2]))
    kira.ok("stick", "release", "--status", "done", "--next", "nothing", "--room", str(work[2]))
    check_output(run_as_person(home, "room", "kick", "nova", str(work[1]), "--force"))
    check_output(run_as_person(home, "room", "close", str(work[2])))
    # Tasks
    first = luna.ok("task", "create", "write it", "--assignee", "@nova", "--json").json
    second = luna.ok("task", "create", "test it", "--json").json
    nova.ok("task", "update", str(first["seq"]), "--status", "in_progress")
    kira.ok("task", "complete", str(second["seq"]), "--summary", "it passes")
    check_output(run_as_person(home, "archive", "--before", "12", "--json"))
    # Agents whose processes ended, and an agent in a terminal
    for shell in (luna, nova, kira):
        shell.close()
    wait_until(lambda: not any(line["present"] for line in home.ok("list", "-v", "--json").lines))
    with FakeHolder(home) as vega:
        vega.hold(ticket_of(words_of(home, "run", "--name", "vega", "--", "bash"))).open_lane()
        home.ok("send", "@vega", "--", "taken")
        vega.take()
        with ThreadPoolExecutor() as pool:
            keys = pool.submit(run_as_person, home, "send", "@vega", "--raw", "--", "y")
            vega.answer(vega.offered(), "refused", reason="a shell is in the foreground")
            assert keys.result().status == 1
        home.ok("send", "@vega", "--", "not confirmed")
        vega.answer(vega.offered(), "unconfirmed")
        home.ok("send", "@vega", "--", "on its way")
        vega.offered()
        home.kill()


def _state(home: Home, seq: int) -> object:
    return home.ok("receipts", str(seq), "--json").json["receipts"][0]["state"]


def _pack(home: Home) -> None:
    """Store the files of a home. Sockets, locks and the daemon's log are not part of it."""
    left_out = {"daemon.lock", "start.lock", "daemon.log"}
    with tarfile.open(FOLDER / "home.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted(home.path.rglob("*")):
            if (path.is_file() and path.name not in left_out) or path.is_dir():
                info = archive.gettarinfo(path, f"home/{path.relative_to(home.path)}")
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                archive.addfile(info, io.BytesIO(path.read_bytes()) if path.is_file() else None)


def main(client: str) -> None:
    """Make a home with a client, and record its output about a copy of it."""
    FOLDER.mkdir(exist_ok=True)
    home = OldHome(Path(tempfile.mkdtemp(prefix="pal-record-")) / "home", client)
    try:
        use_every_part(home)
    finally:
        home.close()
        shutil.rmtree(WORKSPACE, ignore_errors=True)
    (home.path / "down").unlink()
    _pack(home)
    shutil.rmtree(home.path.parent)
    end_ms = time.time_ns() // 1_000_000
    with opened_copy(client) as copy:
        events = copy.ok("events", "--archived", "--json").lines
        last = max(int(event["seq"]) for event in events if event["ts"] <= end_ms)
        commands = [words for words in reading_commands(copy) if words[-1] != str(last + 1)]
        output = read_all(copy, commands, last, end_ms)
    recorded = Recorded(last=last, end_ms=end_ms, output=output)
    (FOLDER / "output.json.xz").write_bytes(lzma.compress(msgspec.json.encode(recorded), preset=9))


if __name__ == "__main__":
    main(sys.argv[1])
