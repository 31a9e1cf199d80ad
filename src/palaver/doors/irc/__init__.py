"""The IRC door: off by default, only for this machine unless a person sets otherwise, and for IRC clients."""
