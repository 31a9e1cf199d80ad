"""Hints of commands: missing programs, messages without readers, and ids for completion."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.daemon.stage import Home, run_as_person


@pytest.mark.parametrize(
    ("harness", "package"),
    [
        ("claude", "@anthropic-ai/claude-code"),
        ("codex", "@openai/codex"),
        ("gemini", "@google/gemini-cli"),
        ("opencode", "opencode-ai"),
    ],
)
def test_missing_harness_is_refused_with_the_command_that_installs_it(
    bus: Home, harness: str, package: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for program in ("env", "sh"):
            found = shutil.which(program)
            assert found
            os.symlink(found, Path(folder) / program)
        refused = bus.pal(harness, "--detach", env={**bus.environment, "PATH": folder})

    assert refused.status == 127
    assert f"no such program; to install it: npm install -g {package}\n" in refused.err


def test_message_without_a_reader_is_kept(bus: Home) -> None:
    output = bus.ok("send", "@all", "--", "is anybody here?").out

    seq = bus.events("--type", "message")[-1]["seq"]
    assert output == f"stored as #{seq}; no other agent is present to read it\n"


def test_mcp_server_at_a_terminal_says_what_it_is_for(bus: Home) -> None:
    result = run_as_person(bus, "mcp")

    assert result.status == 1
    assert "a harness runs 'pal mcp'" in result.out + result.err
    assert "claude mcp add palaver -- pal mcp" in result.out + result.err


def offered(home: Home, *words: str) -> dict[str, str]:
    """Return the candidates for the last word, with their descriptions."""
    lines = home.ok("__complete", "--", *words).out.splitlines()
    return dict(line.partition("\t")[::2] for line in lines)


def test_ids_are_completed_with_a_description(bus: Home) -> None:
    luna, nova = bus.shell(), bus.shell()
    luna.ok("join", "--name", "luna")
    nova.ok("join", "--name", "nova", "--tag", "api")
    bundle = luna.ok("bundle", "create", "Review it", "--json").json["bundle_id"]
    token = luna.ok("token", "create", "--json").json["id"]
    made = luna.ok("events", "sub", "--idle", "api-nova", "--json").json["id"]
    seq = luna.ok("send", "@api-nova", "--intent", "request", "--json", "--", "?").json["seq"]

    def lines(*words: str) -> dict[str, str]:
        out = luna.ok("__complete", "--", *words).out
        return dict(line.partition("\t")[::2] for line in out.splitlines())

    assert offered(bus, "bundle", "show", "") == {bundle: "Review it"}
    assert offered(bus, "send", "--bundle", "") == {bundle: "Review it"}
    assert offered(bus, "token", "revoke", "") == {token: "luna, worker"}
    assert lines("events", "unsub", "") == {
        made: "--idle api-nova",
        f"w{seq}-api-nova": f"request #{seq} to api-nova",
    }


def test_agents_that_left_are_completed_only_where_they_can_be_meant(bus: Home) -> None:
    bus.shell().ok("join", "--name", "luna")
    bus.shell().ok("join", "--name", "nova", "--tag", "api")
    gone = bus.shell()
    gone.ok("join", "--name", "kira", "--tag", "web")
    gone.ok("leave")

    assert list(offered(bus, "pause", "")) == ["api-nova", "luna"]
    assert "@web-" not in offered(bus, "send", "@")
    assert list(offered(bus, "resume", "")) == ["api-nova", "luna", "web-kira"]
    assert list(offered(bus, "transcript", "")) == ["api-nova", "luna", "web-kira"]


def test_bundle_shows_its_events_as_the_log_does(bus: Home) -> None:
    luna = bus.shell()
    luna.ok("join", "--name", "luna")
    seq = luna.ok(
        "send", "@human", "--intent", "request", "--thread", "t", "--json", "--", "look\nhere"
    ).json["seq"]
    bundle = luna.ok("bundle", "create", "Review it", "--events", f"{seq}-{seq}", "--json").json["bundle_id"]

    shown = bus.ok("bundle", "show", bundle).out.splitlines()

    assert shown[-1] == bus.ok("events", "--thread", "t").out.rstrip("\n")
    assert "look\nhere" in bus.ok("bundle", "show", bundle, "--full").out
