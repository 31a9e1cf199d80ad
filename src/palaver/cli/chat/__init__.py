"""`pal chat`: a person's conversation in a room, in the client's own process."""
