"""The native integration of OpenCode: its server, its sessions, and the delivery of messages into them."""
