"""Write two megabytes to the terminal on a signal, and report how long the terminal took to accept them.

    flood.py PIPE

Writes `ready` to `PIPE`, waits until the file `PIPE.go` exists, then writes the output and reports the
milliseconds. It does not depend on either bus.
"""

import os
import sys
import termios
import time

OUTPUT_BYTES = 2_000_000
_POLL_S = 0.02


def output() -> bytes:
    """Return output like that of a build: short lines with some colour."""
    line = b"\x1b[32mline %d\x1b[0m of the plain output that a build prints to its terminal\n"
    lines = b"".join(line % number for number in range(OUTPUT_BYTES // len(line) + 1))
    return lines[:OUTPUT_BYTES]


def run(pipe: str) -> None:
    """Write once, report, and keep running until the terminal is closed."""
    report = os.open(pipe, os.O_WRONLY)
    rest = output()
    os.write(report, b"ready\n")
    while not os.path.exists(f"{pipe}.go"):  # noqa: PTH110 - starts faster without pathlib
        time.sleep(_POLL_S)
    began_ns = time.monotonic_ns()
    while rest:
        rest = rest[os.write(1, rest) :]
    termios.tcdrain(1)
    os.write(report, b"%.3f\n" % ((time.monotonic_ns() - began_ns) / 1_000_000))
    sys.stdin.read()


if __name__ == "__main__":
    run(sys.argv[1])
