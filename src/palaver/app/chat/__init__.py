"""`pal chat`: the conversation of one room, for a person at a terminal."""
