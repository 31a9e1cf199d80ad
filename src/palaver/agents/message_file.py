"""Each message to an agent in a terminal also lies in a file: messages/<agent>/<YYYYMMDD-HHMMSS>-<id8>.md.

The file is for its agent alone, and there before the first key is pressed: the daemon writes it when the
message is queued, and the holder once more should it be missing. Nobody tidies up here.
"""

import errno
import glob
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from palaver.model.forms import escape_body, unescape_body

_ID_END: Final = 8
_MOMENT: Final = "????????-??????"
_FOLDER_MODE: Final = 0o700


def message_path(home: str, agent: str, message_id: str, ts_ms: int) -> Path:
    """Give the place of a message's file: the moment it was sent, in UTC, and the end of its id."""
    moment = datetime.fromtimestamp(ts_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return Path(home) / "messages" / agent / f"{moment}-{message_id[-_ID_END:]}.md"


def write_message(home: str, agent: str, message_id: str, ts_ms: int, text: str) -> Path:
    """Write a message, whole or not at all, and give its place; written twice, it is the same.

    No message takes the file of another: senders may choose ids, and where the ends of two are alike the
    second one's file is named for the whole of its id. Raises OSError.
    """
    whole = _whole(text)
    for path in _places(home, agent, message_id, ts_ms):
        if _put(path, whole):
            return path
    raise FileExistsError(errno.EEXIST, "something else has its name", str(path))


def find_message(home: str, agent: str, message_id: str, ts_ms: int, text: str) -> str:
    """Give the place of a message's file; empty while there is none, and where a file says something else."""
    for path in _places(home, agent, message_id, ts_ms):
        try:
            if path.read_bytes() == _whole(text):
                return str(path)
        except OSError:
            continue
    return ""


def remove_message(home: str, message_id: str) -> int:
    """Remove the files of a message, whoever they are for; return how many there were."""
    count = 0
    for end in {message_id[-_ID_END:], message_id}:
        for path in (Path(home) / "messages").glob(f"*/{_MOMENT}-{glob.escape(end)}.md"):
            path.unlink(missing_ok=True)
            count += 1
    return count


def _places(home: str, agent: str, message_id: str, ts_ms: int) -> tuple[Path, Path]:
    """Give where a message's file can lie: by the end of its id, else by the whole of it."""
    path = message_path(home, agent, message_id, ts_ms)
    return path, path.with_stem(path.stem.removesuffix(message_id[-_ID_END:]) + message_id)


def _whole(text: str) -> bytes:
    """Return the content of a message's file, escaped: its agent reads it."""
    text = escape_body(text)
    return (text if text.endswith("\n") else f"{text}\n").encode(errors="replace")


def _put(path: Path, whole: bytes) -> bool:
    """Put a file there unless there is one; tell whether what is there now is this."""
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if path.exists():
        return path.read_bytes() == whole
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")  # for its owner alone, by itself
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(whole)
        os.link(name, path)  # where a rename would replace what another has just put there
    except FileExistsError:
        return path.read_bytes() == whole
    finally:
        os.unlink(name)  # noqa: PTH108 - the name is what mkstemp gave
    return True


def read_message(path: str) -> str:
    """Give what a message said; nothing when it has no file any more."""
    try:
        written = Path(path).read_text(encoding="utf-8", errors="replace").removesuffix("\n") if path else ""
    except OSError:
        return ""
    return unescape_body(written)
