"""`pal import messages`: the agents and messages of another path broker, with the real client and daemon."""

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.stage import (
    Home,
    JsonLine,
    check_output,
    new_home,
    run_as_person,
    run_script_as_person,
    wait_until,
)
from tests.forked_daemons import fork_daemon
from tests.limits import LIMIT_S
from tests.path_broker import T0, source_line, write_agent, write_lines, write_source

MANY = 12_000
"""Messages whose import takes long enough to be killed in the middle."""


@pytest.fixture
def other() -> Iterator[Home]:
    """A second home with a running daemon."""
    with new_home() as made:
        fork_daemon(made.path, made.environment)
        yield made


@pytest.fixture
def source(bus: Home) -> Path:
    return write_source(bus.path.parent / "project")


def import_from(home: Home, source: Path, *options: str) -> JsonLine:
    """Import a folder as a person; return the report."""
    return check_output(run_as_person(home, "import", "messages", str(source), "--json", *options)).json


def state_of(home: Home, agents: dict[str, tuple[str, ...]]) -> list[object]:
    """Return everything that an import changes, as users read it: the agents, with these sessions."""
    agents_there = home.ok("list", "--stopped", "--json").lines
    found: list[object] = [[(one["name"], one["state"]) for one in agents_there]]
    found.append(home.ok("dead", "--json").lines)
    for agent, sessions in agents.items():
        found.append(home.ok("session", "list", agent, "--json").lines)
        for session in ("", *sessions):
            option = ("--session", session) if session else ()
            found.append(home.ok("history", agent, *option, "--json").lines)
    return found


AGENTS: dict[str, tuple[str, ...]] = {
    "researcher": ("slack-monitor",),
    "writer": (),
    "writer_bot": (),
    "ghost": (),
}


def stored(home: Home) -> int:
    """Return how many migrated messages are in the log."""
    with closing(sqlite3.connect(home.path / "log.sqlite")) as connection:
        query = "SELECT count(*) FROM events WHERE type = 'message' AND payload LIKE '%\"migrated\":%'"
        count: int = connection.execute(query).fetchone()[0]
        return count


def test_everything_is_there_after_an_import(bus: Home, source: Path) -> None:
    done = import_from(bus, source)

    assert {
        key: done[key] for key in ("agents", "sessions", "subscriptions", "messages", "dead", "known")
    } == {
        "agents": 4,
        "sessions": 1,
        "subscriptions": 5,
        "messages": 6,
        "dead": 1,
        "known": 0,
    }
    skipped = [(one["file"], one["line"]) for one in done["first_skipped"]]
    assert skipped == [(".messages/agent--ghost.jsonl", 2), (".messages/agent--researcher.jsonl", 2)]
    assert done["renamed"] == [
        {"kind": "agent", "from": "Writer Bot", "to": "writer_bot"},
        {"kind": "sender", "from": "Writer Bot", "to": "writer_bot"},
    ]
    assert done["auto_runs"] == 2
    turned_on = [(one["agent"], one["session"]) for one in bus.ok("turn", "list", "--json").lines]
    assert turned_on == [("researcher", "main"), ("researcher", "slack-monitor")]
    assert bus.ok("turn", "stats", "--json").json["queuedSessions"] == 0
    (session,) = [
        one for one in bus.ok("session", "list", "researcher", "--json").lines if one["id"] != "main"
    ]
    assert session["title"] == "Slack channel monitor"
    assert (session["createdAt"], session["lastUsedAt"]) == (T0 + 5, T0 + 900)
    patterns = [(one["pattern"], one["addedAt"]) for one in session["subscriptions"]]
    assert patterns == [("slack/team/#general", T0)]
    own = check_output(run_as_person(bus, "sub", "list", "--as", "researcher", "--json")).lines
    assert [(one["pattern"], one["addedAt"]) for one in own if "session" not in one] == [
        ("email/**", T0),
        ("webhook/github/*", T0 + 1),
        ("agent/writer_bot", T0 + 2),
    ]


def test_messages_keep_their_content_and_state(bus: Home, source: Path) -> None:
    import_from(bus, source)

    announced, slack, second, first = bus.ok("history", "researcher", "--json").lines
    assert (first["status"], second["status"], slack["status"]) == ("delivered", "pending", "pending")
    assert (second["id"], second["from"], second["path"], second["command"], second["timestamp"]) == (
        source_line(2, "")["id"],
        "writer",
        "agent/researcher",
        "analyze",
        T0 + 2,
    )
    assert second["payload"] == [1, None, "ü"]
    assert (slack["source"], slack["externalId"], slack["from"]) == ("slack", "1708.5", "slack-bridge")
    assert slack["handled"] is True
    assert [(one["agentId"], one["sessionId"]) for one in slack["handledBy"]] == [
        ("researcher", "slack-monitor")
    ]
    assert (announced["from"], announced["handled"]) == ("writer_bot", False)
    (copy,) = bus.ok("history", "researcher", "--session", "slack-monitor", "--json").lines
    assert (copy["id"], copy["status"], copy["seq"]) == (slack["id"], "delivered", slack["seq"])
    (dead,) = bus.ok("dead", "--json").lines
    assert (dead["path"], dead["timestamp"]) == ("email/a@b/c@d", T0 + 8)
    receipts = bus.ok("receipts", str(slack["seq"]), "--json").json["receipts"]
    states = {(one["name"], one.get("session", "")): one["state"] for one in receipts}
    assert states == {
        ("researcher", "slack-monitor"): "seen",
        ("researcher", ""): "queued",
        ("writer_bot", ""): "queued",
    }


def test_pending_messages_can_be_received_by_their_agent(bus: Home, source: Path) -> None:
    import_from(bus, source)

    taken = check_output(run_as_person(bus, "recv", "--as", "researcher", "--json")).lines
    again = run_as_person(bus, "recv", "--as", "researcher", "--json")
    session = run_as_person(bus, "recv", "--as", "researcher", "--session", "slack-monitor", "--json")
    ghost = check_output(run_as_person(bus, "recv", "--as", "ghost")).out

    assert [one["id"][-1] for one in taken] == ["2", "3", "4"]
    assert (again.out, session.out) == ("", "")
    assert 'writer → ghost: analyze {"number":7}' in ghost
    assert {one["status"] for one in bus.ok("history", "researcher", "--json").lines} == {"delivered"}


def test_second_import_changes_nothing(bus: Home, other: Home, source: Path) -> None:
    import_from(bus, source)
    once, last = state_of(bus, AGENTS), bus.events()[-1]["seq"]

    done = import_from(bus, source)

    assert done["known"] == 7
    assert [done[key] for key in ("agents", "sessions", "subscriptions", "messages", "dead")] == [0] * 5
    assert bus.events()[-1]["seq"] == last
    assert state_of(bus, AGENTS) == once
    import_from(other, source)
    import_from(other, source)
    assert [_without_seq(one) for one in state_of(other, AGENTS)[1:]] == [
        _without_seq(one) for one in once[1:]
    ]


def _without_seq(found: object) -> object:
    """Return objects without the fields that depend on the log or on the time of the import."""
    if isinstance(found, list):
        return [_without_seq(one) for one in found]
    assert isinstance(found, dict)
    if found.get("id") == "main":
        return "main"
    return {key: value for key, value in found.items() if key != "seq"}


def test_import_after_an_archive_changes_nothing(bus: Home, source: Path) -> None:
    import_from(bus, source)
    check_output(run_as_person(bus, "archive", "--before", "1000"))

    assert import_from(bus, source)["known"] == 7
    assert bus.events() == []


def test_state_is_the_same_after_a_rebuild(bus: Home, source: Path) -> None:
    import_from(bus, source)
    before = state_of(bus, AGENTS)

    bus.ok("down")
    bus.ok("doctor", "--repair")
    bus.ok("up")

    assert state_of(bus, AGENTS) == before


def test_import_wakes_no_agent_and_fires_no_subscription(bus: Home, source: Path) -> None:
    researcher, nova, kira = bus.shell(), bus.shell(), bus.shell()
    researcher.ok("join", "--name", "researcher")
    nova.ok("join", "--name", "nova")
    kira.ok("join", "--name", "kira")
    for type_ in ("message", "life", "path.subscribed", "session.created"):
        check_output(run_as_person(bus, "events", "sub", "--type", type_, "--for", "nova"))
    last = bus.events()[-1]["seq"]
    waits = researcher.begin("recv", "--wait", "--json")
    follower = bus.shell().begin("events", "--follow", "--after", str(last), "--json")

    import_from(bus, source)
    kira.ok("send", "@researcher", "--", "a new message")

    # Everything that the import could have caused would come before the new message.
    followed = [json.loads(follower.line()) for _ in range(3)]
    assert [one["type"] for one in followed] == ["setting.changed", "setting.changed", "message"]
    assert followed[-1]["payload"]["text"] == "a new message"
    received = waits.end().lines
    assert "a new message" in [one["text"] for one in received]
    (notice,) = nova.ok("recv", "--wait", "--json").lines
    assert "a new message" in notice["text"]


def test_restart_after_an_import_fires_no_subscription(bus: Home, source: Path) -> None:
    nova, kira = bus.shell(), bus.shell()
    nova.ok("join", "--name", "nova")
    kira.ok("join", "--name", "kira")
    check_output(run_as_person(bus, "events", "sub", "--type", "message", "--for", "nova"))

    import_from(bus, source)
    bus.kill()
    kira.ok("send", "@human", "--", "a new message")

    (notice,) = nova.ok("recv", "--wait", "--json").lines
    assert "a new message" in notice["text"]


def test_agent_that_exists_keeps_everything(bus: Home, source: Path) -> None:
    researcher = bus.shell()
    researcher.ok("join", "--name", "researcher")
    researcher.ok("session", "create", "researcher", "slack-monitor", "--title", "Mine")
    researcher.ok("sub", "add", "own/path")

    done = import_from(bus, source)

    assert (done["agents"], done["sessions"]) == (3, 0)
    assert researcher.ok("whoami", "--json").json["name"] == "researcher"
    titles = {
        one["id"]: one["title"] for one in researcher.ok("session", "list", "researcher", "--json").lines
    }
    assert titles["slack-monitor"] == "Mine"
    patterns = [one["pattern"] for one in researcher.ok("sub", "list", "--json").lines]
    assert {"own/path", "email/**"} <= set(patterns)


def test_dry_run_stores_nothing(bus: Home, source: Path) -> None:
    last = bus.events()[-1]["seq"]

    done = check_output(run_as_person(bus, "import", "messages", str(source), "--dry-run"))

    assert "found 4 agents, 1 session, 5 subscriptions, 6 messages and 1 dead letter" in done.out
    assert "renamed the agent 'Writer Bot': writer_bot" in done.out
    assert ".messages/agent--researcher.jsonl, line 2: " in done.err
    assert "the configuration of 2 agents and sessions" in done.out
    assert "not imported: the field description (of agents), found 1 time" in done.err
    assert bus.events()[-1]["seq"] == last


def test_only_a_person_imports_messages(bus: Home, source: Path) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")

    refused = [luna.pal("import", "messages", str(source)), bus.pal("import", "messages", str(source))]
    borrowed = run_as_person(bus, "import", "messages", str(source), "--as", "luna")

    assert [one.status for one in (*refused, borrowed)] == [1, 1, 1]
    assert all("import messages" in one.err for one in (*refused, borrowed))
    assert stored(bus) == 0


def test_folder_without_files_of_the_path_broker_is_refused(bus: Home, tmp_path: Path) -> None:
    file = bus.path.parent / "file"
    file.write_text("")
    empty = bus.path.parent / "empty"
    empty.mkdir()

    refused = [run_as_person(bus, "import", "messages", str(path)) for path in (file, empty, empty / "x")]

    assert [one.status for one in refused] == [1, 1, 1]
    assert f"{file} is not a directory; nothing was imported" in refused[0].err
    assert f"{empty} has no files of the path broker" in refused[1].err
    assert "No such file or directory" in refused[2].err


def test_unreadable_file_is_named_and_the_rest_is_imported(bus: Home, source: Path) -> None:
    loop = source / ".messages" / "agent--loop.jsonl"
    loop.symlink_to(loop)
    os.mkfifo(source / ".messages" / "agent--pipe.jsonl")
    (source / "agents" / "circle").symlink_to(source)

    done = run_as_person(bus, "import", "messages", str(source), "--json")

    assert done.status == 1
    assert [one["file"] for one in done.json["unreadable"]] == [
        ".messages/agent--loop.jsonl",
        ".messages/agent--pipe.jsonl",
    ]
    assert done.json["messages"] == 6


@pytest.mark.parametrize("victim", ["client", "daemon"])
def test_import_that_was_killed_is_finished_by_the_next_one(bus: Home, victim: str) -> None:
    bus.limit_s = 4 * LIMIT_S  # It prints nothing before it ends, and a new daemon starts meanwhile.
    project = bus.path.parent / "large"
    write_agent(project, "reader", {"chat": {}})
    lines = [source_line(number, "slack/x") for number in range(MANY)]
    write_lines(
        project / ".messages" / "agent--reader.jsonl", [{**one, "status": "delivered"} for one in lines]
    )
    write_lines(project / ".messages" / "session--reader--chat.jsonl", lines)
    number = bus.path / "client.pid"
    script = f"pal import messages {project} & echo $! >{number}; wait $!"

    def kill_in_the_middle() -> None:
        wait_until(lambda: stored(bus) > 0, bus.limit_s)
        if victim == "daemon":
            bus.kill()
        else:
            os.kill(int(number.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    first = run_script_as_person(bus, script)
    killer.join()
    done = stored(bus)
    again = import_from(bus, project)

    assert done == MANY if victim == "daemon" else (first.status != 0 and 0 < done < MANY)
    # The request that was under way when the client was killed may be stored later.
    assert again["known"] >= done
    assert again["messages"] + again["known"] == MANY
    assert stored(bus) == MANY
    newest = bus.ok("history", "reader", "--limit", "5", "--json").lines
    waiting = bus.ok("history", "reader", "--session", "chat", "--limit", "5", "--json").lines
    assert [one["id"] for one in newest] == [one["id"] for one in lines[:-6:-1]]
    assert {one["status"] for one in newest} == {"delivered"}
    assert {one["status"] for one in waiting} == {"pending"}
