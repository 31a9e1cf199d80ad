"""Who is at the door: processes, seats, identity, and the way back. Takes no part in what is asked."""
