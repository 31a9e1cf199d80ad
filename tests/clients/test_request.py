"""The data that a client sends to the daemon, and the data that it keeps."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palaver.harness.marks import MARKS
from palaver.version import __version__

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal, Peer


def names_of(peer: Peer) -> set[bytes]:
    return {entry.partition(b"=")[0] for entry in peer.all(b"e")}


def test_request_carries_arguments_directory_and_version(pal: Pal, daemon: Daemon, tmp_path: Path) -> None:
    pal.start("send", "luna", "", "--", "hello\n", cwd=tmp_path)

    peer = daemon.accept()

    assert peer.all(b"a") == [b"send", b"luna", b"", b"--", b"hello\n"]
    assert peer.one(b"d") == os.fsencode(tmp_path)
    assert peer.one(b"v") == __version__.encode()
    assert peer.all(b"r") == []


def test_bytes_that_are_not_utf8_arrive_unchanged(pal: Pal, daemon: Daemon, tmp_path: Path) -> None:
    directory = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(directory)

    pal.start("send", b"\xc3\x28\xff", cwd=directory, env={"PALAVER_X": "\udcff"})
    peer = daemon.accept()

    assert peer.all(b"a") == [b"send", b"\xc3\x28\xff"]
    assert peer.one(b"d") == directory
    assert b"PALAVER_X=\xff" in peer.all(b"e")


def test_removed_directory_is_an_empty_name(pal: Pal, daemon: Daemon, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    pal.start("list", before=("sh", "-c", f'cd "{gone}"; rmdir "{gone}"; exec "$@"', "sh"))

    assert daemon.accept().one(b"d") == b""


def test_each_call_has_its_own_key(pal: Pal, daemon: Daemon) -> None:
    pal.start("list")
    pal.start("list")

    first, second = daemon.accept().one(b"k"), daemon.accept().one(b"k")

    assert len(first) == len(second) == 16
    assert first != second


def test_many_long_arguments_arrive_complete(pal: Pal, daemon: Daemon) -> None:
    arguments = [b"%d" % n * 20_000 for n in range(40)]

    pal.start("send", *arguments)

    assert daemon.accept().all(b"a") == [b"send", *arguments]


def test_only_the_listed_variables_are_sent(pal: Pal, daemon: Daemon) -> None:
    local = {"LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", "TERM", "NO_COLOR"}
    secret = {
        "SECRET", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CODEX_API_KEY", "GEMINI_API_KEY",
        "LANGUAGE", "CLAUDECODE_X", "OPENCODE_SERVER_PASSWORD", "PALAVER", "XPALAVER_X",
    }  # fmt: skip
    sent = {*local, *MARKS, "PALAVER_SEAT", "PALAVER_X"}

    pal.start("list", env=dict.fromkeys(sent | secret, "C"), without=("PALAVER_TEST_NOTES",))
    peer = daemon.accept()

    assert names_of(peer) == {name.encode() for name in sent} | {b"PALAVER_HOME", b"PALAVER_PYTHON"}
    assert b"PALAVER_X=C" in peer.all(b"e")


def test_c_client_has_the_same_marks() -> None:
    source = (Path(__file__).parents[2] / "native" / "variables.c").read_text()

    table = re.search(r"MARKS\[\] = \{(.*?)\};", source, re.DOTALL)

    assert table is not None
    assert tuple(re.findall(r'"(\w+)"', table[1])) == MARKS


def test_only_doctor_requests_say_how_the_client_was_built(pal: Pal, daemon: Daemon) -> None:
    pal.start("list")
    other = daemon.accept()
    pal.start("doctor")
    doctor = daemon.accept()

    assert other.all(b"n") == []
    assert doctor.one(b"n").startswith(b"Python" if pal.name == "python" else b"native, ")


def test_without_a_terminal_the_width_is_unknown(pal: Pal, daemon: Daemon) -> None:
    pal.start("list")

    peer = daemon.accept()

    assert (peer.one(b"t"), peer.one(b"w")) == (b"000", b"0")


def test_terminal_is_reported_with_its_width(pal: Pal, daemon: Daemon) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 123, 0, 0))

    pal.start("list", stdout=theirs)
    peer = daemon.accept()
    os.close(theirs)
    os.close(ours)

    assert (peer.one(b"t"), peer.one(b"w")) == (b"010", b"123")


@pytest.mark.parametrize("form", [["--home", "{}"], ["--home={}"]])
@pytest.mark.parametrize("folder", ["before", "after"])
def test_home_may_be_named_anywhere(pal: Pal, daemon: Daemon, form: list[str], folder: str) -> None:
    named = [part.format(daemon.home) for part in form]
    arguments = [*named, "list"] if folder == "before" else ["list", *named]

    pal.start(*arguments, env={"PALAVER_HOME": "/nowhere"})

    assert daemon.accept().all(b"a") == [argument.encode() for argument in arguments]


def test_home_after_the_end_of_options_is_text(pal: Pal, daemon: Daemon) -> None:
    pal.start("send", "--", "--home", "/nowhere")

    assert daemon.accept().all(b"a")[-2:] == [b"--home", b"/nowhere"]


def test_relative_home_starts_at_the_working_directory(pal: Pal, daemon: Daemon) -> None:
    pal.start("list", "--home", daemon.home.name, cwd=daemon.home.parent)

    assert daemon.accept().all(b"a")[0] == b"list"


@pytest.mark.parametrize("arguments", [["list", "--home"], ["list", "--home="]])
def test_home_without_a_name_is_refused(pal: Pal, arguments: list[str]) -> None:
    result = pal.run(*arguments)

    assert (result.status, result.err) == (2, b"pal: --home requires a directory\n")


def test_home_without_a_name_is_refused_as_json(pal: Pal) -> None:
    result = pal.run("--home", "", "list", "--json")

    assert (result.status, json.loads(result.err)["error"]) == (2, "usage")


def test_default_home_is_in_the_account(pal: Pal) -> None:
    result = pal.run("help", without=("PALAVER_HOME",))

    assert result.status == 7
    assert pal.notes()[0]["environment"]["PALAVER_HOME"] == f"{pal.home.parent}/.palaver"


def test_home_with_a_very_long_path_is_reached(pal: Pal, daemon: Daemon) -> None:
    far = daemon.home / ("d" * 100) / ("e" * 100)
    far.mkdir(parents=True)
    os.link(daemon.home / "daemon.sock", far / "daemon.sock")

    pal.start("list", env={"PALAVER_HOME": str(far)})

    assert daemon.accept().all(b"a") == [b"list"]
