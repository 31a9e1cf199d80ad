"""What Palaver knows of each harness: its marks, its words. Pure."""
