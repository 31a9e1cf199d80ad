"""The door itself: it opens, moves, closes, reports trouble, and keeps its limits."""

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.doors.irc.door_stage import IrcStage, commands, opened_irc, shown
from tests.limits import LIMIT_S

from palaver.config import Settings
from palaver.daemon.daemon import GuardedTasks
from palaver.doors.irc.commands import IrcSession
from palaver.doors.irc.connection import IrcLimits
from palaver.doors.irc.irc_wire import Line
from palaver.doors.irc.server import _is_local


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


# --------------------
# Opening and closing


async def test_door_names_its_address(irc: IrcStage) -> None:
    assert irc.door.describe() == {"irc": f"irc://127.0.0.1:{irc.address[1]}"}


async def test_closed_door_is_not_listed(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    irc.change(irc="")

    await irc.open()

    assert irc.door.describe() == {}
    assert "closes" in (await bob.rest())[-1].params[0]


async def test_port_in_use_keeps_the_current_address(irc: IrcStage, taken_port: int) -> None:
    before = irc.door.where
    irc.change(irc=f"127.0.0.1:{taken_port}")

    await irc.open()

    assert irc.door.where == before
    assert "as before" in irc.door.describe()["irc_problem"]
    await irc.guest("bob")


async def test_port_in_use_at_the_start_is_reported(irc: IrcStage, taken_port: int) -> None:
    await irc.door.close()
    irc.change(irc=f"127.0.0.1:{taken_port}")

    await irc.open()

    assert irc.door.where == ""
    assert irc.door.describe()["irc"] == (
        f"the IRC door cannot listen at 127.0.0.1:{taken_port}: Address already in use"
    )


async def test_door_opens_again_at_the_same_port(irc: IrcStage) -> None:
    bob = await irc.guest("bob")
    irc.change(irc=f"127.0.0.1:{irc.address[1]}")

    await irc.open()

    assert irc.door.trouble == ""
    assert (await bob.rest())[-1].command == "ERROR"
    await irc.guest("bob")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:6667"])
async def test_other_machines_need_the_setting_and_tls(irc: IrcStage, address: str) -> None:
    irc.change(irc=address)
    await irc.open()
    refused = irc.door.trouble

    irc.configured = Settings(irc=address, irc_remote=1)
    await irc.open()

    assert "--irc-remote" in refused
    assert "TLS" in irc.door.trouble


@pytest.mark.parametrize("address", ["nonsense!", "127.0.0.1:99999"])
async def test_bad_address_is_reported(irc: IrcStage, address: str) -> None:
    irc.change(irc=address)

    await irc.open()

    assert "is not an address" in irc.door.trouble


def test_daemon_starts_without_the_commands_of_irc() -> None:
    script = "import sys, palaver.daemon.daemon; print('palaver.doors.irc.commands' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )

    assert done.stdout == "False\n"


def test_loopback_addresses_are_local() -> None:
    assert all(map(_is_local, ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(_is_local, ["192.0.2.1", "::ffff:192.0.2.1", "fe80::1%eth0", "", "localhost"]))


# --------------------
# Limits


async def test_three_hundred_connections_are_limited(irc: IrcStage) -> None:
    first = [await irc.connect() for _ in range(64)]
    for client in first:
        await client.ask()

    refused = await irc.connect()
    lines = await refused.rest()
    for number, client in enumerate(first):
        await client.register(f"u{number}")
    for number in range(64, 256):
        await irc.guest(f"u{number}")
    more = [await irc.connect() for _ in range(44)]

    assert commands(lines) == ["ERROR"]
    assert "too many" in lines[0].params[0]
    assert [commands(await one.rest()) for one in more] == [["ERROR"]] * 44
    assert await first[0].ask("ISON u255") != []


async def test_fault_of_the_daemon_ends_only_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(session: IrcSession, line: Line) -> None:
        raise KeyError(line.command)

    async with opened_irc(tmp_path, group=GuardedTasks) as irc:
        bob, kira = await irc.guest("bob"), await irc.guest("kira")
        with monkeypatch.context() as patch:
            patch.setattr(IrcSession, "_run", fail)
            kira.send("FOO")
            assert commands(await kira.rest()) == ["ERROR"]

        assert shown(await bob.ask("ISON kira")) == [("303", "bob", "")]
        await irc.guest("kira")
    assert "KeyError: 'FOO'" in caplog.text


async def test_place_of_an_ended_connection_is_free_again(tmp_path: Path) -> None:
    async with opened_irc(tmp_path, IrcLimits(unregistered=1)) as irc:
        first = await irc.connect()
        await first.ask()
        first.send("QUIT")
        await first.rest()
        await first.close()

        async with asyncio.timeout(LIMIT_S):
            while True:  # the server sees the end of the connection a little later
                again = await irc.connect()
                again.send("PING x")
                if commands([await again.next()]) == ["PONG"]:
                    break


# --------------------
# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    files = ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *files, *names], check=True, capture_output=True, timeout=LIMIT_S)
    return str(cert), str(key)


@pytest.fixture
async def tls(irc: IrcStage, certificate: tuple[str, str]) -> ssl.SSLContext:
    """A door with TLS, and the context of its clients."""
    cert, key = certificate
    irc.change(irc_tls_cert=cert, irc_tls_key=key)
    await irc.open()
    assert irc.door.where.startswith("ircs://"), irc.door.trouble
    return ssl.create_default_context(cafile=cert)


async def test_clients_talk_over_tls(irc: IrcStage, tls: ssl.SSLContext) -> None:
    bob = await irc.connect(tls)

    lines = await bob.register("bob")
    bob.send("QUIT")

    assert lines[-1].command == "376"
    assert commands(await bob.rest()) == ["ERROR"]


@pytest.mark.parametrize(
    "data", [b"NICK bob\r\nUSER b 0 * :b\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 500, b""]
)
async def test_garbage_instead_of_tls_ends_only_that_connection(
    irc: IrcStage, tls: ssl.SSLContext, data: bytes
) -> None:
    bad = await irc.connect()
    bad.write(data)
    bad.writer.write_eof()
    async with asyncio.timeout(LIMIT_S):
        await bad.reader.read()

    good = await irc.connect(tls)

    assert (await good.register("bob"))[-1].command == "376"


async def test_missing_or_wrong_tls_files_are_reported(irc: IrcStage, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    before = irc.door.where

    for name in (str(wrong), str(tmp_path / "missing.pem")):
        irc.change(irc_tls_cert=name, irc_tls_key=name)
        await irc.open()

        assert "irc_tls_cert" in irc.door.trouble
        assert irc.door.where == before
