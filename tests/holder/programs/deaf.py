"""Wait for input without reading it until SIGUSR1; then read all of it and print its length."""

import os
import select
import signal
import sys
import tty

tty.setraw(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.write(1, b"ready\r\n\x1b[?2004h")
select.select([0], [], [])
signal.sigwait([signal.SIGUSR1])
count, last = 0, b""
while not last.endswith(b"\r"):
    last = os.read(0, 65536)
    count += len(last)
os.write(1, b"\r\nread %d\r\n" % count)
signal.pause()
sys.exit(0)
