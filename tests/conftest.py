"""What holds for every test: signals mean what they mean in a terminal, and engines are tried in turn.

Whoever starts the tests in the background may have signals ignored, and every process that a test starts
would inherit that. And no test asserts how long something took: examples have no deadline, and may be
slow to draw.
"""

import signal

import pytest
from hypothesis import HealthCheck, settings
from tests.fakes import OpenLog, open_memory, open_sqlite

settings.register_profile("palaver", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("palaver")

for _number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
def open_log(request: pytest.FixtureRequest) -> OpenLog:
    """Each engine in its turn: no promise depends on where things are kept."""
    made: OpenLog = request.param
    return made
