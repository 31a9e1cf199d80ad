"""Who is told what happens: request watches and subscriptions. Reads the log, asks the broker to write."""
