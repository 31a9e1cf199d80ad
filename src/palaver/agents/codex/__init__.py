"""The native integration of Codex: its app-server, its threads, and the delivery of messages into them."""
