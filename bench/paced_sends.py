"""Send messages on one SDK connection on request, and report their times. Runs as a script.

Usage: paced_sends.py HOME
Each line of standard input is an order as JSON: `to`, `text`, `intent`, `count` and `a_second`. Text number
N has `{}` replaced by N. The reply is one line of JSON: for each message the wall-clock time before it was
sent, and the one at which its receipt had arrived, so that it was durable.
"""

import asyncio
import json
import sys
import time

import palaver
from palaver import Connection

_LATE_S = 2.0


async def _send(me: Connection, order: dict[str, str], number: int) -> tuple[float, float]:
    began_s = time.time()
    await me.send(order["to"], order["text"].format(number), intent=order["intent"])
    return began_s, time.time()


async def _obey(me: Connection, order: dict[str, str]) -> list[tuple[float, float]]:
    """Send all messages of an order, each at its time, whether or not earlier ones are stored."""
    loop, sends = asyncio.get_running_loop(), []
    begin_s = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(order["count"])):
            wait_s = begin_s + number / float(order["a_second"]) - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            elif wait_s < -_LATE_S:
                raise RuntimeError("this machine does not manage so many messages a second")
            sends.append(tasks.create_task(_send(me, order, number)))
    return [send.result() for send in sends]


async def _main(home: str) -> None:
    async with palaver.connect(name="paced_sender", home=home) as me:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await _obey(me, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
