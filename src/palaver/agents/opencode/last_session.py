"""Which session OpenCode would go on with, as its own database tells it. Reads only.

Apart from all that a holder needs: a database costs memory that every holder would have to have.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from urllib.parse import quote

_BUSY_S: Final = 1.0


def last_opencode_session(environment: Mapping[str, str], cwd: str) -> str:
    """Give the session that OpenCode would go on with in a folder, empty when there is none."""
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
