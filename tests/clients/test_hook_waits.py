"""A hook waits longer only if the daemon reports that a person is asked."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

MAGIC = b"PALH"
HOOK = ("hook", "claude", "PermissionRequest")
ANSWER = b'{"decision":"deny"}'


@pytest.mark.parametrize("waits", [(60,), (60, 1_000_000), (1,)])
def test_hook_takes_the_reply_after_a_wait_frame(pal: Pal, daemon: Daemon, waits: tuple[int, ...]) -> None:
    process = pal.start(*HOOK, stdin=subprocess.DEVNULL)
    peer = daemon.accept(MAGIC)
    for limit_s in waits:
        peer.send(b"W", struct.pack(">I", limit_s))

    peer.send(b"H", ANSWER)

    assert peer.next_frame() == (b"A", b"")
    assert process.communicate(timeout=LIMIT_S) == (ANSWER, b"")
    assert process.returncode == 0


@pytest.mark.parametrize("limit_s", [0, 1])
def test_hook_that_times_out_is_silent(pal: Pal, daemon: Daemon, limit_s: int) -> None:
    process = pal.start(*HOOK, stdin=subprocess.DEVNULL)
    peer = daemon.accept(MAGIC)

    peer.send(b"W", struct.pack(">I", limit_s))

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\0\0\0\0\1", b"x" * 100])
def test_invalid_wait_frame_ends_the_hook_silently(pal: Pal, daemon: Daemon, payload: bytes) -> None:
    process = pal.start(*HOOK, stdin=subprocess.DEVNULL)
    peer = daemon.accept(MAGIC)

    peer.send(b"W", payload)
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0
