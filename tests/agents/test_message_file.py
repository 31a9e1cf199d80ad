"""Message files: their names, whose they are, and that they are whole."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.agents.message_file import find_message, message_path, write_message

ID = "01K0ABCDEFGHJKMNPQRSTVWXYZ"
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
    path = write_message(str(tmp_path), "luna", ID, 0, "one\r\ntwo")
    again = write_message(str(tmp_path), "luna", ID, 0, "one\r\ntwo")

    assert path == again == message_path(str(tmp_path), "luna", ID, 0)
    assert path.read_bytes() == b"one\r\ntwo\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_text_that_ends_with_a_line_end_gets_no_second_one(tmp_path: Path) -> None:
    path = write_message(str(tmp_path), "luna", ID, 0, "one\n")

    assert path.read_bytes() == b"one\n"


def test_ids_that_end_alike_have_a_file_each_whichever_is_written_again(tmp_path: Path) -> None:
    other = f"01K1{ID[4:]}"
    first = write_message(str(tmp_path), "luna", ID, 0, "from the person")
    second = write_message(str(tmp_path), "luna", other, 0, "from a stranger")

    assert write_message(str(tmp_path), "luna", other, 0, "from a stranger") == second
    assert write_message(str(tmp_path), "luna", ID, 0, "from the person") == first
    assert first.read_text() == "from the person\n"
    assert second.read_text() == "from a stranger\n"
    assert second.name == f"19700101-000000-{other}.md"


def test_a_file_that_somebody_wrote_into_is_neither_replaced_nor_believed(tmp_path: Path) -> None:
    taken = [message_path(str(tmp_path), "luna", ID, 0)]
    taken.append(taken[0].with_name(f"19700101-000000-{ID}.md"))
    taken[0].parent.mkdir(parents=True)
    for path in taken:
        path.write_text("mine")

    with pytest.raises(FileExistsError):
        write_message(str(tmp_path), "luna", ID, 0, "theirs")

    assert [path.read_text() for path in taken] == ["mine", "mine"]
    assert len(list(taken[0].parent.iterdir())) == 2


def test_a_file_is_found_again_also_where_ids_end_alike(tmp_path: Path) -> None:
    other, home = f"01K1{ID[4:]}", str(tmp_path)
    before = find_message(home, "luna", ID, 0, "one")
    paths = [str(write_message(home, "luna", *each)) for each in ((ID, 0, "one"), (other, 0, "two"))]

    found = [find_message(home, "luna", *each) for each in ((ID, 0, "one"), (other, 0, "two"))]

    assert before == ""
    assert found == paths
    assert find_message(home, "luna", ID, 0, "what somebody else wrote") == ""
    assert find_message(home, "nova", ID, 0, "one") == ""
