"""The time limit of every wait in the tests. It is not a pause: a wait ends as soon as its condition is true.

The limit is far above the normal duration, because several workers run tests at the same time, on a machine
that may be busy with other work too. It measures nothing: no test asserts a speed.
"""

from typing import Final

LIMIT_S: Final = 60.0
