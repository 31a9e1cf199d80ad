"""An archive file is complete or absent, and each seq in it is found without reading all of it."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.logs import TS, files_no_larger_than

from palaver.errors import StorageFailed
from palaver.log.archive import ArchiveFile, archive_files, write_archive
from palaver.protocol.envelope import Event, encode_event


def event(seq: int, text: str = "hello", **fields: object) -> Event:
    made: dict[str, object] = {
        "seq": seq,
        "id": f"id-{seq}",
        "type": "message",
        "sender": "luna",
        "to": ("nova",),
        "ts": TS,
        "device": "BOXE",
        "payload": {"text": text},
        **fields,
    }
    return Event(**made)  # type: ignore[arg-type]  # the fields of an event


def written(directory: Path, *events: Event) -> ArchiveFile:
    file = write_archive(directory, events)
    assert file is not None
    return file


def test_file_is_named_after_its_seqs_and_private_to_its_owner(tmp_path: Path) -> None:
    file = written(tmp_path / "archive", event(3), event(4), event(17))

    assert file.path.name == "000000000000003-000000000000017.jsonl"
    assert (file.first, file.last) == (3, 17)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert archive_files(tmp_path / "archive") == (file,)


def test_file_contains_one_event_per_line(tmp_path: Path) -> None:
    events = [event(1, "line\nbreak"), event(2, by="human", delivered_to=("nova",))]

    file = written(tmp_path, *events)

    assert file.path.read_bytes() == b"".join(encode_event(one) + b"\n" for one in events)
    assert list(file.events()) == events


@given(
    steps=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    sizes=st.lists(st.sampled_from([0, 1, 50, 9000, 70_000]), min_size=1, max_size=4),
)
def test_every_seq_is_found_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], sizes: list[int]
) -> None:
    seqs = [sum(steps[: index + 1]) for index in range(len(steps))]
    events = {seq: event(seq, "x" * sizes[index % len(sizes)]) for index, seq in enumerate(seqs)}
    file = written(tmp_path_factory.mktemp("archive"), *events.values())

    for seq in range(seqs[-1] + 2):
        assert file.find(seq) == events.get(seq)
        assert list(file.events(after=seq)) == [events[one] for one in seqs if one > seq]


def test_no_events_create_no_file(tmp_path: Path) -> None:
    assert write_archive(tmp_path, []) is None

    assert list(tmp_path.iterdir()) == []


def test_files_are_listed_by_their_seqs_and_others_are_ignored(tmp_path: Path) -> None:
    later, earlier = written(tmp_path, event(12)), written(tmp_path, event(2), event(11))
    (tmp_path / "unfinished-x").touch()
    (tmp_path / "1-2.jsonl").touch()

    assert archive_files(tmp_path) == (earlier, later)
    assert archive_files(tmp_path / "nowhere") == ()


def test_remains_of_a_crash_are_removed(tmp_path: Path) -> None:
    (tmp_path / "unfinished-abc").write_bytes(b"{")

    file = written(tmp_path, event(1))

    assert list(tmp_path.iterdir()) == [file.path]


def test_no_file_is_left_on_a_full_disk(tmp_path: Path) -> None:
    with files_no_larger_than(4096), pytest.raises(OSError, match="large"):
        write_archive(tmp_path, [event(1), event(2, "x" * 10_000)])

    assert list(tmp_path.iterdir()) == []


def test_interruption_leaves_no_file(tmp_path: Path) -> None:
    def events() -> Iterator[Event]:
        yield event(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(tmp_path, events())

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", [event(2, sender=""), event(2, payload={"text": float("nan")})])
def test_event_that_cannot_be_read_back_is_not_archived(tmp_path: Path, odd: Event) -> None:
    with pytest.raises(StorageFailed, match="#2"):
        write_archive(tmp_path, [event(1), odd])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{\n", b"nonsense\n", b'{"seq":2}\n', b"\xff\xfe\n"])
def test_seq_is_not_found_in_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path, event(2))
    file.path.write_bytes(content)

    assert file.find(2) is None


def test_reading_a_damaged_file_fails(tmp_path: Path) -> None:
    file = written(tmp_path, *map(event, range(1, 10)))
    content = file.path.read_bytes()
    file.path.write_bytes(content[: len(content) // 2])

    with pytest.raises(StorageFailed, match="cannot be read"):
        list(file.events())


def test_removed_file_contains_nothing_and_cannot_be_read(tmp_path: Path) -> None:
    file = written(tmp_path, event(2))
    file.path.unlink()

    assert file.find(2) is None
    with pytest.raises(StorageFailed, match="cannot be read"):
        list(file.events())


@pytest.mark.parametrize("damaged", range(7))
def test_all_other_events_are_found_next_to_a_damaged_line(tmp_path: Path, damaged: int) -> None:
    events = [event(seq, "x" * seq * 20) for seq in range(1, 8)]
    file = written(tmp_path, *events)
    lines = file.path.read_bytes().splitlines(keepends=True)
    lines[damaged] = b"\xff damaged\n"
    file.path.write_bytes(b"".join(lines))

    found = [file.find(one.seq) for one in events]

    assert found == [None if at == damaged else one for at, one in enumerate(events)]


def test_search_gives_up_after_many_damaged_lines(tmp_path: Path) -> None:
    file = written(tmp_path, event(1), event(1000))
    first, last = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(first + b"damaged\n" * 500 + last)

    assert file.find(1000) is None
