"""Threads in the fold: each message is counted once, and threads are listed by their newest message."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.envelope import Event
from palaver.state.fold import apply
from palaver.state.references import Thread, read_thread, read_threads


class DictRows:
    """Rows in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], bytes] = {}

    def get(self, table: str, key: str) -> bytes | None:
        return self.rows.get((table, key))

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        keys = sorted(
            key for name, key in self.rows if name == table and key.startswith(prefix) and key > after
        )
        return [(key, self.rows[table, key]) for key in keys[:limit]]

    def take(self, event: Event) -> None:
        for table, key, value in apply(self, event):
            if value is None:
                self.rows.pop((table, key), None)
            else:
                self.rows[table, key] = value


def message(seq: int, thread: object, sender: str = "luna") -> Event:
    payload = {"text": "hello", "thread": thread}
    return Event(
        seq=seq, id=f"id{seq}", type="message", sender=sender, to=(), ts=seq, device="BOXE", payload=payload
    )


def test_message_without_a_thread_changes_nothing() -> None:
    rows = DictRows()

    for thread in (None, "", 7):
        rows.take(message(1, thread))

    assert rows.rows == {}
    assert read_thread(rows, "pr-1") is None


def test_thread_stores_its_length_and_its_seqs_and_its_participants() -> None:
    rows = DictRows()

    for seq, sender in ((3, "luna"), (5, "nova"), (9, "luna")):
        rows.take(message(seq, "pr-1", sender))

    assert read_thread(rows, "pr-1") == Thread(
        name="pr-1", first=3, last=9, count=3, ts=9, names=("luna", "nova")
    )


def test_at_most_twenty_names_are_stored() -> None:
    rows = DictRows()

    for seq in range(1, 31):
        rows.take(message(seq, "pr-1", f"agent{seq}"))

    found = read_thread(rows, "pr-1")
    assert found is not None
    assert len(found.names) == 20
    assert found.count == 30


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=40), st.integers(1, 5))
def test_list_contains_the_most_recent_threads_newest_first(names: list[str], limit: int) -> None:
    rows = DictRows()
    for seq, name in enumerate(names, 1):
        rows.take(message(seq, name))

    listed = [thread.name for thread in read_threads(rows, limit)]

    newest_first = list(dict.fromkeys(reversed(names)))
    assert listed == newest_first[:limit]


def test_row_without_a_target_is_skipped() -> None:
    rows = DictRows()
    rows.take(message(1, "pr-1"))
    del rows.rows["thread", "pr-1"]

    assert read_threads(rows, 5) == []
