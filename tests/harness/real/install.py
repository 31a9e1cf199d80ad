"""The harnesses themselves, in the versions they were tried with, in a cache outside the project."""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

PINNED = {
    "claude": ("@anthropic-ai/claude-code", "2.1.325", "claude"),
    "codex": ("@openai/codex", "0.166.0", "codex"),
    "opencode": ("opencode-ai", "1.18.33", "opencode"),
    "gemini": ("@google/gemini-cli", "0.61.0", "gemini"),
}
"""For each harness its package, its version and its program."""
LIMIT_S = 300


def cache_folder() -> Path:
    """Where they are kept between runs."""
    given = os.environ.get("PALAVER_HARNESS_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "palaver-harness"


@cache
def installed(harness: str) -> Path:
    """Give the program of a harness, installing it first; skips, and says why, when that cannot be done."""
    package, version, program = PINNED[harness]
    folder = cache_folder() / f"{harness}-{version}"
    path = folder / "node_modules" / ".bin" / program
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--no-fund",
            "--no-audit",
            "--prefix",
            str(folder),
            f"{package}@{version}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"NOT TESTED: {package}@{version} cannot be installed: {error}")
        if not path.exists():
            said = done.stderr.strip().splitlines()
            pytest.skip(f"NOT TESTED: {package}@{version} cannot be installed: {said[-1:]}")
    return path
