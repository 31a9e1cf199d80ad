"""Protocol endpoints. A door turns bytes into requests and replies on its own wire; it decides nothing."""
