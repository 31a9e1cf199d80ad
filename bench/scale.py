"""Measure the cost of size: reads in a home of a million events, and a broadcast to a thousand agents.

    python bench/scale.py reads --dir FOLDER     the full home is built once, and kept in FOLDER
    python bench/scale.py crowd --dir FOLDER

Prints tables; a missed goal is marked. `make bench` does not run it: building the home takes minutes.
"""

import argparse
import asyncio
import json
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __name__ == "__main__":
    # The first entry of the path is the folder of this file; `import bench` needs the root of the repository.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.home import OTHERS, RARE_WORD, SINK, body
from bench.measure import in_turn
from bench.palaver_home import PalaverHome
from bench.seat import Seat

from palaver.clock import SystemClock
from palaver.ids import UlidSource, ulid_ms
from palaver.log.api import Decide
from palaver.log.sqlite import SqliteLog
from palaver.protocol.envelope import Draft
from palaver.state.fold import apply

_ROOT = Path(__file__).resolve().parents[1]
_THREAD = "scale"
_SHOWN = 25
"""Messages of each kind that the listings print, in both homes."""
_GOAL = 1.3
_LIMIT_CPU_S = 2.0
_LIMIT_MB = 120.0
_LIMIT_LIST_S = 0.1
_LISTS = 10
_AT_ONCE = 2000
_SETTLE_S = 1.0
_NEWS = "everyone: the build is green again"
_PATIENCE_S = 120.0

READS = (
    ("--version",),
    ("list",),
    ("list", "--json"),
    ("status",),
    ("events",),
    ("events", "--last", "20"),
    ("events", "--last", "20", "--type", "message"),
    ("events", "--last", "20", "--type", "delivery"),
    ("events", "--last", "20", "--from", "luna"),
    ("events", "--last", "20", "--agent", "vega"),
    ("events", "--last", "20", "--thread", _THREAD),
    ("events", "--last", "20", "--since", "1d"),
    ("events", "--last", "20", "--intent", "inform"),
    ("events", "--search", RARE_WORD),
    ("show", "20"),
    ("receipts", "20"),
    ("inbox", "--as", "vega"),
    ("inbox", "--as", "rigel"),
    ("events", "--last", "20", "--agent", "rigel"),
    ("events", "--last", "20", "--to", "rigel"),
    ("events", "--last", "20", "--intent", "ack"),
    ("events", "--last", "20", "--tool", "Bash"),
    ("recv", "--peek", "--as", "vega"),
    ("recv", "--peek", "--as", OTHERS[0]),
    ("thread", "list"),
    ("thread", "show", _THREAD, "--last", "20"),
    ("room", "list"),
    ("task", "list"),
    ("pending",),
)
"""Commands that change nothing. A home of any size must print about the same."""


def main() -> int:
    """Run one of the two measurements."""
    parser = argparse.ArgumentParser(prog="bench/scale.py", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("reads", "crowd"))
    parser.add_argument("--dir", type=Path, required=True, help="where the homes are, with a short name")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--followers", type=int, default=300)
    parser.add_argument("--follow", default="recv --follow", help="the command of the followers")
    parser.add_argument("--pal", type=Path, default=_ROOT / ".venv" / "bin" / "pal")
    asked = parser.parse_args()
    asked.dir.mkdir(parents=True, exist_ok=True)
    if asked.what == "reads":
        return measure_reads(asked.dir, asked.pal, asked.events, asked.rounds)
    return measure_crowd(asked.dir, asked.pal, asked.agents, asked.followers, asked.follow)


# --------------------
# Reads in an empty and in a full home.


def measure_reads(folder: Path, pal: Path, events: int, rounds: int) -> int:
    """Print the median of each read and of a send in both homes. Return 1 if a goal is missed."""
    with ExitStack() as homes:
        small = homes.enter_context(kept_home(folder / "small", pal, 0))
        big = homes.enter_context(kept_home(folder / f"{events}", pal, events))
        seat = homes.enter_context(Seat())
        print(
            f"daemon: {small.daemon_mb():.0f} MB in the empty home, {big.daemon_mb():.0f} MB in the full one"
        )
        print("| command | n | empty | full | ratio |\n| --- | ---: | ---: | ---: | ---: |")
        missed = 0
        send = ("send", f"@{SINK}", "--", "the build is green again, you can rebase on it")
        for words in (send, *READS):
            commands = {home: (seat, home.command(*words)) for home in (small, big)}
            samples = in_turn(commands, rounds, warm_up=5)
            empty, full = samples[small].median, samples[big].median
            mark = "" if full <= _GOAL * empty else " **missed**"
            missed += bool(mark)
            name = " ".join(words[:2] if words is send else words)
            print(
                f"| `{name}` | {rounds} | {empty:.2f} ms | {full:.2f} ms | {full / empty:.2f}{mark} |",
                flush=True,
            )
    return 1 if missed else 0


@contextmanager
def kept_home(root: Path, pal: Path, events: int) -> Iterator[PalaverHome]:
    """Open a home with this many events; build it if it does not exist. It is kept."""
    is_new = not root.exists()
    root.mkdir(exist_ok=True)
    home = PalaverHome(root, pal)
    try:
        if is_new:
            build(home, events)
        yield home
    finally:
        home.stop()


def build(home: PalaverHome, events: int) -> None:
    """Store what the listings print, before and after a million other messages.

    The daemon is stopped while those are written: through it they would take several minutes.
    """
    with ExitStack() as seats:
        for name in ("vega", "rigel", *OTHERS):
            seats.enter_context(home.seat(name))
        sender, reader = (seats.enter_context(home.seat(name)) for name in ("luna", SINK))
        sender.time(home.send("rigel", "your only message, older than all others"))
        store_shown(home, sender, reader)
        if events:
            home.stop()
            asyncio.run(fill(home.home, events))
            home.command("up").run()
        store_shown(home, sender, reader)


async def fill(folder: Path, events: int) -> None:
    """Write messages to agents that read nothing into a log, as the daemon stores them."""
    log = await SqliteLog.open(folder, apply=apply, clock=SystemClock())
    try:
        ids = UlidSource(SystemClock(), secrets.token_bytes)
        ids.start_above(log.largest_id())
        while (left := events - log.last()) > 0:
            orders = [(None, _always(_draft(ids, number))) for number in range(min(left, _AT_ONCE))]
            await log.commit_all(orders)
    finally:
        await log.close()


def _draft(ids: UlidSource, number: int) -> Draft:
    name = OTHERS[number % len(OTHERS)]
    payload: dict[str, object] = {
        "text": body(number),
        "scope": "mentions",
        "mentions": [name],
        "sender_kind": "instance",
        "delivered_to": [name],
    }
    made = ids.next()
    return Draft(
        type="message", id=made, sender="sdk_sender", to=(f"@{name}",), ts=ulid_ms(made), payload=payload
    )


def _always(draft: Draft) -> Decide:
    return lambda rows: draft


def store_shown(home: PalaverHome, sender: Seat, reader: Seat) -> None:
    for number in range(_SHOWN):
        sender.time(home.command("send", "@vega", "--thread", _THREAD, "--", body(number)))
        sender.time(home.command("send", f"@{OTHERS[0]}", "--intent", "inform", "--", body(number)))
        sender.time(home.send(SINK, f"{RARE_WORD} {body(number)}"))
        reader.time(home.command("recv"))


# --------------------
# One message to a thousand agents, of which some follow.


def measure_crowd(folder: Path, pal: Path, agents: int, followers: int, follow_with: str) -> int:
    """Broadcast once, wait until all followers have it, and print what it cost the daemon."""
    root = folder / "crowd"
    root.mkdir()
    home = PalaverHome(root, pal)
    waiting: list[subprocess.Popen[bytes]] = []
    readers = Readers()
    try:
        script = '"$0" join --name "$1" >/dev/null || exit 1; {}'
        follow = script.format(f'exec "$0" {follow_with}')
        stay = script.format("exec sleep 86400")
        environment = home.command().env
        began = time.monotonic()
        for number in range(agents):
            is_follower = number < followers
            process = subprocess.Popen(
                ["/bin/sh", "-c", follow if is_follower else stay, str(pal), f"agent{number}"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_follower else subprocess.DEVNULL,
            )
            waiting.append(process)
            if process.stdout is not None:
                readers.add(process.stdout.fileno())
            if number % 50 == 49:
                wait_for(home, number + 1)
        print(f"{agents} agents have joined after {time.monotonic() - began:.0f} s")
        time.sleep(_SETTLE_S)
        pid = home.daemon_pid()
        before_mb, before_s = home.daemon_mb(), cpu_s(pid)
        began = time.monotonic()
        home.command("send", "@all", "--", _NEWS).run()
        sent_s = time.monotonic() - began
        readers.wait(followers)
        out_s, used_s = time.monotonic() - began, cpu_s(pid) - before_s
        time.sleep(_SETTLE_S)
        settled_s, after_mb = cpu_s(pid) - before_s, home.daemon_mb()
        peak_mb = peak(pid)
        list_s = min(listing_s(home) for _ in range(_LISTS))
        print(f"list after {list_s:.3f} s, the best of {_LISTS}; at most {_LIMIT_LIST_S:g} s")
        print(f"sent after {sent_s:.2f} s, at the last of {followers} followers after {out_s:.2f} s")
        print(
            f"daemon: {used_s:.2f} s of CPU until then, {settled_s:.2f} s in all; at most {_LIMIT_CPU_S:g} s"
        )
        print(
            f"memory: {before_mb:.0f} MB, then {after_mb:.0f}, peak {peak_mb:.0f}; at most {_LIMIT_MB:g} MB"
        )
        is_met = settled_s <= _LIMIT_CPU_S and peak_mb <= _LIMIT_MB and list_s <= _LIMIT_LIST_S
        return 0 if is_met else 1
    finally:
        for process in waiting:
            process.kill()
        for process in waiting:
            process.wait()
        home.close()


class Readers:
    """Reads the output of all followers in a thread, and counts those that have the message."""

    def __init__(self) -> None:
        self._ready = select.epoll()
        self._tails: dict[int, bytes] = {}
        self._informed: set[int] = set()
        self._news = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, file: int) -> None:
        """Read a follower from now on."""
        self._tails[file] = b""
        self._ready.register(file, select.EPOLLIN)

    def wait(self, count: int) -> None:
        """Wait until this many followers have the message."""
        with self._news:
            if not self._news.wait_for(lambda: len(self._informed) >= count, _PATIENCE_S):
                raise RuntimeError(f"only {len(self._informed)} of {count} followers got the message")

    def _run(self) -> None:
        while True:
            for file, _ in self._ready.poll():
                said = os.read(file, 65536)
                if not said:
                    self._ready.unregister(file)
                seen = self._tails[file] + said
                self._tails[file] = seen[-len(_NEWS) :]
                if _NEWS.encode() in seen:
                    with self._news:
                        self._informed.add(file)
                        self._news.notify()


def wait_for(home: PalaverHome, count: int) -> None:
    """Wait until this many agents have joined."""
    end = time.monotonic() + _PATIENCE_S
    while json.loads(home.command("status", "--json").run())["agents"] < count:
        if time.monotonic() > end:
            raise RuntimeError(f"{count} agents did not join in {_PATIENCE_S:g} s")
        time.sleep(0.05)


def listing_s(home: PalaverHome) -> float:
    """Return the time of one `pal list`, in seconds."""
    began = time.monotonic()
    home.command("list").run()
    return time.monotonic() - began


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak(pid: int) -> float:
    """Return the largest resident memory that a process has had, in MB."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    raise SystemExit(main())
