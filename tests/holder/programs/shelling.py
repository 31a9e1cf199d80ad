"""A scripted agent that runs tools: it reads lines at `> ` and runs each line that begins with `!`.

    shelling.py [async | session | fork]

A tool gets the agent's own terminal, and its exit status is shown. With `async` the agent keeps reading while
the tool runs; with `session` the tool gets its own session; with `fork` a child reads each line for the
agent. At `exec` the agent starts itself again in the same process, and at an empty line it exits.
"""

import os
import subprocess
import sys

how = sys.argv[1:]


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def read_line() -> str:
    if "fork" not in how:
        return sys.stdin.readline()
    near, far = os.pipe()
    child = os.fork()
    if not child:
        os.write(far, os.read(0, 4096))
        os._exit(0)
    os.close(far)
    with os.fdopen(near) as file:
        line = file.read()
    os.waitpid(child, 0)
    return line


say("ready\n> ")
while line := read_line().rstrip("\n"):
    if line == "exec":
        os.execv(sys.executable, [sys.executable, "-I", *sys.argv])
    if not line.startswith("!"):
        say(f"got {line!r}\n> ")
        continue
    tool = subprocess.Popen(["bash", "-c", f"exec {line[1:]}"], start_new_session="session" in how)
    if "async" not in how:
        say(f"ended with {tool.wait()}\n> ")
