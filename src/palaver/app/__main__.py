"""Run commands that the daemon passes back to the client's process: `python -m palaver.app VERB ...`.

A harness waits while `__run` loads, so nothing is imported here that it does not need.
"""

import errno
import os
import signal
import sys

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a file or device to which the output is written."""


def main() -> int:
    """Run one verb and return the exit status."""
    verb, words = sys.argv[1:2], sys.argv[2:]
    # These stay connected: a peer that closes the connection must not end them, as SIGPIPE would.
    if verb == ["__attach"]:
        return _attach(words)
    if verb in (["__ui"], ["__chat"]):
        from palaver.app.ui import start  # loaded only for its verbs

        return start.main(os.environ["PALAVER_HOME"], sys.argv[1:], os.environ)
    if verb == ["__notify"]:
        from palaver.app import notices  # loaded only for its verb

        return notices.main(os.environ["PALAVER_HOME"], os.environ)
    if verb == ["__runner"]:
        from palaver.app import turns  # loaded only for its verb

        return turns.main(words, os.environ)
    if verb == ["__bridge"]:
        from palaver.bridges import irc  # loaded only for its verb

        return irc.main(words, os.environ)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end silently if the reader has closed the pipe
    if verb == ["__run"]:
        return _run(words)
    from palaver.app import offline  # loaded only for its verbs

    return offline.main()


def _run(words: list[str]) -> int:
    from palaver.holder.spawn import HolderProcess

    holder = HolderProcess(os.environ["PALAVER_HOME"])  # it loads at the same time as this process
    from palaver.app.run import run_agent

    return run_agent(words, os.environ["PALAVER_HOME"], os.environ, holder)


def _attach(words: list[str]) -> int:
    from palaver.app.attach.attach import attach  # loaded only for its verb
    from palaver.errors import PalaverError

    try:
        if "--window" in words:
            from palaver.app.window import open_window  # loaded only for this option

            open_window(os.environ["PALAVER_HOME"], words[0], os.environ)
            return 0
        return attach(os.environ["PALAVER_HOME"], words[0], os.environ, is_plain="--plain" in words)
    except PalaverError as error:
        sys.stderr.write(f"pal: {error}\n")
        return 1


if __name__ == "__main__":
    try:
        status = main()
        if sys.__stdout__ is not None:
            # Here, because the interpreter would report an error of its own last flush as one of Python.
            sys.stdout.flush()
    except KeyboardInterrupt:  # Ctrl-C at a question: end as every other program does, without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        sys.stderr.write(f"pal: standard output: {error.strerror}\n")
        os._exit(1)  # The exit of the interpreter would flush again, and print a second error.
    else:
        sys.exit(status)
