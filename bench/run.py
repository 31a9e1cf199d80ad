"""The door of the benchmarks: `python bench/run.py`. Holds nothing but the way to `bench.suite`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The folder of this file stands first on the path; the root of the repository must, for `import bench`.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

    from bench.suite import main

    raise SystemExit(main(sys.argv[1:]))
