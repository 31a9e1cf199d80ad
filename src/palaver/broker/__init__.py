"""The only writer: every request is checked and decided here, and its event is written from here."""
