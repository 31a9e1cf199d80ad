"""The demo of `make run`: start a bus, let two agents exchange a request and a reply, and take turns.

It shows the delivery state of each message. At a terminal it then shows live events until Ctrl-C. The bus has
its own home in a temporary folder, and both are removed at the end. The last line is a command to go on with.
"""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import palaver

HERE = Path(__file__).parent
PAL = str(Path(sys.executable).with_name("pal"))
HARNESSES = ("claude", "codex", "opencode", "gemini")


@contextmanager
def throw_away_bus() -> Iterator[None]:
    """Start a bus in a temporary home, and remove both at the end."""
    with tempfile.TemporaryDirectory(prefix="pal-demo-", ignore_cleanup_errors=True) as folder:
        os.environ["PALAVER_HOME"] = f"{folder}/home"
        print("A bus for this demo, in a temporary folder; your own ~/.palaver is not used.\n")
        run("up")
        try:
            yield
        finally:
            subprocess.run([PAL, "down"], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def other_agent() -> Iterator[str]:
    """Run an agent in its own process; it replies to every request."""
    command = [sys.executable, str(HERE / "ten_line_agent.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().partition(" ")[0]  # "… is listening"
        finally:
            process.terminate()


async def exchange(name: str) -> None:
    """Send a request to the other agent, and show what became of it and of the reply."""
    async with palaver.connect(tag="demo") as me:
        asked = await me.send(f"@{name}", "can you review this?", intent="request", thread="pr-123")
        print(f"\n  {me.name} asks in #{asked.seq}, and waits ...")
        async for message in me.messages():
            await message.ack()
            if message.reply_to == str(asked.seq):
                print(f"  {message.sender} answers in #{message.seq}: {message.text}\n")
                break
        for seq in (asked.seq, message.seq):
            run("show", str(seq))
            print()


async def take_turns() -> None:
    """Let two agents share a folder: one has the stick and passes it to the other, which waits for it."""
    with tempfile.TemporaryDirectory() as parent:
        shop = Path(parent) / "shop"
        shop.mkdir()
        async with palaver.connect(tag="demo") as first, palaver.connect(tag="demo") as second:
            room = (await first.call("join_path", context_path=str(shop)))["room_id"]
            await second.call("join_path", context_path=str(shop))
            turn = await first.call("wait_for_turn", room_id=room)
            print(f"  {first.name} has the stick, turn {turn['turn_id']}; {second.name} waits for it ...")
            waiting = asyncio.create_task(second.call("wait_for_turn", room_id=room))
            await first.call(
                "pass_stick",
                room_id=room,
                lease_id=turn["lease_id"],
                expected_turn_id=turn["turn_id"],
                to_agent_id=second.name,
                handoff={"status": "parser done, 41 tests pass", "next_action": "wire it into the CLI"},
            )
            turn = await waiting
            handoff = turn["handoff"]
            assert isinstance(handoff, dict)
            print(f"  {second.name} has it, turn {turn['turn_id']}, and reads the handoff:")
            print(f"    status: {handoff['status']}\n    next:   {handoff['next_action']}\n")
            run("room", "state", "--room", str(room))
            print()
            for member in (first, second):
                await member.call("leave_room", room_id=room)


def run(*words: str) -> None:
    """Print a `pal` command as it would be typed, and run it."""
    print(f"$ pal {' '.join(words)}", flush=True)
    subprocess.run([PAL, *words], check=True)


def show_live_events(name: str) -> None:
    """Follow the log until Ctrl-C, from this moment on: an event that comes early is shown too."""
    newest = subprocess.run([PAL, "events", "--last", "1", "--json"], check=True, stdout=subprocess.PIPE)
    after = json.loads(newest.stdout)["seq"]
    home = shlex.quote(os.environ["PALAVER_HOME"])
    print("Live events from here on. In another terminal, paste this to see one:\n")
    print(f"  PALAVER_HOME={home} {shlex.quote(PAL)} send @{name} --intent request -- hello\n")
    print("Ctrl-C ends the demo and removes its bus.", flush=True)
    with suppress(KeyboardInterrupt):
        subprocess.run([PAL, "events", "--follow", "--after", str(after)], check=False)


def next_command() -> str:
    """Return a command to continue with: a harness that is installed, or the help without one."""
    found = [one for one in HARNESSES if shutil.which(one)]
    return f"export PATH={shlex.quote(str(Path(PAL).parent))}:$PATH && pal {found[0] if found else 'help'}"


def main() -> None:
    """Run the demo."""
    with throw_away_bus(), other_agent() as name:
        asyncio.run(exchange(name))
        asyncio.run(take_turns())
        if sys.stdin.isatty():
            show_live_events(name)
    print("\nThe bus of the demo is removed. To go on with your own, paste this line:\n")
    print(next_command())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
