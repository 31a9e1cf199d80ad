"""What holds for every test: signals mean what they mean in a terminal.

Whoever starts the tests in the background may have them ignored, and every process that a test starts would
inherit that.
"""

import signal

for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
