"""The process that owns one agent in a terminal, or one native lane."""
