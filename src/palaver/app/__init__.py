"""Code that runs in the user's own process: the thin client, attach, chat, install, doctor, transcript."""
