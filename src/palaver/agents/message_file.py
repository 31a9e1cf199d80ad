"""Each message that is typed also lies in a file: messages/<agent>/<YYYYMMDD-HHMMSS>-<id8>.md in the home.

The file is for its agent alone, and there before the first key is pressed. Nobody tidies up here.
"""

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_ID_END: Final = 8
_FOLDER_MODE: Final = 0o700


def message_path(home: str, agent: str, message_id: str, ts_ms: int) -> Path:
    """Give the place of a message's file: the moment it was sent, in UTC, and the end of its id."""
    moment = datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return Path(home) / "messages" / agent / f"{moment}-{message_id[-_ID_END:]}.md"


def write_message(path: Path, text: str) -> None:
    """Write a message, whole or not at all; written again, it is the same. Raises OSError."""
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")  # for its owner alone, by itself
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:  # noqa: PTH123 - a descriptor
            file.write(text if text.endswith("\n") else f"{text}\n")
        Path(name).replace(path)
    except BaseException:
        os.unlink(name)  # noqa: PTH108 - the name is what mkstemp gave
        raise


def read_message(path: str) -> str:
    """Give what a message said; nothing when it has no file any more."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").removesuffix("\n") if path else ""
    except OSError:
        return ""
