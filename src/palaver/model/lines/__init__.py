"""What can be asked of the daemon on lines of JSON: those who ask and the door that reads import the same."""
