"""`make compat`: test the harnesses on the PATH and record the results, as data and as a page.

Results of other versions are kept.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from palaver.app.doctor import PROGRAMS, PROVEN_FILE, Tried, look_at, page_of, proven, try_out


def with_tried(known: Sequence[Tried], new: Sequence[Tried]) -> list[Tried]:
    """Replace old results of the same version by new ones; sorted by harness, then by version."""
    kept = {(one.harness, one.version): one for one in (*known, *new)}
    return sorted(kept.values(), key=lambda one: (PROGRAMS.index(one.harness), one.version))


def main(words: Sequence[str]) -> int:
    """Test the named harnesses, or all; write to the project folder, which is the last argument."""
    *wanted, folder = words
    new = []
    for name in wanted or PROGRAMS:
        path = shutil.which(name)
        if path is None:
            sys.stderr.write(f"{name} is not on the PATH, and was NOT TRIED\n")
            continue
        found = look_at(name, path, os.environ)
        today = datetime.now(UTC).date().isoformat()
        tried = try_out(name, path, found.version, os.environ, today)
        sys.stdout.write(f"{name} {found.version}: {dict(tried.results)} {dict(tried.lanes)}\n")
        sys.stdout.flush()
        new.append(tried)
    everything = with_tried(proven(), new)
    data = msgspec.json.format(msgspec.json.encode(everything), indent=2) + b"\n"
    (Path(folder) / "src/palaver/app" / PROVEN_FILE).write_bytes(data)
    (Path(folder) / "docs/compatibility.md").write_text(page_of(everything))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
