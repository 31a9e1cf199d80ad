"""The only writer: checks and decides every request, and writes its event. Delivers nothing."""
