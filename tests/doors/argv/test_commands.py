"""Every command of the table is done by somebody, and nobody does what is not in it."""

from palaver.doors.argv.commands import HANDLERS
from palaver.doors.argv.table import COMMANDS


def test_the_handlers_are_those_of_the_table() -> None:
    # Help never reaches a handler: it has no effect.
    commands = {command.path for command in COMMANDS if not command.is_group} - {("help",)}

    assert set(HANDLERS) == commands
