"""What every outsider uses: reaching the daemon, and speaking to it from Python."""
