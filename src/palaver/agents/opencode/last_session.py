"""Find the session that OpenCode would resume, in its own database. Reads only.

This is a separate module because SQLite costs memory, and no holder should load it.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from urllib.parse import quote

_BUSY_S: Final = 1.0


def last_opencode_session(environment: Mapping[str, str], cwd: str) -> str:
    """Return the session that OpenCode would resume in a directory; empty if there is no session."""
    data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
    path = environment.get("OPENCODE_DB") or f"{data}/opencode/opencode.db"
    question = (
        "SELECT id FROM session WHERE directory = ? AND parent_id IS NULL AND time_archived IS NULL "
        "ORDER BY time_updated DESC LIMIT 1"
    )
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_BUSY_S)) as database:
            found = database.execute(question, (os.path.realpath(cwd),)).fetchone()
    except sqlite3.Error:
        return ""
    return str(found[0]) if found else ""
