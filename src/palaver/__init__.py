"""One message bus for coding agents and the people who work with them.

What this module lists is what outsiders may use; everything else may change without notice.
"""

__version__ = "0.1.0"
