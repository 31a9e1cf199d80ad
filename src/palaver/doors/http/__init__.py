"""The HTTP door: off until it is asked for, for this machine unless told otherwise, never without a token."""
