"""The door for command lines: the commands of `pal`, their parser, and their output."""
