"""`pal ui`: the dashboard of a person, drawn with Textual. No other command imports it."""
