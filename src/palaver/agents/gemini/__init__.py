"""What Gemini CLI is started in: a home made of links. It has no way in of its own, so no lane is here."""
