"""Entry point of the benchmarks: `python bench/run.py`. It only calls `bench.suite`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The first entry of the path is the folder of this file; `import bench` needs the root of the repository.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

    from bench.suite import main

    raise SystemExit(main(sys.argv[1:]))
