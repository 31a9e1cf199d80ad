"""The time limit of every wait in the tests. It is not a pause: a wait ends as soon as its condition is true.

The limit is far above the normal duration, because the machine may be busy. It measures nothing: no test
asserts a speed.
"""

from typing import Final

LIMIT_S: Final = 30.0
