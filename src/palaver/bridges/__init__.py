"""Bridges to other chats: ordinary clients of the bus, each in its own process."""
