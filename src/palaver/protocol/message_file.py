"""The file of each message to an agent in a terminal: messages/<agent>/<YYYYMMDD-HHMMSS>-<id8>.md.

Only its owner can read the file. It exists before the first key is pressed: the daemon writes it when the
message is queued, and the holder writes it if it is missing. This module removes nothing unasked.
"""

import errno
import glob
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from palaver.protocol.agent_text import escape_body, unescape_body

_ID_END: Final = 8
_MOMENT: Final = "????????-??????"
_FOLDER_MODE: Final = 0o700


def message_path(home: str, agent: str, message_id: str, ts_ms: int) -> Path:
    """Return the default path of a message's file: the time it was sent, in UTC, and the end of its id."""
    moment = datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return Path(home) / "messages" / agent / f"{moment}-{message_id[-_ID_END:]}.md"


def write_message(home: str, agent: str, message_id: str, ts_ms: int, text: str) -> Path:
    """Write the file of a message atomically and return its path. Repeats have no effect.

    A message never takes the file of another one: senders may choose ids, and if the ends of two ids are
    equal, the second file is named after the whole id. Raises OSError.
    """
    whole = _whole(text)
    for path in _places(home, agent, message_id, ts_ms):
        if _put(path, whole):
            return path
    raise FileExistsError(errno.EEXIST, "something else has its name", str(path))


def find_message(home: str, agent: str, message_id: str, ts_ms: int, text: str) -> str:
    """Return the path of a message's file; empty if there is no file with exactly this text."""
    for path in _places(home, agent, message_id, ts_ms):
        try:
            if path.read_bytes() == _whole(text):
                return str(path)
        except OSError:
            continue
    return ""


def remove_message(home: str, message_id: str) -> int:
    """Remove the files of a message for all recipients; return how many there were."""
    count = 0
    for end in {message_id[-_ID_END:], message_id}:
        for path in (Path(home) / "messages").glob(f"*/{_MOMENT}-{glob.escape(end)}.md"):
            path.unlink(missing_ok=True)
            count += 1
    return count


def _places(home: str, agent: str, message_id: str, ts_ms: int) -> tuple[Path, Path]:
    """Return the possible paths of a message's file: named after the end of its id, or after the whole id."""
    path = message_path(home, agent, message_id, ts_ms)
    return path, path.with_stem(path.stem.removesuffix(message_id[-_ID_END:]) + message_id)


def _whole(text: str) -> bytes:
    """Return the content of a message's file. It is escaped, because an agent reads it."""
    text = escape_body(text)
    return (text if text.endswith("\n") else f"{text}\n").encode(errors="replace")


def _put(path: Path, whole: bytes) -> bool:
    """Create a file unless it exists; return whether the file now has this content."""
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if path.exists():
        return path.read_bytes() == whole
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")  # mkstemp gives it mode 0600.
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(whole)
        os.link(name, path)  # A rename would replace the file of another writer.
    except FileExistsError:
        return path.read_bytes() == whole
    finally:
        os.unlink(name)  # noqa: PTH108 - mkstemp returns a string
    return True


def read_message(path: str) -> str:
    """Return the text of a message; empty if its file does not exist."""
    try:
        written = Path(path).read_text(encoding="utf-8", errors="replace").removesuffix("\n") if path else ""
    except OSError:
        return ""
    return unescape_body(written)
