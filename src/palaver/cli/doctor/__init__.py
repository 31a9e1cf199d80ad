"""`pal doctor` in the client's own process: the daemon starts no harness, so they are tested here."""
