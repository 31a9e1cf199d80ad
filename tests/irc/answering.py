"""A program for an agent's terminal: it replies to each typed message with its text in capitals."""

import re
import subprocess
import sys

HEAD = re.compile(r"\[(?:URGENT )?pal message #(\d+) from: [^\]]*\] (.*)")

sys.stdout.write("ready\n> ")
sys.stdout.flush()
for line in sys.stdin:
    if found := HEAD.search(line):
        reply = found[2].strip().upper()
        subprocess.run(
            ["pal", "send", "--reply-to", found[1], "--", reply], stdin=subprocess.DEVNULL, check=True
        )
    sys.stdout.write("> ")
    sys.stdout.flush()
