"""`pal config edit`, in the client's own process: a person's editor on the file of settings. Asks nothing."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from palaver.config import DEFAULTS, FILE_NAME, KEYS, MEANINGS, load_settings
from palaver.errors import PalaverError
from palaver.model.setting import check_settings, format_value

_HEAD: Final = """\
# The settings of Palaver, each with its default. Take the # away to change one.
# The bus reads this file when it starts.
"""


def edit_settings(home: Path, environment: Mapping[str, str]) -> int:
    """Open the file, wait for the editor, and say what is wrong with what it left. Gives the exit status."""
    path = home / FILE_NAME
    editor = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    try:
        before = _content(path)
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
        after = path.read_bytes()
    except (OSError, ValueError) as error:
        return _complain(f"{editor}: {error}")
    if status:
        return _complain(f"{editor} ended with status {status}; {path} is as it left it")
    try:
        check_settings(load_settings(home, {}))
    except PalaverError as error:
        return _complain(f"{error}\nthe bus will not start like this; 'pal config edit' opens it again")
    is_same = after == before
    word = "nothing was changed" if is_same else "takes effect when the bus starts again: pal down, pal up"
    sys.stdout.write(f"{word}\n")
    return 0


def _content(path: Path) -> bytes:
    """Give what the file holds; where there is none, make one that says what could be set."""
    if not path.exists():
        lines = (f"\n# {MEANINGS[key]}\n# {key} = {format_value(DEFAULTS[key])}\n" for key in KEYS)
        with open(path, "x", encoding="utf-8", opener=_private) as file:
            file.write(_HEAD + "".join(lines))
    return path.read_bytes()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _complain(sentence: str) -> int:
    for line in sentence.splitlines():
        sys.stderr.write(f"pal: {line}\n")
    return 1
