"""The demo of `make run`: start the bus, let two agents exchange a request and a reply, and take turns.

It shows the delivery state of each message, then live events until Ctrl-C. If standard input is not a
terminal, it ends after the turns and stops the daemon if it started it.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import palaver
from palaver.client.start import is_daemon_alive, reach
from palaver.client.wire import default_home

HERE = Path(__file__).parent
PAL = str(Path(sys.executable).with_name("pal"))


async def exchange() -> None:
    """Let one agent send a request, and another one, in its own process, reply."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "ten_line_agent.py"), stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    name = (await other.stdout.readline()).decode().partition(" ")[0]  # "… is listening"
    try:
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
    finally:
        other.terminate()
        await other.wait()


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
            print(f"  {second.name} has it, turn {turn['turn_id']}, and reads the hand-over:")
            print(f"    status: {handoff['status']}\n    next:   {handoff['next_action']}\n")
            run("room", "state", "--room", str(room))
            print()
            for member in (first, second):
                await member.call("leave_room", room_id=room)


def run(*words: str) -> None:
    """Print a `pal` command as it would be typed, and run it."""
    print(f"$ pal {' '.join(words)}", flush=True)
    subprocess.run([PAL, *words], check=True)


def is_up() -> bool:
    """Return whether a daemon is running already. Starts nothing."""
    connection = reach(default_home())
    if connection is not None:
        connection.close()
    return connection is not None


def stop() -> None:
    """Stop the daemon that we started. `pal down` would also record that it must stay down."""
    status = subprocess.run([PAL, "status", "--json"], check=True, capture_output=True)
    os.kill(json.loads(status.stdout)["pid"], signal.SIGTERM)
    while is_daemon_alive(default_home()):
        time.sleep(0.01)


def show_live_events() -> int:
    """Follow the log until Ctrl-C, which counts as success."""
    print("Live events from here on; try `pal send` in another terminal.")
    print("Ctrl-C ends this, and leaves the bus running.", flush=True)
    status = subprocess.call([PAL, "events", "--follow"])
    return 0 if status == -signal.SIGINT else status


def main() -> int:
    """Run the demo and return the exit status."""
    is_watched = sys.stdin.isatty()
    must_stop = not is_watched and not is_up()
    run("up")
    try:
        asyncio.run(exchange())
        asyncio.run(take_turns())
    finally:
        if must_stop:
            stop()
    return show_live_events() if is_watched else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
