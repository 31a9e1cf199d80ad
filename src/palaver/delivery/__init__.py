"""How mail reaches an agent: the queue, the takers, the lanes, the clock. Reads the log, asks the broker to write."""
