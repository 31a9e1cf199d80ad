"""The connection of an attached terminal to the holder of its agent."""

import asyncio
import socket

from tests.limits import LIMIT_S

from palaver.app.attach.link import HolderLink


async def test_link_reports_when_it_is_full_and_when_it_has_room_again() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    levels: list[bool] = []
    link = HolderLink(ours, lambda _: None, lambda: None, lambda: levels.append(link.is_full))

    while not link.is_full:
        link.press(b"x" * 65536)
    assert levels[-1:] == [True]

    async with asyncio.timeout(LIMIT_S):
        while levels[-1]:
            await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
    link.close()
    theirs.close()
