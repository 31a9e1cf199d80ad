"""Write docs/cli.md and docs/pal.1 from the table of commands: `make docs`."""

from pathlib import Path

from palaver.doors.cli.help import render_manual, render_page
from palaver.doors.cli.run import TABLE


def main() -> None:
    """Write the pages."""
    docs = Path(__file__).resolve().parent.parent / "docs"
    (docs / "cli.md").write_text(render_page(TABLE), encoding="utf-8")
    (docs / "pal.1").write_text(render_manual(TABLE), encoding="utf-8")


if __name__ == "__main__":
    main()
