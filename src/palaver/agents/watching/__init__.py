"""The viewers of an agent's terminal: frames to and from them, and which viewer has the keyboard."""
