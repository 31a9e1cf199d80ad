"""Write docs/cli.md from the table of commands: `make docs`."""

from pathlib import Path

from palaver.doors.cli.help import render_page
from palaver.doors.cli.run import TABLE


def main() -> None:
    """Write the page."""
    page = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
    page.write_text(render_page(TABLE), encoding="utf-8")


if __name__ == "__main__":
    main()
