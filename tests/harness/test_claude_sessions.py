"""Finding the last conversation."""

from palaver.harness.claude.launch import newest_session, newest_sessions, sessions_folder

FIRST = "1f3d72b3-15cc-4f80-9cb4-c8d75e9b7d6b"
SECOND = "517e958f-77e9-4195-b7b6-abe007bbc6c9"


def test_session_folder_is_named_after_the_directory() -> None:
    assert sessions_folder({"HOME": "/home/pat"}, "/tmp/c1/a.b") == "/home/pat/.claude/projects/-tmp-c1-a-b"
    assert sessions_folder({"CLAUDE_CONFIG_DIR": "/c"}, "/x") == "/c/projects/-x"


def test_newest_file_is_the_last_conversation() -> None:
    files = [(f"{FIRST}.jsonl", 10.0), (f"{SECOND}.jsonl", 5.0), ("notes.jsonl", 20.0)]

    assert newest_session(files) == FIRST
    assert newest_session([]) == ""
    assert newest_sessions(files, 2) == (FIRST, SECOND)
    assert newest_sessions(files, 1) == (FIRST,)
