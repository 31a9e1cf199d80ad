"""Every command of the table has a handler, and every handler is in the table."""

from palaver.doors.cli.run import COMMANDS, HANDLERS


def test_handlers_match_the_command_table() -> None:
    # Help has no effect and never reaches a handler.
    commands = {command.path for command in COMMANDS if not command.is_group} - {("help",)}

    assert set(HANDLERS) == commands
