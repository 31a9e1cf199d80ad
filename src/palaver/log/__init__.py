"""The log: every event with its seq, and the rows folded from the events. It decides nothing."""
