"""Who calls: processes, seats, presence, workspaces and tokens."""
