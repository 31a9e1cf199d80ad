"""Who it is for: the directory, paths, recipients and policy. Pure."""
