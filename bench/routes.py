"""Measure direct routes on buses of different size: their cost must not grow with agents or subscriptions.

    python bench/routes.py --dir FOLDER     the homes are made in FOLDER, and removed

Each bus has its own daemon, and agents that are connected all the time. One SDK connection per bus routes to
the same ten agents, with many routes in flight. The buses take turns, so that noise of the machine affects
all of them. Prints a table, with the times divided by those of the smallest bus; a missed goal is marked.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    # The first entry of the path is the folder of this file; `import bench` needs the root of the repository.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.palaver_home import PalaverHome

import palaver

_ROOT = Path(__file__).resolve().parents[1]
_GOAL = 1.3
_REACHED = 10
"""Agents that the routes reach on each bus."""
_WINDOW = 64
_AT_ONCE = 50
"""Agents that join, or subscribe, at the same time."""
_SIZES = ((10, 0), (100, 0), (1000, 0), (1000, 11_000))
"""The buses: their agents, and all path subscriptions of these together."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """A bus with its agents, a connection that routes, and the times of its rounds in µs per route."""

    agents: int
    subscriptions: int
    home: PalaverHome
    sender: palaver.Connection
    wall_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    async def round(self, routes: int) -> None:
        """Route, and record the times."""
        numbers = iter(range(routes))

        async def line() -> None:
            # Each task takes the next number as soon as its last route is durable.
            for number in numbers:
                sent = await self.sender.route(f"agent/{_name(number % _REACHED)}", "work", {"n": number})
                assert len(sent.delivered_to) == 1

        pid = self.home.daemon_pid()
        before_ns, began = cpu_ns(pid), time.perf_counter()
        async with asyncio.TaskGroup() as lines:
            for _ in range(_WINDOW):
                lines.create_task(line())
        self.wall_us.append((time.perf_counter() - began) * 1e6 / routes)
        self.cpu_us.append((cpu_ns(pid) - before_ns) / 1e3 / routes)


def main() -> int:
    """Measure and print. Return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="bench/routes.py", description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="where the homes are, with a short name")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--routes", type=int, default=1000, help="routes of each round")
    parser.add_argument("--pal", type=Path, default=_ROOT / ".venv" / "bin" / "pal")
    asked = parser.parse_args()
    asked.dir.mkdir(parents=True, exist_ok=True)
    return asyncio.run(measure(asked.dir, asked.pal, asked.rounds, asked.routes))


async def measure(folder: Path, pal: Path, rounds: int, routes: int) -> int:
    """Let the buses take turns, and print the medians."""
    async with AsyncExitStack() as ends:
        crowds = [
            await ends.enter_async_context(opened_crowd(folder / f"routes{number}", pal, *size))
            for number, size in enumerate(_SIZES)
        ]
        for crowd in crowds:
            await crowd.round(routes)  # warm-up
            crowd.wall_us.clear()
            crowd.cpu_us.clear()
        for _ in range(rounds):
            for crowd in crowds:
                await crowd.round(routes)
            crowds.append(crowds.pop(0))
    return show(sorted(crowds, key=lambda crowd: (crowd.agents, crowd.subscriptions)), rounds * routes)


@asynccontextmanager
async def opened_crowd(root: Path, pal: Path, agents: int, subscriptions: int) -> AsyncIterator[Crowd]:
    """Open a bus with connected agents. It is removed at the end."""
    home = new_home(root, pal)
    try:
        async with AsyncExitStack() as ends:
            for first in range(0, agents, _AT_ONCE):
                numbers = range(first, min(first + _AT_ONCE, agents))
                joining = (connected(home, number, subscriptions // agents) for number in numbers)
                for one in await asyncio.gather(*joining):
                    ends.push_async_exit(one)
            sender = await ends.enter_async_context(palaver.connect("sender", home=home.home))
            yield Crowd(agents=agents, subscriptions=subscriptions, home=home, sender=sender)
    finally:
        home.close()


def new_home(root: Path, pal: Path) -> PalaverHome:
    root.mkdir()
    return PalaverHome(root, pal)


async def connected(home: PalaverHome, number: int, subscriptions: int) -> palaver.Connection:
    """Join an agent with path subscriptions of several forms; none of them matches the routes."""
    me = await palaver.connect(_name(number), home=home.home).__aenter__()
    forms = ("slack/*/#{0}-{1}", "build/{0}/{1}/**", "webhook/{0}/{1}", "tickets/**/{0}/*/{1}")
    for count in range(subscriptions):
        await me.subscribe(forms[count % len(forms)].format(number, count))
    return me


def _name(number: int) -> str:
    return f"agent{number}"


def show(crowds: list[Crowd], routes: int) -> int:
    """Print the table. The goal is for the daemon's processor time, which other programs disturb least."""
    cpu_us = [statistics.median(crowd.cpu_us) for crowd in crowds]
    wall_us = [statistics.median(crowd.wall_us) for crowd in crowds]
    print("| agents | path subscriptions | n | daemon | ratio | wall time | ratio |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for crowd, cpu, wall in zip(crowds, cpu_us, wall_us, strict=True):
        size = f"{crowd.agents:,} | {crowd.subscriptions:,} | {routes:,}"
        print(f"| {size} | {cpu:.0f} µs | {cpu / cpu_us[0]:.2f} | {wall:.0f} µs | {wall / wall_us[0]:.2f} |")
    spread = max(cpu_us) / min(cpu_us)
    is_met = spread <= _GOAL
    mark = "met" if is_met else "**missed**"
    print(f"\nThe largest is {spread:.2f} times the smallest; at most {_GOAL}: {mark}")
    return 0 if is_met else 1


def cpu_ns(pid: int) -> int:
    """Return the processor time of a process, in all its threads."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files)


if __name__ == "__main__":
    raise SystemExit(main())
