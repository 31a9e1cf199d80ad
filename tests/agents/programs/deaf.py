"""Never reads what is typed, until it is sent SIGUSR1; then it reads all of it and says how much."""

import os
import signal
import sys
import tty

tty.setraw(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.write(1, b"ready\r\n")
signal.sigwait([signal.SIGUSR1])
count, last = 0, b""
while not last.endswith(b"\r"):
    last = os.read(0, 65536)
    count += len(last)
os.write(1, b"\r\nread %d\r\n" % count)
signal.pause()
sys.exit(0)
