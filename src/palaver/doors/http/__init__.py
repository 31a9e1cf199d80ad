"""The HTTP door: off by default, only for this machine unless set otherwise, and never without a token."""
