"""The command line: which commands there are, how they are read, and the texts people see."""
