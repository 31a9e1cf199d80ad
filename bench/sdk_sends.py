"""Send messages on one SDK connection, many in flight, and print the time it took. Runs as a script.

Usage: sdk_sends.py HOME COUNT WINDOW NAME...
A send is complete when its receipt has arrived; a receipt means that the message is durable.
"""

import asyncio
import json
import sys
import time

import palaver

_BODY = "message {}: the parser now keeps the last token, please run the tests again when you can"


async def _send(home: str, count: int, window: int, names: list[str]) -> float:
    """Keep `window` sends in flight until all `count` are complete. Return the seconds."""
    numbers = iter(range(count))
    async with palaver.connect(name="sdk_sender", home=home) as me:

        async def line() -> None:
            # Each task takes the next number as soon as its last send is complete.
            for number in numbers:
                await me.send(f"@{names[number % len(names)]}", _BODY.format(number))

        started = time.perf_counter()
        async with asyncio.TaskGroup() as lines:
            for _ in range(min(window, count)):
                lines.create_task(line())
        return time.perf_counter() - started


def main() -> None:
    """Read the arguments, send, print one line of JSON."""
    home, count, window, *names = sys.argv[1:]
    seconds = asyncio.run(_send(home, int(count), int(window), names))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
