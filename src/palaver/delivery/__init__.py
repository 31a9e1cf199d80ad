"""How mail reaches an agent: queue, takers, lanes, expiry. Reads the log and asks the broker to write."""
