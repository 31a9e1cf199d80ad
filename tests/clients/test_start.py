"""Starting the daemon: which callers may start it, how it starts, and that it starts only once."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import stat
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.daemon.stage import wait_until
from tests.limits import LIMIT_S

from palaver.client.start import StartError, ensure_daemon, start
from palaver.harness.marks import MARKS
from palaver.version import __version__

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

STOPPED = b"pal: the bus was stopped with 'pal down'; 'pal up' starts it again\n"


@pytest.fixture
def at_terminal() -> Iterator[Callable[[], None]]:
    """Yield a function that makes a session leader the foreground process of a new terminal."""
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    yield take_terminal
    os.close(theirs)
    os.close(ours)


def test_first_command_starts_the_daemon_and_is_answered(pal: Pal) -> None:
    result = pal.run("list")

    assert (result.status, result.out, result.err) == (0, b"served\n", b"")


def test_socket_of_a_dead_daemon_is_ignored(pal: Pal, daemon: Daemon) -> None:
    daemon.deafen()

    assert pal.run("list").out == b"served\n"


def test_daemon_inherits_nothing_from_its_caller(pal: Pal, tmp_path: Path) -> None:
    kept = {
        "LANG": "C",
        "LC_ALL": "C",
        "LC_CTYPE": "C",
        "TZ": "UTC",
        "TMPDIR": "/tmp",
        "XDG_RUNTIME_DIR": "/run",
    }
    lost = {"SECRET": "x", "PALAVER_SEAT": "x", "TERM": "x", **dict.fromkeys(MARKS, "x")}
    with open(tmp_path / "inherited", "wb") as inherited:
        result = pal.run(
            "list", env={**kept, **lost, "PALAVER_X": "y"}, cwd=tmp_path, pass_fds=[inherited.fileno()]
        )

    (note,) = pal.notes()
    names = {*kept, "PATH", "HOME", "PALAVER_HOME", "PALAVER_PYTHON", "PALAVER_TEST_NOTES", "PALAVER_X"}
    assert result.out == b"served\n"
    assert note["argv"] == ["-I", "-m", "palaver.daemon", "--home", str(pal.home), "--ready-fd", "3"]
    assert set(note["environment"]) - {"PWD", "SHLVL", "_", "OLDPWD"} == names
    assert (note["cwd"], note["umask"]) == ("/", 0o077)
    assert note["files"] == ["/dev/null", "/dev/null", str(pal.home / "daemon.log")]
    assert stat.S_IMODE((pal.home / "daemon.log").stat().st_mode) == 0o600
    assert len(note["fds"]) == 5  # with the pipe, and the directory that lists them
    assert note["group"] not in (os.getsid(0), note["pid"])


def test_signal_ignored_by_the_caller_is_not_ignored_by_the_daemon(pal: Pal, home: Path) -> None:
    script = home.parent / "python"
    script.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status >&3\n")

    result = pal.run("list", before=("sh", "-c", 'trap "" INT TERM HUP QUIT PIPE; exec "$@"', "sh"))

    ignored = int(result.err.split()[-1], 16)
    ours = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
    assert not any(ignored & 1 << number - 1 for number in ours)


def test_missing_home_is_created_for_its_owner_only(pal: Pal) -> None:
    far = pal.home / "a" / "b"

    result = pal.run("up", "--home", str(far))

    assert result.out == b"served\n"
    assert stat.S_IMODE(far.stat().st_mode) == 0o700
    assert pal.notes()[0]["environment"]["PALAVER_HOME"] == str(far)


def test_home_with_a_very_long_path_is_started(pal: Pal) -> None:
    far = pal.home / ("d" * 100) / ("e" * 100)

    assert pal.run("up", "--home", str(far)).out == b"served\n"


def unusable(home: str, why: str, more: str = "") -> bytes:
    """Return the error of a client for an unusable home."""
    todo = "name a directory that can be written, with --home or PALAVER_HOME"
    return f"pal: {home} cannot be the home of the bus ({why}): {todo}{more}\n".encode()


@pytest.mark.parametrize("verb", ["list", "up", "down"])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("/dev/null", "Not a directory"),
        ("{home}/file", "Not a directory"),
        ("{home}/file/a/b", "Not a directory"),
        ("{home}/circle", "Too many levels of symbolic links"),
    ],
)
def test_home_that_is_not_a_directory_is_refused_with_advice(
    pal: Pal, given: str, why: str, verb: str
) -> None:
    (pal.home / "file").touch()
    (pal.home / "circle").symlink_to("circle")
    named = given.format(home=pal.home)

    result = pal.run(verb, "--home", named)

    assert (result.status, result.out, result.err) == (1, b"", unusable(named, why))
    assert pal.notes() == []


def test_home_that_cannot_be_created_is_refused_with_advice(pal: Pal) -> None:
    result = pal.run("up", "--home", "/proc/a/b")

    assert (result.status, result.err) == (1, unusable("/proc/a/b", "No such file or directory"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a client as another user")
@pytest.mark.parametrize("name", ["", "/a", "/a/b"])
def test_home_that_is_not_writable_is_refused_with_advice(pal: Pal, name: str) -> None:
    pal.home.chmod(0o755)
    home = f"{pal.home}{name}"

    process = pal.start_as_nobody("up", "--home", home)

    expected = unusable(home, "Permission denied", "; or, if this is a sandbox, run 'pal up' outside of it")
    assert process.communicate(timeout=LIMIT_S) == (b"", expected)
    assert process.returncode == 1
    assert pal.notes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a client as another user")
def test_home_that_is_not_writable_cannot_be_kept_down(pal: Pal) -> None:
    pal.home.chmod(0o755)

    process = pal.start_as_nobody("down")

    expected = unusable(
        str(pal.home), "Permission denied", "; or, if this is a sandbox, run 'pal up' outside of it"
    )
    assert process.communicate(timeout=LIMIT_S) == (b"", expected)
    assert process.returncode == 1


def test_twenty_concurrent_clients_start_one_daemon(pal: Pal) -> None:
    processes = [pal.start("list") for _ in range(20)]

    outs = [process.communicate(timeout=LIMIT_S) for process in processes]

    assert outs == [(b"served\n", b"")] * 20
    assert len(pal.notes()) == 1


def test_daemon_that_does_not_listen_yet_is_waited_for(
    pal: Pal, home: Path, request: pytest.FixtureRequest
) -> None:
    lock = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = pal.start("list")

    daemon: Daemon = request.getfixturevalue("daemon")
    daemon.accept().quit()

    assert process.wait(LIMIT_S) == 0
    assert pal.notes() == []
    os.close(lock)


class Upgrade:
    """A daemon that has its lock and upgrades its log: the process of the test."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def reach(self, done: int, total: int = 300) -> None:
        (self._home / "upgrading.new").write_text(f"{os.getpid()} {done} {total}\n")
        (self._home / "upgrading.new").replace(self._home / "upgrading")

    def end(self) -> None:
        os.close(self._lock)


@pytest.fixture
def upgrade(home: Path) -> Iterator[Upgrade]:
    found = Upgrade(home)
    yield found
    found.end()


def next_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    return process.stderr.readline().decode()


@pytest.mark.parametrize("has_starter", [False, True])
def test_client_waits_for_an_upgrade_and_reports_its_progress(
    pal: Pal, home: Path, upgrade: Upgrade, request: pytest.FixtureRequest, has_starter: bool
) -> None:
    lock = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT)
    if has_starter:  # Another client has started the daemon, and waits for it.
        fcntl.flock(lock, fcntl.LOCK_EX)
    upgrade.reach(40)
    process = pal.start("list")

    first = next_line(process)
    upgrade.reach(41)
    upgrade.reach(240)
    second = next_line(process)
    daemon: Daemon = request.getfixturevalue("daemon")
    daemon.accept().quit()

    assert process.wait(LIMIT_S) == 0
    assert first == "pal: the bus is upgrading its log (13 %); waiting up to 10 minutes\n"
    assert second == "pal: the bus is upgrading its log (80 %)\n"
    assert pal.notes() == []
    os.close(lock)


def test_client_that_starts_the_daemon_reports_an_upgrade(pal: Pal, home: Path) -> None:
    process = pal.start("list", env={"PALAVER_TEST_DAEMON": "upgrade"})

    line = next_line(process)
    (home / "go").touch()
    out, _ = process.communicate(timeout=LIMIT_S)

    assert (line, out) == (
        "pal: the bus is upgrading its log (50 %); waiting up to 10 minutes\n",
        b"served\n",
    )


def test_mark_of_a_daemon_that_was_killed_is_ignored(pal: Pal, home: Path) -> None:
    lock = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)  # Another client starts the daemon, so this one looks for an upgrade.
    (home / "daemon.lock").write_text("1\n")
    os.mkfifo(home / "upgrading")
    mark = os.open(home / "upgrading", os.O_RDWR)
    os.write(mark, b"1 40 300\n")

    process = pal.start("list")
    wait_until(lambda: not select.select([mark], [], [], 0)[0])  # The client has read the mark.
    (home / "upgrading").unlink()
    os.close(mark)
    os.close(lock)
    out, err = process.communicate(timeout=LIMIT_S)

    assert (process.returncode, out, err) == (0, b"served\n", b"")


@pytest.mark.parametrize("text", ["", "x y z", "1 2", "9" * 99, "\0"])
def test_unreadable_mark_of_an_upgrade_is_ignored(pal: Pal, home: Path, text: str) -> None:
    (home / "upgrading").write_text(text)

    assert pal.run("list").out == b"served\n"


def test_down_does_not_wait_for_an_upgrade(pal: Pal, home: Path) -> None:
    starting = pal.start("list", env={"PALAVER_TEST_DAEMON": "upgrade"})
    next_line(starting)

    result = pal.run("down")

    assert (result.status, b"the bus is stopped" in result.out) == (0, True)
    starting.communicate(timeout=LIMIT_S)


def test_hook_ends_at_once_during_an_upgrade(pal: Pal, upgrade: Upgrade) -> None:
    upgrade.reach(40)

    result = pal.run("hook", "claude", "Stop")

    assert (result.status, result.out, result.err) == (0, b"", b"")


@pytest.mark.parametrize("pal", ["python"], indirect=True)
def test_wait_for_an_upgrade_has_a_limit(
    in_process: Pal, upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade.reach(90)
    monkeypatch.setattr("palaver.client.start.UPGRADE_LIMIT_S", 0)

    with pytest.raises(StartError, match=r"still upgrading its log after 0 minutes \(30 % is done\)"):
        ensure_daemon(str(in_process.home))

    assert in_process.notes() == []


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (
            "the log is newer than this version\n",
            "pal: the daemon did not start: the log is newer than this version\n",
        ),
        (
            "silent",
            "pal: the daemon did not start and printed no reason (was it killed?); see {home}/daemon.log\n",
        ),
        (
            "broken",
            "pal: the daemon did not start: No module named palaver (see {home}/daemon.log)\n",
        ),
        ("ok", "pal: the daemon did not start: ok\n"),
    ],
)
def test_daemon_that_does_not_start_reports_the_reason(pal: Pal, part: str, text: str) -> None:
    result = pal.run("list", env={"PALAVER_TEST_DAEMON": part})

    assert (result.status, result.out, result.err.decode()) == (1, b"", text.format(home=pal.home))


def test_log_of_an_earlier_daemon_is_not_the_reason(pal: Pal) -> None:
    (pal.home / "daemon.log").write_text("the disk was full\n")

    result = pal.run("list", env={"PALAVER_TEST_DAEMON": "silent"})

    assert b"printed no reason" in result.err


def test_end_of_a_long_last_line_is_reported(pal: Pal, home: Path) -> None:
    script = home.parent / "python"
    script.write_text("#!/bin/sh\nprintf 'one\\n%9000s end\\n\\n' x >&2\n")

    result = pal.run("list")

    errors = result.err.decode()
    assert errors.endswith(f"  x end (see {pal.home}/daemon.log)\n")
    assert "one" not in errors


def test_client_newer_than_its_package_reports_it_at_once(pal: Pal) -> None:
    result = pal.run("list", env={"PALAVER_TEST_DAEMON": "older"})

    python = pal.environment["PALAVER_PYTHON"]
    assert (result.status, result.out, result.err.decode()) == (
        1,
        b"",
        f"pal: this pal is {__version__}, and the package that {python} starts is older: "
        "reinstall Palaver there, so that both have the same version\n",
    )
    assert len(pal.notes()) == 1


def test_missing_interpreter_is_named(pal: Pal) -> None:
    result = pal.run("list", env={"PALAVER_PYTHON": "/nowhere/python"})

    text = "pal: the daemon did not start: cannot run /nowhere/python: No such file or directory\n"
    assert (result.status, result.err.decode()) == (1, text)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a client as another user")
@pytest.mark.parametrize("is_searchable", [True, False])
def test_client_without_access_starts_nothing(pal: Pal, daemon: Daemon, is_searchable: bool) -> None:
    daemon.home.chmod(0o755 if is_searchable else 0o700)
    (daemon.home / "daemon.sock").chmod(0o600)

    process = pal.start_as_nobody("list")

    text = (
        f"pal: this process may not connect to {daemon.home}/daemon.sock (a sandbox?): "
        "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)\n"
    )
    assert process.communicate(timeout=LIMIT_S) == (b"", text.encode())
    assert process.returncode == 1
    assert pal.notes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a client as another user")
def test_hook_without_access_is_silent(pal: Pal, daemon: Daemon) -> None:
    process = pal.start_as_nobody("hook", "claude", "Stop")

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


def test_after_down_a_program_starts_nothing(pal: Pal) -> None:
    (pal.home / "down").touch()

    result = pal.run("inbox", start_new_session=True)

    assert (result.status, result.out, result.err) == (1, b"", STOPPED)
    assert pal.notes() == []


def test_client_error_with_json_is_an_object(pal: Pal) -> None:
    (pal.home / "down").touch()

    result = pal.run("list", "--json", start_new_session=True)

    assert result.status == 1
    assert json.loads(result.err) == {
        "error": "unavailable",
        "message": STOPPED.decode().removeprefix("pal: ").rstrip(),
    }


def test_after_down_a_person_starts_the_daemon_again(pal: Pal, at_terminal: Callable[[], None]) -> None:
    (pal.home / "down").touch()

    result = pal.run("inbox", start_new_session=True, preexec_fn=at_terminal)

    assert (result.status, result.out) == (0, b"served\n")
    assert (pal.home / "down").exists()  # The daemon itself removes it once it is up.


@pytest.mark.parametrize("mark", [*MARKS, "PALAVER_SEAT"])
def test_after_down_a_harness_at_a_terminal_starts_nothing(
    pal: Pal, at_terminal: Callable[[], None], mark: str
) -> None:
    (pal.home / "down").touch()

    result = pal.run("inbox", env={mark: ""}, start_new_session=True, preexec_fn=at_terminal)

    assert (result.status, result.err) == (1, STOPPED)
    assert (pal.home / "down").exists()


def test_after_down_a_background_job_of_a_terminal_starts_nothing(
    pal: Pal, at_terminal: Callable[[], None]
) -> None:
    (pal.home / "down").touch()

    def in_background() -> None:
        at_terminal()
        child = os.fork()
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.setpgid(0, 0)

    result = pal.run("inbox", start_new_session=True, preexec_fn=in_background)

    assert (result.status, result.err) == (1, STOPPED)


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "set"),
        ("status",),
        ("status", "luna"),
        ("status", "--as", "set"),
        ("events", "--follow"),
        ("events", "subs"),
        ("events", "--", "sub"),
        ("events", "--agent", "sub"),
    ],
)
def test_after_down_a_command_that_only_shows_starts_nothing(
    pal: Pal, at_terminal: Callable[[], None], words: tuple[str, ...]
) -> None:
    (pal.home / "down").touch()

    result = pal.run(*words, start_new_session=True, preexec_fn=at_terminal)

    assert (result.status, result.out, result.err) == (1, b"", STOPPED)
    assert pal.notes() == []


@pytest.mark.parametrize("verb", ["list", "status", "events", "send"])
def test_refusal_of_a_stopped_bus_names_the_home_that_was_named(pal: Pal, verb: str) -> None:
    other = pal.home / "other"
    other.mkdir(mode=0o700)
    (other / "start.lock").touch()
    (other / "down").touch()

    result = pal.run(verb, "--home", str(other))

    sentence = f"pal: the bus was stopped with 'pal down'; 'pal up --home {other}' starts it again\n"
    assert (result.status, result.out, result.err) == (1, b"", sentence.encode())
    assert pal.notes() == []


@pytest.mark.parametrize(
    "words",
    [
        ("status", "set", "idle"),
        ("events", "sub"),
        ("events", "unsub", "x"),
        ("events", "--json", "sub"),
        ("--json", "status", "--as", "luna", "set", "idle"),
    ],
)
def test_after_down_a_person_who_changes_something_starts_the_daemon(
    pal: Pal, at_terminal: Callable[[], None], words: tuple[str, ...]
) -> None:
    (pal.home / "down").touch()

    assert pal.run(*words, start_new_session=True, preexec_fn=at_terminal).out == b"served\n"


@pytest.mark.parametrize("verb", ["list", "status", "events"])
def test_command_that_only_shows_creates_no_home(pal: Pal, verb: str) -> None:
    far = pal.home / "far"

    result = pal.run(verb, env={"PALAVER_HOME": str(far)})

    sentence = f"pal: the bus is not running, and {far} does not exist; 'pal up' creates it\n"
    assert (result.status, result.out, result.err) == (1, b"", sentence.encode())
    assert not far.exists()
    assert pal.run("send", env={"PALAVER_HOME": str(far)}).out == b"served\n"


def test_doctor_of_a_stopped_bus_runs_without_the_daemon(pal: Pal) -> None:
    (pal.home / "down").touch()

    stopped = pal.run("doctor", "--json")
    missing = pal.run("doctor", env={"PALAVER_HOME": str(pal.home / "far")})

    assert (stopped.out, missing.out) == (b"in python\n", b"in python\n")
    assert [note["argv"] for note in pal.notes()] == [
        ["-I", "-m", "palaver.app", "doctor", "--json"],
        ["-I", "-m", "palaver.app", "doctor"],
    ]


@pytest.mark.parametrize("verb", ["send", "join", "list", "mcp"])
def test_only_up_creates_a_home_that_was_named(pal: Pal, at_terminal: Callable[[], None], verb: str) -> None:
    far = pal.home / "far"

    result = pal.run(verb, "--home", str(far), start_new_session=True, preexec_fn=at_terminal)

    assert result.status == 1
    assert str(far).encode() in result.err
    assert b"'pal up" in result.err
    assert not far.exists()
    assert pal.run("up", "--home", str(far)).out == b"served\n"
    assert pal.run("send", "--home", str(far)).out == b"served\n"


@pytest.mark.parametrize("verb", ["send", "join", "list", "mcp"])
def test_only_up_makes_a_home_of_another_folder(pal: Pal, at_terminal: Callable[[], None], verb: str) -> None:
    other = pal.home / "src"
    other.mkdir(mode=0o755)
    (other / "config.toml").touch()

    result = pal.run(verb, "--home", str(other), start_new_session=True, preexec_fn=at_terminal)

    way = f"to create a bus there, run 'pal up --home {other}'"
    assert (result.status, result.out) == (1, b"")
    assert f"pal: {other} is not the home of a bus; {way}\n".encode() in result.err
    assert [path.name for path in other.iterdir()] == ["config.toml"]
    assert stat.S_IMODE(other.stat().st_mode) == 0o755
    assert pal.run("up", "--home", str(other)).out == b"served\n"
    assert pal.run("send", "--home", str(other)).out == b"served\n"


def test_empty_folder_can_be_named(pal: Pal) -> None:
    other = pal.home / "empty"
    other.mkdir()

    assert pal.run("send", "--home", str(other)).out == b"served\n"


def test_restored_home_can_be_named(pal: Pal) -> None:
    other = pal.home / "restored"
    other.mkdir()
    (other / "log.sqlite").touch()

    assert pal.run("send", "--home", str(other)).out == b"served\n"


@pytest.fixture
def in_process(pal: Pal, monkeypatch: pytest.MonkeyPatch) -> Pal:
    for name in ("PALAVER_PYTHON", "PALAVER_TEST_NOTES"):
        monkeypatch.setenv(name, pal.environment[name])
    return pal


@pytest.mark.parametrize("pal", ["python"], indirect=True)
def test_program_can_ensure_that_a_daemon_listens(in_process: Pal) -> None:
    ensure_daemon(str(in_process.home))
    ensure_daemon(str(in_process.home))

    assert len(in_process.notes()) == 1


@pytest.mark.parametrize("pal", ["python"], indirect=True)
@pytest.mark.parametrize("is_person", [True, False])
def test_program_can_state_whether_a_person_asks(in_process: Pal, is_person: bool) -> None:
    (in_process.home / "down").touch()

    if is_person:
        ensure_daemon(str(in_process.home), person=True)
    else:
        with pytest.raises(StartError, match="was stopped with 'pal down'"):
            ensure_daemon(str(in_process.home), person=False)

    assert len(in_process.notes()) == is_person


@pytest.mark.parametrize("pal", ["python"], indirect=True)
def test_failed_start_is_one_sentence(in_process: Pal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_TEST_DAEMON", "the disk is full")

    with pytest.raises(StartError, match=r"^the daemon did not start: the disk is full$"):
        ensure_daemon(str(in_process.home))


@pytest.mark.parametrize("pal", ["python"], indirect=True)
@pytest.mark.parametrize("has_starter", [False, True])
def test_start_without_progress_is_reported_and_has_a_limit(
    in_process: Pal, monkeypatch: pytest.MonkeyPatch, has_starter: bool
) -> None:
    monkeypatch.setenv("PALAVER_TEST_DAEMON", "slow")
    monkeypatch.setattr("palaver.client.start.SLOW_S", 0)
    lock = os.open(in_process.home / "start.lock", os.O_RDWR | os.O_CREAT)
    if has_starter:  # Another client has the start lock, and was stopped by a signal.
        fcntl.flock(lock, fcntl.LOCK_EX)
    reports: list[str] = []

    def end_the_wait(text: str) -> None:
        reports.append(text)
        monkeypatch.setattr("palaver.client.start.START_LIMIT_S", 0)

    with pytest.raises(
        StartError, match=r"^the bus has not started after 0 minutes: try again later, or see"
    ):
        start(str(in_process.home), report=end_the_wait)

    assert reports == ["the bus takes more than 0 s to start; waiting up to 2 minutes"]
    (in_process.home / "go").touch()
    os.close(lock)


@pytest.mark.parametrize("pal", ["native"], indirect=True)
def test_slow_start_is_reported(pal: Pal, home: Path) -> None:
    process = pal.start("list", env={"PALAVER_TEST_DAEMON": "slow"})

    line = next_line(process)
    (home / "go").touch()
    out, _ = process.communicate(timeout=LIMIT_S)

    assert line == "pal: the bus takes more than 10 s to start; waiting up to 2 minutes\n"
    assert out == b"served\n"


@pytest.mark.parametrize("pal", ["python"], indirect=True)
def test_program_that_ignores_its_children_can_start_the_daemon(in_process: Pal) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    try:
        ensure_daemon(str(in_process.home))
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert len(in_process.notes()) == 1


@pytest.mark.parametrize("pal", ["python"], indirect=True)
def test_start_without_free_files_is_refused_with_the_reason(
    in_process: Pal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pipe() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", no_pipe)

    with pytest.raises(StartError, match=r"^the daemon did not start: Too many open files$"):
        ensure_daemon(str(in_process.home))


@pytest.mark.parametrize("pal", ["native"], indirect=True)
def test_interpreter_next_to_the_client_is_used(pal: Pal, compiled: Path, home: Path) -> None:
    neighbour = home.parent / "bin"
    neighbour.mkdir()
    os.link(home.parent / "python", neighbour / "python3")
    (neighbour / "pal").write_bytes(compiled.read_bytes())
    (neighbour / "pal").chmod(0o755)
    (home.parent / "link").symlink_to(neighbour / "pal")
    environment = {name: value for name, value in pal.environment.items() if name != "PALAVER_PYTHON"}

    process = subprocess.run([home.parent / "link", "help"], env=environment, check=False, timeout=LIMIT_S)

    assert process.returncode == 7
