"""Attacks with marks: a process tries to be another agent by its environment."""

import hashlib
import json
import os
import shlex
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Job, Result, Shell

_SHED = 'env -i "PATH=$PATH" PALAVER_HOME=$PALAVER_HOME'


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    bus.ok("send", "@luna", "--", "for luna alone")
    return shell


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def orphaned(shell: Shell, script: str, mark: str = "") -> Result:
    """Run shell lines in a process that an agent orphaned, in its own session."""
    job = Job(shell.home.spare_path())
    paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
    file = shell.home.spare_path()
    # The script waits until its parent has ended and process 1 has adopted it.
    file.write_text(
        f"while [ $(ps -o ppid= -p $$) != 1 ]; do :; done\n"
        f"{{ {script}; }} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}\n"
    )
    shell.begin_script(f"{_SHED} {mark} setsid -f bash {file}").end()
    return job.end()


def unread(home: Home, name: str) -> int:
    (agent,) = [one for one in home.ok("list", "--json").lines if one["name"] == name]
    count: int = agent["unread"]
    return count


def computed_mark(home: Home, name: str) -> str:
    """Return a mark computed only from public values."""
    (hello,) = [one for one in home.events("--type", "agent.hello") if one["from"] == name]
    seat = hello["payload"]["agent"]["seat"]
    parts = repr((seat["boot"], seat["pid"], seat["start"], seat.get("key", ""), name))
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def test_mark_cannot_be_computed_from_public_values(bus: Home, luna: Shell, nova: Shell) -> None:
    """Promise: a seat's mark is a secret; no agent makes the mark of another one."""
    forged = f"PALAVER_SEAT={computed_mark(bus, 'luna')}"

    who = orphaned(nova, "pal whoami --json", forged)
    everything = json.dumps(bus.events())

    assert (who.json["name"], who.json["standing"]) == ("script", "worker")
    mark = luna.home.shell()
    joined = mark.ok("join", "--name", "kira", "--json").json
    assert joined["seat"] not in everything + json.dumps(bus.events())


def test_event_of_an_orphan_with_a_mark_names_the_speaker(bus: Home) -> None:
    """Promise: every event that is written by means of a mark carries `by`."""
    shell = bus.shell()
    mark = shell.ok("join", "--name", "luna", "--json").json["seat"]

    orphaned(shell, "pal send '@human' -- hello", f"PALAVER_SEAT={mark}")

    (sent,) = bus.events("--type", "message")
    assert (sent["from"], sent["by"]) == ("luna", "script")


@pytest.mark.parametrize("words", ["recv", "recv --follow --timeout 1", "ack {seq}", "monitor"])
def test_orphan_with_a_mark_takes_no_messages(bus: Home, luna: Shell, words: str) -> None:
    """Promise: only the owner takes its messages; a mark is not enough without a live parent."""
    mark = bus.shell().ok("join", "--name", "kira", "--json").json["seat"]
    seq = bus.ok("send", "@kira", "--json", "--", "for kira alone").json["seq"]

    refused = orphaned(luna, f"pal --json {words.format(seq=seq)}", f"PALAVER_SEAT={mark}")

    assert "for kira alone" not in refused.out
    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert unread(bus, "kira") == 1


@pytest.mark.parametrize(
    "words", ["recv --as luna", "send --as luna '@human' -- x", "ack 2 --as luna", "leave --as luna"]
)
def test_orphan_cannot_speak_for_an_agent(bus: Home, luna: Shell, nova: Shell, words: str) -> None:
    """Promise: an orphaned process gives an agent no advantage: it can never use `--as`."""
    refused = orphaned(nova, f"pal --json {words}")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert (bus.texts(), unread(bus, "luna")) == (["for luna alone"], 1)


def test_orphan_cannot_take_over_a_name(bus: Home, luna: Shell, nova: Shell) -> None:
    """Promise: an orphan does not get the messages of a worker that is away either."""
    luna.ok("leave")

    refused = orphaned(nova, "bash -c 'pal --json join --as luna --pid $$; exit $?'")

    assert (refused.status, refused.error["error"]) == (1, "name_taken")


def test_agent_that_left_cannot_speak_for_another(bus: Home, luna: Shell, nova: Shell) -> None:
    """Promise: `pal leave` gives no right that the agent did not have."""
    nova.ok("leave")

    refused = nova.pal("recv", "--as", "luna", "--json")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert unread(bus, "luna") == 1


def test_script_with_a_live_parent_may_speak_for_a_worker(bus: Home, luna: Shell) -> None:
    """Promise: the rights of a person's script stay unchanged, and its use of them is logged."""
    bus.ok("send", "--as", "luna", "@human", "--", "said for luna")

    assert bus.events("--type", "message")[-1]["by"] == "script"


def test_secret_of_marks_is_private_and_survives_restarts(bus: Home) -> None:
    """Promise: marks in the environment of running agents stay valid after a restart of the daemon."""
    shell = bus.shell()
    mark = shell.ok("join", "--name", "luna", "--json").json["seat"]
    key: Path = bus.path / "seat.key"

    bus.kill()

    assert bus.ok("whoami", "--json", env={"PALAVER_SEAT": mark}).json["name"] == "luna"
    assert (os.stat(key).st_mode & 0o777, key.stat().st_size) == (0o600, 32)
