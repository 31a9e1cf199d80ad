"""The read model: the fold of events into rows, and the queries on them. Pure."""
