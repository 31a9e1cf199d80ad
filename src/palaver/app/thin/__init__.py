"""The thin client in Python. The C client in native/ does the same; one test suite runs both."""
