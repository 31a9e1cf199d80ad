"""The stored address of an OpenCode server."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from palaver.harness.base import HOLDER_FILE, parse_holder
from palaver.harness.opencode.launch import Began
from palaver.holder.opencode import (
    OpenCodeEndpoint,
    free_port,
    instructions_path,
    is_held,
    new_endpoint_path,
    read_endpoint,
    write_endpoint,
    write_holder,
    write_instructions,
)
from palaver.identity.process import read_process

PLACE = OpenCodeEndpoint(
    port=4096, user="opencode", password="secret", began=Began(session="ses_1", started_ms=7)
)


def test_server_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = new_endpoint_path(str(tmp_path))

    write_endpoint(path, PLACE)

    assert read_endpoint(path) == PLACE
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_instructions_contain_the_name(tmp_path: Path) -> None:
    path = new_endpoint_path(str(tmp_path))

    write_instructions(path, "luna")

    assert "You are luna" in instructions_path(path).read_text()


def test_holder_of_a_server_file_can_be_found_again(tmp_path: Path) -> None:
    path = new_endpoint_path(str(tmp_path))

    write_holder(path)

    holder = parse_holder(path.with_name(HOLDER_FILE).read_text())
    assert holder is not None
    process = read_process(os.getpid())
    assert process is not None
    assert (holder.pid, holder.start) == (process.pid, process.start)


def test_only_direct_children_of_a_holder_are_held(tmp_path: Path) -> None:
    path = new_endpoint_path(str(tmp_path))
    new_endpoint_path(str(tmp_path))  # one without a holder yet
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        before = is_held(str(tmp_path), child.pid)
        write_holder(path)

        found = [is_held(str(tmp_path), pid) for pid in (child.pid, os.getpid(), 2**30)]
        path.with_name(HOLDER_FILE).write_text(f"{os.getpid()} 1")  # another process with the same id
        after = is_held(str(tmp_path), child.pid)
        child.communicate()

    assert (before, found, after) == (False, [True, False, False], False)


def test_unreadable_server_file_is_ignored(tmp_path: Path) -> None:
    broken = tmp_path / "server.json"
    broken.write_text("{")

    assert read_endpoint(broken) is None
    assert read_endpoint(tmp_path / "nothing") is None


def test_folders_of_ended_servers_are_removed_with_the_next_one(tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        alive, gone, young = (new_endpoint_path(str(tmp_path)) for _ in range(3))
        write_endpoint(
            alive, OpenCodeEndpoint(port=listening.getsockname()[1], user="", password="", began=Began())
        )
        write_endpoint(gone, OpenCodeEndpoint(port=free_port(), user="", password="", began=Began()))
        for path in (alive, gone):
            os.utime(path.parent, (1, 1))

        made = new_endpoint_path(str(tmp_path))

    left = {path.name for path in made.parent.parent.iterdir()}
    assert left == {alive.parent.name, young.parent.name, made.parent.name}
    shutil.rmtree(tmp_path)
