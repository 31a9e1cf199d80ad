"""`pal doctor`: find the harnesses of this machine, test them, and show the findings."""
