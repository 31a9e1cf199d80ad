"""Resolve recipients: the directory, paths, recipients and policy. Pure."""
