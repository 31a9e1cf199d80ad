"""Every command of the table has a handler, and every handler is in the table."""

from palaver.doors.argv.commands import HANDLERS
from palaver.doors.argv.table import COMMANDS


def test_handlers_match_the_command_table() -> None:
    # Help has no effect and never reaches a handler.
    commands = {command.path for command in COMMANDS if not command.is_group} - {("help",)}

    assert set(HANDLERS) == commands
