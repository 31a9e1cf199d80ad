"""Export a log, import it into an empty one, and compare: `python bench/import_export.py --dir FOLDER`.

Prints the durations. Fails if an event of the second log differs from the first in anything but its number.
"""

import argparse
import json
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # The first entry of the path is the folder of this file; the imports need the root of the repository.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.home import OTHERS, SENDER
from bench.palaver_home import PalaverHome
from tests.daemon.stage import Home, check_output, run_script_as_person

_ROOT = Path(__file__).resolve().parents[1]
_LIMIT_S = 600.0


def main() -> int:
    """Fill a home, export it, import it, export that, and compare."""
    parser = argparse.ArgumentParser(prog="bench/import_export.py", description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="a new folder, with a short name")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--pal", type=Path, default=_ROOT / ".venv" / "bin" / "pal")
    asked = parser.parse_args()
    asked.dir.mkdir()
    first, second = (PalaverHome(new_folder(asked.dir / name), asked.pal) for name in ("a", "b"))
    try:
        for name in (*OTHERS, SENDER):
            first.seat(name).close()
        first.fill(asked.events)
        old, new = Home(first.home), Home(second.home)
        exported, imported = asked.dir / "first.jsonl", asked.dir / "second.jsonl"
        as_person(old, f"pal export --no-redact > {exported}")
        as_person(new, f"pal import {exported}")
        as_person(new, f"pal import {exported}")
        as_person(new, f"pal export --no-redact > {imported}")
        count = compare(exported, imported)
    finally:
        first.close()
        second.close()
    print(f"{count} events are equal")
    return 0


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def as_person(stage: Home, script: str) -> None:
    """Run a command at a terminal, as only a person can import, and print how long it took."""
    stage.limit_s = _LIMIT_S
    began = time.monotonic()
    done = check_output(run_script_as_person(stage, script))
    print(f"{time.monotonic() - began:6.1f} s  {script.split(' >')[0]}  {done.out.strip()}", flush=True)


def compare(exported: Path, imported: Path) -> int:
    """Return how many events of an export are in another one, in the same order. Raise if one is not."""
    with exported.open() as first, imported.open() as second:
        wanted = [without_seq(line) for line in first]
        devices = {json.loads(wanted[0])["device"]}
        found = [line for line in map(without_seq, second) if json.loads(line)["device"] in devices]
    if wanted != found:
        raise RuntimeError(f"{len(wanted)} events were exported, and {len(found)} others were imported")
    return len(found)


def without_seq(line: str) -> str:
    event = json.loads(line)
    del event["seq"]
    return json.dumps(event)


if __name__ == "__main__":
    raise SystemExit(main())
