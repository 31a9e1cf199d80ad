"""The parts of the daemon that need no process of their own."""

import os
from pathlib import Path

import pytest

from palaver.home import Ready, file_system_of


def test_whoever_started_the_daemon_hears_one_word_and_then_the_end() -> None:
    reader, writer = os.pipe()
    ready = Ready(writer, is_foreground=False)

    ready.say("ok")
    ready.say("too late")

    with open(reader, "rb") as pipe:
        assert pipe.read() == b"ok\n"


def test_a_client_that_did_not_wait_is_no_trouble() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    Ready(writer, is_foreground=False).say("ok")


def test_a_person_in_front_of_it_sees_only_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    ready = Ready(None, is_foreground=True)

    ready.say("ok")
    ready.say("no room")

    assert capsys.readouterr().err == "pal: no room\n"


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the system does not tell")
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    assert file_system_of(Path("/proc/self/fd")) == "proc"
    assert file_system_of(Path("/")) != ""
