"""The page in the browser: static files, and the requests of a person who is signed in."""
