"""Message files: their names, their permissions, and that they are complete."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.home import find_message, message_path, write_message
from palaver.protocol.agent_text import format_message_file, parse_message_file

ID = "01K0ABCDEFGHJKMNPQRSTVWXYZ"
ULIDS = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26)


def write(home: str, agent: str, message_id: str, ts_ms: int, text: str) -> Path:
    return write_message(home, agent, message_id, ts_ms, format_message_file(text))


def find(home: str, agent: str, message_id: str, ts_ms: int, text: str) -> str:
    return find_message(home, agent, message_id, ts_ms, format_message_file(text))


def test_file_is_named_after_its_time_and_the_end_of_its_id() -> None:
    path = message_path("/h", "api-luna", "01K0ABCDEFGHJKMNPQRSTVWXYZ", 1_763_200_000_123)

    assert str(path) == "/h/messages/api-luna/20251115-094640-RSTVWXYZ.md"


@given(ULIDS, st.integers(0, 4_000_000_000_000))
def test_file_name_is_a_single_path_component(message_id: str, ts_ms: int) -> None:
    path = message_path("/h", "luna", message_id, ts_ms)

    assert path.parent == Path("/h/messages/luna")
    assert path.name.endswith(f"-{message_id[-8:]}.md")


def test_message_file_is_private_and_rewriting_it_changes_nothing(tmp_path: Path) -> None:
    path = write(str(tmp_path), "luna", ID, 0, "one\r\ntwo")
    again = write(str(tmp_path), "luna", ID, 0, "one\r\ntwo")

    assert path == again == message_path(str(tmp_path), "luna", ID, 0)
    assert path.read_bytes() == b"one\r\ntwo\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_text_with_a_final_newline_gets_no_second_one(tmp_path: Path) -> None:
    path = write(str(tmp_path), "luna", ID, 0, "one\n")

    assert path.read_bytes() == b"one\n"


def test_ids_with_the_same_ending_get_separate_files(tmp_path: Path) -> None:
    other = f"01K1{ID[4:]}"
    first = write(str(tmp_path), "luna", ID, 0, "from the person")
    second = write(str(tmp_path), "luna", other, 0, "from a stranger")

    assert write(str(tmp_path), "luna", other, 0, "from a stranger") == second
    assert write(str(tmp_path), "luna", ID, 0, "from the person") == first
    assert first.read_text() == "from the person\n"
    assert second.read_text() == "from a stranger\n"
    assert second.name == f"19700101-000000-{other}.md"


def test_file_with_foreign_content_is_neither_replaced_nor_trusted(tmp_path: Path) -> None:
    taken = [message_path(str(tmp_path), "luna", ID, 0)]
    taken.append(taken[0].with_name(f"19700101-000000-{ID}.md"))
    taken[0].parent.mkdir(parents=True)
    for path in taken:
        path.write_text("mine")

    with pytest.raises(FileExistsError):
        write(str(tmp_path), "luna", ID, 0, "theirs")

    assert [path.read_text() for path in taken] == ["mine", "mine"]
    assert len(list(taken[0].parent.iterdir())) == 2


def test_file_is_found_even_if_ids_have_the_same_ending(tmp_path: Path) -> None:
    other, home = f"01K1{ID[4:]}", str(tmp_path)
    before = find(home, "luna", ID, 0, "one")
    paths = [str(write(home, "luna", *each)) for each in ((ID, 0, "one"), (other, 0, "two"))]

    found = [find(home, "luna", *each) for each in ((ID, 0, "one"), (other, 0, "two"))]

    assert before == ""
    assert found == paths
    assert find(home, "luna", ID, 0, "what somebody else wrote") == ""
    assert find(home, "nova", ID, 0, "one") == ""


@given(st.text(st.characters(codec="utf-8")))
def test_text_of_a_message_file_round_trips(text: str) -> None:
    assert parse_message_file(format_message_file(text)) == text.removesuffix("\n")
