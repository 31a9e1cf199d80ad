"""Deliver messages to agents: queue, mailbox readers, lanes, expiry. Reads the log; the broker writes."""
