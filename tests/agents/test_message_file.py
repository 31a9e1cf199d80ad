"""Message files: their names, whose they are, and that they are whole."""

import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from palaver.agents.message_file import message_path, write_message

ULIDS = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26)


def test_a_file_is_named_for_its_moment_and_the_end_of_its_id() -> None:
    path = message_path("/h", "api-luna", "01K0ABCDEFGHJKMNPQRSTVWXYZ", 1_763_200_000_123)

    assert str(path) == "/h/messages/api-luna/20251115-094640-RSTVWXYZ.md"


@given(ULIDS, st.integers(0, 4_000_000_000_000))
def test_a_name_is_one_part_of_a_path(message_id: str, ts_ms: int) -> None:
    path = message_path("/h", "luna", message_id, ts_ms)

    assert path.parent == Path("/h/messages/luna")
    assert path.name.endswith(f"-{message_id[-8:]}.md")


def test_a_message_is_for_its_agent_alone_and_written_again_it_is_the_same(tmp_path: Path) -> None:
    path = message_path(str(tmp_path), "luna", "01K0ABCDEFGHJKMNPQRSTVWXYZ", 0)

    write_message(path, "one\r\ntwo")
    write_message(path, "one\r\ntwo")

    assert path.read_bytes() == b"one\r\ntwo\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_text_that_ends_with_a_line_end_gets_no_second_one(tmp_path: Path) -> None:
    path = tmp_path / "m.md"

    write_message(path, "one\n")

    assert path.read_bytes() == b"one\n"
