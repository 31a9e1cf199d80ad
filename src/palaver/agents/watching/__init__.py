"""Those who watch an agent's terminal: frames to them and from them, and who has the keyboard."""
