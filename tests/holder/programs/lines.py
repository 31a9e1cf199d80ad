"""Read lines at `> ` and reply `got 'text'` to each. `exit N` exits with that status."""

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n> ")
    sys.stdout.flush()


say("ready")
for line in sys.stdin:
    text = line.rstrip("\n")
    if text.startswith("exit "):
        sys.exit(int(text.removeprefix("exit ")))
    say(f"got {text!r}")
