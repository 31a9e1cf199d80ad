"""Deliver messages to agents: mailboxes and their readers, lanes, expiry.

Reads the log; the broker writes.
"""
