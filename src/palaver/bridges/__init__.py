"""Bridges to other chats: ordinary clients of the bus, each in a process of its own."""
