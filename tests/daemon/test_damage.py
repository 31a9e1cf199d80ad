"""A damaged log: how it is reported and repaired, and backups of an intact log."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Result, check_output, finish, new_home, run_as_person, wait_until

from palaver.daemon.repair import repair_home
from palaver.log.storage import FILE_NAME, MARK_NAME

COUNT = 60
SEEDS = range(8)


def fill(bus: Home) -> list[str]:
    """Send some messages, short and long."""
    texts = [f"message {number} " + "x" * (number % 7 * 1500) for number in range(COUNT)]
    for text in texts:
        bus.ok("send", "--stdin", content=text.encode())
    return texts


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def is_a_sentence(result: Result) -> bool:
    """Return whether a command succeeded, or failed with one line that gives the reason."""
    lines = result.err.splitlines()
    is_plain = not any(word in result.err for word in ("Traceback", "Error:", "internal error"))
    return is_plain and (result.status == 0 or any(line.startswith("pal: ") for line in lines))


def test_lost_write_ahead_log_is_reported_at_the_start_and_by_the_doctor(bus: Home) -> None:
    bus.ok("down")
    bus.ok("up")
    sent = [bus.ok("send", "--json", "--", str(number)).json["seq"] for number in range(3)]
    bus.kill()
    for ending in ("-wal", "-shm"):
        (bus.path / f"{FILE_NAME}{ending}").unlink()

    bus.ok("up")
    again = bus.ok("send", "--json", "--", "again").json["seq"]
    result = bus.pal("doctor", "--json")

    missing = f"to #{sent[-1]} are missing: the write-ahead log was lost or damaged"
    assert missing in (bus.path / "daemon.log").read_text()
    assert again > sent[-1]
    assert any(missing in check.get("check", "") and not check["ok"] for check in result.lines)
    bus.ok("down")
    bus.ok("doctor", "--repair")
    bus.ok("up")
    assert not any(missing in check.get("check", "") for check in bus.pal("doctor", "--json").lines)


def test_repair_names_the_number_of_lost_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # The handlers would stay in this process.
    home = tmp_path
    repair_home(home, is_json=False)
    with closing(sqlite3.connect(home / FILE_NAME)) as connection:
        (device,) = connection.execute("SELECT value FROM meta WHERE key = 'device'").fetchone()
    (home / MARK_NAME).write_text(f"{device} {3:020d}\n")
    capsys.readouterr()

    status = repair_home(home, is_json=False)

    assert (status, capsys.readouterr().out) == (
        0,
        "the file of the log is intact, but 3 events are missing: the write-ahead log was lost; "
        "the state was rebuilt from the other 0 events\n",
    )
    assert repair_home(home, is_json=True) == 0
    assert '"whole": true' in capsys.readouterr().out


def test_damaged_write_ahead_log_is_detected(bus: Home) -> None:
    bus.ok("down")
    bus.ok("up")
    fill(bus)
    bus.kill()
    overwrite(bus.path / f"{FILE_NAME}-wal", 32 + 24 + 100, b"\xff" * 64)

    bus.ok("up")

    assert "are missing" in (bus.path / "daemon.log").read_text()


@pytest.mark.parametrize("at", [0, 20, 4096, 40_000])
def test_damaged_database_is_repaired_with_all_readable_events(bus: Home, at: int) -> None:
    texts = fill(bus)
    bus.ok("down")
    overwrite(bus.path / FILE_NAME, at, b"\xee" * 200)
    damaged = (bus.path / FILE_NAME).read_bytes()

    repaired = bus.ok("doctor", "--repair", "--json").json

    bus.ok("up")
    found = bus.texts()
    assert set(found) <= set(texts)
    assert len(found) > COUNT * 3 // 4
    if not repaired["whole"]:
        assert (Path(repaired["damaged_files"]) / FILE_NAME).read_bytes() == damaged
    bus.ok("send", "--", "again")
    assert bus.texts()[-1] == "again"


def test_repair_needs_a_stopped_bus(bus: Home) -> None:
    refused = bus.pal("doctor", "--repair")

    assert (refused.status, refused.err) == (
        1,
        "pal: the bus or another repair is running: stop the bus with 'pal down', "
        "or wait for the other repair\n",
    )


def test_repair_loses_nothing_when_only_the_database_header_is_damaged(bus: Home) -> None:
    texts = fill(bus)
    bus.ok("down")
    overwrite(bus.path / FILE_NAME, 0, b"\0" * 4096)

    output = bus.ok("doctor", "--repair").out

    bus.ok("up")
    assert output.startswith("the log is rebuilt: ")
    assert "none missing" in output
    assert bus.texts() == texts


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a home after a kill, with events in the database and in the write-ahead log."""
    with new_home() as home:
        home.ok("up")
        fill(home)
        home.ok("down")
        home.ok("up")
        fill(home)
        home.kill()
        kept = tmp_path_factory.mktemp("home") / "kept"
        shutil.copytree(home.path, kept, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    return kept


def flip(path: Path, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 40)):
        overwrite(path, chance.randrange(path.stat().st_size), chance.randbytes(chance.randint(1, 64)))


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_damage_is_reported_with_a_sentence_and_can_be_repaired(
    home: Home, stopped: Path, seed: int
) -> None:
    chance = random.Random(seed)
    shutil.copytree(stopped, home.path, dirs_exist_ok=True)
    home.path.chmod(0o700)
    harm: Callable[[Path, random.Random], None] = chance.choice([flip, cut])
    harm(home.path / f"{FILE_NAME}{chance.choice(['', '', '-wal'])}", chance)

    commands = (["events", "--all"], ["list"], ["inbox"], ["send", "--", "x"], ["doctor"])
    for command in commands:
        result = home.pal(*command)
        assert command == ["doctor"] or is_a_sentence(result), result
    home.pal("down")
    repaired = home.pal("doctor", "--repair")
    home.ok("up")
    after = home.pal("send", "--", "again")

    assert (repaired.status, after.status) == (0, 0), (repaired, after)
    assert home.texts()[-1] == "again"


def test_backup_reports_an_unusable_target_file(bus: Home) -> None:
    folder = bus.spare_path()

    missing = bus.pal("backup", str(folder / "palaver.tar"))
    folder.mkdir()
    named = bus.pal("backup", str(folder), "--yes")

    assert (missing.status, missing.err) == (1, f"pal: no such folder: {folder}; create it first\n")
    assert (named.status, named.err) == (1, f"pal: {folder} is a folder; name a file in it\n")


def test_backup_of_a_running_bus_can_be_restored(bus: Home) -> None:
    texts = fill(bus)
    large = "y" * 90_000
    bus.ok("send", "--stdin", content=large.encode())
    target = bus.spare_path()

    report = bus.ok("backup", str(target), "--json").json
    size = target.stat().st_size
    bus.ok("send", "--", "later")
    again = bus.pal("backup", str(target))
    bus.ok("backup", str(target), "--yes")

    assert report == {"file": str(target), "bytes": size}
    assert (again.status, again.err) == (1, f"pal: {target} already exists; to replace it, add --yes\n")
    assert target.stat().st_mode & 0o777 == 0o600
    with new_home() as other:
        other.path.mkdir(mode=0o700)
        with tarfile.open(target) as tar:
            tar.extractall(other.path, filter="data")
        assert other.texts() == [*texts, large, "later"]


def test_backup_can_be_compressed_and_is_written_completely_or_not_at_all(bus: Home) -> None:
    folder = bus.spare_path()
    folder.mkdir()

    bus.ok("backup", str(folder / "a.tgz"))
    refused = bus.pal("backup", str(folder / "none" / "b.tar"))

    with tarfile.open(folder / "a.tgz", "r:gz") as tar:
        assert tar.getnames()[0] == FILE_NAME
    assert refused.status == 1
    assert refused.err.startswith("pal: ")
    assert [path.name for path in folder.iterdir()] == ["a.tgz"]


# Archives


def archive_file(bus: Home) -> Path:
    """Archive the messages that were sent before now and return the new file."""
    last = bus.ok("send", "--json", "--", "last").json["seq"]
    done = check_output(run_as_person(bus, "archive", "--before", str(last), "--json")).json
    return Path(done["file"])


def archived_seqs(bus: Home) -> set[int]:
    return {event["seq"] for event in bus.ok("export", "--json").lines}


def break_line(path: Path, number: int) -> None:
    """Overwrite the middle of one line."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = lines[number][:10] + b"\xff\x00{" + lines[number][13:]
    path.write_bytes(b"".join(lines))


def cut_in_half(path: Path, number: int) -> None:
    """Remove all that follows the middle of one line."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:number]) + lines[number][: len(lines[number]) // 2])


@pytest.mark.parametrize("is_database_damaged", [False, True])
@pytest.mark.parametrize(("harm", "lost"), [(break_line, 1), (cut_in_half, 5)])
def test_repair_rescues_all_other_lines_of_a_damaged_archive(
    bus: Home, harm: Callable[[Path, int], None], lost: int, is_database_damaged: bool
) -> None:
    fill(bus)
    path = archive_file(bus)
    before = archived_seqs(bus)
    bus.ok("down")
    harm(path, -5)
    damaged = path.read_bytes()
    if is_database_damaged:
        with closing(sqlite3.connect(bus.path / FILE_NAME)) as connection:
            connection.execute("VACUUM")  # Pages that archived events have left may still hold them.
        overwrite(bus.path / FILE_NAME, 0, b"\0" * 100)

    report = bus.ok("doctor", "--repair", "--json").json
    bus.ok("up")

    kept = Path(report["damaged_files"])
    assert (kept / "archive" / path.name).read_bytes() == damaged
    # Without the names in the database only the lines that are there can be counted.
    assert report["lost"] == {path.name: 1 if is_database_damaged else lost}
    assert report["missing"] == lost
    assert len(before - archived_seqs(bus)) == lost
    assert bus.ok("doctor", "--json").status == 0
    assert check_output(run_as_person(bus, "archive", "--before", "9999999")).status == 0


def test_repair_says_which_archive_was_damaged_and_what_is_missing(bus: Home) -> None:
    fill(bus)
    path = archive_file(bus)
    bus.ok("down")
    break_line(path, 3)

    result = bus.ok("doctor", "--repair")

    kept = bus.path / "damaged-1"
    assert result.out.startswith("the log is rebuilt: ")
    assert f"1 missing; the damaged files are in {kept}\n" in result.out
    assert f"1 event of {path} could not be read and is lost\n" in result.out
    again = bus.ok("doctor", "--repair").out
    assert again.startswith("the log is intact")
    assert not (bus.path / "damaged-2").exists()


def test_repair_says_which_archive_is_missing(bus: Home) -> None:
    fill(bus)
    path = archive_file(bus)
    bus.ok("down")
    count = len(path.read_bytes().splitlines())
    path.rename(bus.spare_path())

    output = bus.ok("doctor", "--repair").out
    bus.ok("up")

    assert f"{count} archived events are in no file of {bus.path / 'archive'}" in output
    assert bus.texts() == ["last"]


# Backups of all that belongs to a home


PROFILE = '[profile]\nname = "mine"\n'


def restore(target: Path, other: Home) -> None:
    """Restore a backup as docs/log.md says."""
    other.path.mkdir(mode=0o700)
    subprocess.run(["tar", "-xf", target, "-C", other.path], check=True)


def test_backup_holds_all_that_belongs_to_the_home(bus: Home) -> None:
    (bus.path / "profiles").mkdir()
    (bus.path / "profiles" / "mine.toml").write_text(PROFILE)
    (elsewhere := bus.spare_path()).mkdir()
    (bus.path / "blobs").symlink_to(elsewhere)  # On a larger disk.
    bus.shell().ok("join", "--name", "nova")
    check_output(run_as_person(bus, "token", "create", "nova", "--json"))
    tokens = run_as_person(bus, "token", "list", "--json").out
    large = "y" * 90_000
    bus.ok("send", "--stdin", content=large.encode())
    assert bus.pal("events", "--consumer", "reader", "--wait", "0.1").status in (0, 3)
    (cursor,) = (path for path in (bus.path / "consumers").rglob("*") if path.is_file())
    (bus.path / "messages" / "luna").mkdir(parents=True)
    (bus.path / "messages" / "luna" / "1.md").write_text("hello")
    (bus.path / "install").mkdir()
    (bus.path / "install" / "claude.json").write_text("{}")
    (bus.path / "install" / "lock.lock").touch()
    key = (bus.path / "seat.key").read_bytes()
    device = bus.ok("status", "--json").json["device"]
    target = bus.spare_path()

    bus.ok("backup", str(target))
    bus.ok("send", "--", "later")

    with new_home() as other:
        restore(target, other)
        found = {str(path.relative_to(other.path)) for path in other.path.rglob("*") if path.is_file()}
        modes = {path.stat().st_mode & 0o777 for path in other.path.rglob("*")}
        (other.path / "install" / "claude.json").unlink()

        assert other.texts() == [large]
        assert other.ok("status", "--json").json["device"] == device
        assert (other.path / "seat.key").read_bytes() == key
        assert (other.path / "profiles" / "mine.toml").read_text() == PROFILE
        assert run_as_person(other, "token", "list", "--json").out == tokens
        assert (other.path / cursor.relative_to(bus.path)).read_bytes() == cursor.read_bytes()
        assert "missing" not in other.pal("doctor").out
    assert {"messages/luna/1.md", "install/claude.json", "log.seq"} <= found
    assert not {name for name in found if name.endswith((".lock", ".sock"))}
    assert modes == {0o600, 0o700}


def test_next_backup_removes_the_copies_of_a_killed_one(bus: Home) -> None:
    folder = bus.spare_path()
    folder.mkdir()
    target = folder / "palaver.tar"
    backup = bus.start("backup", str(target))
    backup.kill()
    backup.wait()
    for pid in (backup.pid, os.getpid()):
        (folder / f".palaver.tar.{pid}.abc").mkdir()
        (folder / f".palaver.tar.{pid}.abc" / FILE_NAME).touch()

    bus.ok("backup", str(target), "--yes")

    assert sorted(os.listdir(folder)) == [f".palaver.tar.{os.getpid()}.abc", target.name]


# Repairs and other commands at once


def begin_repair(bus: Home) -> tuple[subprocess.Popen[bytes], Path]:
    """Begin a repair that waits for the contents of an archive file; return it and that file."""
    (bus.path / "archive").mkdir(exist_ok=True)
    pipe = bus.path / "archive" / f"{900:015d}-{901:015d}.jsonl"
    os.mkfifo(pipe)
    repair = bus.start("doctor", "--repair")
    wait_until(lambda: bool(list(bus.path.glob("damaged-*/log.sqlite"))))
    return repair, pipe


def test_other_commands_during_a_repair_are_refused_and_end_no_process(bus: Home) -> None:
    texts = fill(bus)
    bus.ok("down")
    with subprocess.Popen(["sleep", "1000"]) as other:
        (bus.path / "daemon.lock").write_text(f"{other.pid}\n")  # Its number was once the daemon's.
        repair, pipe = begin_repair(bus)

        second = bus.pal("doctor", "--repair")
        down = bus.pal("down")
        is_ended = other.poll() is not None
        other.kill()
    pipe.write_bytes(b"")  # The repair reads on.
    done = finish(repair)

    assert (second.status, down.status, done.status) == (1, 1, 0)
    assert "another repair is running" in second.err
    assert "'pal doctor --repair' runs" in down.err
    assert not is_ended
    bus.ok("up")
    assert bus.texts() == texts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_repair_that_is_ended_loses_nothing_and_can_be_repeated(bus: Home, number: signal.Signals) -> None:
    texts = fill(bus)
    bus.ok("down")
    overwrite(bus.path / FILE_NAME, 0, b"\0" * 100)
    repair, pipe = begin_repair(bus)

    repair.send_signal(number)
    ended = finish(repair)
    pipe.unlink()

    assert ended.status != 0
    assert "Traceback" not in ended.err
    assert bool(list(bus.path.glob("damaged-*"))) == (number == signal.SIGKILL)
    bus.ok("doctor", "--repair")
    bus.ok("up")
    assert bus.texts() == texts
