"""The session that OpenCode would resume."""

import sqlite3
from pathlib import Path

from palaver.holder.opencode import last_opencode_session


def test_last_session_is_the_newest_root_session_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE session (id, parent_id, directory, time_updated, time_archived)")
        database.executemany(
            "INSERT INTO session VALUES (?, ?, ?, ?, ?)",
            [
                ("old", None, "/x", 1, None),
                ("new", None, "/x", 2, None),
                ("child", "new", "/x", 3, None),
                ("put away", None, "/x", 4, 4),
                ("elsewhere", None, "/y", 5, None),
            ],
        )
    database.close()
    environment = {"XDG_DATA_HOME": str(tmp_path)}

    assert last_opencode_session(environment, "/x") == "new"
    assert last_opencode_session(environment, "/z") == ""
    assert last_opencode_session({"HOME": str(tmp_path)}, "/x") == ""
