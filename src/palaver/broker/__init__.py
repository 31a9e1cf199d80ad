"""The one way in: every request is checked here, decided here and written from here."""
