"""Setup for every test: default signal handling, the Hypothesis profiles, both log engines, and no leftovers.

A test run in the background may start with ignored or blocked signals or an unusual umask, and every process
that a test starts would inherit these.

Property tests have two profiles. `fast` is the default and always draws the same ten examples, so that a
build does not fail by luck. `deep` draws many new ones (`make nightly`) and prints how to repeat a failure.
No test sets a number of examples itself, and no test asserts how long something took.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.fakes import OpenLog, open_memory, open_sqlite
from tests.forked_daemons import end_servers
from tests.processes import end_processes_of, processes_of

settings.register_profile(
    "fast",
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    max_examples=300,
    derandomize=False,
    database=None,  # The seed alone decides the examples.
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fast")

for _number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
    if signal.getsignal(_number) is signal.SIG_IGN:
        _is_key = _number == signal.SIGINT
        signal.signal(_number, signal.default_int_handler if _is_key else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.umask(0o022)


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of later garbage collections, which would examine all of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_process_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail if a process of a test still runs at the end. All homes are in one folder of this run."""
    folder = Path(tempfile.mkdtemp(prefix="p"))
    folder.chmod(0o755)  # another user may enter
    tempfile.tempdir = str(folder)
    folders = (folder, tmp_path_factory.getbasetemp())
    yield
    tempfile.tempdir = None
    end_servers()
    left = [
        f"{pid}: {command}" for home_folder in folders for pid, command in processes_of(home_folder).items()
    ]
    for home_folder in folders:
        end_processes_of(home_folder)
    shutil.rmtree(folder, ignore_errors=True)
    assert left == [], "processes of tests still run: end them in the test or its fixture"


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
def open_log(request: pytest.FixtureRequest) -> OpenLog:
    """Return each log engine in turn: the contract does not depend on the storage."""
    made: OpenLog = request.param
    return made
